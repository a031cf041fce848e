"""Infer the shapes and dtypes of a graph whose inputs are known; `partial` infers with less.

%0: ?[?] = dot(%x, %w)      with x: f32[4,3] and w: f32[3,5] becomes      %0: f32[4,5] = dot(%x, %w)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hybrid_lab.diagnostics.errors import DTypeError, ShapeError
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Input, Node, Value, infer_outputs
from hybrid_lab.graph.partial import PartialShapes, is_complete, located
from hybrid_lab.ops.framework.dtypes import dtype_of


def infer(graph: Graph, shapes: Mapping[Value, Any], dtypes: Mapping[Value, Any]) -> Graph:
    """The graph with shapes and dtypes on every node.

    shapes, dtypes : complete, for every input Value of the graph
    Raises ShapeError or DTypeError naming the operator, its source line and its block.
    """
    if graph.has("is_open"):
        graph = closed(graph, shapes)

    def rewrite(node: Node, inputs: tuple[Any, ...]) -> Sequence[Value] | None:
        if isinstance(node.op, Input):
            value = node.outputs[0]
            if shapes.get(value) is None:
                raise ShapeError(f"the shape of the input {node.name!r} is not known")
            return node.replace(shapes=(tuple(shapes[value]),), dtypes=(dtype_of(dtypes[value]),)).outputs
        try:
            out_shapes, out_dtypes = infer_outputs(node.op, inputs)
        except (ShapeError, DTypeError) as error:
            raise located(error, node) from None
        return node.replace(inputs=inputs, shapes=out_shapes, dtypes=out_dtypes).outputs

    return graph.map(rewrite)


def closed(graph: Graph, shapes: Mapping[Value, object]) -> Graph:
    """The graph with the sizes filled in that a file, or code on Symbols, left open, such as the batch of `F.zeros`."""
    if not graph.has("is_open"):
        return graph
    known = PartialShapes(graph, shapes).shapes

    def rewrite(node: Node, inputs: tuple[object, ...]) -> Sequence[Value] | None:
        shape = known.get(node.outputs[0]) if node.op.is_open else None
        if shape is not None and node.op.attributes["_or_empty"]:
            shape = tuple(size or 0 for size in shape)
        if not is_complete(shape):
            return None
        return node.replace(op=node.op.variant(shape=shape, _open=False, _or_empty=False)).outputs

    return graph.map(rewrite)
