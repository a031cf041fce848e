"""`mx.np`: arrays with NumPy's semantics, and NumPy's functions on them, recorded by autograd and traced by gluon.

Every function takes arrays eagerly and Symbols in a trace; `F.np` of `hybrid_forward` is this module in both.
"""

from __future__ import annotations

from typing import Any

import numpy as _numpy

from hybrid_lab.diagnostics.unknown_names import unknown_name as _unknown_name
from hybrid_lab.numpy import (
    choosing,
    creation,
    elementwise,
    host,
    joining,
    linalg,
    methods,
    products,
    protocols,
    random,
    rearranging,
    reduction,
    shaping,
)
from hybrid_lab.numpy.array import ndarray
from hybrid_lab.numpy.errors import named as _named

_PARTS = choosing, creation, elementwise, host, joining, products, rearranging, reduction, shaping
_FUNCTIONS = methods.FUNCTIONS  # which the parts have filled
_FUNCTIONS.update({name: _named(f"np.{name}", function) for name, function in _FUNCTIONS.items() if name[:1] != "_"})
methods.show_signatures()
protocols.register()

_CONSTANTS = (
    *("pi", "e", "inf", "nan", "newaxis", "float16", "float32", "float64", "int8", "int32", "int64", "uint8", "bool_"),
    *("finfo", "iinfo", "dtype", "set_printoptions", "get_printoptions", "printoptions", "promote_types"),
    *("min_scalar_type", "euler_gamma"),
)
globals().update({name: getattr(_numpy, name) for name in _CONSTANTS})
bool = _numpy.bool_
NAN = NaN = _numpy.nan
PINF, NINF, PZERO, NZERO = _numpy.inf, -_numpy.inf, 0.0, -0.0
globals().update({name: function for name, function in _FUNCTIONS.items() if name[:1] != "_"})

__all__ = [
    "linalg",
    "ndarray",
    "random",
    *sorted(name for name in _FUNCTIONS if name[:1] != "_"),
    *_CONSTANTS,
]


def __getattr__(name: str) -> Any:
    raise _unknown_name("np", name, __all__)
