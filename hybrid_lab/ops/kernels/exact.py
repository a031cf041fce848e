"""Cube roots and logarithms to base 10, exact for results with few digits.

NumPy chooses its kernels by the processor, and some of them miss 3 as the cube root of 27 or as the logarithm of 1000
by a last bit, which `trunc` or a cast to int then turns into 2.
"""

from __future__ import annotations

import numpy as np

from hybrid_lab.ops.framework.memory import into
from hybrid_lab.ops.framework.types import Array

#: Multiplying by this number and taking the product's surplus away again rounds to the leading 26 of float64's 53 bits
#: (Veltkamp's splitting). The root of a cube that float64 can hold has 18.
SPLIT = 2.0**27 + 1


def cube_root(x: Array, out: np.ndarray | None = None) -> Array:
    """The cube root of floating numbers; r if x is r * r * r and the dtype can hold that cube."""
    if x.dtype != np.float64:
        return _in_float64(np.cbrt, x, out)
    root = np.asarray(np.cbrt(x))
    with np.errstate(over="ignore", invalid="ignore"):  # infinite numbers have no leading bits
        short = np.asarray(root * SPLIT)
        cube = np.asarray(short - root)
        short -= cube
        np.multiply(short, short, out=cube)
        cube *= short
        exact = cube == x
        # Below the normal numbers the cubes of many roots round to one.
        exact &= np.abs(x, out=cube) >= np.finfo(np.float64).smallest_normal
    return into(np.where(exact, short, root), out)


def logarithm_10(x: Array, out: np.ndarray | None = None) -> Array:
    """log10 of floating numbers, computed in float64: there every kernel has the powers of ten."""
    return np.log10(x, out=out) if x.dtype == np.float64 else _in_float64(np.log10, x, out)


def _in_float64(function: np.ufunc, x: Array, out: np.ndarray | None) -> np.ndarray:
    """The function of narrower numbers, computed in float64 and rounded once."""
    if out is None:
        out = np.empty(x.shape, x.dtype)
    return function(x, out=out, dtype=np.float64, casting="same_kind")
