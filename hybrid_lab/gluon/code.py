"""Which code a class runs: compared with what a graph was traced from, it tells whether the graph is stale."""

from __future__ import annotations

import dis
import inspect
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any

_PACKAGE = __name__.partition(".")[0]
_LIMIT = 500
"""Functions that are followed, at most."""


def code_of(kind: type) -> tuple[CodeType, ...]:
    """The code of the user's methods of a Block class, and of the user's functions that they name.

    Classes and functions of this package are left out: they do not change while a kernel lives. Code objects are
    equal where they say the same, so a cell that was run again unchanged changes nothing.
    """
    return tuple(function.__code__ for function in _functions(kind))


def globals_of(kind: type) -> list[tuple[dict[str, Any], set[str]]]:
    """(global names of a module, those of them that the same code may read or assign), one pair per function."""
    return [(function.__globals__, set(_names(function.__code__))) for function in _functions(kind)]


def attributes_read(kind: type) -> set[str]:
    """Names of attributes that the methods of a Block class read, its constructor and what every Block has left out."""
    methods = (
        function
        for base in kind.__mro__
        if base.__name__ not in ("Block", "HybridBlock") and base is not object
        for name, item in vars(base).items()
        if name != "__init__" and (function := _function(item)) is not None
    )
    followed = [function for function in _functions(kind) if function.__name__ != "__init__"]
    return {name for function in (*methods, *followed) for name in _attributes(function.__code__)}


@lru_cache(maxsize=4096)
def _attributes(code: CodeType) -> tuple[str, ...]:
    """Attribute names that the code, and functions inside of it, load."""
    found = [each.argval for each in dis.get_instructions(code) if each.opname in ("LOAD_ATTR", "LOAD_METHOD")]
    inner = (_attributes(constant) for constant in code.co_consts if isinstance(constant, CodeType))
    return tuple(dict.fromkeys((*found, *(name for names in inner for name in names))))


def _functions(kind: type) -> list[FunctionType]:
    found: dict[int, FunctionType] = {}
    pending: list[FunctionType] = []
    for base in kind.__mro__:
        if of_user(base.__module__) and base is not object:
            pending += [function for item in vars(base).values() if (function := _function(item)) is not None]
    while pending and len(found) < _LIMIT:
        function = pending.pop()
        if id(function) not in found and of_user(function.__module__):
            found[id(function)] = function
            names = _names(function.__code__)
            pending += [item for name in names if isinstance(item := function.__globals__.get(name), FunctionType)]
    return list(found.values())


def of_user(module: Any) -> bool:
    """Whether a module of this name is the user's: neither this package's nor Python's built-ins."""
    return not (isinstance(module, str) and (module == "builtins" or module.partition(".")[0] == _PACKAGE))


def _function(item: Any) -> FunctionType | None:
    """The plain function in a class attribute: a method, a static or class method, a property's getter."""
    item = getattr(item, "__func__", None) or getattr(item, "fget", None) or item
    if not isinstance(item, FunctionType):
        return None
    inner = inspect.unwrap(item)
    return inner if isinstance(inner, FunctionType) else item


def _names(code: CodeType) -> list[str]:
    """Global names that the code, and functions inside of it, may read."""
    found = list(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found += _names(constant)
    return found
