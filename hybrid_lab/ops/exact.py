"""Cube roots and logarithms to base 10 that are exact where the result has few digits.

NumPy chooses its kernels by the processor, and some of them miss 3 as the cube root of 27 or as the logarithm of 1000
by a last bit, which `trunc` or a cast to int then turns into 2.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hybrid_lab.ops.memory import into

#: Multiplying by this number and taking the product's surplus away again rounds to the leading half of a dtype's bits
#: (Veltkamp's splitting). The root of a cube that the dtype can hold has a third of them.
SPLIT = {np.dtype("float16"): 2.0**6 + 1, np.dtype("float32"): 2.0**12 + 1, np.dtype("float64"): 2.0**27 + 1}


def cube_root(x: Any, out: np.ndarray | None = None) -> Any:
    """The cube root of floating numbers; r where x is r * r * r and the dtype can hold that cube."""
    root = np.asarray(np.cbrt(x))
    with np.errstate(over="ignore", invalid="ignore"):  # infinite numbers have no leading half
        surplus = root * root.dtype.type(SPLIT[root.dtype])
        short = surplus - (surplus - root)
        # Below the normal numbers the cubes of many roots round to one.
        np.copyto(root, short, where=(short * short * short == x) & (np.abs(x) >= np.finfo(root.dtype).smallest_normal))
    return into(root, out)


def logarithm_10(x: Any, out: np.ndarray | None = None) -> Any:
    """log10 of floating numbers, computed in float64: there every kernel has the powers of ten."""
    if x.dtype == np.float64:
        return np.log10(x, out=out)
    if out is None:
        out = np.empty(x.shape, x.dtype)
    return np.log10(x, out=out, dtype=np.float64, casting="same_kind")
