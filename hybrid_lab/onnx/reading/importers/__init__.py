"""One function per ONNX operator, a file for each kind of operators: compositions of this package's operators."""

from __future__ import annotations

from hybrid_lab.onnx.reading.importers import (
    arrays,
    creation,
    elementwise,
    images,
    indexing,
    integers,
    layers,
    pooling,
    products,
    quantization,
    recurrent,
    reductions,
    signal,
    training,
    windows,
)

ROWS_LOADED = (
    arrays, creation, elementwise, images, indexing, integers, layers, pooling, products, quantization, recurrent,
    reductions, signal, training, windows,
)  # fmt: skip
"""The modules that have entered their rows into the table."""
