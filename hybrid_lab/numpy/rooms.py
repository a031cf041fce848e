"""`F.np` and `F.npx`: of nd they are `mx.np` and `mx.npx`, of sym the same functions, which also make Symbols."""

from __future__ import annotations

import functools
import importlib
from types import ModuleType
from typing import Any

from hybrid_lab.numpy.operators import symbolic
from hybrid_lab.numpy.symbol import _Symbol

_MODULES = {"np": "hybrid_lab.numpy", "npx": "hybrid_lab.numpy.extension"}


class SymbolicRoom:
    """The functions of a module, which make Symbols where they make arrays."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        found = _Symbol if name == "_Symbol" else getattr(self._module, name)
        if isinstance(found, ModuleType):
            made: Any = SymbolicRoom(found)
        elif callable(found) and not isinstance(found, type):
            made = _symbolic(found)
        else:
            made = _Symbol if name == "ndarray" else found
        setattr(self, name, made)
        return made

    def __dir__(self) -> list[str]:
        return dir(self._module)

    def __repr__(self) -> str:
        return f"<{self._module.__name__} on Symbols>"


def _symbolic(function: Any) -> Any:
    @functools.wraps(function)
    def call(*args: Any, **keywords: Any) -> Any:
        before, symbolic.active = symbolic.active, True
        try:
            return function(*args, **keywords)
        finally:
            symbolic.active = before

    return call


def numpy_room(name: str, of_symbols: bool) -> Any:
    """`np` or `npx` of nd or of sym."""
    module = importlib.import_module(_MODULES[name])
    return SymbolicRoom(module) if of_symbols else module
