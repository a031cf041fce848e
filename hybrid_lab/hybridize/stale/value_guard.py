"""ValueGuard: compares, before each compiled call, the values that a Block's code reads beside its tensors with their
values at the trace. `watched_values.py` finds them.
"""

from __future__ import annotations

import functools
import keyword
import re
from array import array
from collections import deque
from collections.abc import Callable
from enum import Enum
from operator import is_
from types import CodeType, FunctionType, MappingProxyType
from typing import Any

import numpy as np

from hybrid_lab.diagnostics.location import Location
from hybrid_lab.hybridize.block import AnyBlock
from hybrid_lab.hybridize.stale.code import instruction_loading, of_user
from hybrid_lab.hybridize.stale.kinds import OPEN, PLAIN, dict_of, is_from_c
from hybrid_lab.hybridize.stale.reached import has_no_values
from hybrid_lab.ndarray.ndarray import NDArray
from hybrid_lab.ndarray.tape import Mode

_ABSENT = object()
_GONE = AttributeError, LookupError, RuntimeError, ValueError
"""Raised where a value is gone, or another thread changes it now."""


class ValueGuard:
    """The values that the code of a Block, and of the Blocks below it, reads, as they are now.

    Guards are made by `guard_of`. They keep the values alive, so that identity tells them apart.

    holds : whether all values are the same as before; a function written for these places at its first call, as most
        calls of a Block find nothing changed. A plain value that was replaced by an equal one is the same
    iterators : names of iterators, which every call reads on from the place where the last one stopped
    unwatched : name -> why it is not compared
    is_partial : whether values may change that neither calls compare nor `unwatched` names: the code makes names of
        attributes, calls methods of base classes, or reads containers or objects
    functions : whose values these are
    excluded : places that are not compared because the code changes them itself, without effect on its results
    """

    def __init__(self) -> None:
        self.iterators: list[str] = []
        self.unwatched: dict[str, str] = {}
        self.is_partial = False
        self.functions: tuple[FunctionType, ...] = ()
        self.excluded: frozenset[object] = frozenset()
        #: (class, name, value) of items in the dict of a class, which cannot be assigned to.
        self.of_classes: list[tuple[type, str, Any]] = []
        # Of each place: the owner, what of it, its value; then the name in the code and a description of the value.
        self._items: list[list[Any]] = []  # [mapping, key, value ...
        self._attributes: list[list[Any]] = []  # [object, name, value ...
        self._calls: list[list[Any]] = []  # [function, arguments, result ...
        self._dicts: list[list[Any]] = []  # [dict, keys, values ...
        self._sequences: list[list[Any]] = []  # [list, set or deque, numbers of the parts, parts ...
        self._arrays: list[list[Any]] = []  # [array, None, bytes ...
        self._tensors: list[list[Any]] = []  # [NDArray, None, version ...; the description is a copy of its numbers
        self._groups = (self._items, self._attributes, self._calls,
                        self._dicts, self._sequences, self._arrays, self._tensors)  # fmt: skip
        self.holds: Callable[[], bool] = self._write_holds

    def _write_holds(self) -> bool:
        """Write `holds` as one expression, `owner0.name is place0[2] and owner1['key'] is place1[2] ...`."""
        names: dict[str, Any] = {"all_places": self.compare, "GONE": _GONE}
        terms = []
        reads = ((self._items, _subscript), (self._attributes, _attribute), (self._calls, _call))
        for number, (place, read) in enumerate((place, read) for group, read in reads for place in group):
            owner, what, value, *_ = place
            known = f"value{number}" if isinstance(value, FunctionType) else f"place{number}[2]"
            terms.append(f"{read(what, number)} is {known}")
            names |= {f"owner{number}": owner, f"what{number}": what, f"value{number}": value, f"place{number}": place}
        if any(self._groups[3:]):
            names["others"] = self._others_hold
            terms.append("others()")
        exec(_code(" and ".join(terms) or "True"), names)
        self.holds = names["holds"]
        return self.holds()

    def compare(self) -> bool:
        """Whether all values equal the earlier values, place by place: as `holds`, slower."""
        try:
            for place in self._items:
                if place[0][place[1]] is not place[2] and not _is_equal(place, place[0][place[1]]):
                    return False
            for place in self._attributes:
                if getattr(place[0], place[1]) is not place[2] and not _is_equal(place, getattr(place[0], place[1])):
                    return False
            for place in self._calls:
                if place[0](*place[1]) is not place[2] and not _is_equal(place, place[0](*place[1])):
                    return False
            return self._others_hold()
        except _GONE:
            return False

    def _others_hold(self) -> bool:
        """Whether containers, arrays and tensors hold what they held."""
        try:
            for container, keys, values, _, _ in self._dicts:
                if len(container) != len(keys) or not (
                    all(map(is_, container.values(), values)) and all(map(is_, container, keys))
                ):
                    return False
            for container, _, parts, _, _ in self._sequences:
                if len(container) != len(parts) or not all(map(is_, container, parts)):
                    return False
            for tensor, _, version, _, _ in self._tensors:
                if tensor.version != version:
                    return False
            return not self._arrays or all(each.tobytes() == data for each, _, data, _, _ in self._arrays)
        except _GONE:
            return False

    def changed_places(self) -> frozenset[object]:
        """What to identify the places by, in every guard, whose values are not those of before."""
        changed = set()
        for number, group in enumerate(self._groups):
            for place in group:
                one = ValueGuard()
                one._groups[number].append(place)
                if not one.compare():
                    changed.add(_identity(place))
        return frozenset(changed)

    def names(self, places: frozenset[object]) -> list[str]:
        """The names of these places in the code."""
        return [place[3] for group in self._groups for place in group if _identity(place) in places]

    def location_of(self, name: str) -> Location | None:
        """The location at which the code first reads the name, `self.it` or `CONFIG['rate']`."""
        for wanted in reversed(re.findall(r"\w+", name.partition("[")[0])):
            for function in self.functions:
                found = instruction_loading(function.__code__, wanted)
                if found is not None:
                    return Location(*found)
        return None

    def without(self, places: frozenset[object]) -> ValueGuard:
        """The guard without these places."""
        for group in self._groups:
            group[:] = [place for place in group if _identity(place) not in places]
        self.excluded |= places
        self.holds = self._write_holds
        return self

    def restore(self) -> None:
        """Give every place its value again."""
        for mapping, key, value, *_ in self._items:
            if isinstance(mapping, (dict, list)):
                mapping[key] = value
        for kind, name, value in self.of_classes:
            if vars(kind).get(name, _ABSENT) is not value:
                setattr(kind, name, value)
        for owner, name, value, *_ in self._attributes:
            if isinstance(owner, AnyBlock):  # of its class, now hidden by its own attribute
                vars(owner).pop(name, None)
                continue
            if isinstance(owner, type):
                owner = next((base for base in owner.__mro__ if name in vars(base)), owner)
            if getattr(owner, name, _ABSENT) is not value:
                setattr(owner, name, value)
        for container, keys, values, *_ in self._dicts:
            if isinstance(container, MappingProxyType):  # a view: its dict is in the list, too, if the code reaches it
                continue
            if len(container) != len(keys) or not all(map(is_, container.values(), values)):
                container.clear()
                container.update(zip(keys, values, strict=True))
        for container, _, parts, *_ in self._sequences:
            if len(container) != len(parts) or not all(map(is_, container, parts)):
                container.clear()
                container.update(parts) if isinstance(container, set) else container.extend(parts)
        for view, _, data, *_ in self._arrays:
            if isinstance(view, np.ndarray):
                view[...] = np.frombuffer(data, view.dtype).reshape(view.shape)
            else:
                view[:] = array(view.typecode, data) if isinstance(view, array) else data
        for tensor, _, version, _, numbers in self._tensors:
            if tensor.version != version and isinstance(numbers, Numbers) and tensor.shape == numbers.values.shape:
                with Mode(False, False):
                    tensor[...] = numbers.values

    def differences(self, before: ValueGuard) -> list[str]:
        """What changed since another guard was made: `CONFIG['rate']: 0.2 instead of 0.1`."""
        old, new = before._described(), self._described()
        changed = [name for name in {**old, **new} if old.get(name) != new.get(name)]
        changed = [name for name in changed if not any(each != name and each.startswith(name) for each in changed)]
        return [_in_words(name, old.get(name), new.get(name)) for name in changed]

    def _described(self) -> dict[str, object]:
        """Name -> what it holds, by value; with the parts of containers."""
        described: dict[str, object] = {}
        for group in self._groups:
            for *_, name, description in group:
                if isinstance(description, dict):
                    described |= {f"{name}{part}": value for part, value in description.items()}
                else:
                    described[name] = description
        return described


@functools.lru_cache(maxsize=1024)
def _code(expression: str) -> CodeType:
    return compile(
        f"def holds():\n try:\n  if {expression}: return True\n except GONE: pass\n return all_places()",
        "<values that a graph was traced with>",
        "exec",
    )


def _attribute(name: str, number: int) -> str:
    written = name.isidentifier() and not keyword.iskeyword(name)
    return f"owner{number}.{name}" if written else f"getattr(owner{number}, what{number})"


def _subscript(key: object, number: int) -> str:
    """Short keys stand in the text; others are read from a variable."""
    return f"owner{number}[{key!r}]" if type(key) is str and len(key) < 60 else f"owner{number}[what{number}]"


def _call(arguments: object, number: int) -> str:
    return f"owner{number}(*what{number})"


def _identity(place: list[Any]) -> object:
    owner, what, *_ = place
    return (id(owner), what) if isinstance(what, str) else id(owner)


def _is_equal(place: list[Any], now: Any) -> bool:
    """Whether a plain value was replaced by an equal one, which the place then holds."""
    before = place[2]
    if type(now) not in PLAIN or type(before) is not type(now) or plain_key(before) != plain_key(now):
        return False
    place[2] = now
    return True


def _in_words(name: str, before: Any, now: Any) -> str:
    """Values that are plain and short are shown; they are described by type and value."""
    shown = []
    for value in (now, before):
        if not (isinstance(value, tuple) and value and value[0] in PLAIN):
            return name
        shown.append(repr(float.fromhex(value[1]) if value[0] is float else value[1]))
    return f"{name}: {shown[0]} instead of {shown[1]}" if sum(map(len, shown)) < 60 else name


def plain_key(value: Any) -> tuple[type, object]:
    """Equal for plain values that are the same: -0.0 is not 0.0, nan is nan, True is not 1."""
    kind = type(value)
    if kind is float:
        return kind, value.hex()
    return kind, repr(value) if kind is complex else value


def description(value: Any) -> object:
    """Equal for equal plain values; of what holds others the kind; of all else which object it is."""
    if type(value) in PLAIN:
        return plain_key(value)
    if isinstance(value, (tuple, frozenset)):
        return type(value).__qualname__, *map(description, value)
    if isinstance(value, (dict, list, deque, set, np.ndarray)):
        return type(value).__qualname__
    if isinstance(value, FunctionType):
        # The variables around the user's functions are compared; `npx.relu` and `npx.sigmoid` are of one code.
        if not value.__closure__ or (of_user(value.__module__) and not has_no_values(value.__module__)):
            return "function", value.__code__
        return "object", id(value)
    if isinstance(value, CodeType):
        return "code", value
    if isinstance(value, (np.generic, np.dtype, range, slice)):
        return type(value), repr(value)
    if isinstance(value, functools.partial):
        keywords = tuple((name, description(each)) for name, each in sorted(value.keywords.items()))
        return "partial", description(value.func), tuple(map(description, value.args)), keywords
    for plain in (int, float, complex, str, bytes):  # of a class of the user's
        if isinstance(value, plain) and not isinstance(value, Enum):
            return type(value).__qualname__, plain.__repr__(value)
    if dict_of(value) is not None and not isinstance(value, (type, AnyBlock, NDArray, Enum)):
        kind = type(value)
        if kind.__module__ in OPEN or not (has_no_values(kind.__module__) or is_from_c(kind)):
            return kind.__qualname__
    return "object", id(value)


def described_key(key: object) -> str:
    """A key as messages show it."""
    return f"[{key!r}]" if isinstance(key, (str, int)) else f"[{key!s:.20}]"


class Numbers:
    """A copy of what an array holds, equal to one with the same bits."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Numbers) and self._key() == other._key()

    __hash__ = None  # type: ignore[assignment]

    def _key(self) -> tuple[object, ...]:
        return self.values.dtype, self.values.shape, self.values.tobytes()
