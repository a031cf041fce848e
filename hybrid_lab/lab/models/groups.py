"""Models that no variable holds itself: Blocks in lists, dicts and objects of the user's, as one model each."""

from __future__ import annotations

import itertools
import os
import sys
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MemberDescriptorType
from typing import Any

from hybrid_lab.gluon import access
from hybrid_lab.gluon.block import Block
from hybrid_lab.gluon.call_record import ArraySource, Record, RecordedCall, Records, cell, last_record
from hybrid_lab.gluon.loss import Loss
from hybrid_lab.hybridize.stale.code import of_user
from hybrid_lab.lab.models import expressions, revisions

_LOOKED_AT = 64
"""Items of a list or dict, and attributes of an object, that are looked at."""
_DEPTH = 2
"""Lists in lists, and in attributes, that are looked at."""
_LIBRARIES = os.path.dirname(os.__file__)
_OF_IPYTHON = frozenset({"In", "Out", "exit", "quit", "get_ipython"})


class BlockGroup(Block):
    """Several Blocks that one variable of the user's holds, as the children of a plain Block. It holds them weakly.

    It stands for a list, dict or object, which is no Block: it is neither counted nor called one.

    kind : the class of what holds them. Its last call is what the code of a cell called of them last
    codes : by the name of a child, the code that reads it, `HOLDER["gen"][0]`
    labels : by the name of a child, what its row is called, `gen[0]`
    """

    _is_group = True

    archived_class: str
    codes: Mapping[str, str]
    labels: Mapping[str, str]
    _members: Mapping[str, weakref.ref[Block]]  # declared, so that an archive leaves them out as this package's own
    _versions: int

    def __init__(self, name: str, kind: str):
        self.__dict__.update(_members={}, _versions=0, codes={}, labels={})
        super().__init__(prefix=f"{name}_")
        self.__dict__["archived_class"] = f"group.{kind}"

    @property
    def _children(self) -> OrderedDict[str, Block]:  # type: ignore[override]
        members: Mapping[str, weakref.ref[Block]] = self.__dict__["_members"]
        return OrderedDict((name, block) for name, held in members.items() if (block := held()) is not None)

    @property
    def _structure_version(self) -> int:
        own: int = self.__dict__["_versions"]
        return own + sum(map(access.structure_version, self._children.values()))

    @_structure_version.setter
    def _structure_version(self, version: int) -> None:
        self.__dict__["_versions"] += 1

    def is_of(self, kind: str) -> bool:
        """Whether it stands for an object of a class of this name."""
        return self.archived_class == f"group.{kind}"

    def hold(self, members: Mapping[str, Member]) -> None:
        """Have these children from now on."""
        before, blocks = self._children, {name: member.block for name, member in members.items()}
        codes = {name: member.code for name, member in members.items()}
        if [*before.items()] != [*blocks.items()] or codes != self.codes:
            self.__dict__["_versions"] += 1 + sum(map(access.structure_version, before.values()))
            self.__dict__["_members"] = {name: weakref.ref(block) for name, block in blocks.items()}
            self.__dict__.update(codes=codes, labels={name: member.label for name, member in members.items()})
            revisions.changed(self)

    def follow(self) -> None:
        """Take over the calls of the latest cell, if it called a member."""
        record = cell.last
        if record is None:
            return
        seen = _reduced(record, {*map(id, self._children.values())})
        if seen.items and not _alike(seen, last_record(self)):
            records = self.__dict__["_calls_noted"] = Records(self)
            records.last = seen
            revisions.changed(self)

    def forward(self, *args: object) -> Any:  # noqa: ANN401 - as every Block's
        """Raises NotImplementedError."""
        raise NotImplementedError("a list, dict or object of Blocks is not called itself")


@dataclass(frozen=True)
class Member:
    """A Block that a list, dict or object of the user's holds.

    code : reads it from the list, dict or object, `HOLDER["gen"][0]`; label : its name among the others, `gen[0]`
    """

    block: Block
    code: str
    label: str


def held_blocks(name: str, item: object) -> tuple[str, dict[str, Member]]:
    """(class, Blocks by a name that can be a part of a path) that a variable of the user's holds in a list, a dict, or
    an object of a user's class, without Blocks inside other Blocks.
    """
    if name.startswith("_") or name in _OF_IPYTHON:
        return "", {}
    found: dict[str, Member] = {}
    seen: set[int] = set()
    for key, member in _blocks_in(item, "", expressions.HOLDER, "", _DEPTH):
        if id(member.block) not in seen and not access.parents(member.block):
            seen.add(id(member.block))
            key = key.replace(".", "_") or "0"
            while key in found:
                key += "_"
            found[key] = member
    return type(item).__name__, found if any(not isinstance(each.block, Loss) for each in found.values()) else {}


def _blocks_in(item: object, key: str, code: str, label: str, depth: int) -> Iterator[tuple[str, Member]]:
    # type(), not isinstance: a lazy proxy in a variable may do anything when it is asked for its class.
    kind = type(item)
    if issubclass(kind, Block):
        assert isinstance(item, Block)
        if key:
            yield key, Member(item, code, label)
        return
    parts: list[tuple[str, str, object]] = []  # (name, code, part)
    if issubclass(kind, (list, tuple, dict)):
        parts = [*expressions.items(code, item, _LOOKED_AT)]
    elif not key and of_user(kind.__module__) and _is_users(kind.__module__):
        attributes = itertools.islice(_attributes(item), _LOOKED_AT)
        parts = [(name, expressions.attribute(code, item, name), part) for name, part in attributes]
    for name, own, part in parts if depth else ():
        within = own.removeprefix(code) if own.startswith(code) else f"[{name}]"
        inner = label + within if label else name
        yield from _blocks_in(part, f"{key}_{name}" if key else name, own, inner, depth - 1)


def _is_users(module: str) -> bool:
    """Whether a module is the notebook's or a file of the user's, not part of Python or of an installed package."""
    file = getattr(sys.modules.get(module), "__file__", None) or ""
    return module == "__main__" or (file != "" and not file.startswith(_LIBRARIES) and "site-packages" not in file)


def _attributes(item: object) -> Iterator[tuple[str, object]]:
    """The attributes of an object, without running code of its class."""
    try:
        own = object.__getattribute__(item, "__dict__")
    except AttributeError:
        own = {}
    yield from [*own.items()] if type(own) is dict else []
    for kind in type(item).__mro__:
        slots = vars(kind).get("__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else slots:
            member = vars(kind).get(slot)
            if isinstance(member, MemberDescriptorType):
                try:
                    yield slot, member.__get__(item)
                except AttributeError:
                    continue


# -- what a cell called ------------------------------------------------------------------------------------------------


def _reduced(record: Record, members: set[int]) -> Record:
    """The calls of these Blocks alone. Arrays that flowed through other Blocks and operators join their sources;
    repeated calls, such as the steps of a loop, count as one.
    """
    sources: list[list[tuple[ArraySource, ...]]] = []  # per item of the record and output: the sources of its numbers
    items: list[RecordedCall] = []
    known: dict[object, int] = {}
    for item in record.items:
        given: list[tuple[ArraySource, ...]] = []
        for source in item.inputs:
            found = () if source is None or source.item < 0 else _at(sources, source)
            given.append(found)
        block = None if item.block is None else item.block()
        outputs = len(item.gives or ())
        if block is None or id(block) not in members:
            through = tuple(dict.fromkeys(each for found in given for each in found))
            sources.append([through] * outputs)
            continue
        key = id(block), tuple(given), item.takes, item.training, item.gives is None
        if key in known:
            number = known[key]
            items[number] = replace(items[number], times=items[number].times + 1, inside=item.inside)
        else:
            number = known[key] = len(items)
            firsts = tuple(found[0] if len(found) == 1 else None for found in given)
            items.append(replace(item, inputs=firsts, joined=tuple(given)))
        sources.append([(ArraySource(number, output),) for output in range(outputs)])
    error = "the call raised" if any(item.gives is None for item in items) else ""
    return replace(record, items=items, error=error)


def _at(sources: list[list[tuple[ArraySource, ...]]], source: ArraySource) -> tuple[ArraySource, ...]:
    found = sources[source.item] if source.item < len(sources) else []
    return found[source.output] if source.output < len(found) else ()


def _alike(one: Record, other: Record | None) -> bool:
    if other is None:
        return False
    look: Callable[[Record], object] = lambda record: [
        (item.block, item.joined, item.takes, item.times, item.gives is None) for item in record.items
    ]
    return look(one) == look(other)
