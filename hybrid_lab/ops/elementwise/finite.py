"""Infinity and NaN: isnan, isinf, isfinite element by element, all_finite of one array or several."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import ClassVar

import numpy as np

from hybrid_lab.diagnostics.errors import AttributeSpecError, ShapeError, Unmappable
from hybrid_lab.ops.framework import Operator, Pointwise, Unary, into, sample
from hybrid_lab.ops.framework.protocols import Functions, OnnxGraph, Scratch, Tensor
from hybrid_lab.ops.framework.types import Array, Shape

_STRANGE = np.array([[1.0, np.inf, -np.inf], [np.nan, 0.0, -2.0]], "float32")
_SAMPLES = [
    sample(_STRANGE, gradient=False),
    sample(_STRANGE, gradient=False, dtype="float16"),
    sample((3,), dtype="int32", gradient=False),
]


class _Kind(Unary):
    """Base: 1 if the test holds, else 0, in the dtype of data. Functions in MXNet, not operators of its files."""

    mxnet = None
    samples = _SAMPLES

    def numpy(self, data: Array, out: Array | None = None, scratch: Scratch = np.empty) -> Array:
        holds = self.ufunc(data, out=scratch(data.shape, np.bool_))
        return into(holds, out, data.dtype)

    emit: ClassVar[Callable[..., str]]
    """(g, data) -> the test as ONNX bool."""

    def onnx(self, g: OnnxGraph, data: str) -> str:
        return g.cast(type(self).emit(g, data), g.dtype(data))


class IsNaN(_Kind, name="_contrib_isnan", aliases=("contrib_isnan",)):
    """1 if data is NaN, else 0. data : numbers; returns : as data."""

    ufunc = staticmethod(np.isnan)
    triton = Pointwise("({0} != {0}).to(tl.float32)", jumps=True)
    emit = staticmethod(lambda g, data: g.IsNaN(data))


class IsInf(_Kind, name="_contrib_isinf", aliases=("contrib_isinf",)):
    """1 if data is infinite, of either sign, else 0. data : numbers; returns : as data."""

    ufunc = staticmethod(np.isinf)
    triton = Pointwise("(tl.abs({0}) == float('inf')).to(tl.float32)", jumps=True)
    emit = staticmethod(lambda g, data: g.Equal(g.Abs(data), g.const(np.inf, g.dtype(data))))


class IsFinite(_Kind, name="_contrib_isfinite", aliases=("contrib_isfinite",)):
    """1 if data is neither infinite nor NaN, else 0. data : numbers; returns : as data."""

    ufunc = staticmethod(np.isfinite)
    triton = Pointwise("(tl.abs({0}) < float('inf')).to(tl.float32)", jumps=True)
    emit = staticmethod(lambda g, data: g.Less(g.Abs(data), g.const(np.inf, g.dtype(data))))


class _AllFinite(Operator):
    """Base: 1 if no element of any input is infinite or NaN, else 0."""

    dtype_kinds = "f"

    def check(self) -> None:
        if not self.attributes["init_output"]:
            raise AttributeSpecError(f"{self.name}: init_output=False is not supported; multiply the results")

    def infer_shape(self, *data: Shape) -> Shape:
        return (1,)

    def infer_type(self, *dtypes: np.dtype) -> np.dtype:
        super().infer_type(*dtypes)
        return np.dtype("float32")

    def numpy(self, *data: Array, out: Array | None = None) -> Array:
        out = np.empty(1, np.float32) if out is None else out
        out[...] = all(bool(np.isfinite(item).all()) for item in data)
        return out

    def lower(self, F: Functions, *data: Tensor) -> Tensor:
        return reduce(F.broadcast_mul, (_lowered_verdict(F, item) for item in data))


class AllFinite(_AllFinite, name="all_finite"):
    """1 if no element of data is infinite or NaN, else 0: float32, shape (1,).

    init_output=False, which multiplies into what `out=` holds, is refused.
    """

    init_output: bool = True
    samples = [
        sample((3, 4), gradient=False),
        sample(_STRANGE, gradient=False),
        sample(np.array([np.nan, 1.0], "float32"), gradient=False),
    ]

    def infer_shape(self, data: Shape) -> Shape:
        return (1,)


class MultiAllFinite(_AllFinite, name="multi_all_finite"):
    """1 if no element of any input is infinite or NaN, else 0: float32, shape (1,). data : num_arrays arrays."""

    num_arrays: int = 1
    init_output: bool = True
    samples = [
        sample((3, 4), (2,), gradient=False, num_arrays=2),
        sample((3, 4), np.array([np.inf, 1.0], "float32"), gradient=False, num_arrays=2),
    ]

    def infer_shape(self, *data: Shape) -> Shape:
        if len(data) != self.num_arrays:
            raise ShapeError(f"multi_all_finite: num_arrays={self.num_arrays}; {len(data)} arrays were given")
        return (1,)


def _lowered_verdict(F: Functions, data: Tensor) -> Tensor:
    if 0 in data.shape:
        raise Unmappable("all_finite of an empty array")
    return F.min(F.Cast(F._contrib_isfinite(data), dtype="float32"))
