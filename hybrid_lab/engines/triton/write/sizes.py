"""Sizes of a product, as its kernels and those who choose tiles count them."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from hybrid_lab.ops.product import Product


@dataclass(frozen=True)
class Sizes:
    """Of a product, in elements."""

    rows: int
    columns: int
    inner: int
    batches: int

    @staticmethod
    def of(product: Product) -> Sizes:
        return Sizes(prod(product.rows), prod(product.columns), prod(product.inner), prod(product.batch))

    def __str__(self) -> str:
        kind = f"{self.batches:,} products" if self.batches > 1 else "A product"
        return f"{kind} of {self.rows:,} x {self.inner:,} and {self.inner:,} x {self.columns:,}"
