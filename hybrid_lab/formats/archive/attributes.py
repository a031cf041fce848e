"""Attributes of Blocks in archives: the members of the Python object that are data, beside its children and parameters.

`net.step = 3`, a configuration, a history, a Trainer. Left out are the members that this package's own code keeps on
Blocks.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from hybrid_lab.diagnostics import ArchiveError, HybridLabError
from hybrid_lab.gluon import Block, Trainer, access
from hybrid_lab.hybridize.block import OWN
from hybrid_lab.hybridize.stale.code import ANY, attributes_of_calls, of_user, stored_on_self

from . import layout
from .report import TrainerStates
from .values import Decoder, Encoder, NotDataError, equal, holds_trainer, trainer_parts

if TYPE_CHECKING:
    from .compare import Match
    from .tree import BlockRecord, Tree

CHOICES = ("state", "file", "code")
_ABSENT = object()
_OF_PACKAGE = frozenset({
    "_arguments", "_last_change", "_last_outputs", "_modified", "_operator_hook", "archived_class", "archived_forward",
    "_calls_noted", "_reason", "_composed", "_set_aside", "forward",
})  # fmt: skip
"""Attributes that code of this package sets on a Block, outside of the Block's class."""


def of(block: Block) -> Iterator[tuple[str, object]]:
    """Names and values of a Block's own attributes, without children, parameters and this package's own attributes."""
    children, parameters = access.children(block), access.own_parameters(block)
    own = _own_names(type(block))
    for name, value in access.settings(block).items():
        if name in own or (name in children and value is children[name]):
            continue
        if name in parameters and value is parameters[name]:
            continue
        yield name, value


def _own_names(kind: type) -> frozenset[str]:
    """The attributes that this package's classes, among the bases of a Block class, set on themselves."""
    bases = [base for base in kind.__mro__ if base is not object and not of_user(base.__module__)]
    return _OF_PACKAGE.union(OWN, *map(_kept_by, bases))


@lru_cache(maxsize=1024)
def _kept_by(base: Any) -> frozenset[str]:
    """The same of one class of this package alone."""
    return stored_on_self(base) | vars(base).get("__annotations__", {}).keys()


# -- saving ------------------------------------------------------------------------------------------------------------


def describe(tree: Tree, encoder: Encoder) -> list[str]:
    """Put the attributes into the records of a tree. Returns the names of attributes that are no data:
    `features.tokenizer (Tokenizer)`.
    """
    unsaved = []
    for record, block in zip(tree.blocks, tree.live_blocks, strict=True):
        for name, value in of(block):
            try:
                record.attributes[name] = encoder.encode(value, layout.join_attribute(record.path, name))
            except NotDataError as error:
                unsaved.append(f"{error.where} ({error.kind})")
    return unsaved


# -- opening without code ----------------------------------------------------------------------------------------------


def decoded(record: BlockRecord, decoder: Decoder, path: str | None) -> dict[str, Any]:
    """The attributes of a Block in an archive. Raises ArchiveError."""
    return {name: _decode(record, name, decoder, path) for name in record.attributes}


def _decode(record: BlockRecord, name: str, decoder: Decoder, path: str | None) -> Any:
    try:
        return decoder.decode(record.attributes[name])
    except ValueError as error:
        message = f"damaged archive: the attribute {name[:60]!r} of block {record.path[:80]!r}: {error}"
        raise ArchiveError(message, path=path, member=layout.TREE) from None


def give(block: Block, values: Mapping[str, object]) -> None:
    """Give a new Block the attributes of an archive, if they replace no method, child or parameter of it."""
    settings = access.settings(block)
    for name, value in values.items():
        if _can_be_set(block, name):
            settings[name] = value


def _can_be_set(block: Block, name: str) -> bool:
    of_class = getattr(type(block), name, None)
    taken = name in access.children(block) or name in access.own_parameters(block) or name in _own_names(type(block))
    return not (taken or callable(of_class) or hasattr(of_class, "__set__"))


# -- loading into a live model -----------------------------------------------------------------------------------------


@dataclass
class Restoring:
    """The attributes of one load: attributes to set, attributes that stay, and the reasons.

    found : model path of a Block -> the file's attributes; notes : which attributes of the file differ and stay, or
        differ and were taken over though forward reads them
    """

    choice: str
    found: dict[str, dict[str, Any]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    _new: list[tuple[Block, str, Any, bool]] = field(default_factory=list)
    _with_trainers: list[tuple[str, BlockRecord, Block, str]] = field(default_factory=list)
    _before: list[tuple[Block, str, Any, bool]] = field(default_factory=list)

    def apply(self) -> None:
        """Set the attributes. `undo` takes them back."""
        for block, name, value, is_read in self._new:
            self._before.append((block, name, access.settings(block).get(name, _ABSENT), is_read))
            _set(block, name, value, is_read)

    def undo(self) -> None:
        """Give every attribute the value that it had before `apply`."""
        while self._before:
            _set(*self._before.pop())

    def finish(self, decoder: Decoder) -> None:
        """Set the attributes with Trainers, or let the model's own Trainers go on: the parameters have values now."""
        for path, record, block, name in self._with_trainers:
            data, current = record.attributes[name], access.settings(block).get(name)
            if isinstance(current, Trainer) and isinstance(data, dict) and "trainer" in data:
                parts = decoder.decode(data["trainer"])
                states = TrainerStates(parts["settings"], parts["arrays"], None, dict(decoder.parameters))
                problems = states.differences(current)
                if problems:
                    full = layout.join_attribute(path, name)
                    self.notes.append(f"attribute {full}: the model's Trainer stays as it is; {problems[0]}")
                else:
                    states.restore(current)
                continue
            with contextlib.suppress(ValueError):
                self.found[path][name] = value = decoder.decode(data)
                _set(block, name, value, False)

    def compare(self, path: str, record: BlockRecord, block: Block, decoder: Decoder, encoder: Encoder) -> None:
        """Decide for each attribute of a Block in the file. Raises ArchiveError."""
        values, cut = {}, set()
        for name in record.attributes:
            before = decoder.unresolved
            values[name] = _decode(record, name, decoder, None)
            if decoder.unresolved > before:
                cut.add(name)  # it refers to Blocks outside of the loaded part
        if values:
            self.found[path] = values
        if self.choice == "code":
            return
        read = attributes_of_calls(type(block))
        for name, value in values.items():
            if not _can_be_set(block, name) or name in cut:
                continue
            current = access.settings(block).get(name, _ABSENT)
            data = record.attributes[name]
            if holds_trainer(data):  # none that forward reads: a Trainer is in no graph
                self._with_trainers.append((path, record, block, name))
                continue
            default = getattr(type(block), name, _ABSENT) if current is _ABSENT else current
            if default is not _ABSENT and _equals(default, data, decoder, encoder):
                continue
            is_read = name in read or ANY in read
            if not is_read or self.choice == "file":
                self._new.append((block, name, value, is_read))
            if is_read:
                self._note(path, name, default, value)

    def _note(self, path: str, name: str, current: object, value: object) -> None:
        mine = "missing" if current is _ABSENT else f"{current!r:.40}"
        full = layout.join_attribute(path, name)
        if self.choice == "file":
            self.notes.append(f"attribute {full}: {mine} in the model, {value!r:.40} in the file, which was taken")
        else:
            self.notes.append(
                f"attribute {full}: {mine} in the model, {value!r:.40} in the file; the model's stays, because forward "
                "reads it (attributes='file' takes the file's)"
            )


def _set(block: Block, name: str, value: object, is_read: bool) -> None:
    settings = access.settings(block)
    if value is _ABSENT:
        settings.pop(name, None)
    else:
        settings[name] = value
    if is_read:
        access.structure_changed(block)


def _equals(value: object, data: object, decoder: Decoder, encoder: Encoder) -> bool:
    tensors: dict[str, np.ndarray] = {}
    try:
        own = Encoder(tensors, encoder.blocks, encoder.parameters).encode(value)
    except HybridLabError:
        return False
    return equal((own, tensors), (data, decoder.tensors))


def restoring(match: Match, tensors: Mapping[str, np.ndarray], choice: str, path: str | None) -> Restoring:
    """Decide which attributes of an archive a load sets. Raises ArchiveError if one is damaged.

    choice : "state" restores attributes that the model's forward does not read, "file" everything, "code" nothing
    """
    blocks: dict[int, Block] = {}
    for _, record, block in match.blocks:
        blocks.setdefault(record.id, block)
    decoder = Decoder(tensors, blocks, match.parameters, trainer_parts)
    encoder = Encoder({}, {id(block): number for number, block in blocks.items()}, match.ids)
    found = Restoring(choice)
    seen: set[int] = set()
    for place, record, block in match.blocks:
        if id(block) in seen:
            continue
        seen.add(id(block))
        try:
            found.compare(place, record, block, decoder, encoder)
        except ArchiveError as error:
            raise ArchiveError(error.reason, path=path, member=layout.TREE) from None
    return found
