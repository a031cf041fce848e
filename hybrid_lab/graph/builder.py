"""Builder: F for graph code. `F.exp(e)` appends nodes; Expr has the arithmetic operators that Values must not have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from hybrid_lab.graph.node import Node, Value, constant_node, infer_outputs
from hybrid_lab.ops.framework.namespace import Arithmetic, Namespace
from hybrid_lab.ops.framework.operator import Operator


class Expr(Arithmetic):
    """A Value in the hands of gradient, lowering and aux rules."""

    __slots__ = ("F", "value")

    def __init__(self, builder: Builder, value: Value):
        self.F, self.value = builder, value

    @property
    def dtype(self) -> Any:
        """The dtype, None if it is not inferred yet."""
        return self.value.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """As an array has it; lowering rules see inferred graphs only."""
        assert self.value.shape is not None
        return self.value.shape

    def __bool__(self) -> bool:
        raise TypeError("a rule must not branch on values; use F.where")

    def __repr__(self) -> str:
        return f"Expr({self.value!r})"


class Builder(Namespace):
    """Appends nodes, inferring shapes and dtypes at once if the inputs' are known."""

    def __init__(self) -> None:
        super().__init__(self.apply)
        self._origin: Node | None = None

    @contextmanager
    def origin(self, node: Node | None) -> Iterator[None]:
        """Nodes made inside carry the scope, source line and composite of `node`, and a random one its draw number."""
        before, self._origin = self._origin, node
        try:
            yield
        finally:
            self._origin = before

    def expr(self, value: object) -> Any:
        return Expr(self, value) if isinstance(value, Value) else value

    def apply(self, op: Operator, inputs: Sequence[object]) -> Any:
        """The visible outputs as Expr, or a tuple of them."""
        values = self.append(op, [item.value if isinstance(item, Expr) else item for item in inputs])
        visible = op.signature.visible
        if visible == 1:
            return Expr(self, values[0])
        return tuple(Expr(self, value) for value in values[:visible])

    def append(self, op: Operator, inputs: Sequence[object]) -> tuple[Value, ...]:
        """All outputs of a new node. Arrays among the inputs become constants."""
        operands = tuple(constant_node(item) if isinstance(item, np.ndarray) else item for item in inputs)
        draw = self._origin.draw if op.random and self._origin is not None else None
        return make_node(op, operands, origin=self._origin, draw=draw).outputs


def make_node(op: Operator, inputs: Sequence[object], origin: Node | None = None, draw: int | None = None) -> Node:
    """A node with the scope, location and composite of `origin`, inferred where its inputs are."""
    shapes = dtypes = None
    if all(item.shape is not None and item.dtype is not None for item in inputs if isinstance(item, Value)):
        shapes, dtypes = infer_outputs(op, inputs)
    if origin is None:
        return Node(op, inputs, draw=draw, shapes=shapes, dtypes=dtypes)
    return Node(
        op,
        inputs,
        scope=origin.scope,
        location=origin.location,
        composite=origin.composite,
        draw=draw,
        shapes=shapes,
        dtypes=dtypes,
    )
