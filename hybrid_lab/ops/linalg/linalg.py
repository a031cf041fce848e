"""Matrix products: dot, batch_dot, FullyConnected."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from math import prod
from typing import Any, ClassVar

import numpy as np

from hybrid_lab.diagnostics.errors import AttributeSpecError, ShapeError
from hybrid_lab.ops.framework import (
    Contraction,
    Operator,
    Product,
    Signature,
    filled,
    forward_shape,
    gradient_samples,
    into,
    known_shape,
    sample,
)
from hybrid_lab.ops.framework.protocols import Functions, Gradients, OnnxGraph, Place, Scratch, Tensor, Wanted
from hybrid_lab.ops.framework.shapes import alike, of_product
from hybrid_lab.ops.framework.types import Array, PartialShape, PartialShapes, Shape
from hybrid_lab.ops.kernels import blas


def matrix(data: np.ndarray, first: bool) -> np.ndarray:
    """A matrix whose rows are the first axis of data, or whose columns are the last one. Empty data too."""
    shape = data.shape
    return data.reshape((shape[0], prod(shape[1:])) if first else (prod(shape[:-1]), shape[-1]))


def _matrices(lhs: np.ndarray, rhs: np.ndarray, transpose_a: bool, transpose_b: bool) -> tuple[np.ndarray, np.ndarray]:
    """Both operands of dot as matrices (m, k) and (k, n)."""
    left = matrix(lhs, first=True).T if transpose_a else matrix(lhs, first=False)
    right = matrix(rhs, first=False).T if transpose_b else matrix(rhs, first=True)
    return left, right


def multiply(left: np.ndarray, right: np.ndarray, out: np.ndarray | None, scratch: Scratch = np.empty) -> np.ndarray:
    """left @ right into `out`; float16 is multiplied in float32."""
    if left.dtype == np.float16:
        wide = blas.matmul(left.astype(np.float32), right.astype(np.float32))
        return wide.astype(np.float16) if out is None else into(wide, out)
    return blas.matmul(left, right, out=out)


def product(left: np.ndarray, right: np.ndarray, shape: Shape, out: np.ndarray | None) -> np.ndarray:
    """left @ right in `shape`."""
    if out is None or not out.flags.c_contiguous:
        return into(multiply(left, right, None).reshape(shape), out)
    multiply(left, right, out.reshape(left.shape[0], right.shape[1]))
    return out


def sides(
    lhs: Shape, rhs: Shape, transpose_a: bool, transpose_b: bool
) -> tuple[tuple[int, ...], tuple[int, ...], int, int]:
    """The axes of lhs and rhs that remain in dot, and the two summed sizes."""
    left, inner_left = (lhs[1:], lhs[0]) if transpose_a else (lhs[:-1], lhs[-1])
    right, inner_right = (rhs[:-1], rhs[-1]) if transpose_b else (rhs[1:], rhs[0])
    return left, right, inner_left, inner_right


class Dot(Operator, name="dot"):
    """Sums products over the last axis of lhs and the first of rhs: (m, k) x (k, n) -> (m, n).

    Arrays of more dimensions keep the other axes: (a, b, k) x (k, c, d) -> (a, b, c, d). Two vectors give shape (1,).
    transpose_a : sum over the first axis of lhs, its others stay in order; transpose_b : sum over the last axis of rhs
    forward_stype : the storage type of a product of sparse arrays; of no effect on dense arrays
    """

    precision = "low"
    transpose_a: bool = False
    transpose_b: bool = False
    forward_stype: str | None = None
    samples = [
        sample((3, 4), (4, 5)), sample((4, 3), (4, 5), transpose_a=True), sample((3, 4), (5, 4), transpose_b=True),
        sample((4, 3), (5, 4), transpose_a=True, transpose_b=True), sample((4,), (4,)), sample((4,), (4, 3)),
        sample((2, 4), (4,)), sample((2, 3, 4), (4, 2, 2)), sample((2, 3), (3, 2), dtype="float16"),
    ]  # fmt: skip

    def check(self) -> None:
        if self.forward_stype not in (None, "default", "row_sparse", "csr"):
            raise AttributeSpecError(f"dot: there is no storage type forward_stype={self.forward_stype!r}")

    def complete(self, lhs: PartialShape, rhs: PartialShape) -> PartialShapes:
        """An unknown summed size of one operand is taken from the other operand."""
        if not lhs or not rhs:
            return lhs, rhs
        mine, other = 0 if self.transpose_a else len(lhs) - 1, len(rhs) - 1 if self.transpose_b else 0
        size = lhs[mine] if lhs[mine] is not None else rhs[other]
        return (*lhs[:mine], size, *lhs[mine + 1 :]), (*rhs[:other], size, *rhs[other + 1 :])

    def multiply_adds(self, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> int:
        return of_product(inputs[0], inputs[1], outputs[0])

    def infer_shape(self, lhs: Shape, rhs: Shape) -> Shape:
        if not lhs or not rhs:
            raise ShapeError("dot: a number is not a matrix; use *")
        left, right, inner, other = sides(lhs, rhs, self.transpose_a, self.transpose_b)
        if inner != other:
            flags = "".join(f", {name}=True" for name in ("transpose_a", "transpose_b") if getattr(self, name))
            raise ShapeError(f"dot: the summed axes of {lhs} and {rhs} differ ({inner} and {other}{flags})")
        return (*left, *right) or (1,)

    def numpy(self, lhs: Array, rhs: Array, out: Array | None = None) -> Array:
        left, right = _matrices(lhs, rhs, self.transpose_a, self.transpose_b)
        return product(left, right, self.infer_shape(lhs.shape, rhs.shape), out)

    def grad(self, F: Functions, lhs: Tensor, rhs: Tensor, y: Tensor, dy: Tensor, wanted: Wanted = None) -> Gradients:
        flags = {"transpose_a": self.transpose_a, "transpose_b": self.transpose_b}
        left, right = (True, True) if wanted is None else wanted
        return (
            F._dot_lhs_grad(dy, lhs, rhs, **flags) if left else None,
            F._dot_rhs_grad(dy, lhs, rhs, **flags) if right else None,
        )

    @Product
    def triton(self, *shapes: tuple[int, ...]) -> Contraction:
        (lhs, rhs), (ta, tb) = shapes, (self.transpose_a, self.transpose_b)
        rows, columns, inner, _ = sides(lhs, rhs, ta, tb)
        return Contraction(
            (), rows, columns, (inner,),
            left=lambda elements, b, m, k: elements.read(0, (*k, *m) if ta else (*m, *k)),
            right=lambda elements, b, k, n: elements.read(1, (*n, *k) if tb else (*k, *n)),
            place=lambda b, m, n: (*m, *n),
        )  # fmt: skip

    def onnx(self, g: OnnxGraph, lhs: str, rhs: str) -> str:
        shape = self.infer_shape(g.shape(lhs), g.shape(rhs))
        left, right = _emit_flat(g, lhs, first=self.transpose_a), _emit_flat(g, rhs, first=not self.transpose_b)
        result = _emit_product(g, left, right, self.transpose_a, self.transpose_b, g.dtype(lhs))
        return _emit_shaped(g, result, shape)


def _emit_shaped(g: OnnxGraph, matrix: str, shape: Shape) -> str:
    return matrix if len(shape) == 2 else g.Reshape(matrix, shape)


def _emit_product(g: OnnxGraph, left: str, right: str, turn_left: bool, turn_right: bool, dtype: np.dtype) -> str:
    """The product of two matrices, each read as it lies or transposed; Gemm need not write the transposed one down."""
    if dtype.kind == "f":
        return g.Gemm(left, right, transA=int(turn_left), transB=int(turn_right))
    left = g.Transpose(left, perm=[1, 0]) if turn_left else left
    return g.MatMul(left, g.Transpose(right, perm=[1, 0]) if turn_right else right)


def _emit_flat(g: OnnxGraph, value: str, first: bool) -> str:
    """A matrix whose first (or last) axis is the value's."""
    shape = g.shape(value)
    if len(shape) == 2:
        return value
    return g.Reshape(value, [shape[0], -1] if first else [-1, shape[-1]])


class _DotGradient(Operator):
    """Base of dot's two gradients: a product of dy with rhs, and a product of lhs with dy. transpose_a, transpose_b :
    the dot's
    """

    transpose_a: bool = False
    transpose_b: bool = False
    mxnet = None
    of_lhs: ClassVar[bool]

    @property
    def turned(self) -> bool:
        """Whether the gradient belongs to a transposed operand."""
        return self.transpose_a if self.of_lhs else self.transpose_b

    def first_shape(self, dy: Shape, lhs: Shape, rhs: Shape) -> Shape:
        return forward_shape("dot", lhs, rhs, transpose_a=self.transpose_a, transpose_b=self.transpose_b)

    def sizes(self, lhs: Shape, rhs: Shape) -> tuple[int, int]:
        """Rows and columns of the product."""
        rows, columns, _, _ = sides(lhs, rhs, self.transpose_a, self.transpose_b)
        return prod(rows), prod(columns)

    def multiply_adds(self, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> int:
        dy, lhs, rhs = inputs
        return of_product(lhs, rhs, dy)

    def numpy(self, dy: Array, lhs: Array, rhs: Array, out: Array | None = None) -> Array:
        dy = dy.reshape(self.sizes(lhs.shape, rhs.shape))
        left, right = _matrices(lhs, rhs, self.transpose_a, self.transpose_b)
        left, right = (dy, right.T) if self.of_lhs else (left.T, dy)
        left, right = (right.T, left.T) if self.turned else (left, right)
        return product(left, right, (lhs if self.of_lhs else rhs).shape, out)

    def onnx(self, g: OnnxGraph, dy: str, lhs: str, rhs: str) -> str:
        shapes, dtype = (g.shape(lhs), g.shape(rhs)), g.dtype(dy)
        if len(shapes[0]) != 2 or len(shapes[1]) != 2:
            dy = g.Reshape(dy, self.sizes(*shapes))
        # Both factors, and whether they are read transposed.
        if self.of_lhs:
            factors = (dy, False), (_emit_flat(g, rhs, first=not self.transpose_b), not self.transpose_b)
        else:
            factors = (_emit_flat(g, lhs, first=self.transpose_a), not self.transpose_a), (dy, False)
        (left, turn_left), (right, turn_right) = factors
        if self.turned:
            left, turn_left, right, turn_right = right, not turn_right, left, not turn_left
        result = _emit_product(g, left, right, turn_left, turn_right, dtype)
        return _emit_shaped(g, result, shapes[0 if self.of_lhs else 1])


class DotLhsGrad(_DotGradient, name="_dot_lhs_grad"):
    """The gradient of dot's lhs.

    dy : dot's output; lhs : read for its shape; rhs : dot's rhs; returns : the shape of lhs.
    """

    of_lhs = True
    shaped_like = 1
    shape_only = ("lhs",)
    samples = gradient_samples(Dot, "dy", "lhs", "rhs")

    def grad(self, F: Functions, dy: Tensor, lhs: Tensor, rhs: Tensor, y: Tensor, d: Tensor) -> Gradients:
        flags = {"transpose_a": self.transpose_a, "transpose_b": self.transpose_b}
        return F.dot(d, rhs, **flags), None, F._dot_rhs_grad(dy, d, rhs, **flags)

    @Product
    def triton(self, *shapes: tuple[int, ...]) -> Contraction:
        (_, lhs, rhs), (ta, tb) = shapes, (self.transpose_a, self.transpose_b)
        rows, columns, inner, _ = sides(lhs, rhs, ta, tb)
        return Contraction(
            (), rows, (inner,), columns,
            left=lambda elements, b, m, n: elements.read(0, elements.places((*m, *n), 0)),
            right=lambda elements, b, n, k: elements.read(2, (*n, *k) if tb else (*k, *n)),
            place=lambda b, m, k: (*k, *m) if ta else (*m, *k),
        )  # fmt: skip


class DotRhsGrad(_DotGradient, name="_dot_rhs_grad"):
    """The gradient of dot's rhs.

    dy : dot's output; lhs : dot's lhs; rhs : read for its shape; returns : the shape of rhs.
    """

    of_lhs = False
    shaped_like = 2
    shape_only = ("rhs",)
    samples = DotLhsGrad.samples

    def grad(self, F: Functions, dy: Tensor, lhs: Tensor, rhs: Tensor, y: Tensor, d: Tensor) -> Gradients:
        flags = {"transpose_a": self.transpose_a, "transpose_b": self.transpose_b}
        return F.dot(lhs, d, **flags), F._dot_lhs_grad(dy, lhs, d, **flags), None

    @Product
    def triton(self, *shapes: tuple[int, ...]) -> Contraction:
        (_, lhs, rhs), (ta, tb) = shapes, (self.transpose_a, self.transpose_b)
        rows, columns, inner, _ = sides(lhs, rhs, ta, tb)
        return Contraction(
            (), (inner,), columns, rows,
            left=lambda elements, b, k, m: elements.read(1, (*k, *m) if ta else (*m, *k)),
            right=lambda elements, b, m, n: elements.read(0, elements.places((*m, *n), 0)),
            place=lambda b, k, n: (*n, *k) if tb else (*k, *n),
        )  # fmt: skip


def gradients_of_product(
    gemm: Callable[..., Tensor], a: Tensor, b: Tensor, dy: Tensor, ta: bool, tb: bool, **scale: float
) -> tuple[Tensor, Tensor]:
    """The gradients of both operands of gemm(a, b), a product of matrices or batches of them."""
    da = gemm(b, dy, transpose_a=tb, transpose_b=True, **scale) if ta else gemm(dy, b, transpose_b=not tb, **scale)
    db = gemm(dy, a, transpose_a=True, transpose_b=ta, **scale) if tb else gemm(a, dy, transpose_a=not ta, **scale)
    return da, db


class BatchDot(Operator, name="batch_dot"):
    """One matrix product per batch: (..., m, k) x (..., k, n) -> (..., m, n).

    transpose_a, transpose_b : lhs is (..., k, m), rhs is (..., n, k)
    """

    precision = "low"
    transpose_a: bool = False
    transpose_b: bool = False
    samples = [
        sample((2, 3, 4), (2, 4, 5)),
        sample((2, 4, 3), (2, 4, 5), transpose_a=True),
        sample((2, 3, 4), (2, 5, 4), transpose_b=True),
        sample((2, 4, 3), (2, 5, 4), transpose_a=True, transpose_b=True),
    ]

    def complete(self, lhs: PartialShape, rhs: PartialShape) -> PartialShapes:
        """Fill in unknown sizes of each operand from the other: the leading axes and the summed axis agree."""
        if lhs is None or rhs is None or len(lhs) < 3 or len(lhs) != len(rhs):
            return lhs, rhs
        mine, other = -2 if self.transpose_a else -1, -1 if self.transpose_b else -2
        left, right = alike(((*lhs[:-2], lhs[mine]), (*rhs[:-2], rhs[other])))
        assert left is not None and right is not None
        left = (*left[:-1], *((left[-1], lhs[-1]) if self.transpose_a else (lhs[-2], left[-1])))
        right = (*right[:-1], *((rhs[-2], right[-1]) if self.transpose_b else (right[-1], rhs[-1])))
        return left, right

    def multiply_adds(self, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> int:
        return of_product(inputs[0], inputs[1], outputs[0], prod(inputs[0][:-2]))

    def infer_shape(self, lhs: Shape, rhs: Shape) -> Shape:
        if len(lhs) < 3 or len(lhs) != len(rhs) or lhs[:-2] != rhs[:-2]:
            raise ShapeError(f"{self.name}: {lhs} and {rhs} need three or more dimensions and the same leading ones")
        rows, inner = (lhs[-1], lhs[-2]) if self.transpose_a else lhs[-2:]
        other, columns = (rhs[-1], rhs[-2]) if self.transpose_b else rhs[-2:]
        if inner != other:
            raise ShapeError(f"{self.name}: the summed axes of {lhs} and {rhs} differ ({inner} and {other})")
        return (*lhs[:-2], rows, columns)

    def numpy(self, lhs: Array, rhs: Array, out: Array | None = None) -> Array:
        left = lhs.swapaxes(-1, -2) if self.transpose_a else lhs
        right = rhs.swapaxes(-1, -2) if self.transpose_b else rhs
        return multiply(left, right, out)

    def grad(self, F: Functions, a: Tensor, b: Tensor, y: Tensor, dy: Tensor) -> Gradients:
        return gradients_of_product(F.batch_dot, a, b, dy, self.transpose_a, self.transpose_b)

    @Product
    def triton(self, *shapes: tuple[int, ...]) -> Contraction:
        (lhs, rhs), (ta, tb) = shapes, (self.transpose_a, self.transpose_b)
        rows, inner = (lhs[-1], lhs[-2]) if ta else lhs[-2:]
        return Contraction(
            lhs[:-2], (rows,), (rhs[-2] if tb else rhs[-1],), (inner,),
            left=lambda elements, b, m, k: elements.read(0, (*b, *k, *m) if ta else (*b, *m, *k)),
            right=lambda elements, b, k, n: elements.read(1, (*b, *n, *k) if tb else (*b, *k, *n)),
            place=lambda b, m, n: (*b, *m, *n),
        )  # fmt: skip

    def onnx(self, g: OnnxGraph, lhs: str, rhs: str) -> str:
        def turn(value: str) -> str:
            rank = len(g.shape(value))
            return g.Transpose(value, perm=[*range(rank - 2), rank - 1, rank - 2])

        return g.MatMul(turn(lhs) if self.transpose_a else lhs, turn(rhs) if self.transpose_b else rhs)


class Gemm2(BatchDot, name="_linalg_gemm2", aliases=("linalg_gemm2",)):
    """alpha * A B for matrices or batches of them: (..., m, k) x (..., k, n) -> (..., m, n).

    axis : the axis of the matrices' rows, in all three arrays; the columns are always the last axis
    """

    precision = "float32"  # type: ignore[assignment]
    transpose_a: bool = False
    transpose_b: bool = False
    alpha: float = 1.0
    axis: int = -2
    samples = [
        sample((2, 3, 4), (2, 4, 5)),
        sample((3, 4), (4, 5), alpha=0.5),
        sample((4, 3), (5, 4), transpose_a=True, transpose_b=True),
        sample((3, 2, 4), (4, 2, 5), axis=0),
        sample((2, 4, 2, 3), (2, 5, 2, 4), axis=1, transpose_a=True, transpose_b=True, alpha=0.5),
    ]

    def multiply_adds(self, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> int:
        return super().multiply_adds([rows_before_columns(self.name, each, self.axis) for each in inputs], outputs)

    def infer_shape(self, A: Shape, B: Shape) -> Shape:
        name = "linalg_gemm2"
        A, B = rows_before_columns(name, A, self.axis), rows_before_columns(name, B, self.axis)
        if len(A) == len(B) == 2:
            shape = super().infer_shape((1, *A), (1, *B))[1:]
        else:
            shape = super().infer_shape(A, B)
        return rows_at_axis(shape, self.axis)

    def complete(self, lhs: PartialShape, rhs: PartialShape) -> PartialShapes:
        return super().complete(lhs, rhs) if self.axis == -2 else (lhs, rhs)

    def numpy(self, A: Array, B: Array, out: Array | None = None) -> Array:
        axis, moved = self.axis, self.axis % A.ndim != A.ndim - 2
        if moved:
            product = super().numpy(A.swapaxes(axis, -2), B.swapaxes(axis, -2))
            result = into(np.ascontiguousarray(product.swapaxes(axis, -2)), out)
        else:
            result = super().numpy(A, B, out=out)
        return result if self.alpha == 1.0 else np.multiply(result, result.dtype.type(self.alpha), out=result)

    def grad(self, F: Functions, a: Tensor, b: Tensor, y: Tensor, dy: Tensor) -> Gradients:
        flags = self.transpose_a, self.transpose_b
        return gradients_of_product(F._linalg_gemm2, a, b, dy, *flags, alpha=self.alpha, axis=self.axis)

    @Product
    def triton(self, *shapes: tuple[int, ...]) -> Contraction | None:
        rank = len(shapes[0])
        turned = [rows_before_columns("linalg_gemm2", shape, self.axis) for shape in shapes]
        product = BatchDot.triton.contraction(self, *turned)
        if not product:
            return None
        product = replace(product, scale=self.alpha)
        if self.axis % rank == rank - 2:
            return product
        ta, tb, at = self.transpose_a, self.transpose_b, self.axis

        def place(batch: Place, row: Place, column: Place) -> Place:
            return rows_at_axis((*batch, *row, *column), at)

        return replace(
            product,
            left=lambda elements, b, m, k: elements.read(0, place(b, k, m) if ta else place(b, m, k)),
            right=lambda elements, b, k, n: elements.read(1, place(b, n, k) if tb else place(b, k, n)),
            place=place,
        )

    def onnx(self, g: OnnxGraph, A: str, B: str) -> str:
        rank = len(g.shape(A))
        order = list(range(rank))
        order[self.axis], order[-2] = order[-2], order[self.axis]
        flags, moved = (self.transpose_a, self.transpose_b), self.axis % rank != rank - 2
        turned = [
            g.Transpose(value, perm=[*order[:-2], order[-1], order[-2]] if flag else order) if moved or flag else value
            for value, flag in zip((A, B), flags, strict=True)
        ]
        result = g.MatMul(*turned)
        result = g.Transpose(result, perm=order) if moved else result
        return result if self.alpha == 1.0 else g.Mul(result, g.const(self.alpha, g.dtype(A)))


def rows_before_columns(name: str, shape: Shape, axis: int) -> Shape:
    """The shape of batches of matrices whose rows are at `axis`, with the rows last but one. Raises ShapeError."""
    rank = len(shape)
    if rank < 2 or not -rank <= axis < rank - 1 or axis == -1:
        raise ShapeError(f"{name}: axis={axis} is no axis in front of the last one of {shape}")
    return rows_at_axis(shape, axis)


def rows_at_axis(shape: tuple[Any, ...], axis: int) -> tuple[Any, ...]:
    """The sizes, or indices, with those at `axis` and last but one exchanged."""
    sizes = list(shape)
    sizes[axis], sizes[-2] = sizes[-2], sizes[axis]
    return tuple(sizes)


class FullyConnected(Operator, name="FullyConnected"):
    """data @ weight^T + bias.

    data : (n, ...) with all behind n flattened, or with flatten=False (..., k); weight : (num_hidden, k); bias :
    (num_hidden,)
    returns : (n, num_hidden), or (..., num_hidden)
    """

    precision = "low"
    channels = -1
    num_hidden: int
    no_bias: bool = False
    flatten: bool = True
    samples = [
        sample((4, 3), (5, 3), (5,), num_hidden=5), sample((4, 3), (5, 3), num_hidden=5, no_bias=True),
        sample((2, 3, 4), (5, 12), (5,), num_hidden=5), sample((2, 3, 4), (5, 4), (5,), num_hidden=5, flatten=False),
        sample((2, 3), (2, 3), (2,), dtype="float16", num_hidden=2),
    ]  # fmt: skip

    @cached_property
    def signature(self) -> Signature:
        return Signature(("data", "weight") if self.no_bias else ("data", "weight", "bias"))

    def complete(self, data: PartialShape, weight: PartialShape = None, bias: PartialShape = None) -> PartialShapes:
        if data is not None:
            inner = data[1:] if self.flatten else data[-1:]
            sizes = known_shape(inner)
            width = None if sizes is None else prod(sizes)
            weight = (self.num_hidden, width) if weight is None else weight
            if len(weight) == 2 and weight[1] is None:
                weight = (weight[0], width)
        elif weight is None:
            weight = (self.num_hidden, None)
        if len(weight) == 2 and weight[0] is None:
            weight = (self.num_hidden, weight[1])
        if self.no_bias:
            return data, weight
        return data, weight, filled(bias, (self.num_hidden,))

    def complete_from(self, output: Shape, *shapes: PartialShape) -> PartialShapes:
        """The batch of data, and with flatten=False all its sizes but the last."""
        data = shapes[0]
        if data is None or None not in data:
            return shapes
        outer = 1 if self.flatten else len(data) - 1
        if len(output) != outer + 1:
            return shapes
        found = tuple(b if a is None else a for a, b in zip(data, output[:outer], strict=False))
        return (found + data[outer:], *shapes[1:])

    def multiply_adds(self, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> int:
        return prod(outputs[0]) * inputs[1][1]

    def infer_shape(self, data: Shape, weight: Shape, bias: tuple[int, ...] | None = None) -> Shape:
        if not data:
            raise ShapeError("FullyConnected: data has no dimensions")
        width = prod(data[1:]) if self.flatten else data[-1]
        if weight != (self.num_hidden, width):
            raise ShapeError(
                f"FullyConnected: data {data} needs a weight of shape {(self.num_hidden, width)}, it has {weight}"
            )
        if bias is not None and bias != (self.num_hidden,):
            raise ShapeError(
                f"FullyConnected: the bias has shape {bias}, num_hidden={self.num_hidden} needs {(self.num_hidden,)}"
            )
        return (data[0], self.num_hidden) if self.flatten else (*data[:-1], self.num_hidden)

    def numpy(self, data: Array, weight: Array, bias: Array | None = None, out: Array | None = None) -> Array:
        rows = matrix(data, first=self.flatten)
        shape = (data.shape[0], self.num_hidden) if self.flatten else (*data.shape[:-1], self.num_hidden)
        direct = out if out is not None and out.flags.c_contiguous else None
        target = direct.reshape(len(rows), self.num_hidden) if direct is not None else None
        result = multiply(rows, weight.T, target)
        if bias is not None:
            result += bias
        if direct is not None:
            return direct
        return into(result.reshape(shape), out)

    def grad(self, F: Functions, data: Tensor, weight: Tensor, *rest: Tensor, wanted: Wanted = None) -> Gradients:
        wanted = (True, True, True) if wanted is None else wanted
        dy = rest[-1]
        if not self.flatten:
            dy = F.Reshape(dy, shape=(-1, 0), reverse=True)
        ddata = F.reshape_like(F.dot(dy, weight), data) if wanted[0] else None
        dweight = None
        if wanted[1]:
            matrix = F.Flatten(data) if self.flatten else F.Reshape(data, shape=(-1, 0), reverse=True)
            dweight = F.dot(dy, matrix, transpose_a=True)
        if self.no_bias:
            return ddata, dweight
        return ddata, dweight, F.sum(dy, axis=0) if wanted[2] else None

    def bound(self, sizes: Sequence[float], shapes: Sequence[Shape], filters: Callable[[int], float]) -> float:
        return sizes[0] * filters(1) + sum(sizes[2:])

    @Product
    def triton(self, *shapes: tuple[int, ...]) -> Contraction:
        data = shapes[0]
        rows, inner = (data[:1], data[1:]) if self.flatten else (data[:-1], data[-1:])
        width = (prod(inner),)
        return Contraction(
            (), rows, (self.num_hidden,), inner,
            left=lambda elements, b, m, k: elements.read(0, (*m, *k)),
            right=lambda elements, b, k, n: elements.read(1, (*n, *elements.unravel(k, inner, width))),
            place=lambda b, m, n: (*m, *n),
            bias=None if self.no_bias else lambda elements, b, m, n: elements.read(2, n),
        )  # fmt: skip

    def onnx(self, g: OnnxGraph, data: str, weight: str, bias: str | None = None) -> str:
        shape = g.shape(data)
        if self.flatten:
            matrix = data if len(shape) == 2 else g.Flatten(data, axis=1)
            return g.Gemm(matrix, weight, *([bias] if bias else []), transB=1)
        if len(shape) == 2:
            return g.Gemm(data, weight, *([bias] if bias else []), transB=1)
        rows = g.Reshape(data, [-1, shape[-1]])
        result = g.Gemm(rows, weight, *([bias] if bias else []), transB=1)
        return g.Reshape(result, [-1, *shape[1:-1], self.num_hidden][-len(shape) :])
