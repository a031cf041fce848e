"""Decompose: composite operators (softmax, norms, losses, updates) become primitives that remember what they are of.

softmax(x)     becomes     a = x - max(x, axis=-1, keepdims=True)          # in softmax0
                           e = exp(a)                                      # in softmax0
                           e / sum(e, axis=-1, keepdims=True)              # in softmax0
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hybrid_lab.diagnostics.errors import DTypeError, Unmappable
from hybrid_lab.graph.builder import Builder, Expr
from hybrid_lab.graph.graph import Graph, reachable
from hybrid_lab.graph.node import Constant, Node, Value

Supported = Callable[[Node], bool]

#: What composites are written in: an engine that runs these runs nearly all of them. Other operators that are not
#: composite either (pooling, ordering, sampling ...) are kernels of their own.
PRIMITIVES: dict[str, tuple[str, ...]] = {
    "arithmetic": (
        "broadcast_add", "broadcast_sub", "broadcast_mul", "broadcast_div", "broadcast_power", "broadcast_maximum",
        "broadcast_minimum", "negative", "abs", "sign", "square", "sqrt", "rsqrt", "reciprocal",
    ),
    "functions": ("exp", "expm1", "log", "log1p", "tanh", "sigmoid", "softsign", "_softrelu", "erf", "gammaln"),
    "choice": (
        "relu", "clip", "where", "broadcast_equal", "broadcast_not_equal", "broadcast_greater",
        "broadcast_greater_equal", "broadcast_lesser", "broadcast_lesser_equal", "_contrib_isfinite",
    ),
    "types": ("Cast", "_cast_like"),
    "reductions": ("sum", "max", "min", "prod", "_size_ratio"),
    "movement": (
        "identity", "BlockGrad", "Reshape", "reshape_like", "_block_like", "expand_dims", "_channel_like", "transpose",
        "broadcast_like", "_restore_axes", "_drop_axes", "slice_axis", "Concat", "_contrib_arange_like",
    ),
    "indexing": ("pick", "take"),
    "products": ("dot", "batch_dot", "_linalg_gemm2", "FullyConnected", "Convolution"),
    "random": ("_dropout_mask", "_masked_scale"),
}  # fmt: skip


def decompose(graph: Graph, supported: Supported | None = None) -> Graph:
    """An inferred graph with its composites written in primitives, by their records' `lower`, again and again.

    supported : which operators the engine can run. A supported composite stays whole; so does a composite with an
        unsupported part, or with an empty array, for which parts may have no answer. None: only primitives are left,
        except for composites without a lowering for their attributes
    Each part carries scope and source line of its composite, and in `Node.composite` its name: "softmax3".
    """
    names = composite_names(graph)

    def rewrite(node: Node, inputs: tuple[object, ...]) -> Sequence[Value] | None:
        if node not in names or (supported is not None and (_is_empty(node) or supported(node))):
            return None
        origin = node.replace(composite=node.composite or names[node])
        return _expanded(origin, inputs, supported)

    return graph.map(rewrite) if names else graph


def _is_empty(node: Node) -> bool:
    return any(0 in value.shape for value in (*node.values_in, *node.outputs))


def composite_names(graph: Graph) -> dict[Node, str]:
    """The composite operators of a graph, each with a name of its own: the node's, else the operator's and a number."""
    taken = {node.name for node in graph.nodes}
    counts: dict[str, int] = {}
    names: dict[Node, str] = {}
    for node in graph.operators:
        if not node.op.is_composite or not node.inputs:
            continue
        name = node.name
        while not name:
            base = node.op.name.strip("_").lower()
            counts[base] = counts.get(base, -1) + 1
            name = f"{base}{counts[base]}" if f"{base}{counts[base]}" not in taken else ""
        names[node] = name
    return names


def _expanded(node: Node, inputs: tuple[object, ...], supported: Supported | None) -> tuple[Value, ...] | None:
    """The outputs of a composite over new inputs, in supported operators; None if that is impossible."""
    try:
        values = lower(node, inputs)
    except (Unmappable, DTypeError):  # parts may be choosier than the whole, as of bools
        return None
    if len(values) != len(node.outputs):
        return None
    new: dict[Any, Any] = {item: item for item in inputs if isinstance(item, Value)}
    for part in reachable([value for value in values if isinstance(value, Value)], set(new)):
        outputs = _part(part, tuple(new.get(item, item) for item in part.inputs), supported)
        if outputs is None:
            return None
        new.update(zip(part.outputs, outputs, strict=True))
    return tuple(new[value] for value in values)


def _part(part: Node, inputs: tuple[object, ...], supported: Supported | None) -> tuple[Value, ...] | None:
    """The outputs of one operator that a lowering made: as it is, or taken apart in its turn."""
    whole = (part if inputs == part.inputs else part.replace(inputs=inputs)).outputs
    if isinstance(part.op, Constant):
        return whole
    if supported is not None and supported(part):
        return whole
    outputs = _expanded(part, inputs, supported) if part.op.is_composite else None
    return outputs if outputs is not None or supported is not None else whole


def lower_random(graph: Graph) -> Graph:
    """Random operators that do more than draw become a draw and arithmetic, so that the arithmetic can be fused.

    The drawing node keeps the draw number; numbers do not change. Recurrent layers stay whole: few engines have their
    parts, and those take them apart with `decompose`.
    """

    def rewrite(node: Node, inputs: tuple[object, ...]) -> Sequence[Value] | None:
        taken = node.op.random and node.op.is_composite and node.inputs and node.op.family != "rnn"
        return lower(node, inputs) if taken else None

    return graph.map(rewrite)


def lower(node: Node, inputs: Sequence[object]) -> tuple[Value, ...]:
    """The outputs of `node` over new inputs, written in primitives by its record."""
    builder = Builder()
    with builder.origin(node):
        results = node.op.lower(builder, *map(builder.expr, inputs))
    results = results if isinstance(results, (tuple, list)) else (results,)
    return tuple(item.value if isinstance(item, Expr) else item for item in results)
