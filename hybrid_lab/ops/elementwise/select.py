"""Choosing between values by a condition: where, and gradients that a call may not have."""

from __future__ import annotations

from typing import Any

import numpy as np

from hybrid_lab.ops.framework import Operator, Pointwise, broadcast_shapes, into, ints, is_scalar, sample, scalar_as
from hybrid_lab.ops.framework.lowering import emit_lowering
from hybrid_lab.ops.framework.memory import like_of
from hybrid_lab.ops.framework.protocols import Functions, Gradients, OnnxGraph, Scratch, Tensor
from hybrid_lab.ops.framework.shapes import filled_from_each_other
from hybrid_lab.ops.framework.types import Array, PartialShape, PartialShapes, PartialSizes, Shape


def _broadcasts(condition: Shape, x: Shape, y: Shape) -> bool:
    """Whether the condition chooses elements, not whole rows."""
    return len(condition) == max(len(x), len(y)) or not (len(x) or len(y))


class Where(Operator, name="where"):
    """x if condition is not 0, else y.

    condition : the shape of x and y, or (n,) to choose whole rows; x, y : one dtype; either may be a number
    """

    arrays_only = ("condition",)
    assumes_equal_shapes = True
    samples = [
        sample(ints((3, 4), 0, 2), (3, 4), (3, 4)),
        sample(ints((3,), 0, 2), (3, 4), (3, 4)),
        sample(ints((3, 4), 0, 2, "int32"), (3, 4), (3, 4)),
    ]
    triton = Pointwise("tl.where({0} != 0, {1}, {2})", fits=_broadcasts)

    def complete(
        self, condition: PartialShape, x: PartialShape, y: PartialShape
    ) -> tuple[PartialShape, PartialShape, PartialShape]:
        known = x if x else y
        shapes = condition or known, x if x is not None else known, y if y is not None else known
        return filled_from_each_other(shapes)  # type: ignore[return-value]

    def complete_from(self, output: PartialSizes, *shapes: PartialShape) -> PartialShapes:
        return filled_from_each_other((*shapes, output))[:-1]

    def infer_shape(self, condition: Shape, x: Shape, y: Shape) -> Shape:
        shape = broadcast_shapes("where", x, y)
        if condition != shape and len(condition) == 1 and shape and condition[0] == shape[0]:
            return shape
        if not shape:
            return condition
        return broadcast_shapes("where", condition, shape)

    def infer_type(self, *dtypes: np.dtype) -> np.dtype:
        return super().infer_type(*dtypes[1:]) if any(dtypes[1:]) else (dtypes[0] or np.dtype("float32"))

    @staticmethod
    def _by_row(condition: Shape, shape: tuple[int, ...]) -> bool:
        return len(condition) == 1 and len(shape) > 1 and condition[0] == shape[0]

    def numpy(
        self, condition: Array, x: Array, y: Array, out: Array | None = None, scratch: Scratch = np.empty
    ) -> Array:
        hit = (
            condition if condition.dtype == bool else np.not_equal(condition, 0, out=scratch(condition.shape, np.bool_))
        )
        if condition.ndim == 1:
            shape = np.broadcast_shapes(np.shape(x), np.shape(y))
            if self._by_row(condition.shape, shape):
                hit = hit.reshape(-1, *(1,) * (len(shape) - 1))
        if out is None and not is_scalar(x) and not is_scalar(y):
            return np.where(hit, x, y)
        if out is None:
            dtype = next((item.dtype for item in (x, y) if not is_scalar(item)), condition.dtype)
            out = np.empty(np.broadcast_shapes(hit.shape, np.shape(x), np.shape(y)), dtype, like=like_of(hit))
        elif not is_scalar(x) and np.may_share_memory(out, x):
            np.copyto(out, scalar_as(y, out), where=~hit, casting="unsafe" if is_scalar(y) else "same_kind")
            return out
        np.copyto(out, scalar_as(y, out), casting="unsafe" if is_scalar(y) else "same_kind")
        np.copyto(out, scalar_as(x, out), where=hit, casting="unsafe" if is_scalar(x) else "same_kind")
        return out

    def grad(self, F: Functions, condition: Tensor, x: Tensor, y: Tensor, z: Tensor, dz: Tensor) -> Gradients:
        dx = None if is_scalar(x) else F._sum_like(F.where(condition, dz, 0.0), x)
        dy = None if is_scalar(y) else F._sum_like(F.where(condition, 0.0, dz), y)
        return None, dx, dy

    def onnx(self, g: OnnxGraph, condition: str, x: str, y: str) -> str:
        hit = g.cast(condition, "bool")
        shape = broadcast_shapes("where", g.shape(x), g.shape(y))
        if self._by_row(g.shape(condition), shape):
            hit = g.Reshape(hit, [-1, *(1,) * (len(shape) - 1)])
        return g.Where(hit, x, y)


class Present(Operator, name="_present"):
    """data if a number is not 0, else zeros, even for NaN in data. For gradients that only some calls have, for example
    the gradient of a tensor that one branch of a `cond` reads.

    number : (1,); returns : as data
    """

    arrays_only = ("number",)
    shaped_like = 1
    typed_like = 1
    mxnet = None
    onnx = emit_lowering
    samples = [
        sample(np.array([1.0], np.float32), (3, 4), gradient=False),
        sample(np.array([0.0], np.float32), (3, 4), gradient=False),
    ]

    def numpy(self, number: Array, data: Array, out: Array | None = None) -> Array:
        return into(data if number.item() else np.zeros_like(data), out)

    def lower(self, F: Functions, number: Tensor, data: Tensor) -> Tensor:
        return F.reshape_like(F.where(number, data, 0.0), data)

    def grad(self, F: Functions, number: Tensor, data: Tensor, y: Tensor, dy: Tensor) -> Gradients:
        return None, F._present(number, dy)

    def presence(self, node: Any, index: int) -> object:
        return node.inputs[0]
