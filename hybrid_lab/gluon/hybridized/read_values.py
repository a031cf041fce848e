"""The values that a Block's code reads beside its tensors - attributes, what they hold, globals - as they are now:
compared with those at the trace, they tell whether a graph is stale although the code is the same.
"""

from __future__ import annotations

import sys
import zlib
from collections import deque
from collections.abc import Iterator, Mapping
from types import BuiltinFunctionType, CellType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from hybrid_lab.gluon.block import Block
from hybrid_lab.gluon.hybridized.code import ANY, Reads, of_user, reads_of

_MANY = 250
"""Parts of one container or object that are looked at."""
_DEEP = 4
_BYTES = 1 << 18
"""Of larger NumPy arrays only type and shape count."""

#: Compared otherwise: functions by their code, what is in modules not at all.
_SKIPPED = (FunctionType, BuiltinFunctionType, MethodType, ModuleType, property, staticmethod, classmethod)

#: Objects of Python's library - loggers, locks, clocks - change by themselves; those that hold settings do not.
_MACHINERY = sys.stdlib_module_names - {"types", "argparse"}

#: Attributes of every Block that Gluon itself changes, and reports as a changed structure where it matters.
OWN = frozenset({
    "_active", "_children", "_empty_prefix", "_flags", "_forward_hooks", "_forward_pre_hooks", "_graphs",
    "_last_outputs", "_name", "_name_counts", "_params", "_parents", "_prefix", "_reg_params", "_structure_version",
    "_warned_containers",
})  # fmt: skip


def values_read(block: Block, reads: Reads | None = None) -> dict[str, Any]:
    """`self.name` or the name of a global -> what it holds, by value.

    Attributes come from the Block or its class; containers, objects and small NumPy arrays are looked into. Left out
    are Blocks, Parameters and arrays of this package, which have ways of their own to tell that they changed.

    reads : `reads_of(type(block))`, where it is known
    """
    kind = type(block)
    attributes, globals_read = reads_of(kind) if reads is None else reads
    values: dict[str, Any] = {}
    own, any_name = vars(block), ANY in attributes
    for name, value in tuple(own.items()):
        if (any_name or name in attributes) and name not in OWN:
            values[f"self.{name}"] = _by_value(value)
    for base in kind.__mro__:
        if of_user(base.__module__):
            for name in attributes & vars(base).keys():
                values.setdefault(f"self.{name}", _by_value(vars(base)[name]))
    for function, names in globals_read.items():
        where = function.__globals__
        for name in names:
            if name in where:
                values[name] = _by_value(where[name])
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
            if name != "__class__":
                values[name] = _by_value(_content(cell))
        defaults = _by_value((function.__defaults__, function.__kwdefaults__))
        values[f"the defaults of {function.__qualname__}"] = defaults
    return {name: value for name, value in values.items() if value is not None}


def is_plain(value: Any) -> bool:
    """Whether one of `values_read` is a number, a text or a tuple of such: an attribute gets another one by an
    assignment only, of which a HybridBlock knows.
    """
    kind, *rest = value
    if kind == "tuple":
        return all(is_plain(part) for _, part in rest[1])
    return isinstance(kind, type)


def changed_values(before: Mapping[str, object], now: Mapping[str, object]) -> list[str]:
    """Names whose values differ."""
    return [name for name in {**before, **now} if before.get(name) != now.get(name)]


def _content(cell: CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # not set yet
        return None


def _by_value(value: Any, depth: int = _DEEP) -> object:
    """Something equal for equal values, None for what is not compared; it keeps no object alive."""
    kind = type(value)
    if kind is float:
        return kind, value.hex()  # -0.0 is not 0.0, nan is nan
    if kind in (bool, int, str, bytes, type(None)):
        return kind, value
    if isinstance(value, _SKIPPED) or depth == 0:
        return None
    if isinstance(value, (int, float, str, bytes)):
        return kind.__qualname__, repr(value)
    if isinstance(value, np.ndarray):
        small = value.nbytes <= _BYTES and value.dtype.kind != "O"
        return "array", value.dtype.str, value.shape, zlib.crc32(np.ascontiguousarray(value).data) if small else 0
    if isinstance(value, (complex, np.generic, np.dtype, range, slice)):
        return kind, repr(value)
    if isinstance(value, dict):
        return "dict", _parts(value.items(), depth)
    if isinstance(value, (list, tuple, deque)):
        return kind.__name__, len(value), _parts(enumerate(value), depth)
    if isinstance(value, (set, frozenset)):
        return "set", frozenset(part for part in (_by_value(item, depth - 1) for item in value) if part is not None)
    return _object(value, depth)


def _object(value: object, depth: int) -> object:
    """An object or class of the user's by its attributes."""
    kind = value if isinstance(value, type) else type(value)
    root = str(kind.__module__).partition(".")[0]
    if not of_user(kind.__module__) or issubclass(kind, Block) or root in _MACHINERY:
        return None
    attributes: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        if of_user(base.__module__):
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
        part = _by_value(item, depth - 1)
        if part is not None:
            yield name if isinstance(name, (str, int)) else repr(name), part
