"""Conversion between element types."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from hybrid_lab.diagnostics.errors import AttributeSpecError, ShapeError
from hybrid_lab.ops.framework import Element, Operator, Signature, into, ints, sample
from hybrid_lab.ops.framework.attributes import DType
from hybrid_lab.ops.framework.dtypes import is_floating
from hybrid_lab.ops.framework.lowering import emit_lowering, run_lowering
from hybrid_lab.ops.framework.protocols import Elements, Functions, Gradients, OnnxGraph, Place, Tensor
from hybrid_lab.ops.framework.types import Array, Shape, Shapes


class _Casting(Operator):
    """Base: the first input in another dtype."""

    shaped_like = 0

    @Element
    def triton(self, elements: Elements, place: Place) -> str:
        return str(elements.cast(elements.read(0, place)))

    def grad(self, F: Functions, x: Tensor, *rest: Tensor) -> Gradients:
        return (F._cast_like(rest[-1], x), *(None for _ in rest[:-2]))


class Cast(_Casting, name="Cast", aliases=("cast",)):
    """data converted to `dtype`; to integers towards zero, wrapping around as C does.

    data : any shape and dtype; returns : the same shape in `dtype`
    """

    identity_if_alike = True
    dtype: DType
    samples = [
        sample((3, 4), attrs={"dtype": "float64"}),
        sample((3, 4), attrs={"dtype": "float16"}),
        sample((3, 4), low=-5.0, high=5.0, gradient=False, attrs={"dtype": "int32"}),
        sample(ints((3,), 0, 9, "int64"), gradient=False, attrs={"dtype": "float32"}),
        sample(ints((4,), 0, 2), gradient=False, attrs={"dtype": "bool"}),
    ]

    def infer_type(self, *dtypes: np.dtype) -> np.dtype:
        return np.dtype(self.dtype)

    def numpy(self, data: Array, out: Array | None = None) -> Array:
        wanted = np.dtype(self.dtype)
        if data.dtype.kind == "f" and wanted.kind == "u":
            data = data.astype(np.int64)
        return data.astype(wanted) if out is None else into(data, out, wanted)

    def onnx(self, g: OnnxGraph, x: str) -> str:
        return g.cast(x, self.dtype)


class CastLike(_Casting, name="_cast_like"):
    """data converted to the dtype of `like`, of which only the dtype is read."""

    arrays_only = ("data",)
    typed_like = 1
    identity_if_alike = True
    mxnet = None
    shape_only = ("like",)
    samples = [sample((3, 4), ints((2,), 0, 5, "float64"))]

    def numpy(self, data: Array, like: Array, out: Array | None = None) -> Array:
        return into(data, out, like.dtype)

    def onnx(self, g: OnnxGraph, x: str, like: str) -> str:
        return x if g.dtype(x) == g.dtype(like) else g.cast(x, g.dtype(like))


class AMPCast(_Casting, name="amp_cast"):
    """Floating data converted to `dtype`; float64 and whole numbers stay: the cast that mixed precision puts into a
    graph.
    """

    dtype: DType
    samples = [
        sample((3, 4), attrs={"dtype": "float16"}),
        sample((3, 4), dtype="float16", attrs={"dtype": "float32"}),
        sample(ints((3,), 0, 9, "int32"), gradient=False, attrs={"dtype": "float16"}),
    ]

    def check(self) -> None:
        if not is_floating(np.dtype(self.dtype)):
            raise AttributeSpecError(f"amp_cast: dtype={self.dtype}; a floating dtype is needed")

    def infer_type(self, *dtypes: np.dtype) -> np.dtype:
        narrow = is_floating(dtypes[0]) and dtypes[0].itemsize < 8
        return np.dtype(self.dtype) if narrow else dtypes[0]

    def numpy(self, data: Array, out: Array | None = None) -> Array:
        return into(data.astype(self.infer_type(data.dtype)), out)

    def onnx(self, g: OnnxGraph, x: str) -> str:
        return g.cast(x, self.infer_type(g.dtype(x)))


class AMPMulticast(Operator, name="amp_multicast"):
    """All floating inputs in the widest dtype among them, or with cast_narrow in the narrowest; whole numbers stay.

    data : num_outputs arrays of any shapes; returns : as many
    """

    arrays_only = ("args",)
    num_outputs: int
    cast_narrow: bool = False
    numpy, onnx = run_lowering, emit_lowering
    samples = [
        sample((3, 4), ints((2,), 0, 5, "float16"), gradient=False, num_outputs=2),
        sample((3, 4), ints((2,), 0, 5, "float16"), gradient=False, num_outputs=2, cast_narrow=True),
        sample((3, 4), (2,), num_outputs=2),
    ]

    @cached_property
    def signature(self) -> Signature:
        return Signature(self.input_names, self.num_outputs)

    def infer_shape(self, *data: Shape) -> Shapes:
        if len(data) != self.num_outputs:
            raise ShapeError(f"amp_multicast: {len(data)} inputs for num_outputs={self.num_outputs}")
        return list(data) if len(data) > 1 else data[0]

    def infer_type(self, *dtypes: np.dtype) -> list[np.dtype]:
        choose = min if self.cast_narrow else max
        chosen = choose(filter(is_floating, dtypes), key=lambda dtype: dtype.itemsize, default=None)
        return [chosen if chosen is not None and is_floating(dtype) else dtype for dtype in dtypes]

    def lower(self, F: Functions, *data: Tensor) -> tuple[Tensor, ...]:
        dtypes = self.infer_type(*(item.dtype for item in data))
        return tuple(F.Cast(item, dtype=dtype.name) for item, dtype in zip(data, dtypes, strict=True))

    def grad(self, F: Functions, *values: Tensor) -> Gradients:
        count = self.num_outputs
        data, douts = values[:count], values[2 * count :]
        return tuple(None if dy is None else F._cast_like(dy, item) for item, dy in zip(data, douts, strict=True))
