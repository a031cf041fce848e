"""The multiply-adds of matrix products, from shapes alone."""

from __future__ import annotations

from math import isqrt, prod

from hybrid_lab.ops.framework.types import Shape


def of_product(left: Shape, right: Shape, result: Shape, batch: int = 1) -> int:
    """m n k for each of `batch` products (m, k) x (k, n), whatever the order of the axes and whichever are transposed.

    The sizes of the three arrays are m k, k n and m n; the root of their product is m n k.
    """
    sizes = prod(left) * prod(right) * prod(result)
    return isqrt(sizes // batch**3) * batch if sizes else 0
