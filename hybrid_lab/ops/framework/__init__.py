"""Operators: the record class and its registry, signature, attributes, types and shapes; how records run.

The names below are what records import.
"""

from hybrid_lab.ops.framework.adjoint import Adjoint
from hybrid_lab.ops.framework.kernel import Collect, Contraction, Element, Entries, Kernel, Pointwise, Product, Reduce
from hybrid_lab.ops.framework.memory import all_into, contiguous, in_c_order, into
from hybrid_lab.ops.framework.operator import Operator, forward_shape, get
from hybrid_lab.ops.framework.pointwise import (
    MAXIMUM,
    MINIMUM,
    Binary,
    Comparison,
    Elementwise,
    Unary,
    binary,
    is_scalar,
    printed,
    scalar_as,
    unary,
)
from hybrid_lab.ops.framework.sample import Derived, Sample, gradient_samples, ints, sample
from hybrid_lab.ops.framework.shapes import axis_of, broadcast_shapes, filled, kept_shape, known_shape, reduced_axes
from hybrid_lab.ops.framework.signature import Signature

__all__ = [
    "MAXIMUM", "MINIMUM", "Adjoint", "Binary", "Collect", "Comparison", "Contraction", "Derived", "Element",
    "Elementwise", "Entries", "Kernel", "Operator", "Pointwise", "Product", "Reduce", "Sample", "Signature", "Unary",
    "all_into", "axis_of", "binary", "broadcast_shapes", "contiguous", "filled", "forward_shape", "get",
    "gradient_samples", "in_c_order", "into", "ints", "is_scalar", "kept_shape", "known_shape", "printed",
    "reduced_axes", "sample", "scalar_as", "unary",
]  # fmt: skip
