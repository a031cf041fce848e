"""What an operator can be in a kernel, from what its record declares."""

from __future__ import annotations

from hybrid_lab.graph.node import Node
from hybrid_lab.ops.operator import Operator
from hybrid_lab.ops.product import Product
from hybrid_lab.ops.recurrence import Recurrence, RecurrenceGrad


def has_element(op: Operator) -> bool:
    """Whether the record says how an element of its output follows from elements of its inputs."""
    return type(op).element is not Operator.element


def product_of(node: Node) -> Product | None:
    """The operator as sums of products, for the node's shapes; None where it is none."""
    if type(node.op).product is Operator.product:
        return None
    return node.op.product(*(item.shape for item in node.values_in))


def is_product(node: Node) -> bool:
    """Whether a kernel computes the operator as tiles of products."""
    return product_of(node) is not None


def collects(node: Node) -> bool:
    """Whether the operator puts entries into rows by number."""
    return type(node.op).collect is not Operator.collect


def is_recurrence(node: Node) -> bool:
    """Whether the operator is all steps of a recurrent layer, or their gradient."""
    return isinstance(node.op, (Recurrence, RecurrenceGrad))
