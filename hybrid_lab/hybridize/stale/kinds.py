"""The types of values that code reads, in tables and tests: constants, views, memory, objects with attributes."""

from __future__ import annotations

import builtins
import contextlib
import functools
import re
import sys
from collections import namedtuple
from collections.abc import Mapping
from enum import Enum
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from hybrid_lab.hybridize.block import AnyBlock, AnyParameter
from hybrid_lab.hybridize.stale.code import of_user
from hybrid_lab.hybridize.stale.reached import has_no_values
from hybrid_lab.symbol.symbol import Symbol

PLAIN = frozenset({bool, int, float, complex, str, bytes, type(None)})
"""Types of values that cannot change and are compared by value."""
#: The descriptor of a field of a namedtuple.
_FIELD: type = type(vars(namedtuple("_Point", "x"))["x"])  # noqa: PYI024 - typing makes the same
#: Values that cannot change; another one in their place is another object.
FIXED = (str, bytes, int, float, complex, range, slice, type(...),
         CodeType, Enum, re.Pattern, np.dtype, np.generic, _FIELD)  # fmt: skip
#: Their changes are noticed in other ways.
TOLD = (AnyParameter, Symbol)
#: Modules of Python whose objects say nothing that a graph could depend on, or never change.
NEUTRAL = frozenset({
    "_thread", "abc", "contextlib", "datetime", "decimal", "fractions", "inspect", "logging", "operator", "pathlib",
    "threading", "typing", "uuid", "warnings", "zoneinfo",
})  # fmt: skip
#: Objects around memory of their own or of others, without attributes.
MEMORY: tuple[Any, ...] = (memoryview,)
MAPPED: tuple[Any, ...] = ()
with contextlib.suppress(ImportError):  # a Python in a browser may have neither
    import ctypes

    MEMORY = (ctypes._SimpleCData, ctypes.Array, ctypes.Structure, ctypes.Union, memoryview)
with contextlib.suppress(ImportError):
    import mmap

    MAPPED = (mmap.mmap,)
#: Views of a dict, which is their `mapping`.
VIEWS: tuple[Any, ...] = (type({}.keys()), type({}.values()), type({}.items()))
#: Types of compared values on modules of Python and of installed packages.
SIMPLE = PLAIN | {list, dict, set}
#: Packages whose objects are compared in all their attributes, whichever the code names.
WHOLE = frozenset({"collections", "scipy", "torch"})
#: Modules of Python whose objects are compared.
OPEN = frozenset({"argparse", "collections", "types"})
_WRITTEN_IN_PYTHON = 1 << 9
"""Py_TPFLAGS_HEAPTYPE of `type.__flags__`: other classes may hold what is no attribute."""
DRAWING = (np.random.RandomState, np.random.Generator)


def is_value(item: object) -> bool:
    """Whether an attribute of a class is a value, neither a method nor a descriptor."""
    return not (isinstance(item, (FunctionType, staticmethod, classmethod, property)) or hasattr(type(item), "__get__"))


def is_named_value(value: object) -> bool:
    """Whether a global is compared: modules and classes of Blocks are not."""
    return not (isinstance(value, ModuleType) or (isinstance(value, type) and issubclass(value, AnyBlock)))


def is_code_of_user(code: Any) -> bool:
    """Whether something that can be called has code of the user's."""
    return isinstance(code, (FunctionType, MethodType, functools.partial)) or of_user(type(code).__module__)


def is_function_of_user(value: object) -> bool:
    """Whether a value is a plain function that the user wrote."""
    return isinstance(value, FunctionType) and of_user(value.__module__) and not has_no_values(value.__module__)


def is_of_python(value: Any) -> bool:
    """Whether a class or function comes from Python's own library."""
    return str(value.__module__).partition(".")[0] in sys.stdlib_module_names or value.__module__ == builtins.__name__


def is_settings(module: ModuleType) -> bool:
    """Whether a module may be a place for the user's settings: it is neither Python's nor an installed package."""
    root, file = module.__name__.partition(".")[0], str(vars(module).get("__file__"))
    installed = "site-packages" in file or "dist-packages" in file
    return root not in sys.stdlib_module_names and of_user(module.__name__) and not installed


def writeable_below(value: np.ndarray) -> bool:
    """Whether a read-only array is a view of a writeable array."""
    base = value.base
    while isinstance(base, np.ndarray):
        if base.flags.writeable:
            return True
        base = base.base
    return False


def slots_of(base: type) -> tuple[str, ...]:
    """The names in `__slots__` of a class, without its bases."""
    slots: Any = vars(base).get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def is_from_c(kind: type) -> bool:
    """Whether an object of a class may hold what is no attribute."""
    return not all(base.__flags__ & _WRITTEN_IN_PYTHON for base in kind.__mro__ if base is not object)


def dict_of(value: object) -> dict[str, Any] | None:
    """The attributes of an object; code of its class is not run."""
    try:
        held = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None
    return held if isinstance(held, dict) else None


def has_names(attributes: Mapping[str, Any], names: frozenset[str]) -> bool:
    """Whether an object or class has the attributes of these names, and no others."""
    return attributes.keys() == names


class _Plain:
    """An object that holds attributes only."""


def has_only_attributes(value: Any) -> bool:
    """Whether an object has no slots, and is no container, array, Block or class: it is as large as a plain object."""
    kind = type(value)
    is_as_large = (kind.__basicsize__, kind.__itemsize__) == (_Plain.__basicsize__, _Plain.__itemsize__)
    return is_as_large and dict_of(value) is not None and of_user(kind.__module__) and not isinstance(value, AnyBlock)


@functools.lru_cache(maxsize=64)
def attributes_of_parameters(kind: Any) -> frozenset[str]:
    """The attributes of every Parameter. kind : the class of one"""
    base = next(each for each in kind.__mro__ if AnyParameter in each.__bases__)
    return frozenset(dir(base()))
