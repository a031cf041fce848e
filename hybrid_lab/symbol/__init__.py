"""The symbol room: `sym.<operator>` composes graphs from Symbols. Every operator of the records is a function here."""

from __future__ import annotations

from typing import Any

from hybrid_lab.ops.framework.operator import find as _find
from hybrid_lab.ops.framework.operator import registered_names
from hybrid_lab.symbol import surface as _surface
from hybrid_lab.symbol.surface import (
    _internal,  # noqa: F401  (MXNet's name of the functions that begin with an underscore)
    arange,
    array,
    contrib,
    fromjson,
    full,
    histogram,
    image,
    linalg,
    load,
    load_json,
    ones,
    op,
    random,
    sparse,
    split_v2,
    zeros,
)
from hybrid_lab.symbol.surface import custom as Custom  # noqa: N812 - MXNet's name
from hybrid_lab.symbol.symbol import Group, Symbol, var
from hybrid_lab.symbol.symbol import symbol_function as _symbol_function
from hybrid_lab.system.provided import Provided as _Provided

Variable = var

__all__ = [
    "Custom",
    "Group",
    "Symbol",
    "Variable",
    "arange",
    "array",
    "contrib",
    "fromjson",
    "full",
    "histogram",
    "image",
    "linalg",
    "load",
    "load_json",
    "ones",
    "op",
    "random",
    "sparse",
    "split_v2",
    "var",
    "zeros",
]


numpy_room: _Provided[[str, bool], Any] = _Provided("numpy_room")
"""`sym.np` and `sym.npx`: the functions of `mx.np` and `mx.npx`, of which those that make arrays make Symbols."""


def __getattr__(name: str) -> Any:
    if name in ("np", "npx"):
        globals()[name] = found = numpy_room(name, True)
        return found
    record = _find(name)
    if record is None:
        raise _surface.unknown("sym", name, () if name.startswith("_") else __dir__())
    globals()[name] = function = _symbol_function(record, name)
    return function


def __dir__() -> list[str]:
    return sorted({*globals(), *registered_names(), "np", "npx"})
