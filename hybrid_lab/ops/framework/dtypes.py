"""Element types: which arrays can have, and bfloat16, which NumPy has not and the package ml_dtypes adds.

ml_dtypes is imported only on the first request for bfloat16. From then on NumPy knows the name.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from hybrid_lab.diagnostics.errors import DTypeError

BFLOAT16 = "bfloat16"

OWN = ("float32", "float64", "float16", "uint8", "int32", "int8", "int64", "bool")
"""NumPy's, in the order of MXNet's type flags."""
DTYPES = (*OWN, BFLOAT16)
TYPE_FLAGS = {**{name: flag for flag, name in enumerate(OWN)}, BFLOAT16: 12}
"""The numbers of element types in MXNet's files."""

FLOATING = "fV"
"""NumPy's kinds of floating dtypes: bfloat16 is of kind V, and nothing else that arrays can have is."""

NARROW = ("float16", BFLOAT16)
"""Floating types that are computed in float32 and rounded at the end."""


@cache
def bfloat16() -> np.dtype:
    """NumPy's dtype of bfloat16. Raises DTypeError if ml_dtypes is missing."""
    try:
        import ml_dtypes
    except ImportError:
        raise DTypeError("bfloat16 needs the package ml_dtypes: pip install ml_dtypes") from None
    return np.dtype(ml_dtypes.bfloat16)


def dtype_of(wanted: Any) -> np.dtype:
    """NumPy's dtype of a name, a type or a dtype; "bfloat16" is one, and MXNet's `np.dtype([("bfloat16", np.uint16)])`.

    Raises TypeError for anything but a dtype, DTypeError for bfloat16 without ml_dtypes.
    """
    if isinstance(wanted, str) and wanted == BFLOAT16:
        return bfloat16()
    found = np.dtype(wanted)
    return bfloat16() if found.names == (BFLOAT16,) else found


@cache
def name_of(dtype: np.dtype) -> str:
    """`dtype.name`, which NumPy puts together anew each time."""
    return dtype.name


def prepared(dtype: Any) -> Any:
    """The given dtype, in a form that NumPy knows: loads ml_dtypes for bfloat16, and takes MXNet's dtype of that name
    for it. Raises DTypeError if ml_dtypes is missing.
    """
    if isinstance(dtype, str):
        return bfloat16().name if dtype == BFLOAT16 else dtype
    return bfloat16().type if getattr(dtype, "names", None) == (BFLOAT16,) else dtype


def is_floating(dtype: np.dtype) -> bool:
    """Whether a NumPy dtype has fractions, bfloat16 among them."""
    return dtype.kind in FLOATING


def is_bfloat16(dtype: np.dtype) -> bool:
    return dtype.kind == "V"


def is_narrow(dtype: np.dtype) -> bool:
    """Whether a NumPy dtype is float16 or bfloat16."""
    return dtype == np.float16 or dtype.kind == "V"


def limits(dtype: np.dtype) -> np.finfo:
    """np.finfo, for bfloat16 too."""
    if is_bfloat16(dtype):
        from ml_dtypes import finfo

        bounds: Callable[[np.dtype], np.finfo] = finfo
        return bounds(dtype)
    return np.finfo(dtype)
