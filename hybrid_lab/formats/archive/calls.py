"""calls.json: the last call of each plain Block of a model, for its picture if the code is missing.

A plain Block's forward is Python code, which an archive does not hold. The record of its last call
(`gluon/call_record.py`) goes along: which Blocks and operators it called, in order, and what flowed between them. Lines
of code do not. Pictures alone use it: a load computes the same without it.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from hybrid_lab.diagnostics import ArchiveError
from hybrid_lab.gluon.call_record import ITEMS, ArraySource, Record, RecordedCall, Records, last_record
from hybrid_lab.insight.states import class_name
from hybrid_lab.ops.framework.dtypes import DTYPES, dtype_of, name_of

from .. import schema
from . import layout

if TYPE_CHECKING:
    from hybrid_lab.gluon.block import Block
    from hybrid_lab.gluon.call_record import Types

    from .tree import Tree

_MOST = 20_000
"""Calls that are written; of further ones what they called inside is left out."""
_DEPTH = 50
"""Records inside one another that are written."""
_TEXT = 2000
"""Characters of an attribute or an error."""

_Source = tuple[Annotated[int, range(-1, ITEMS)], Annotated[int, range(2**20)]]
_Types = list[tuple[tuple[schema.Size, ...], str]]


@dataclass
class ItemData:
    """One call of a Block, or of an operator in eager mode; the fields are `call_record.RecordedCall`'s.

    block : id of a Block of the model; operator : name of an operator; other : class of a deleted Block or of a Block
        outside the model; exactly one of the three is set
    gives : None if the call did not return; inside : index of an earlier record
    """

    block: int | None = None
    operator: str | None = None
    other: str | None = None
    attributes: dict[str, str] = field(default_factory=dict)
    inputs: list[_Source | None] = field(default_factory=list)
    takes: _Types = field(default_factory=list)
    gives: _Types | None = field(default_factory=list)
    training: bool = False
    recording: bool = False
    inside: int | None = None
    times: Annotated[int, range(1, 2**31)] = 1
    joined: list[list[_Source]] = field(default_factory=list)


@dataclass
class RecordData:
    """One call of a plain Block; the fields are `call_record.Record`'s."""

    items: list[ItemData]
    inputs: _Types = field(default_factory=list)
    outputs: list[_Source | None] = field(default_factory=list)
    gives: _Types = field(default_factory=list)
    flows: bool = True
    training: bool = False
    recording: bool = False
    error: str = ""
    is_whole: bool = True


@dataclass
class CallsData:
    """The member. records : each after those inside of it; last : id of a plain Block -> number of its record"""

    records: list[Any]
    last: dict[str, Annotated[int, range(2**31)]]


# -- from a live model -------------------------------------------------------------------------------------------------


def describe(tree: Tree) -> dict[str, Any] | None:
    """The member's JSON for the Blocks of a live model; None if no plain Block of it was called."""
    writer = _RecordWriter(tree)
    last = {}
    for number, block in enumerate(tree.live_blocks):
        record = last_record(block)
        if record is None or (record.error and not record.items):  # a call that failed at once shows nothing
            continue
        if (place := writer.add(record, 0)) is not None:
            last[str(number)] = place
    return {"records": writer.records, "last": last} if last else None


class _RecordWriter:
    """Numbers records: inner records first."""

    def __init__(self, tree: Tree) -> None:
        self.records: list[dict[str, Any]] = []
        self._numbers: dict[int, int] = {}
        self._ids = {id(block): number for number, block in enumerate(tree.live_blocks)}
        self._left = _MOST

    def add(self, record: Record, depth: int) -> int | None:
        """The record's number; None if it is inside of itself, too deep, or one too many."""
        number = self._numbers.get(id(record))
        if number is None:
            if len(record.items) > self._left or depth > _DEPTH:
                return None
            self._left -= len(record.items)
            self._numbers[id(record)] = -1
            items = [self._item(item, depth) for item in record.items]
            number = self._numbers[id(record)] = len(self.records)
            data = RecordData(
                items, _written(record.inputs), _pairs(record.outputs), _written(record.gives), record.flows,
                record.training, record.recording, record.error[:_TEXT], record.is_whole,
            )  # fmt: skip
            self.records.append({**schema.write(data), "items": [schema.write(item) for item in items]})
        return None if number < 0 else number

    def _item(self, item: RecordedCall, depth: int) -> ItemData:
        data = ItemData(
            attributes={str(key)[:_TEXT]: str(value)[:_TEXT] for key, value in item.attributes.items()},
            inputs=_pairs(item.inputs),
            takes=_written(item.takes),
            gives=None if item.gives is None else _written(item.gives),
            training=item.training,
            recording=item.recording,
            inside=None if item.inside is None else self.add(item.inside, depth + 1),
            times=item.times,
            joined=[[(source.item, source.output) for source in found] for found in item.joined],
        )
        if item.block is None:
            data.operator = item.name
        elif (block := item.block()) is not None and id(block) in self._ids:
            data.block = self._ids[id(block)]
        else:
            data.other = item.name if block is None else class_name(block)
        return data


def _written(types: Types) -> _Types:
    return [(tuple(map(int, shape)), name_of(np.dtype(dtype))) for shape, dtype in types]


def _pairs(sources: tuple[ArraySource | None, ...]) -> list[_Source | None]:
    return [None if source is None else (source.item, source.output) for source in sources]


# -- from a file -------------------------------------------------------------------------------------------------------


def parse(data: object, path: str | None) -> CallsData:
    """The member in parsed JSON, checked. Raises ArchiveError."""
    what = "the record of the calls"
    try:
        found = schema.read(CallsData, data)
        for number, value in enumerate(found.records):
            what = f"call {number}"
            record = found.records[number] = schema.read(RecordData, value)
            _check(record, number)
        what = "the record of the calls"
        if any(number >= len(found.records) for number in found.last.values()):
            raise ValueError("names a call that does not exist")
    except ValueError as error:
        raise ArchiveError(f"damaged archive: {what} {error}", path=path, member=layout.CALLS) from None
    return found


def _check(record: RecordData, number: int) -> None:
    """Raises ValueError."""
    if len(record.items) > ITEMS:
        raise ValueError(f"has more than {ITEMS} items")
    for item in record.items:
        if sum(each is not None for each in (item.block, item.operator, item.other)) != 1:
            raise ValueError("has an item that is no Block and no operator")
        if item.inside is not None and not 0 <= item.inside < number:
            raise ValueError(f"names the call {item.inside} inside of it, which does not come before it")
    every = [record.inputs, record.gives]
    every += [each for item in record.items for each in (item.takes, item.gives or [])]
    odd = [dtype for types in every for _, dtype in types if dtype not in DTYPES]
    if odd:
        raise ValueError(f"has the dtype {odd[0][:60]!r}")


def give(data: CallsData, blocks: Mapping[int, Block]) -> None:
    """Give the plain Blocks of a model that were not called yet the records of their last calls before the save.

    blocks : the Blocks of the model by their ids in the archive
    """
    from hybrid_lab.gluon import HybridBlock

    records: list[Record] = []
    for each in data.records:
        items = [_item_of(item, records, blocks) for item in each.items]
        records.append(Record(
            items, _types(each.inputs), _sources(each.outputs), _types(each.gives), each.flows,
            each.training, each.recording, each.error, each.is_whole, is_saved=True,
        ))  # fmt: skip
    for key, number in data.last.items():
        block = blocks.get(int(key)) if key.isdecimal() else None
        if block is None or isinstance(block, HybridBlock):
            continue
        before = last_record(block)
        if before is not None and not before.is_saved:
            continue
        known = block.__dict__["_calls_noted"] = Records(block)
        known.last = records[number]


class _Gone:
    """The target of a reference to a deleted Block."""


def _item_of(data: ItemData, records: list[Record], blocks: Mapping[int, Block]) -> RecordedCall:
    block: Any = None
    if data.operator is None:
        known = None if data.block is None else blocks.get(data.block)
        block = weakref.ref(_Gone() if known is None else known)
    return RecordedCall(
        block,
        data.operator or data.other or "",
        data.attributes,
        _sources(data.inputs),
        _types(data.takes),
        None if data.gives is None else _types(data.gives),
        data.training,
        data.recording,
        inside=None if data.inside is None else records[data.inside],
        times=data.times,
        joined=tuple([tuple([ArraySource(*pair) for pair in found]) for found in data.joined]),
    )


def _types(types: _Types) -> Types:
    return tuple([(tuple(shape), dtype_of(dtype)) for shape, dtype in types])


def _sources(pairs: list[_Source | None]) -> tuple[ArraySource | None, ...]:
    return tuple([None if pair is None else ArraySource(*pair) for pair in pairs])
