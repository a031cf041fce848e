"""Which values a model had when it was last saved or loaded: version counters, no copies, so that asking is cheap."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from hybrid_lab.gluon import access

if TYPE_CHECKING:
    from hybrid_lab.gluon.block import Block
    from hybrid_lab.gluon.parameter import Parameter

How = Literal["saved", "loaded"]


@dataclass(frozen=True)
class Versions:
    """The memory of one parameter's arrays, and the version of each."""

    buffers: tuple[weakref.ref[Any], ...]
    numbers: tuple[int, ...]

    @staticmethod
    def of(parameter: Parameter) -> Versions:
        """The versions that a parameter has now."""
        buffers = [array.buffer for array in access.arrays(parameter) or ()]
        return Versions(tuple(map(weakref.ref, buffers)), tuple(buffer.version for buffer in buffers))

    @property
    def may_change_unnoticed(self) -> bool:
        """Whether other programs have the memory, and may have written to it."""
        return any(buffer.exported for reference in self.buffers if (buffer := reference()) is not None)


@dataclass(frozen=True)
class Change:
    """The changes since a file was written or read. Written values count as changed, whether they differ or not.

    changed : parameters that were written, added or removed; unsure : parameters whose memory other programs share
    total : all parameters; structure : Blocks or parameters were added or removed
    written : the parameters among `changed` that were there before, by their paths
    """

    changed: int
    unsure: int
    total: int
    structure: bool
    written: dict[str, Parameter]


@dataclass(frozen=True)
class FileState:
    """path : of the archive; how : `saved` or `loaded`; when : seconds since 1970
    blocks : the Blocks of the model by their paths; versions : of each parameter, by its path
    """

    path: str
    how: How
    when: float
    blocks: dict[str, weakref.ref[Block]]
    versions: dict[str, Versions]

    def change(self, net: Block) -> Change:
        """The changes of the model since then."""
        now = _parameters(net)
        changed = unsure = 0
        written: dict[str, Parameter] = {}
        for path, parameter in now.items():
            versions = Versions.of(parameter)
            if versions != self.versions.get(path):
                changed += 1
                if path in self.versions:
                    written[path] = parameter
            elif versions.may_change_unnoticed:
                unsure += 1
        changed += len(self.versions.keys() - now.keys())
        blocks = _blocks(net)
        # Not by the version of the structure, which also grows when code changes and graphs are dropped.
        same = blocks.keys() == self.blocks.keys() and now.keys() == self.versions.keys()
        same = same and all(self.blocks[path]() is block for path, block in blocks.items())
        return Change(changed, unsure, len(now), not same, written)


def _blocks(net: Block) -> dict[str, Block]:
    """The Blocks of a model, each once, by its path."""
    found: dict[str, Block] = {}
    seen: set[int] = set()
    waiting = [("", net)]
    while waiting:
        path, block = waiting.pop()
        if id(block) not in seen:
            seen.add(id(block))
            found[path] = block
            waiting += [(f"{path}.{name}", child) for name, child in access.children(block).items()]
    return found


def _parameters(net: Block) -> dict[str, Parameter]:
    """The parameters of a model, each once, by its first path."""
    found: dict[int, tuple[str, Parameter]] = {}
    for path, parameter in access.parameters_by_path(net).items():
        found.setdefault(id(parameter), (path, parameter))
    return dict(found.values())


#: id of a model -> the model, and its last file. Not by Blocks: their classes may define __eq__ and no __hash__.
_last: dict[int, tuple[weakref.ref[Block], FileState]] = {}


save_listeners: list[Callable[[Block, str], None]] = []
"""Called with a model and the absolute path of the archive that it was just saved to, in the thread that saved it."""


def state_with(net: Block, path: str, how: How) -> FileState:
    """The state of a model whose values now equal the file's."""
    versions = {name: Versions.of(item) for name, item in _parameters(net).items()}
    blocks = {name: weakref.ref(block) for name, block in _blocks(net).items()}
    return FileState(path, how, time.time(), blocks, versions)


def note_file(net: Block, path: str, how: How) -> None:
    """Note that the model's values now equal the file's."""
    key, state = id(net), state_with(net, path, how)
    _last[key] = weakref.ref(net, lambda _: _last.pop(key, None)), state
    for listener in save_listeners if how == "saved" else ():
        listener(net, path)


def forget_file(net: Block) -> None:
    """The file that the model was last saved to no longer has the saved content."""
    if last_file(net) is not None:
        del _last[id(net)]


def last_file(net: Block) -> FileState | None:
    """The file that the model was last saved to or loaded from, as a whole; None if there was none."""
    reference, state = _last.get(id(net), (None, None))
    return state if reference is not None and reference() is net else None
