"""Arrays from nothing or from a shape, identities, gradient stops, and what reads a shape as numbers."""

from __future__ import annotations

from math import ceil, isfinite, prod

import numpy as np

from hybrid_lab.diagnostics.errors import AttributeSpecError, ShapeError
from hybrid_lab.ops.framework import Element, Elementwise, Operator, Pointwise, axis_of, into, sample
from hybrid_lab.ops.framework.attributes import DType, Shape
from hybrid_lab.ops.framework.protocols import Elements, Functions, OnnxGraph, Place, Tensor
from hybrid_lab.ops.framework.types import Array


class _Created(Operator):
    """Base: no inputs, the dtype is an attribute."""

    def infer_type(self, *dtypes: np.dtype) -> np.dtype:
        return np.dtype(self.attributes["dtype"] or "float32")


class _Filled(_Created):
    """Base: one number everywhere.

    _open : a 0 in the shape stands for a size that follows from the readers, as in MXNet's files
        (`graph.passes.infer.closed`)
    _or_empty : it is 0 if nothing follows from them, as in an eager call of the same code
    """

    shape: Shape
    dtype: DType | None = None
    _open: bool = False
    _or_empty: bool = False

    @property
    def number(self) -> float:
        raise NotImplementedError

    @property
    def is_open(self) -> bool:
        return self._open

    def infer_shape(self) -> Shape:
        if self._open:
            raise ShapeError(
                f"{self.name}: the sizes that are 0 in {self.shape} cannot be inferred from the operators that use "
                "the result"
            )
        return self.shape

    def numpy(self, out: Array | None = None) -> Array:
        if out is None:
            return np.full(self.shape, self.number, self.infer_type())
        out.fill(self.number)
        return out

    def onnx(self, g: OnnxGraph) -> str:
        return g.Expand(g.const(self.number, self.infer_type()), self.shape)


class Zeros(_Filled, name="_zeros", aliases=("zeros",)):
    """An array of zeros of the given shape and dtype (default float32)."""

    number = 0
    samples = [sample(shape=(2, 3)), sample(attrs={"shape": (2,), "dtype": "int32"})]


class Ones(_Filled, name="_ones", aliases=("ones",)):
    """An array of ones of the given shape and dtype (default float32)."""

    number = 1
    samples = [sample(shape=(2, 3)), sample(attrs={"shape": (2,), "dtype": "float64"})]


class Full(_Filled, name="_full", aliases=("full",)):
    """An array of the given shape and dtype (default float32), filled with `value`."""

    shape: Shape
    value: float
    dtype: DType | None = None
    samples = [sample(shape=(2, 3), value=1.5), sample(attrs={"shape": (2,), "value": 7, "dtype": "int64"})]

    @property
    def number(self) -> float:
        return self.value


class _Listed(_Created):
    """Base: numbers that the attributes give."""

    def values(self) -> np.ndarray:
        """The numbers, in any dtype."""
        raise NotImplementedError

    def numpy(self, out: Array | None = None) -> Array:
        return into(self.values().astype(self.infer_type()), out)

    def onnx(self, g: OnnxGraph) -> str:
        return g.Identity(g.const(self.numpy(), self.infer_type()))


class Arange(_Listed, name="_arange", aliases=("arange",)):
    """start, start + step, ... up to but without stop, each `repeat` times; with stop None from 0 to start."""

    start: float = 0.0
    stop: float | None = None
    step: float = 1.0
    repeat: int = 1
    infer_range: bool = False
    dtype: DType | None = None
    samples = [
        sample(start=2, stop=7), sample(start=5), sample(start=0, stop=1, step=0.25, repeat=2),
        sample(attrs={"start": 4, "dtype": "int32"}),
        sample(attrs={"start": 1.3, "stop": 6.6, "step": 1.3, "dtype": "int32"}),
    ]  # fmt: skip

    def check(self) -> None:
        if self.step == 0:
            raise AttributeSpecError("arange: step must not be 0")
        if not all(isfinite(number) for number in (*self.bounds, self.step)):
            raise AttributeSpecError(f"arange: start, stop and step must be finite, not {(*self.bounds, self.step)}")
        if self.repeat < 1:
            raise AttributeSpecError(f"arange: repeat={self.repeat}; at least 1 is needed")
        if self.infer_range:
            raise AttributeSpecError("arange: infer_range is not supported; give stop")

    @property
    def bounds(self) -> tuple[float, float]:
        return (0.0, self.start) if self.stop is None else (self.start, self.stop)

    def infer_shape(self) -> Shape:
        start, stop = self.bounds
        return (max(0, ceil((stop - start) / self.step)) * self.repeat,)

    def values(self) -> np.ndarray:
        (start, _), step = self.bounds, self.step
        if self.dtype is not None and np.dtype(self.dtype).kind in "iu":  # whole steps, as in MXNet and NumPy
            start, step = int(start), int(step)
        count = self.infer_shape()[0] // self.repeat
        return np.repeat(start + step * np.arange(count), self.repeat)


class Eye(_Listed, name="_eye", aliases=("eye",)):
    """Ones on diagonal number k of an (N, M) matrix of zeros; M = 0 means N."""

    N: int
    M: int = 0
    k: int = 0
    dtype: DType | None = None
    samples = [sample(N=3), sample(N=2, M=4, k=1)]

    def infer_shape(self) -> Shape:
        return self.N, self.M or self.N

    def values(self) -> np.ndarray:
        return np.eye(self.N, self.M or self.N, k=self.k)


class Linspace(_Listed, name="_linspace", aliases=("linspace",)):
    """`num` numbers at equal distances from start to stop (without stop if endpoint is False)."""

    start: float
    stop: float
    num: int
    endpoint: bool = True
    dtype: DType | None = None
    samples = [sample(start=0, stop=1, num=5), sample(start=2, stop=3, num=4, endpoint=False)]

    def infer_shape(self) -> Shape:
        return (self.num,)

    def values(self) -> np.ndarray:
        return np.linspace(self.start, self.stop, self.num, self.endpoint)


class _FilledLike(Operator):
    """Base: the shape and dtype of the input, of which nothing else is read."""

    shaped_like = 0
    shape_only = ("data",)
    number = 0

    def infer_type(self, *dtypes: np.dtype) -> np.dtype:
        wanted = self.attributes.get("dtype")
        return dtypes[0] if wanted is None else np.dtype(wanted)

    def numpy(self, data: Array, out: Array | None = None) -> Array:
        if out is None:
            return np.full(data.shape, self.number, self.infer_type(data.dtype))
        out.fill(self.number)
        return out

    @Element
    def triton(self, elements: Elements, place: Place) -> str:
        return str(elements.literal(self.number))

    def onnx(self, g: OnnxGraph, data: str) -> str:
        return g.Expand(g.const(self.number, self.infer_type(g.dtype(data))), g.Shape(data))


class ZerosLike(_FilledLike, name="zeros_like"):
    """Zeros of the shape of data, and of its dtype or the given one."""

    dtype: DType | None = None
    samples = [sample((2, 3)), sample((2, 3), gradient=False, attrs={"dtype": "int32"})]


class OnesLike(_FilledLike, name="ones_like"):
    """Ones of the shape of data, and of its dtype or the given one."""

    number = 1
    dtype: DType | None = None
    samples = [sample((2, 3)), sample((2, 3), gradient=False, attrs={"dtype": "int64"})]


class FullLike(_FilledLike, name="full_like"):
    """`fill_value` everywhere, in the shape and dtype of data."""

    fill_value: float
    mxnet = None
    samples = [sample((2, 3), fill_value=2.5)]

    @property
    def number(self) -> float:
        return self.fill_value


class Copy(Elementwise):
    """Base of operators that return data unchanged and differ in the gradient."""

    identity = True
    triton = Pointwise("{0}")
    onnx = "Identity"
    samples = [sample((2, 3))]

    def numpy(self, data: Array, out: Array | None = None) -> Array:
        return data.copy() if out is None else into(data, out)


class Identity(Copy, name="identity", aliases=("_copy", "_identity")):
    """A copy of data."""

    mxnet = "_copy"
    samples = [sample((2, 3)), sample((2, 3), dtype="int32", gradient=False)]

    def grad(self, F: Functions, data: Tensor, y: Tensor, dy: Tensor) -> Tensor:
        return dy


class BlockGrad(Copy, name="BlockGrad", aliases=("stop_gradient",)):
    """A copy of data through which no gradient flows: none is computed for what data was made of."""


class MakeLoss(Copy, name="make_loss"):
    """A copy of data whose gradient is 1 whatever arrives from above: data is taken as a loss."""

    precision = "float32"
    own_gradient = True

    def grad(self, F: Functions, data: Tensor, y: Tensor, dy: Tensor) -> Tensor:
        return F.ones_like(data)


class ArangeLike(Operator, name="_contrib_arange_like"):
    """start, start + step, ..., each number `repeat` times: in the shape of data, or one per place along `axis`.

    data : read for its shape and dtype
    """

    start: float = 0.0
    step: float = 1.0
    repeat: int = 1
    axis: int | None = None
    shape_only = ("data",)
    samples = [
        sample((2, 3), start=1.0, step=2.0, gradient=False),
        sample((2, 4), axis=-1, repeat=2, gradient=False),
        sample((3, 2), axis=0, start=-1.5, gradient=False),
    ]

    def check(self) -> None:
        if self.repeat < 1:
            raise AttributeSpecError(f"arange_like: repeat={self.repeat}; at least 1 is needed")

    def infer_shape(self, data: Shape) -> Shape:
        return data if self.axis is None else (data[axis_of("arange_like", self.axis, len(data))],)

    def first_and_step(self, dtype: np.dtype) -> tuple[float, float]:
        """`start` and `step`, without their fractions for whole numbers, as in MXNet."""
        return (int(self.start), int(self.step)) if dtype.kind in "iu" else (self.start, self.step)

    def numpy(self, data: Array, out: Array | None = None) -> Array:
        shape = self.infer_shape(data.shape)
        start, step = self.first_and_step(data.dtype)
        numbers = np.arange(prod(shape)) // self.repeat * step + start
        return into(numbers.astype(data.dtype).reshape(shape), out)

    @Element
    def triton(self, elements: Elements, place: Place) -> str:
        shape = self.infer_shape(elements.shape(0))
        (index,) = elements.unravel(place, shape, (prod(shape),))
        start, step = self.first_and_step(elements.dtype())
        return str(elements.scaled(elements.quotient(index, self.repeat), step, start))

    def onnx(self, g: OnnxGraph, data: str) -> str:
        shape = self.infer_shape(g.shape(data))
        numbers = g.arange(prod(shape))
        if self.repeat > 1:
            numbers = g.Div(numbers, g.const(self.repeat, "int64"))
        start, step = self.first_and_step(g.dtype(data))
        scaled = g.Mul(g.cast(numbers, "float64"), g.const(step, "float64"))
        return g.Reshape(g.cast(g.Add(scaled, g.const(start, "float64")), g.dtype(data)), shape)


class _ShapeReader(Operator):
    shape_only = ("data",)

    def infer_type(self, *dtypes: np.dtype) -> np.dtype:
        return np.dtype("int64")


class ShapeArray(_ShapeReader, name="shape_array"):
    """The shape of data as a vector of int64."""

    samples = [sample((2, 3), gradient=False)]
    onnx = "Shape"

    def infer_shape(self, data: Shape) -> Shape:
        return (len(data),)

    def numpy(self, data: Array, out: Array | None = None) -> Array:
        return into(np.array(data.shape, np.int64), out)


class SizeArray(_ShapeReader, name="size_array"):
    """The number of elements of data as int64, shape (1,)."""

    samples = [sample((2, 3), gradient=False)]

    def infer_shape(self, data: Shape) -> Shape:
        return (1,)

    def numpy(self, data: Array, out: Array | None = None) -> Array:
        return into(np.array([data.size], np.int64), out)

    def onnx(self, g: OnnxGraph, data: str) -> str:
        return g.Reshape(g.Size(data), [1])
