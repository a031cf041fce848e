"""Operators that are linear along each axis of an image: one small matrix for the rows, one for the columns."""

from __future__ import annotations

from functools import lru_cache
from math import prod

import numpy as np

from hybrid_lab.diagnostics.errors import ShapeError, Unmappable
from hybrid_lab.ops.framework import Adjoint, Operator, into
from hybrid_lab.ops.framework.protocols import Functions, OnnxGraph, Tensor
from hybrid_lab.ops.framework.types import Array
from hybrid_lab.ops.kernels import blas


def image_shape(name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    if len(shape) != 4:
        raise ShapeError(f"{name}: data has shape {shape}; four dimensions are needed (n, c, h, w)")
    return shape


class Separable(Operator):
    """Base of operators that multiply an image with one matrix from either side, and of their gradients."""

    dtype_kinds = "f"
    half_in_float32 = True

    def target(self, *shapes: tuple[int, ...]) -> tuple[int, int]:
        """Height and width of the result. Raises ShapeError."""
        raise NotImplementedError

    def matrix(self, size: int, wanted: int) -> np.ndarray:
        """The (wanted, size) matrix along one axis, float64."""
        raise NotImplementedError

    @lru_cache(64)  # noqa: B019 - operators are interned and live for ever
    def matrices(self, spatial: tuple[int, ...], wanted: tuple[int, int], dtype: str) -> list[np.ndarray]:
        """The matrix of the rows and the matrix of the columns."""
        made = [self.matrix(size, target) for size, target in zip(spatial, wanted, strict=True)]
        return [np.ascontiguousarray(item, dtype) for item in made]

    def forward(self, data: np.ndarray, wanted: tuple[int, int], out: np.ndarray | None) -> np.ndarray:
        """rows data columns^T"""
        rows, columns = self.matrices(data.shape[2:], wanted, data.dtype.name)
        return _both_sides(rows, data, columns, out)

    def lower_forward(self, F: Functions, data: Tensor) -> Tensor:
        """rows data columns^T in two products with constants."""
        rows, columns = self.matrices(data.shape[2:], self.target(data.shape), "float64")
        return _lowered_sides(F, rows, data, columns)


class SeparableGrad(Adjoint, Separable):
    """Base of the gradients of separable operators: rows^T dy columns.

    dy : the result; data : read for its shape; returns : that shape
    """

    def numpy(self, dy: Array, data: Array, out: Array | None = None) -> Array:
        rows, columns = self.matrices(data.shape[2:], dy.shape[2:], dy.dtype.name)
        return _both_sides(rows.T, dy, columns.T, out)

    def lower(self, F: Functions, dy: Tensor, data: Tensor) -> Tensor:
        rows, columns = self.matrices(data.shape[2:], dy.shape[2:], "float64")
        return _lowered_sides(F, np.ascontiguousarray(rows.T), dy, np.ascontiguousarray(columns.T))

    def onnx(self, g: OnnxGraph, dy: str, data: str) -> str:
        rows, columns = self.matrices(g.shape(data)[2:], g.shape(dy)[2:], "float64")
        return g.MatMul(g.MatMul(g.const(rows.T, g.dtype(dy)), dy), g.const(columns, g.dtype(dy)))


def _both_sides(left: np.ndarray, x: np.ndarray, right: np.ndarray, out: np.ndarray | None) -> np.ndarray:
    """left x right^T for every image of x, in the order that is cheaper."""
    (high, h), (wide, w) = left.shape, right.shape
    lead = x.shape[:2]
    if out is None or not out.flags.c_contiguous:
        return into(_both_sides(left, x, right, np.empty((*lead, high, wide), x.dtype)), out)
    if 0 in x.shape or 0 in out.shape:
        out.fill(0)
        return out
    if h * w * wide + high * h * wide <= high * h * w + high * w * wide:
        half = blas.matmul(np.ascontiguousarray(x).reshape(prod(lead) * h, w), right.T)
        return np.matmul(left, half.reshape(*lead, h, wide), out=out)
    half = np.matmul(left, x)
    blas.matmul(half.reshape(prod(lead) * high, w), right.T, out=out.reshape(prod(lead) * high, wide))
    return out


def _lowered_sides(F: Functions, left: np.ndarray, x: Tensor, right: np.ndarray) -> Tensor:
    """left x right^T for every image of x, in F."""
    if 0 in x.shape:
        raise Unmappable("an image without pixels")
    n, channels, height, width = x.shape
    before, after = (F._cast_like(item, x) for item in (left, right))
    half = F.dot(F.Reshape(x, shape=(-1, width)), after, transpose_b=True)
    turned = F.transpose(F.Reshape(half, shape=(n, channels, height, after.shape[0])), axes=(0, 1, 3, 2))
    both = F.dot(F.Reshape(turned, shape=(-1, height)), before, transpose_b=True)
    return F.transpose(F.Reshape(both, shape=(n, channels, right.shape[0], left.shape[0])), axes=(0, 1, 3, 2))
