"""Conversion between element types."""

from __future__ import annotations

from typing import Any

import numpy as np

from hybrid_lab.ops.attributes import DType
from hybrid_lab.ops.operator import Operator
from hybrid_lab.ops.sample import ints, sample


class Cast(Operator, name="Cast", aliases=("cast",)):
    """data converted to `dtype`; to integers towards zero, wrapping around as C does.

    data : any shape and dtype; returns : the same shape in `dtype`
    """

    dtype: DType
    samples = [
        sample((3, 4), attrs={"dtype": "float64"}),
        sample((3, 4), attrs={"dtype": "float16"}),
        sample((3, 4), low=-5.0, high=5.0, gradient=False, attrs={"dtype": "int32"}),
        sample(ints((3,), 0, 9, "int64"), gradient=False, attrs={"dtype": "float32"}),
        sample(ints((4,), 0, 2), gradient=False, attrs={"dtype": "bool"}),
    ]

    def infer_shape(self, data: tuple[int, ...]) -> tuple[int, ...]:
        return data

    def infer_type(self, *dtypes: Any) -> np.dtype:
        return np.dtype(self.dtype)

    def numpy(self, data: Any, out: Any = None) -> Any:
        wanted = np.dtype(self.dtype)
        if data.dtype.kind == "f" and wanted.kind == "u":
            data = data.astype(np.int64)
        if out is None:
            return data.astype(wanted)
        np.copyto(out, data, casting="unsafe")
        return out

    def grad(self, F: Any, x: Any, y: Any, dy: Any) -> Any:
        return F._cast_like(dy, x)

    def onnx(self, g: Any, x: Any) -> Any:
        return g.cast(x, self.dtype)


class CastLike(Operator, name="_cast_like"):
    """data converted to the dtype of `like`, of which only the dtype is read."""

    mxnet = None
    shape_only = ("like",)
    samples = [sample((3, 4), ints((2,), 0, 5, "float64"))]

    def infer_shape(self, data: tuple[int, ...], like: tuple[int, ...]) -> tuple[int, ...]:
        return data

    def infer_type(self, *dtypes: Any) -> Any:
        return dtypes[1]

    def numpy(self, data: Any, like: Any, out: Any = None) -> Any:
        if out is None:
            return data.astype(like.dtype, copy=False)
        np.copyto(out, data, casting="unsafe")
        return out

    def grad(self, F: Any, x: Any, like: Any, y: Any, dy: Any) -> tuple[Any, Any]:
        return F._cast_like(dy, x), None

    def onnx(self, g: Any, x: Any, like: Any) -> Any:
        return g.cast(x, g.dtype(like))
