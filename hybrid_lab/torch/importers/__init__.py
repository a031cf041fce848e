"""One function per operator of ATen, a file for each kind of operators: compositions of this package's operators."""

from __future__ import annotations

from hybrid_lab.torch.importers import (
    arrays,
    creation,
    elementwise,
    images,
    indexing,
    layers,
    products,
    recurrent,
    reductions,
)

ROWS_LOADED = (arrays, creation, elementwise, images, indexing, layers, products, recurrent, reductions)
"""The modules that have entered their rows into the table."""
