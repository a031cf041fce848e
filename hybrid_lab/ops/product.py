"""Product: an operator as sums of products, for kernels that work on tiles of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hybrid_lab.ops.protocols import Elements, Place


@dataclass(frozen=True)
class Product:
    """out[b, m, n] = the sum over k of left[b, m, k] * right[b, k, n], times the scale, plus the bias.

    batch, rows, columns, inner : the sizes of the axes that b, m, n and k stand for; () for one alone
    left, right : (K, b, m, k) and (K, b, k, n) -> an element, as a record's `element` writes it
    place : (b, m, n) -> where in the output the sum belongs
    bias : (K, b, m, n) -> what is added to the sum, or None
    """

    batch: tuple[int, ...]
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    inner: tuple[int, ...]
    left: Callable[[Any, Place, Place, Place], str]
    right: Callable[[Elements, Place, Place, Place], str]
    place: Callable[[Place, Place, Place], tuple[Any, ...]]
    bias: Callable[[Elements, Place, Place, Place], str] | None = None
    scale: float = 1.0
