"""The current values that a Block's code reads beside its tensors - attributes, their contents, globals. Compared with
the values at the trace, they tell whether a graph is stale although the code is the same.
"""

from __future__ import annotations

import sys
import weakref
import zlib
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from hybrid_lab.hybridize.block import AnyBlock
from hybrid_lab.hybridize.stale.code import ANY, Reads, bases_of_user, cell_content, code_of, of_user, reads_of

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

#: Attributes of every Block that Gluon itself changes, and reports as a changed structure if it matters.
OWN = frozenset({
    "_active", "_children", "_empty_prefix", "_flags", "_forward_hooks", "_forward_pre_hooks", "_graph_inside",
    "_graph_calls", "_graphs", "_last_change", "_last_outputs", "_name", "_name_counts", "_operator_hook", "_params",
    "_parents", "_prefix", "_reg_params", "_set_aside", "_states_made", "_steps_made", "_structure_version",
    "_warned_containers",
})  # fmt: skip


@dataclass(frozen=True, eq=False)
class ClassSource:
    """What graphs of Blocks of one class were traced from, apart from the Blocks themselves.

    code : `code_of` the class; values : `class_values`
    """

    code: tuple[CodeType, ...]
    values: dict[str, Any]


_sources: weakref.WeakKeyDictionary[type, ClassSource] = weakref.WeakKeyDictionary()


def class_source(kind: type) -> ClassSource:
    """The current source of a class: the same object as before if the class did not change."""
    code, values, known = code_of(kind), class_values(kind, reads_of(kind)), _sources.get(kind)
    if known is None or known.code != code or known.values != values:
        known = _sources[kind] = ClassSource(code, values)
    return known


def own_values(block: Tree, reads: Reads) -> dict[str, Any]:
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


def class_values(kind: type, reads: Reads) -> dict[str, Any]:
    """`self.name` of a class attribute, or the name of a global -> what it holds, as in `own_values`."""
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


def is_plain(value: Any) -> bool:
    """Whether one of `own_values` is a number, a text or a tuple of such: an attribute gets another one by an
    assignment only, of which a HybridBlock knows.
    """
    if value is None:  # not compared
        return True
    kind, *rest = value
    if kind == "tuple":
        return all(is_plain(part) for _, part in rest[1])
    return isinstance(kind, type)


def changed_values(before: Mapping[str, object], now: Mapping[str, object]) -> list[str]:
    """Names whose values differ."""
    return [name for name in {**before, **now} if before.get(name) != now.get(name)]


def by_value(value: Any, depth: int = _DEEP) -> object:
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
