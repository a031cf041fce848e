"""Random operators: uniform, normal, whole numbers, shuffle, Dropout; made of Philox words, see philox."""

from __future__ import annotations

from math import prod
from typing import Any, Literal

import numpy as np

from hybrid_lab.diagnostics.errors import AttributeSpecError, ShapeError
from hybrid_lab.ops.framework import Elementwise, Operator, Pointwise, Signature, get, into, ints, printed, sample
from hybrid_lab.ops.framework.attributes import DType, Shape
from hybrid_lab.ops.framework.dtypes import is_floating
from hybrid_lab.ops.framework.memory import like_of
from hybrid_lab.ops.framework.protocols import Functions, Gradients, OnnxGraph, Scratch, Tensor
from hybrid_lab.ops.framework.shapes import axis_of, broadcast_shapes, kept_shape
from hybrid_lab.ops.framework.types import Array, Arrays, Outs
from hybrid_lab.ops.kernels import philox


def _key(rng: tuple[int, int] | None) -> tuple[int, int]:
    return rng if rng is not None else (0, 0)


def refuse_attributes(op: Operator, wanted: str, holds: bool) -> None:
    """Raise AttributeSpecError unless `holds`. wanted : the condition in words."""
    if not holds:
        given = ", ".join(f"{name}={op.attributes[name]}" for name in op.fields if name not in ("shape", "dtype"))
        raise AttributeSpecError(f"{op.name}: {given}; {wanted} is needed")


class _Sampled(Operator):
    """Base: an array of random numbers, no inputs."""

    random = True

    def infer_shape(self) -> Shape:
        return self.attributes["shape"]

    def infer_type(self, *dtypes: np.dtype) -> np.dtype:
        return np.dtype(self.attributes["dtype"] or "float32")

    def check(self) -> None:
        if not is_floating(self.infer_type()):
            raise AttributeSpecError(f"{self.name}: dtype must be floating, not {self.infer_type().name}")


class RandomUniform(_Sampled, name="random_uniform", aliases=("_random_uniform", "uniform")):
    """Independent numbers, uniform in [low, high)."""

    low: float = 0.0
    high: float = 1.0
    shape: Shape = (1,)
    dtype: DType | None = None
    mxnet = "_random_uniform"
    samples = [
        sample(shape=(3, 4)),
        sample(shape=(5,), low=-2.0, high=3.0),
        sample(attrs={"shape": (2, 3), "dtype": "float64"}),
    ]

    def check(self) -> None:
        super().check()
        refuse_attributes(self, "low <= high", self.low <= self.high)

    @Pointwise
    def triton(self, dtype: np.dtype) -> str:
        return philox.moved_text(philox.uniform_text(self.infer_type()), self.high - self.low, self.low)

    def numpy(self, out: Array | None = None, rng: tuple[int, int] | None = None) -> Array:
        dtype = self.infer_type()
        numbers = philox.uniform(*_key(rng), prod(self.shape), dtype)
        if dtype == np.float16:  # as kernels, which compute in float32
            numbers = numbers.astype(np.float32)
        return into(philox.moved(numbers, self.high - self.low, self.low, dtype).reshape(self.shape), out)


class RandomNormal(_Sampled, name="random_normal", aliases=("_random_normal", "normal")):
    """Independent numbers, normal with mean `loc` and standard deviation `scale`."""

    loc: float = 0.0
    scale: float = 1.0
    shape: Shape = (1,)
    dtype: DType | None = None
    mxnet = "_random_normal"
    samples = [
        sample(shape=(3, 4)),
        sample(shape=(5,), loc=-2.0, scale=3.0),
        sample(attrs={"shape": (2, 3), "dtype": "float64"}),
    ]

    def check(self) -> None:
        super().check()
        refuse_attributes(self, "scale >= 0", self.scale >= 0)

    @Pointwise
    def triton(self, dtype: np.dtype) -> str:
        return philox.moved_text(philox.normal_text(self.infer_type()), self.scale, self.loc)

    def numpy(self, out: Array | None = None, rng: tuple[int, int] | None = None) -> Array:
        dtype = self.infer_type()
        wide = np.dtype("float32") if dtype == np.float16 else dtype
        numbers = philox.normal(*_key(rng), prod(self.shape), wide)
        return into(philox.moved(numbers, self.scale, self.loc, dtype).reshape(self.shape), out)


class RandomIntegers(_Sampled, name="random_randint", aliases=("_random_randint", "randint")):
    """Independent whole numbers, uniform in [low, high); int32 (default) or int64."""

    low: int
    high: int
    shape: Shape = (1,)
    dtype: DType | None = None
    mxnet = "_random_randint"
    samples = [
        sample(attrs={"shape": (3, 4), "low": -3, "high": 5}),
        sample(attrs={"shape": (5,), "low": 0, "high": 1 << 32, "dtype": "int64"}),
    ]

    def infer_type(self, *dtypes: np.dtype) -> np.dtype:
        return np.dtype(self.attributes["dtype"] or "int32")

    def check(self) -> None:
        if self.infer_type().name not in ("int32", "int64"):
            raise AttributeSpecError(f"{self.name}: dtype must be int32 or int64, not {self.infer_type().name}")
        if not 0 < self.high - self.low <= 1 << 32:
            raise AttributeSpecError(
                f"{self.name}: low={self.low}, high={self.high}; high must be greater than low, by 2^32 at most"
            )
        limits = np.iinfo(self.infer_type())
        if self.low < limits.min or self.high - 1 > limits.max:
            raise AttributeSpecError(f"{self.name}: [{self.low}, {self.high}) does not fit {self.infer_type().name}")

    @Pointwise
    def triton(self, dtype: np.dtype) -> str:
        word = "philox_word({seed}, {draw}, {element}).to(tl.uint64)"
        return f"(({word} * {self.high - self.low}) >> 32).to(tl.int64) + {self.low}"

    def numpy(self, out: Array | None = None, rng: tuple[int, int] | None = None) -> Array:
        # The high half of word * span: each number has the same share of the 2^32 words, give or take one.
        numbers = philox.words(*_key(rng), prod(self.shape)).astype(np.uint64)
        numbers *= np.uint64(self.high - self.low)
        numbers >>= np.uint64(32)
        signed = numbers.astype(np.int64) + self.low
        return into(signed.astype(self.infer_type()).reshape(self.shape), out)


class Shuffle(Operator, name="_shuffle", aliases=("shuffle",)):
    """The rows of data (along the first axis) in random order. data : (n, ...); returns : as data."""

    random = True
    samples = [sample((6, 2), gradient=False)]

    def infer_shape(self, data: Shape) -> Shape:
        if not data:
            raise ShapeError("shuffle: an array without dimensions has no rows")
        return data

    def numpy(self, data: Array, out: Array | None = None, rng: tuple[int, int] | None = None) -> Array:
        order = np.argsort(philox.words(*_key(rng), len(data), like=like_of(data)), kind="stable")
        return into(data[order], out)


def _mask_shape(name: str, data: tuple[int, ...], axes: tuple[int, ...]) -> tuple[int, ...]:
    return kept_shape(data, tuple(axis_of(name, axis, len(data)) for axis in axes))


class Dropout(Operator, name="Dropout"):
    """In training each element is 0 with probability p, and the remaining elements are divided by 1 - p; in prediction
    a copy.

    data : floating; returns : as data. axes : axes along which one draw is shared. mode='always' drops in prediction
    too.
    """

    p: float = 0.5
    mode: Literal["training", "always"] = "training"
    axes: Shape = ()
    random = True
    mode_dependent = True
    signature = Signature(outputs=2, visible=1)
    samples = [
        sample((4, 5)),
        sample((4, 5), p=0.3),
        sample((2, 3, 4), p=0.5, axes=(1,)),
        sample((2, 3), p=0.0),
        sample((2, 3), p=1.0),
    ]

    def check(self) -> None:
        if not 0 <= self.p <= 1:
            raise AttributeSpecError(f"Dropout: p={self.p}; a probability from 0 to 1 is needed")

    def bind_mode(self, train: bool) -> Operator:
        return self if train or self.mode == "always" else get("identity").bind()

    def fix_mode(self, train: bool) -> Operator:
        return self.variant(mode="always") if train else get("identity").bind()

    def infer_shape(self, data: Shape) -> list[Shape]:
        return [data, _mask_shape("Dropout", data, self.axes)]

    def infer_type(self, *dtypes: np.dtype) -> list[np.dtype]:
        return [dtypes[0], np.dtype("bool")]

    @property
    def scale(self) -> float:
        """What kept elements are multiplied with; of p=1 there are none."""
        return 1.0 / (1.0 - self.p) if self.p < 1 else 0.0

    def numpy(
        self, data: Array, out: Outs = None, rng: tuple[int, int] | None = None, scratch: Scratch = np.empty
    ) -> Arrays:
        y, mask = out if out is not None else (None, None)
        draw: Any = get("_dropout_mask").bind(p=self.p, axes=self.axes)
        mask = draw.numpy(data, out=mask, rng=rng, scratch=scratch)
        return MaskedScale.bind(scale=self.scale).numpy(data, mask, out=y), mask

    def grad(self, F: Functions, data: Tensor, y: Tensor, mask: Tensor, dy: Tensor) -> Tensor:
        return F._masked_scale(dy, mask, scale=self.scale)

    def lower(self, F: Functions, data: Tensor) -> tuple[Tensor, ...]:
        mask = F._dropout_mask(data, p=self.p, axes=self.axes)
        return F._masked_scale(data, mask, scale=self.scale), mask


class DropoutMask(Operator, name="_dropout_mask"):
    """Which elements Dropout keeps: bool, True with probability 1 - p. data : read for its shape; axes : kept as 1."""

    p: float = 0.5
    axes: Shape = ()
    mxnet = None
    random = True
    shape_only = ("data",)
    samples = [sample((4, 5), gradient=False), sample((2, 3, 4), axes=(1,), p=0.2, gradient=False)]

    @Pointwise
    def triton(self, dtype: np.dtype) -> str:
        return f"(philox_word({{seed}}, {{draw}}, {{element}}) >> 8) < {philox.keep_threshold(1.0 - self.p)}"

    def infer_shape(self, data: Shape) -> Shape:
        return _mask_shape("Dropout", data, self.axes)

    def infer_type(self, *dtypes: np.dtype) -> np.dtype:
        return np.dtype("bool")

    def numpy(
        self, data: Array, out: Array | None = None, rng: tuple[int, int] | None = None, scratch: Scratch = np.empty
    ) -> Array:
        shape = self.infer_shape(data.shape)
        if out is None or not out.flags.c_contiguous:
            return into(philox.keep_mask(*_key(rng), prod(shape), 1.0 - self.p, scratch=scratch).reshape(shape), out)
        philox.keep_mask(*_key(rng), prod(shape), 1.0 - self.p, out.reshape(-1), scratch)
        return out


class MaskedScale(Elementwise, name="_masked_scale"):
    """data * scale if mask is True, else 0.

    data : floating; mask : bool, broadcast against data; returns : as data.
    """

    scale: float = 1.0
    typed_like = 0
    mxnet = None
    samples = [
        sample((3, 4), ints((3, 4), 0, 2, "bool"), scale=1.5),
        sample((3, 4), ints((3, 1), 0, 2, "bool"), scale=2.0),
    ]

    def first_shape(self, data: Shape, mask: Shape) -> Shape:
        return broadcast_shapes(self.name, data, mask)

    @Pointwise
    def triton(self, dtype: np.dtype) -> str:
        return f"{{0}} * tl.where({{1}}, {printed(self.scale, dtype)}, 0.0)"

    def numpy(self, data: Array, mask: Array, out: Array | None = None) -> Array:
        result = np.multiply(data, mask, out=out)
        if self.scale != 1.0:
            result *= result.dtype.type(self.scale)
        return result

    def grad(self, F: Functions, data: Tensor, mask: Tensor, y: Tensor, dy: Tensor) -> Gradients:
        return F._masked_scale(dy, mask, scale=self.scale), None

    def onnx(self, g: OnnxGraph, data: str, mask: str) -> str:
        dtype = g.dtype(data)
        # A product, as everywhere else: NaN in an element that is dropped stays NaN.
        return g.Mul(g.Mul(data, g.cast(mask, dtype)), g.const(self.scale, dtype))
