"""The models that are alive in the kernel: top-level Blocks of the user's namespace, held by weak references."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from typing import Any

from hybrid_lab.gluon.block import Block
from hybrid_lab.gluon.hybrid import HybridBlock
from hybrid_lab.insight.states import walk
from hybrid_lab.lab.errors import RequestError
from hybrid_lab.lab.tree import count_parameters


class Entry:
    """One model. token and before belong to the last reload (see actions)."""

    def __init__(self, identity: str, block: Block, name: str):
        self.id = identity
        self.reference = weakref.ref(block)
        self.name = name
        self.revision = 0
        self.fingerprint: Any = None
        self.undo_token = ""
        self.undo: Callable[[], str] | None = None
        self.findings: list[Any] | None = None
        self.findings_for: Any = None
        self.file = ""

    @property
    def block(self) -> Block:
        block = self.reference()
        if block is None:
            raise RequestError("unknown-model", f"the model {self.name!r} is gone: its variable was deleted or assigned anew")
        return block


class Registry:
    """Finds models in a namespace and keeps their ids stable."""

    def __init__(self, namespace: Callable[[], dict[str, Any]]):
        self._namespace = namespace
        self._entries: dict[str, Entry] = {}
        self._numbers = itertools.count(1)
        self._pinned: list[Block] = []

    def refresh(self) -> list[Entry]:
        """The models of now, in the order in which they appeared; ids of known Blocks stay."""
        named: dict[int, tuple[str, Block]] = {}
        for name, item in list(self._namespace().items()):
            if isinstance(item, Block) and not name.startswith("_"):
                named.setdefault(id(item), (name, item))
        inner: set[int] = set()
        for _, block in named.values():
            inner.update(id(found) for path, _, found, _ in walk(block) if path)
        tops = {key: pair for key, pair in named.items() if key not in inner}
        known = {}
        for entry in self._entries.values():
            block = entry.reference()
            if block is not None:
                known[id(block)] = entry
        entries: dict[str, Entry] = {}
        for entry in known.values():
            block = entry.reference()
            if id(block) in tops:
                entry.name = tops[id(block)][0]
                entries[entry.id] = entry
            elif getattr(entry, "shown", False):
                entries[entry.id] = entry  # a view of it is open
        for key, (name, block) in tops.items():
            if key not in known:
                made = Entry(f"m{next(self._numbers)}", block, name)
                entries[made.id] = made
        self._entries = entries
        for entry in entries.values():
            found = fingerprint(entry.block)
            if found != entry.fingerprint:
                entry.fingerprint, entry.revision = found, entry.revision + 1
        return list(entries.values())

    def show(self, block: Block, name: str | None = None) -> Entry:
        """The entry of a Block that a view shows, whether it is bound to a variable or not."""
        self.refresh()
        for entry in self._entries.values():
            if entry.reference() is block:
                entry.shown = True  # type: ignore[attr-defined]
                return entry
        made = Entry(f"m{next(self._numbers)}", block, name or block.name)
        made.shown = True  # type: ignore[attr-defined]
        made.fingerprint = fingerprint(block)
        self._entries[made.id] = made
        return made

    def get(self, identity: str) -> Entry:
        """The entry with this id. Raises RequestError `unknown-model`."""
        self.refresh()
        entry = self._entries.get(identity)
        if entry is None:
            raise RequestError("unknown-model", f"there is no model {identity!r} in this kernel", "Refresh the list of models.")
        entry.block  # noqa: B018 - raises where it is gone
        return entry


def fingerprint(net: Block) -> Any:
    """Changes when the tree, the graphs or the states of a model change; weights do not count."""
    rows = []
    for path, _, block, _ in walk(net):
        row: tuple[Any, ...] = (path, id(block), len(block._reg_params), block._last_outputs)
        if isinstance(block, HybridBlock):
            cache: Any = block._graphs
            row += (block._active, len(cache.graphs()), len(cache.compilations), id(cache.failure), len(cache.pinned))
        row += tuple(parameter.partial_shape for parameter in block._reg_params.values())
        rows.append(row)
    return tuple(rows)


def model_data(entry: Entry, findings: int) -> dict[str, Any]:
    """The protocol's Model."""
    net = entry.block
    blocks = [(block, before) for _, _, block, before in walk(net) if before is None]
    hybrid = [block for block, _ in blocks if isinstance(block, HybridBlock)]
    compiled: list[Any] = [item for block in hybrid for item in block._graphs.compilations]
    operators = sum(len(block._graphs.first().graph.operators) for block in hybrid if block._graphs.programs and block._graphs.first())
    programs = [block for block in hybrid if block._graphs.programs]
    summary = ""
    if compiled:
        graphs = f"{len(programs)} graph{'s' if len(programs) != 1 else ''}"
        summary = f"{graphs}, {operators} operators, {compiled[-1].program.where}, {sum(item.seconds for item in compiled):.1f} s"
    return {
        "id": entry.id,
        "name": entry.name,
        "block": net.name,
        "class": type(net).__name__,
        "hybrid": isinstance(net, HybridBlock),
        "hybridized": any(block._active for block in hybrid),
        "blocks": len(blocks),
        "graphs": sum(len(block._graphs.graphs()) for block in hybrid),
        "findings": findings,
        "parameters": count_parameters(net),
        "engine": compiled[-1].program.engine if compiled else "",
        "file": entry.file or f"{entry.name}.hlab",
        "undo": entry.undo_token,
        "revision": entry.revision,
        "summary": summary,
    }
