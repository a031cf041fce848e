"""How the results of two engines differ, in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from hybrid_lab.ops.dtypes import is_bfloat16

#: Elements that are looked at together, so that large results need little memory besides.
_BLOCK = 1 << 20


def difference(found: Sequence[np.ndarray], wanted: Sequence[np.ndarray], tolerance: float) -> str:
    """How results differ by more than the tolerance (relative to the largest value of each), in words; "" if not."""
    for index, (a, b) in enumerate(zip(found, wanted, strict=True)):
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"output {index} is {a.dtype}{list(a.shape)} instead of {b.dtype}{list(b.shape)}"
        if is_bfloat16(a.dtype):
            a, b, tolerance = a.astype(np.float32), b.astype(np.float32), max(tolerance, 2.0**-7)
        if a.dtype.kind != "f":
            if not np.array_equal(a, b):
                return f"output {index} differs"
            continue
        scale = max((_largest(block) for block in _blocks(b)), default=0.0)
        bound = tolerance * max(scale, 1e-3)
        pairs = zip(_blocks(a), _blocks(b), strict=True)
        if not all(np.allclose(*pair, rtol=0, atol=bound, equal_nan=True) for pair in pairs):
            places = (np.isnan(a), np.isnan(b))
            if (places[0] & ~places[1]).any():
                return f"output {index} differs: NaN where the reference has none"
            if (places[1] & ~places[0]).any():
                return f"output {index} differs: no NaN where the reference has some"
            if not np.array_equal(np.where(np.isinf(a), a, 0), np.where(np.isinf(b), b, 0)):
                return f"output {index} differs: infinite in other places than the reference"
            with np.errstate(invalid="ignore"):
                worst = _largest(np.where(np.isfinite(b), a - b, 0))
            return f"output {index} differs by {worst:.2g} where the largest value is {scale:.2g}"
    return ""


def _blocks(array: np.ndarray) -> Iterator[np.ndarray]:
    flat = array.reshape(-1)
    return (flat[start : start + _BLOCK] for start in range(0, flat.size, _BLOCK))


def _largest(array: np.ndarray) -> float:
    """The largest magnitude among the finite numbers."""
    return float(np.abs(array, where=np.isfinite(array), out=np.zeros_like(array)).max(initial=0.0))
