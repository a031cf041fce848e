"""The products of multi-head attention on interleaved projections, as GluonNLP's transformers use them."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, ClassVar

from hybrid_lab.diagnostics.errors import AttributeSpecError, ShapeError
from hybrid_lab.ops.framework import Operator, sample
from hybrid_lab.ops.framework.lowering import run_lowering
from hybrid_lab.ops.framework.protocols import Functions, Gradients, Tensor
from hybrid_lab.ops.framework.types import Shape


def head_parts(F: Functions, data: Tensor, heads: int, parts: int, index: int) -> Tensor:
    """One of the projections in data: (steps, batch, heads * parts * d) -> (batch * heads, steps, d).

    Behind each other lie the projections of the first head, then the projections of the second ...
    """
    split = F.Reshape(data, shape=(0, 0, heads, parts, -1))
    part = F.slice_axis(split, axis=3, begin=index, end=index + 1)
    return F.Reshape(F.transpose(part, axes=(1, 2, 0, 3, 4)), shape=(-3, 0, -3))


def rejoined(F: Functions, data: Tensor, heads: int) -> Tensor:
    """(batch * heads, steps, d) -> (steps, batch, heads, d)."""
    return F.transpose(F.Reshape(data, shape=(-4, -1, heads, 0, 0)), axes=(2, 0, 1, 3))


def interleaved(F: Functions, parts: list[Tensor], heads: int, like: Tensor) -> Tensor:
    """The inverse of `head_parts` for all parts together, in the shape of `like`."""
    spread = [F.expand_dims(rejoined(F, part, heads), axis=3) for part in parts]
    return F.reshape_like(F.Concat(*spread, dim=3) if len(spread) > 1 else spread[0], like)


class _Attention(Operator):
    """Base: checks, and the kernel from the lowering."""

    dtype_kinds = "f"
    precision = "low"
    numpy = run_lowering
    heads: int

    def check(self) -> None:
        if self.heads < 1:
            raise AttributeSpecError(f"{self.name}: heads={self.heads}; at least 1 is needed")

    def check_shapes(self, attention: tuple[int, ...] | None, **projections: Any) -> None:
        """projections : (shape, parts) by name. Raises ShapeError."""
        for name, (shape, parts) in projections.items():
            if len(shape) != 3 or shape[2] % (self.heads * parts):
                raise ShapeError(
                    f"{self.name}: {name} has shape {shape}; (steps, batch, a multiple of {self.heads * parts}) is "
                    f"needed for heads={self.heads}"
                )
            if attention is None and not shape[2]:
                raise ShapeError(f"{self.name}: {name} has shape {shape}; scores need heads of at least one feature")
        if attention is not None:
            (shape, _), *_ = projections.values()
            if len(attention) != 3 or attention[0] != shape[1] * self.heads or attention[2] != shape[0]:
                raise ShapeError(
                    f"{self.name}: attention has shape {attention}; ({shape[1] * self.heads}, steps, {shape[0]}) is "
                    "needed"
                )


class SelfAttentionScores(_Attention, name="_contrib_interleaved_matmul_selfatt_qk"):
    """Q K^T / sqrt(d) of self attention. queries_keys_values : (steps, batch, heads * 3 * d); returns : (batch * heads,
    steps, steps)
    """

    samples = [sample((3, 2, 12), heads=2), sample((2, 1, 6), heads=1)]

    def multiply_adds(self, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> int:
        return prod(outputs[0]) * (inputs[0][2] // (3 * self.heads))

    def infer_shape(self, queries_keys_values: Shape) -> Shape:
        self.check_shapes(None, queries_keys_values=(queries_keys_values, 3))
        steps, batch, _ = queries_keys_values
        return batch * self.heads, steps, steps

    def lower(self, F: Functions, queries_keys_values: Tensor) -> Tensor:
        queries, keys = (head_parts(F, queries_keys_values, self.heads, 3, index) for index in range(2))
        return F.batch_dot(F._contrib_div_sqrt_dim(queries), keys, transpose_b=True)

    def grad(self, F: Functions, data: Tensor, y: Tensor, dy: Tensor) -> Tensor:
        queries, keys = (head_parts(F, data, self.heads, 3, index) for index in range(2))
        dqueries = F._contrib_div_sqrt_dim(F.batch_dot(dy, keys))
        dkeys = F.batch_dot(dy, F._contrib_div_sqrt_dim(queries), transpose_a=True)
        return interleaved(F, [dqueries, dkeys, F.zeros_like(dkeys)], self.heads, data)


class _Values(_Attention):
    """Base: attention times the values, which come last among the projections of a head."""

    parts: ClassVar[int]

    def multiply_adds(self, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> int:
        return prod(outputs[0]) * inputs[1][2]

    def lower(self, F: Functions, projections: Tensor, attention: Tensor) -> Tensor:
        values = head_parts(F, projections, self.heads, self.parts, self.parts - 1)
        return F.Reshape(rejoined(F, F.batch_dot(attention, values), self.heads), shape=(0, 0, -3))

    def grad(self, F: Functions, projections: Tensor, attention: Tensor, y: Tensor, dy: Tensor) -> Gradients:
        values = head_parts(F, projections, self.heads, self.parts, self.parts - 1)
        dy = head_parts(F, dy, self.heads, 1, 0)
        dvalues = F.batch_dot(attention, dy, transpose_a=True)
        gradients = [*[F.zeros_like(dvalues)] * (self.parts - 1), dvalues]
        dattention = F.batch_dot(dy, values, transpose_b=True)
        return interleaved(F, gradients, self.heads, projections), dattention


class SelfAttentionValues(_Values, name="_contrib_interleaved_matmul_selfatt_valatt"):
    """Attention times the values of self attention. queries_keys_values : (steps, batch, heads * 3 * d); attention :
    (batch * heads, steps, steps); returns : (steps, batch, heads * d)
    """

    parts = 3
    samples = [sample((3, 2, 12), (4, 3, 3), heads=2), sample((2, 1, 6), (1, 2, 2), heads=1)]

    def infer_shape(self, queries_keys_values: Shape, attention: Shape) -> Shape:
        self.check_shapes(attention, queries_keys_values=(queries_keys_values, 3))
        return attention[1], queries_keys_values[1], queries_keys_values[2] // 3


class CrossAttentionScores(_Attention, name="_contrib_interleaved_matmul_encdec_qk"):
    """Q K^T / sqrt(d) of attention to another sequence. queries : (steps, batch, heads * d); keys_values : (sources,
    batch, heads * 2 * d); returns : (batch * heads, steps, sources)
    """

    samples = [sample((3, 2, 4), (5, 2, 8), heads=2), sample((2, 1, 3), (2, 1, 6), heads=1)]

    def multiply_adds(self, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> int:
        return prod(outputs[0]) * (inputs[0][2] // self.heads)

    def infer_shape(self, queries: Shape, keys_values: Shape) -> Shape:
        self.check_shapes(None, queries=(queries, 1), keys_values=(keys_values, 2))
        if queries[1] != keys_values[1] or queries[2] * 2 != keys_values[2]:
            raise ShapeError(f"{self.name}: queries {queries} and keys_values {keys_values} do not match")
        return queries[1] * self.heads, queries[0], keys_values[0]

    def lower(self, F: Functions, queries: Tensor, keys_values: Tensor) -> Tensor:
        rows = F._contrib_div_sqrt_dim(head_parts(F, queries, self.heads, 1, 0))
        return F.batch_dot(rows, head_parts(F, keys_values, self.heads, 2, 0), transpose_b=True)

    def grad(self, F: Functions, queries: Tensor, keys_values: Tensor, y: Tensor, dy: Tensor) -> Gradients:
        rows = F._contrib_div_sqrt_dim(head_parts(F, queries, self.heads, 1, 0))
        drows = F._contrib_div_sqrt_dim(F.batch_dot(dy, head_parts(F, keys_values, self.heads, 2, 0)))
        dkeys = F.batch_dot(dy, rows, transpose_a=True)
        return (
            interleaved(F, [drows], self.heads, queries),
            interleaved(F, [dkeys, F.zeros_like(dkeys)], self.heads, keys_values),
        )


class CrossAttentionValues(_Values, name="_contrib_interleaved_matmul_encdec_valatt"):
    """Attention times the values of another sequence. keys_values : (sources, batch, heads * 2 * d); attention :
    (batch * heads, steps, sources); returns : (steps, batch, heads * d)
    """

    parts = 2
    samples = [sample((5, 2, 8), (4, 3, 5), heads=2), sample((2, 1, 6), (1, 2, 2), heads=1)]

    def infer_shape(self, keys_values: Shape, attention: Shape) -> Shape:
        self.check_shapes(attention, keys_values=(keys_values, 2))
        return attention[1], keys_values[1], keys_values[2] // 2
