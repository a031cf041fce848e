"""Order along an axis: sort, argsort, topk. Equal elements keep their order, also from the largest down."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from math import prod
from typing import Any, Literal

import numpy as np

from hybrid_lab.diagnostics.errors import DTypeError, ShapeError
from hybrid_lab.ops.framework import Adjoint, Element, Operator, Signature, axis_of, into, sample
from hybrid_lab.ops.framework.attributes import DType
from hybrid_lab.ops.framework.protocols import Elements, Functions, Gradient, Gradients, OnnxGraph, Place, Tensor
from hybrid_lab.ops.framework.types import Array, Arrays, Outs, Shape, Shapes

_TIED = np.array([[1.0, 3.0, 3.0, 2.0], [2.0, 2.0, 0.0, 2.0]], "float32")


def ranking(data: np.ndarray, axis: int, ascending: bool) -> np.ndarray:
    """The positions along `axis` in order, int64; equal elements in the order in which they stand."""
    if ascending:
        return np.argsort(data, axis=axis, kind="stable")
    backwards = np.flip(np.argsort(np.flip(data, axis), axis=axis, kind="stable"), axis)
    return data.shape[axis] - 1 - backwards


class _Ordering(Operator):
    """Base: an axis, None for the flattened data."""

    dtype_kinds = "fiu"

    @property
    def flattened(self) -> bool:
        return self.attributes["axis"] is None

    def line(self, data: tuple[int, ...]) -> tuple[tuple[int, ...], int]:
        """The shape that is ordered, and the axis in it. Raises ShapeError."""
        if self.flattened:
            return (prod(data),), 0
        return data, axis_of(self.name, self.attributes["axis"], len(data))

    def ranked(self, data: np.ndarray, ascending: bool) -> tuple[np.ndarray, int, np.ndarray]:
        """data in the order of the ranking, the axis, and the positions."""
        shape, axis = self.line(data.shape)
        data = data.reshape(shape)
        return data, axis, ranking(data, axis, ascending)

    def spread(self, F: Functions, dy: Tensor, places: Tensor, data: Tensor) -> Tensor:
        """dy back where the elements came from, in the shape of data."""
        if not self.flattened:
            return F._scatter_along(dy, places, data, axis=self.attributes["axis"])
        return F.reshape_like(F._scatter_along(dy, places, F.Reshape(data, shape=(-1,)), axis=0), data)

    def onnx_line(self, g: OnnxGraph, data: str) -> tuple[str, int, int]:
        """data in the order of the ranking, the axis, and its size."""
        shape, axis = self.line(g.shape(data))
        return (g.Reshape(data, [-1]) if self.flattened else data), axis, shape[axis]


class Sort(_Ordering, name="sort"):
    """data in order along `axis` (None: flattened), from the smallest up or with is_ascend=False from the largest down.

    data : numbers; returns : as data, or (size,) for axis=None
    """

    axis: int | None = -1
    is_ascend: bool = True
    signature = Signature(outputs=2, visible=1)
    samples = [
        sample((3, 5), axis=-1), sample((3, 5), axis=0, is_ascend=False), sample((2, 3, 4), axis=1),
        sample((2, 5), axis=None), sample(_TIED, gradient=False, is_ascend=False),
        sample((2, 7), dtype="int32", low=-9, high=9, gradient=False),
    ]  # fmt: skip

    def infer_shape(self, data: Shape) -> list[Shape]:
        shape, _ = self.line(data)
        return [shape, shape]

    def infer_type(self, *dtypes: np.dtype) -> list[np.dtype]:
        return [dtypes[0], np.dtype("int64")]

    def numpy(self, data: Array, out: Outs = None, need: Sequence[bool] = (True, True)) -> tuple[Array, Array | None]:
        y, positions = out if out is not None else (None, None)
        # Zeros of both signs are equal: only a stable sort leaves them in an order that no processor decides.
        mixed = data.dtype.kind == "f" and bool(np.any(np.signbit(data) & (data == 0)))
        if not need[1] and not mixed:
            line, axis = self.line(data.shape)
            values = np.sort(data.reshape(line), axis=axis)
            return into(values if self.is_ascend else np.flip(values, axis), y), None
        data, axis, places = self.ranked(data, self.is_ascend)
        return into(np.take_along_axis(data, places, axis), y), into(places, positions)

    def grad(self, F: Functions, data: Tensor, y: Tensor, places: Tensor, dy: Tensor) -> Tensor:
        return self.spread(F, dy, places, data)

    def onnx(self, g: OnnxGraph, data: str) -> str | tuple[str, ...]:
        data, axis, size = self.onnx_line(g, data)
        return g.TopK(data, [size], axis=axis, largest=int(not self.is_ascend), outputs=2)


class ArgSort(_Ordering, name="argsort"):
    """The positions that put data in order along `axis` (None: flattened), in `dtype`. Gradient 0.

    data : numbers; returns : as data, or (size,) for axis=None
    """

    precision = "float32"
    axis: int | None = -1
    is_ascend: bool = True
    dtype: DType = DType("float32")
    samples = [
        sample((3, 5)), sample((3, 5), axis=0, is_ascend=False),
        sample((2, 3, 4), attrs={"axis": 1, "dtype": "int32"}, gradient=False), sample((2, 5), axis=None),
        sample(_TIED, gradient=False),
    ]  # fmt: skip

    def infer_shape(self, data: Shape) -> Shape:
        return self.line(data)[0]

    def infer_type(self, *dtypes: np.dtype) -> np.dtype:
        return np.dtype(self.dtype)

    def numpy(self, data: Array, out: Array | None = None) -> Array:
        return into(self.ranked(data, self.is_ascend)[2].astype(self.dtype), out)

    def onnx(self, g: OnnxGraph, data: str) -> str:
        data, axis, size = self.onnx_line(g, data)
        places = g.TopK(data, [size], axis=axis, largest=int(not self.is_ascend), outputs=2)[1]
        return g.cast(places, self.dtype)


class TopK(_Ordering, name="topk"):
    """The k largest elements along `axis` (None: of the flattened data), or the smallest with is_ascend; k < 1: all.

    data : numbers. ret_typ : the results, "value"; "indices", in `dtype`; "both", a list of values and indices; or
    "mask", an array of data's shape with 1 at the chosen elements. returns : data's shape with k along `axis`
    """

    precision = "float32"
    axis: int | None = -1
    k: int = 1
    ret_typ: Literal["value", "indices", "mask", "both"] = "indices"
    is_ascend: bool = False
    dtype: DType = DType("float32")
    samples = [
        sample((3, 5)), sample((3, 5), k=3), sample((3, 5), k=2, ret_typ="value"),
        sample((3, 5), k=2, ret_typ="both", is_ascend=True), sample((2, 4, 3), k=2, ret_typ="value", axis=1),
        sample((2, 4, 3), k=3, ret_typ="mask", axis=1), sample((2, 6), k=4, ret_typ="both", axis=None),
        sample((2, 6), k=4, ret_typ="mask", axis=None), sample((3, 4), k=0, ret_typ="value"),
        sample((3, 5), gradient=False, attrs={"k": 2, "dtype": "int32"}),
        sample((2, 7), gradient=False, dtype="int32", low=-90, high=90, k=2, ret_typ="both", axis=0),
    ]  # fmt: skip

    @cached_property
    def signature(self) -> Signature:
        """Values carry their positions along, for the gradient."""
        visible = 2 if self.ret_typ == "both" else 1
        return Signature(self.input_names, visible + (self.ret_typ in ("value", "both")), visible)

    def count(self, size: int) -> int:
        """How many are chosen of `size`. Raises ShapeError."""
        if self.k > size:
            raise ShapeError(f"topk: k={self.k} is larger than the {size} elements along axis {self.axis}")
        return self.k if self.k >= 1 else size

    def infer_shape(self, data: Shape) -> Shapes:
        line, axis = self.line(data)
        chosen = (*line[:axis], self.count(line[axis]), *line[axis + 1 :])
        if self.signature.outputs > 1:
            return [chosen] * self.signature.outputs
        return data if self.ret_typ == "mask" else chosen

    def infer_type(self, *dtypes: np.dtype) -> np.dtype | list[np.dtype]:
        indices = np.dtype(self.dtype)
        if indices.kind == "b":
            raise DTypeError("topk: indices cannot be bool")
        answers: dict[str, np.dtype | list[np.dtype]] = {
            "value": [dtypes[0], np.dtype("int64")],
            "both": [dtypes[0], indices, np.dtype("int64")],
            "mask": dtypes[0],
            "indices": indices,
        }
        return answers[self.ret_typ]

    def numpy(self, data: Array, out: Any = None) -> Array | Arrays:
        shape = data.shape
        data, axis, places = self.ranked(data, self.is_ascend)
        places = places[(*(slice(None),) * axis, slice(self.count(data.shape[axis])))]
        if self.ret_typ == "indices":
            return into(places.astype(self.dtype), out)
        if self.ret_typ == "mask":
            mask = np.zeros_like(data)
            np.put_along_axis(mask, places, 1, axis)
            return into(mask.reshape(shape), out)
        made = [np.take_along_axis(data, places, axis), places]
        if self.ret_typ == "both":
            made.insert(1, places.astype(self.dtype))
        return tuple(map(into, made, out or (None,) * len(made)))

    def grad(self, F: Functions, data: Tensor, *rest: Tensor) -> Gradient:
        if self.ret_typ not in ("value", "both"):
            return None
        places, dy = rest[self.signature.outputs - 1], rest[self.signature.outputs]
        return None if dy is None else self.spread(F, dy, places, data)

    def onnx(self, g: OnnxGraph, data: str) -> str | tuple[str, ...]:
        shape, dtype = g.shape(data), g.dtype(data)
        line, axis, size = self.onnx_line(g, data)
        values, places = g.TopK(line, [self.count(size)], axis=axis, largest=int(not self.is_ascend), outputs=2)
        if self.ret_typ == "value":
            return values, places
        if self.ret_typ == "both":
            return values, g.cast(places, self.dtype), places
        if self.ret_typ == "indices":
            return g.cast(places, self.dtype)
        chosen = self.line(shape)[0]
        zeros = g.Expand(g.const(0, dtype), chosen)
        kept = [*chosen[:axis], self.count(size), *chosen[axis + 1 :]]
        mask = g.ScatterElements(zeros, places, g.Expand(g.const(1, dtype), kept), axis=axis)
        return g.Reshape(mask, shape) if self.flattened else mask


class ScatterAlong(Adjoint, name="_scatter_along"):
    """Zeros with the elements of data put at positions along `axis`, which differ from one another.

    data : any; places : positions, int64, of data's shape; like : read for its shape; returns : the shape of like
    """

    arrays_only = ("like",)
    adjoint_of = "_gather_along"
    axis: int = -1
    shaped_like = 2
    samples = [
        sample((2, 3), np.array([[3, 0, 1], [2, 3, 0]]), (2, 4)),
        sample((2, 2), np.array([[2, 0], [1, 2]]), (3, 2), axis=0),
    ]

    def numpy(self, data: Array, places: Array, like: Array, out: Array | None = None) -> Array:
        out = np.empty(like.shape, data.dtype) if out is None else out
        out.fill(0)
        np.put_along_axis(out, places, data, self.axis)
        return out

    def lower(self, F: Functions, data: Tensor, places: Tensor, like: Tensor) -> Tensor:
        rank = len(like.shape)
        axis = self.axis % rank
        hits = F.one_hot(places, depth=like.shape[axis])
        spread = F.broadcast_like(F.expand_dims(data, axis=-1), hits)
        total = F.sum(F.where(hits, spread, F.zeros_like(spread)), axis=axis, keepdims=True)
        order = [rank if index == axis else index for index in range(rank)]
        return F.Reshape(F.transpose(total, axes=(*order, axis)), shape=like.shape)

    def onnx(self, g: OnnxGraph, data: str, places: str, like: str) -> str:
        zeros = g.Expand(g.const(0, g.dtype(data)), g.shape(like))
        return g.ScatterElements(zeros, places, data, axis=self.axis)


class GatherAlong(Operator, name="_gather_along"):
    """The elements of data at positions along `axis`. places : int64; returns : its shape."""

    arrays_only = ("places",)
    axis: int = -1
    shaped_like = 1
    typed_like = 0
    mxnet = None
    samples = [
        sample((2, 4), np.array([[3, 0, 1], [2, 3, 0]])),
        sample((3, 2), np.array([[2, 0], [1, 2]]), axis=0),
    ]

    def numpy(self, data: Array, places: Array, out: Array | None = None) -> Array:
        return into(np.take_along_axis(data, places, self.axis), out)

    @Element
    def triton(self, elements: Elements, place: Place) -> str:
        axis = self.axis % len(place)
        return str(
            elements.read(0, (*place[:axis], elements.number(1, place, elements.shape(0)[axis]), *place[axis + 1 :]))
        )

    def grad(self, F: Functions, data: Tensor, places: Tensor, y: Tensor, dy: Tensor) -> Gradients:
        return F._scatter_along(dy, places, data, axis=self.axis), None

    def onnx(self, g: OnnxGraph, data: str, places: str) -> str:
        return g.GatherElements(data, places, axis=self.axis)
