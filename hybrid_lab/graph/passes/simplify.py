"""Remove what changes nothing: dead and repeated nodes, identities, constant parts, reads of a mere shape.

Then what `algebra` knows to be the same with less work.

    identity(exp(x)) + Reshape(exp(x), shape=(0, -1))   becomes   y = exp(x);  y + y
    broadcast_like(z, log(x))                           becomes   broadcast_like(z, shape(2, 3))
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Constant, Input, Node, Value
from hybrid_lab.graph.passes.algebra import rewritten
from hybrid_lab.graph.symbolic import computed, stand_in
from hybrid_lab.ops.framework.sizes import equal_shapes


def simplify(graph: Graph) -> Graph:
    """An inferred graph without identities, duplicates and shape-only reads. Dead nodes go by not being reachable.

    Run it after differentiation: BlockGrad is an identity for values but not for gradients.
    """
    known: dict[Hashable, Node] = {}
    done: set[Node] = set()
    stubs: list[Value] = []

    def is_known(node: Node) -> bool:
        return node in done or isinstance(node.op, (Input, Constant))

    def rewrite(node: Node, inputs: tuple[Value, ...]) -> Sequence[Value] | None:
        if isinstance(node.op, (Input, Constant)):
            return None
        if is_identity(node):
            return (inputs[0], *node.outputs[1:])
        if node.op.shape_only:
            inputs = _strip_shape_only(node, inputs, stubs)
        current = node if inputs == node.inputs else node.replace(inputs=inputs)
        while (better := rewritten(current)) is not None:
            if better in current.inputs or is_known(better.node):
                return (better,)
            current = better.node
        # Numbers by type and text: 1, 1.0 and True are different immediates, and so are 0.0 and -0.0.
        operands = [item if isinstance(item, Value) else (type(item), repr(item)) for item in current.inputs]
        key = (current.op, tuple(operands), current.draw)
        equal_node = known.get(key)
        if equal_node is None:
            value = _folded(current, current.inputs)
            if value is not None:
                return (value,)
            equal_node = known[key] = current
            done.add(current)
        return equal_node.outputs

    return graph.map(rewrite)


def is_identity(node: Node) -> bool:
    """Whether the first output is the first input, value for value."""
    if node.op.identity:
        return True
    if node.op.identity_if_alike and isinstance(node.inputs[0], Value):
        source, result = node.inputs[0], node.outputs[0]
        return source.dtype == result.dtype and equal_shapes(source.shape, result.shape)
    return False


#: Results up to this size are computed at compile time if all inputs are constants.
_FOLD_BYTES = 1 << 14


def _folded(node: Node, inputs: tuple[object, ...]) -> Value | None:
    """The node's output as a constant, if it is small and depends on nothing."""
    if node.op.random or len(node.outputs) != 1:
        return None
    if not all(isinstance(item.node.op, Constant) for item in inputs if isinstance(item, Value)):
        return None
    return computed(node, inputs) if node.outputs[0].nbytes <= _FOLD_BYTES else None


def _strip_shape_only(node: Node, inputs: tuple[Value, ...], stubs: list[Value]) -> tuple[Value, ...]:
    """Replace inputs of which only the shape is read by constants without memory (all strides zero), so that no value
    is kept for them.
    """
    stripped = list(inputs)
    for index, value in enumerate(inputs):
        if not node.op.reads_values(index) and isinstance(value, Value) and not isinstance(value.node.op, Constant):
            stripped[index] = _stub(value, stubs)
    return tuple(stripped)


def _stub(value: Value, stubs: list[Value]) -> Value:
    """The stand-in of this shape and dtype."""
    shape, dtype = value.shape, value.dtype
    for known in stubs:
        if known.dtype == dtype and equal_shapes(known.shape, shape):
            return known
    stubs.append(stand_in(shape, dtype))
    return stubs[-1]
