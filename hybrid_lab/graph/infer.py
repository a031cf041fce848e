"""Infer shapes and dtypes, forwards; and backwards, through the records' `complete`, for deferred parameters.

    %0: ?[?] = dot(%x, %w)      with x: f32[4,3] and w: f32[3,5] becomes      %0: f32[4,5] = dot(%x, %w)

`PartialShapes` goes both ways: FullyConnected(x, w, num_hidden=8) of x: (4, 5) says that w is (8, 5).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hybrid_lab.diagnostics.errors import DTypeError, HybridLabError, ShapeError
from hybrid_lab.graph.builder import infer_outputs
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Input, Node, Value
from hybrid_lab.ops.framework.dtypes import dtype_of
from hybrid_lab.ops.framework.operator import Operator
from hybrid_lab.ops.framework.run import infer as infer_operator


def infer(graph: Graph, shapes: Mapping[Value, Any], dtypes: Mapping[Value, Any]) -> Graph:
    """The graph with shapes and dtypes on every node.

    shapes, dtypes : complete, for every input Value of the graph
    Raises ShapeError or DTypeError naming the operator, its source line and its block.
    """
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
    """The graph with the sizes filled in that an imported file left open: zeros to begin with, of any batch."""
    if not any(is_open(node) for node in graph.nodes):
        return graph
    known = PartialShapes(graph, shapes).shapes

    def rewrite(node: Node, inputs: tuple[object, ...]) -> Sequence[Value] | None:
        shape = known.get(node.outputs[0]) if is_open(node) else None
        if not is_complete(shape):
            return None
        return node.replace(op=node.op.variant(shape=shape, _open=False)).outputs

    return graph.map(rewrite)


def is_open(node: Node) -> bool:
    """Whether the node makes an array of which some sizes follow from its readers."""
    return bool(getattr(node.op, "_open", False))


def located(error: HybridLabError, node: Node) -> HybridLabError:
    """The same error with the block and source line of the node behind it, once."""
    if getattr(error, "located", False):
        return error
    where = ", ".join(
        part
        for part in (node.location.describe() if node.location else "", f"block {node.scope}" if node.scope else "")
        if part
    )
    located_error = type(error)(f"{error}\n  {where}" if where else str(error))
    located_error.located = True  # type: ignore[attr-defined]
    return located_error


class PartialShapes:
    """Shapes of every Value as far as they can be known: a fixpoint of forward rules and `complete`.

    known : Value -> shape with None for unknown dimensions, for some of the inputs
    """

    def __init__(self, graph: Graph, known: Mapping[Value, Any]):
        self.graph = graph
        self.shapes: dict[Value, Any] = {}
        for value, shape in known.items():
            if shape is not None:
                self.shapes[value] = tuple(shape)
        for _ in range(8):
            if not self._sweep():
                break

    def _sweep(self) -> bool:
        before = dict(self.shapes)
        for node in self.graph.nodes:
            if not isinstance(node.op, Input):
                self._visit(node)
        for node in reversed(self.graph.nodes):
            if not isinstance(node.op, Input):
                self._backward(node)
        return before != self.shapes

    def _visit(self, node: Node) -> None:
        if is_open(node):
            self._learn(node.outputs[0], tuple(size or None for size in node.op.attributes["shape"]), node)
            return
        try:
            self._learn_inputs(node, node.op.complete(*self._inputs(node)))
            shapes: Any = self._inputs(node)
            if not all(is_complete(shape) for shape in shapes):
                return
            if node.op.subgraphs:
                inferred = node.op.infer_shape(*shapes)
            else:
                # Only shapes are asked for; a dtype conflict is found when the dtypes are known.
                types = tuple(np.dtype("float32") if isinstance(item, Value) else None for item in node.inputs)
                inferred = infer_operator(node.op, shapes, types)[0]
            self.shapes.update(zip(node.outputs, map(tuple, inferred), strict=True))
        except ShapeError as error:
            raise located(error, node) from None

    def _backward(self, node: Node) -> None:
        """Elementwise operators carry a known output shape back to an unknown input (RNN begin states); others
        where their record says how.
        """
        from hybrid_lab.ops.framework.pointwise import Unary

        shape: Any = self.shapes.get(node.outputs[0])
        if not is_complete(shape):
            return
        if type(node.op).complete_from is not Operator.complete_from:
            self._learn_inputs(node, node.op.complete_from(shape, *self._inputs(node)))
        if isinstance(node.op, Unary) and not is_complete(self._inputs(node)[0]):
            self._learn_inputs(node, (shape,))

    def _inputs(self, node: Node) -> tuple[Any, ...]:
        """The shapes of a node's inputs as far as they are known; numbers have shape ()."""
        return tuple(self.shapes.get(item) if isinstance(item, Value) else () for item in node.inputs)

    def _learn_inputs(self, node: Node, shapes: Sequence[object]) -> None:
        for item, shape in zip(node.inputs, shapes, strict=True):
            if isinstance(item, Value) and shape is not None:
                self._learn(item, shape, node)

    def _learn(self, value: Value, shape: Any, node: Node) -> None:
        shape, old = tuple(shape), self.shapes.get(value)
        if old is None:
            self.shapes[value] = shape
            return
        if len(old) != len(shape) or any(
            a is not None and b is not None and a != b for a, b in zip(old, shape, strict=True)
        ):
            raise ShapeError(f"{node.op.name}: {value.node.name or 'an input'} has shape {old}, {shape} is needed here")
        self.shapes[value] = tuple(b if a is None else a for a, b in zip(old, shape, strict=True))


def is_complete(shape: Any) -> bool:
    """Whether every dimension is known."""
    return shape is not None and all(size is not None for size in shape)
