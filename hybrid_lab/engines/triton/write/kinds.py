"""The kinds of kernels that can hold an operator, read from its record."""

from __future__ import annotations

from hybrid_lab.graph.node import Node
from hybrid_lab.ops.framework.kernel import Collect, Contraction, Element, Entries, Pointwise, Product, Reduce
from hybrid_lab.ops.framework.operator import Operator
from hybrid_lab.ops.rnn.recurrence import Recurrence, RecurrenceGrad


def is_pointwise(node: Node) -> bool:
    """Whether an element of the output is an expression over one element of each input."""
    return isinstance(node.op.triton, Pointwise)


def is_reduction(node: Node) -> bool:
    """Whether the operator combines the elements along some axes."""
    return isinstance(node.op.triton, Reduce)


def combine(node: Node) -> str | None:
    """How a reduction combines elements: "sum", "max", "min" or "prod"; None for other operators."""
    return node.op.triton.combine if isinstance(node.op.triton, Reduce) else None


def element_of(op: Operator) -> Element | None:
    """How an element of the output follows from elements of the inputs, if the record says so."""
    kernel = op.triton.otherwise if isinstance(op.triton, Product) else op.triton
    return kernel if isinstance(kernel, Element) else None


def contraction_of(node: Node) -> Contraction | None:
    """The sums of products that the operator computes for the node's shapes, or None if it computes something else."""
    kernel = node.op.triton
    if not isinstance(kernel, Product):
        return None
    return kernel.contraction(node.op, *(item.shape for item in node.values_in))


def is_product(node: Node) -> bool:
    """Whether a kernel computes the operator as tiles of products."""
    return contraction_of(node) is not None


def collects(node: Node) -> bool:
    """Whether the operator puts entries into rows by number."""
    return isinstance(node.op.triton, Collect)


def entries_of(node: Node) -> Entries:
    """The entries that the operator puts into rows. Raises Unmappable."""
    assert isinstance(node.op.triton, Collect), "asked of operators that collect"
    return node.op.triton.entries(node.op, *(item.shape for item in node.values_in))


def is_recurrence(node: Node) -> bool:
    """Whether the operator is all steps of a recurrent layer, or their gradient."""
    return isinstance(node.op, (Recurrence, RecurrenceGrad))
