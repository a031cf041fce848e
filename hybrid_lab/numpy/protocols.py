"""NumPy's own functions on arrays of `mx.np`: `numpy.sum(x)` calls `mx.np.sum(x)` if it exists."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hybrid_lab.numpy import linalg
from hybrid_lab.numpy.host import run_on_host
from hybrid_lab.numpy.methods import FUNCTIONS
from hybrid_lab.numpy.types import Function


def own_function(function: Callable[..., object]) -> Function | None:
    """The function of `mx.np` for one of NumPy, or None."""
    name = function.__name__
    if name.startswith("_"):
        return None
    if (getattr(function, "__module__", None) or "").endswith("linalg"):
        found: Function | None = getattr(linalg, name, None)
        return found
    return FUNCTIONS.get(name)


def array_function(function: Callable[..., object], args: Sequence[object], keywords: dict[str, Any]) -> object:
    """`__array_function__`."""
    own = own_function(function)
    if own is not None:
        return own(*args, **keywords)
    return run_on_host(function.__name__, function, args, keywords)


def array_ufunc(ufunc: np.ufunc, method: str, inputs: Sequence[object], keywords: dict[str, Any]) -> object:
    """`__array_ufunc__`."""
    out = keywords.pop("out", None)
    if isinstance(out, tuple) and len(out) == 1:
        (out,) = out
    own = own_function(ufunc) if method == "__call__" else None
    if isinstance(out, np.ndarray):
        result = array_ufunc(ufunc, method, inputs, keywords)
        out[...] = np.asarray(result)
        return out
    if own is not None:
        return own(*inputs, out=out, **keywords) if out is not None else own(*inputs, **keywords)
    if out is not None:
        keywords["out"] = out
    return run_on_host(ufunc.__name__, getattr(ufunc, method), inputs, keywords)


def register() -> None:
    """Let arrays use them."""
    FUNCTIONS["_array_function"], FUNCTIONS["_array_ufunc"] = array_function, array_ufunc
