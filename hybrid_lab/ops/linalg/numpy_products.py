"""The products of `mx.np` for Symbols whose number of axes is not known yet: they become matrix products when the
shapes are inferred. If it is known, `mx.np` makes these products at once, by the same functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from hybrid_lab.diagnostics.errors import ShapeError
from hybrid_lab.ops.framework import Operator, sample
from hybrid_lab.ops.framework.lowering import emit_lowering, run_lowering
from hybrid_lab.ops.framework.protocols import Functions, Tensor
from hybrid_lab.ops.framework.shapes import axis_of, broadcast_shapes, of_product
from hybrid_lab.ops.framework.types import Shape
from hybrid_lab.ops.linalg.linalg_products import square
from hybrid_lab.ops.linalg.linalg_solve import Solver


def dot(F: Functions, a: Tensor, b: Tensor, ranks: tuple[int, int]) -> Tensor:
    """NumPy's dot of arrays with these numbers of axes."""
    first, second = ranks
    if first == 0 or second == 0:
        return F.broadcast_mul(a, b)
    if second > 2:
        b = F.transpose(b, axes=(second - 2, *range(second - 2), second - 1))
    result = F.dot(a, b)
    return F._drop_axes(result, axis=(0,)) if first == second == 1 else result


class _Product(Operator):
    """Base: composed of matrix products by `lower`, whose gradient then counts."""

    mxnet = None
    by_shapes = True
    refuses_gradient = True
    precision = "low"
    numpy = run_lowering
    onnx = emit_lowering

    def multiply_adds(self, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> int:
        return of_product(inputs[0], inputs[1], outputs[0])


class NumpyDot(_Product, name="_np_dot"):
    """The sums of products over the last axis of a and the last but one of b, or its only one. a : (..., n); b :
    (..., n, m) or (n,); returns : the remaining axes of a, then of b. An array without axes is a factor.
    """

    arrays_only = ("a", "b")
    samples = [
        sample((2, 3), (3, 4)), sample((3,), (3,)), sample((2, 2, 3), (2, 3, 4)), sample((2, 3), (3,)),
        sample((), (2, 3)),
    ]  # fmt: skip

    def infer_shape(self, a: Shape, b: Shape) -> Shape:
        if not a or not b:
            return broadcast_shapes("dot", a, b)
        if a[-1] != b[-2 if len(b) > 1 else -1]:
            raise ShapeError(f"dot: the summed axes of {a} and {b} differ")
        return (*a[:-1], *b[:-2], *b[-1:]) if len(b) > 1 else a[:-1]

    def lower(self, F: Functions, a: Tensor, b: Tensor) -> Tensor:
        return dot(F, a, b, (len(a.shape), len(b.shape)))


def summed_axes(axes: tuple[tuple[int, ...], tuple[int, ...]] | int, left: Shape, right: Shape) -> list[list[int]]:
    """The axes of both operands of tensordot that are summed over. Raises ShapeError if they do not fit.

    axes : how many, the last of the first operand and the first of the second; or the axes of each
    """
    first, second = len(left), len(right)
    if isinstance(axes, int):
        if not 0 <= axes <= min(first, second):
            most = min(first, second)
            raise ShapeError(
                f"tensordot: axes={axes} must be from 0 to {most} for operands of shapes {left} and {right}"
            )
        ours, theirs = list(range(first - axes, first)), list(range(axes))
    else:
        ours = [axis_of("tensordot", axis, first) for axis in axes[0]]
        theirs = [axis_of("tensordot", axis, second) for axis in axes[1]]
    if [left[axis] for axis in ours] != [right[axis] for axis in theirs]:
        raise ShapeError(f"tensordot: the axes {ours} of {left} do not fit the axes {theirs} of {right}")
    return [ours, theirs]


def tensordot(
    F: Functions, a: Tensor, b: Tensor, axes: tuple[tuple[int, ...], tuple[int, ...]] | int, left: Shape, right: Shape
) -> Tensor:
    """NumPy's tensordot of arrays with the shapes `left` and `right`."""
    ours, theirs = summed_axes(axes, left, right)
    rows = [axis for axis in range(len(left)) if axis not in ours]
    columns = [axis for axis in range(len(right)) if axis not in theirs]
    shape = (*(left[axis] for axis in rows), *(right[axis] for axis in columns))
    height, width = (prod(left[axis] for axis in rows), prod(right[axis] for axis in columns))
    inner = prod(left[axis] for axis in ours)
    a = F.transpose(a, axes=(*rows, *ours)) if len(left) > 1 else a
    b = F.transpose(b, axes=(*theirs, *columns)) if len(right) > 1 else b
    product = F.dot(F._np_reshape(a, newshape=(height, inner)), F._np_reshape(b, newshape=(inner, width)))
    return F._np_reshape(product, newshape=shape)


class NumpyTensordot(_Product, name="_np_tensordot"):
    """The sums of products over the last `axes` axes of a and the first of b, or over pairs of `a_axes` and `b_axes`;
    the remaining axes of a come first, then the remaining axes of b. `inner`: an array without axes is a factor.
    """

    axes: int | None = None
    a_axes: Shape = ()
    b_axes: Shape = ()
    inner: bool = False
    samples = [
        sample((2, 3, 4), (3, 4, 2), axes=2), sample((2, 3, 4), (5, 4, 2), a_axes=(0, 2), b_axes=(-1, 1)),
        sample((2, 3), (4, 3), a_axes=(-1,), b_axes=(-1,), inner=True), sample((2,), (3,), axes=0),
        sample((), (3,), a_axes=(-1,), b_axes=(-1,), inner=True),
    ]  # fmt: skip

    @property
    def summed(self) -> tuple[tuple[int, ...], tuple[int, ...]] | int:
        return (self.a_axes, self.b_axes) if self.axes is None else self.axes

    def infer_shape(self, a: Shape, b: Shape) -> Shape:
        if self.inner and not (a and b):
            return broadcast_shapes("inner", a, b)
        ours, theirs = summed_axes(self.summed, a, b)
        rows = [size for axis, size in enumerate(a) if axis not in ours]
        return (*rows, *(size for axis, size in enumerate(b) if axis not in theirs))

    def lower(self, F: Functions, a: Tensor, b: Tensor) -> Tensor:
        if self.inner and not (a.shape and b.shape):
            return F.broadcast_mul(a, b)
        return tensordot(F, a, b, self.summed, a.shape, b.shape)


class NumpyDet(Solver, name="_np_det"):
    """The determinants of square matrices (..., n, n): one number for each, without axes for one matrix."""

    mxnet = None
    by_shapes = True
    refuses_gradient = True
    numpy = run_lowering
    samples = [sample((3, 3)), sample((2, 3, 3))]

    def infer_shape(self, a: Shape) -> Shape:
        return square("det", a)

    def lower(self, F: Functions, a: Tensor) -> Tensor:
        made = F._linalg_det(a)
        return F._drop_axes(made, axis=(0,)) if len(a.shape) == 2 else made
