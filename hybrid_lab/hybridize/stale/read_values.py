"""The values that a Block's code reads beside its tensors - attributes, their contents, globals - in a form that is
compared by value. If calls cannot compare all of them (`ValueGuard.unwatched`), they are remembered at the trace, and
compared before each compile and, in the lab, after each cell.
"""

from __future__ import annotations

import sys
import zlib
from collections import deque
from collections.abc import Iterator, Mapping
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from hybrid_lab.hybridize.block import OWN, AnyBlock
from hybrid_lab.hybridize.stale.code import ANY, Reads, bases_of_user, cell_content, of_user, reads_of
from hybrid_lab.hybridize.stale.kinds import PLAIN
from hybrid_lab.hybridize.stale.value_guard import plain_key

if TYPE_CHECKING:
    from hybrid_lab.hybridize.block import Tree

_MANY = 250
"""Parts of one container or object that are looked at."""
_DEEP = 4
_BYTES = 1 << 18
"""Of larger NumPy arrays only type and shape count."""

#: Compared otherwise: functions by their code; contents of modules are not compared.
_SKIPPED = (FunctionType, BuiltinFunctionType, MethodType, ModuleType, property, staticmethod, classmethod)

#: Objects of Python's library - loggers, locks, clocks - change by themselves; those that hold settings do not.
_MACHINERY = sys.stdlib_module_names - {"types", "argparse"}


def read_values(block: Tree) -> dict[str, Any]:
    """Name -> value of what the code of a Block reads, see `_own_values` and `_class_values`."""
    reads = reads_of(type(block))
    return {**_class_values(type(block), reads), **_own_values(block, reads)}


def _own_values(block: Tree, reads: Reads) -> dict[str, Any]:
    """`self.name` -> the value of an attribute of the Block itself, in comparable form; None if it is not compared.

    Containers, objects and small NumPy arrays are looked into. Blocks, Parameters and arrays of this package are not
    compared; they tell in other ways that they changed.

    reads : `reads_of` the Block's class
    """
    attributes, _ = reads
    any_name = ANY in attributes
    return {
        f"self.{name}": by_value(value)
        for name, value in tuple(vars(block).items())
        if (any_name or name in attributes) and name not in OWN
    }


def _class_values(kind: type, reads: Reads) -> dict[str, Any]:
    """`self.name` of a class attribute, or the name of a global -> what it holds, as in `_own_values`."""
    attributes, globals_read = reads
    values: dict[str, Any] = {}
    for base in bases_of_user(kind):
        for name in attributes & vars(base).keys():
            values.setdefault(f"self.{name}", by_value(vars(base)[name]))
    for function, names in globals_read.items():
        where = function.__globals__
        for name in names:
            if name in where:
                values[name] = by_value(where[name])
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
            if name != "__class__":
                values[name] = by_value(cell_content(cell))
        defaults = by_value((function.__defaults__, function.__kwdefaults__))
        values[f"the defaults of {function.__qualname__}"] = defaults
    return values


def changed_values(before: Mapping[str, object], now: Mapping[str, object]) -> list[str]:
    """Names whose values differ."""
    return [name for name in {**before, **now} if before.get(name) != now.get(name)]


def by_value(value: Any, depth: int = _DEEP) -> object:
    """Something equal for equal values, None for what is not compared; it keeps no object alive."""
    kind = type(value)
    if kind in PLAIN:
        return plain_key(value)
    if isinstance(value, _SKIPPED) or depth == 0:
        return None
    if isinstance(value, (int, float, complex, str, bytes)):
        return kind.__qualname__, repr(value)
    if isinstance(value, np.ndarray):
        small = value.nbytes <= _BYTES and value.dtype.kind != "O"
        return "array", value.dtype.str, value.shape, zlib.crc32(np.ascontiguousarray(value).data) if small else 0
    if isinstance(value, (np.generic, np.dtype, range, slice)):
        return kind, repr(value)
    if isinstance(value, dict):
        return "dict", _parts(value.items(), depth)
    if isinstance(value, (list, tuple, deque)):
        return kind.__name__, len(value), _parts(enumerate(value), depth)
    if isinstance(value, (set, frozenset)):
        return "set", frozenset(part for part in (by_value(item, depth - 1) for item in value) if part is not None)
    return _object(value, depth)


def _object(value: object, depth: int) -> object:
    """An object or class of the user's by its attributes."""
    kind = value if isinstance(value, type) else type(value)
    root = str(kind.__module__).partition(".")[0]
    if not of_user(kind.__module__) or issubclass(kind, AnyBlock) or root in _MACHINERY:
        return None
    attributes: dict[str, Any] = {}
    for base in reversed(bases_of_user(kind)):
        attributes |= {name: item for name, item in vars(base).items() if not name.startswith("__")}
    if kind is not value:
        attributes |= getattr(value, "__dict__", {})
    return kind.__qualname__, _parts(attributes.items(), depth)


def _parts(items: object, depth: int) -> tuple[object, ...]:
    return tuple(_some(items, depth))


def _some(items: Any, depth: int) -> Iterator[object]:
    for number, (name, item) in enumerate(list(items)):
        if number == _MANY:
            return
        part = by_value(item, depth - 1)
        if part is not None:
            yield name if isinstance(name, (str, int)) else repr(name), part
