"""What an operator is: the record class and its registry, signature, attributes, types and shapes; how records run.

The names below are what a new record needs first.
"""

from hybrid_lab.ops.framework.kernel import Collect, Contraction, Element, Entries, Pointwise, Product, Reduce
from hybrid_lab.ops.framework.memory import into
from hybrid_lab.ops.framework.operator import Operator
from hybrid_lab.ops.framework.pointwise import Elementwise, binary, unary
from hybrid_lab.ops.framework.sample import ints, sample
from hybrid_lab.ops.framework.shapes import axis_of, broadcast_shapes, filled
from hybrid_lab.ops.framework.signature import Signature

__all__ = [
    "Collect", "Contraction", "Element", "Elementwise", "Entries", "Operator", "Pointwise", "Product", "Reduce",
    "Signature", "axis_of", "binary", "broadcast_shapes", "filled", "into", "ints", "sample", "unary",
]  # fmt: skip
