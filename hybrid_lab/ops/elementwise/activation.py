"""Activations: relu, sigmoid, softsign, softplus, and two operators that choose one by name (Activation, LeakyReLU)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np

from hybrid_lab.diagnostics.errors import AttributeSpecError, ShapeError, Unmappable
from hybrid_lab.ops.framework import MAXIMUM, Elementwise, Kernel, Operator, Pointwise, Signature, sample, unary
from hybrid_lab.ops.framework.dtypes import OWN
from hybrid_lab.ops.framework.lowering import draw_lowering, emit_lowering
from hybrid_lab.ops.framework.protocols import Functions, Gradient, Gradients, OnnxGraph, Scratch, Tensor
from hybrid_lab.ops.framework.types import Array, PartialShape, PartialShapes, Shape, Shapes

_WIDE = [sample((3, 4), low=-3.0, high=3.0), sample((2, 3, 4), low=-8.0, high=8.0)]


#: Arrays rather than scalars: NumPy takes twice as long to convert a scalar as to compare a small array.
_ZERO = {np.dtype(name): np.zeros((), name) for name in OWN}


def _relu(x: Array, out: np.ndarray | None = None) -> Array:
    return np.maximum(x, _ZERO[x.dtype], out=out)


relu = unary(
    "relu", _relu, lambda F, x, y, dy: F._relu_grad(dy, y), MAXIMUM.format("{0}", "0.0"), "Relu",
    "max(data, 0); the gradient at 0 is 0.", samples=[*_WIDE, sample((3, 4), dtype="float16")], integers=True,
    whole=MAXIMUM.format("{0}", "0"), bound=lambda op, sizes, shapes, filters: sizes[0],
)  # fmt: skip


class ReluGrad(Elementwise, name="_relu_grad"):
    """dy if y > 0, else 0: the gradient of relu from its output. dy, y : one shape; returns : as dy."""

    mxnet = None
    triton = Pointwise("{0} * tl.where({1} > 0, 1.0, 0.0)")
    samples = [sample((3, 4), (3, 4))]

    def numpy(self, dy: Array, y: Array, out: Array | None = None, scratch: Scratch = np.empty) -> Array:
        return np.multiply(dy, np.greater(y, _ZERO[y.dtype], out=scratch(y.shape, np.bool_)), out=out)

    def grad(self, F: Functions, dy: Tensor, y: Tensor, dx: Tensor, ddx: Tensor) -> Gradients:
        return F._relu_grad(ddx, y), None

    def onnx(self, g: OnnxGraph, dy: str, y: str) -> str:
        # A product, as everywhere else: an infinite head times a slope of 0 is NaN, which Where would lose.
        return g.Mul(dy, g.cast(g.Greater(y, g.const(0, g.dtype(y))), g.dtype(dy)))


def _sigmoid(x: Array, out: np.ndarray | None = None) -> Array:
    # 0.5 * (tanh(x / 2) + 1): no overflow at either end.
    result = np.multiply(x, x.dtype.type(0.5), out=np.empty_like(x) if out is None else out)
    np.tanh(result, out=result)
    result += result.dtype.type(1)
    result *= result.dtype.type(0.5)
    return result


sigmoid = unary(
    "sigmoid", _sigmoid, lambda F, x, y, dy: dy * (y * (1.0 - y)), "1.0 / (1.0 + tl.exp(-({0})))", "Sigmoid",
    "1 / (1 + exp(-data)).", samples=_WIDE, expensive=True, bound=lambda op, sizes, shapes, filters: 1.0,
)  # fmt: skip


def _softsign(x: Array, out: np.ndarray | None = None) -> Array:
    size = np.abs(x, out=None if out is None or np.may_share_memory(x, out) else out)
    size += size.dtype.type(1)
    return np.divide(x, size, out=out)


softsign = unary(
    "softsign", _softsign, lambda F, x, y, dy: dy / F.square(F.abs(x) + 1.0), "({0} / (1.0 + tl.abs({0})))", "Softsign",
    "data / (1 + |data|).", samples=_WIDE, expensive=True,
)  # fmt: skip


def _softplus(x: Array, out: np.ndarray | None = None) -> Array:
    return np.logaddexp(x, x.dtype.type(0), out=out)


softrelu = unary(
    "_softrelu", _softplus, lambda F, x, y, dy: dy * F.sigmoid(x),
    MAXIMUM.format("{0}", "0.0") + " + log_plus_one(tl.exp(-tl.abs({0})))", "Softplus", "log(1 + exp(data)).",
    aliases=("softrelu", "softplus"), samples=_WIDE, mxnet=None, expensive=True, precision="float32",
)  # fmt: skip


class HardSigmoid(Elementwise, name="hard_sigmoid"):
    """alpha * data + beta, limited to [0, 1]. data : any shape, floating; returns : as data."""

    dtype_kinds = "f"
    alpha: float = 0.2
    beta: float = 0.5
    samples = [sample((3, 4), low=-4.0, high=4.0), sample((3, 4), alpha=0.5, beta=0.1)]

    def numpy(self, data: Array, out: Array | None = None) -> Array:
        y = np.multiply(data, data.dtype.type(self.alpha), out=np.empty_like(data) if out is None else out)
        y += y.dtype.type(self.beta)
        return np.clip(y, 0, 1, out=y)

    def grad(self, F: Functions, x: Tensor, y: Tensor, dy: Tensor) -> Tensor:
        inside = F.broadcast_greater(y, 0.0) * F.broadcast_lesser(y, 1.0)
        return dy * inside * self.alpha

    def lower(self, F: Functions, x: Tensor) -> Tensor:
        return F.clip(x * self.alpha + self.beta, a_min=0.0, a_max=1.0)

    def onnx(self, g: OnnxGraph, x: str) -> str:
        return g.HardSigmoid(x, alpha=self.alpha, beta=self.beta)


class Activation(Elementwise, name="Activation"):
    """The activation named by `act_type`. data : any shape, floating; returns : as data."""

    dtype_kinds = "fiu"
    float32_where = {"act_type": ("softrelu",)}
    expensive = True
    act_type: Literal["relu", "sigmoid", "softrelu", "softsign", "tanh"]
    onnx = emit_lowering
    samples = [
        sample((2, 3, 4), low=-3.0, high=3.0, act_type=name)
        for name in ("relu", "sigmoid", "softrelu", "softsign", "tanh")
    ]

    @cached_property
    def plain(self) -> Operator:
        """The operator this one stands for."""
        from hybrid_lab.ops.framework.operator import get

        return get(self.act_type).bind()

    @property
    def triton(self) -> Kernel | None:
        return self.plain.triton

    def bound(self, *known: Any) -> float:
        return self.plain.bound(*known)

    def numpy(self, data: Array, out: Array | None = None) -> Array:
        return self.plain.numpy(data, out=out)

    def grad(self, F: Functions, x: Tensor, y: Tensor, dy: Tensor) -> Tensor:
        return self.plain.grad(F, x, y, dy)

    def lower(self, F: Functions, x: Tensor) -> Tensor:
        return getattr(F, self.act_type)(x)


_SELU_ALPHA, _SELU_LAMBDA = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946


class LeakyReLU(Operator, name="LeakyReLU"):
    """Rectifiers with something left below zero, chosen by `act_type`.

    leaky : slope * data below zero;  prelu : the same with a learned slope per channel (input gamma)
    elu : slope * (exp(data) - 1);  selu : elu with the fixed constants of self-normalizing networks
    gelu : data * (1 + erf(data / sqrt(2))) / 2, over the whole line
    rrelu : in training a slope per element below zero, uniform in [lower_bound, upper_bound); in prediction their mean
    data : any shape
    gamma : of prelu alone: one slope (1,), one for each channel (channels,), one for each sample and channel
        (n, channels) with sizes that may be 1, or one for each element (the shape of data)
    returns : the shape and dtype of data
    """

    dtype_kinds = "f"
    float32_where = {"act_type": ("elu", "selu")}
    expensive = True
    act_type: Literal["leaky", "prelu", "elu", "selu", "gelu", "rrelu"] = "leaky"
    slope: float = 0.25
    lower_bound: float = 0.125
    upper_bound: float = 0.334
    mode_dependent = True
    numpy = draw_lowering
    samples = [
        sample((2, 3, 4), low=-3.0, high=3.0), sample((2, 3, 4), low=-3.0, high=3.0, act_type="leaky", slope=0.1),
        sample((2, 3, 4), low=-3.0, high=3.0, act_type="elu", slope=0.7),
        sample((2, 3, 4), low=-3.0, high=3.0, act_type="selu"), sample((2, 3, 4), low=-3.0, high=3.0, act_type="gelu"),
        sample((2, 3, 4), (3,), low=-3.0, high=3.0, act_type="prelu"),
        sample((2, 3), (1,), low=-3.0, high=3.0, act_type="prelu"),
        sample((2, 3, 4), low=-3.0, high=3.0, act_type="rrelu"),
        sample((2, 3), low=-3.0, high=3.0, act_type="rrelu", lower_bound=0.2, upper_bound=0.8),
        sample((2, 3, 4), (2, 3), low=-3.0, high=3.0, act_type="prelu"),
        sample((2, 3, 4, 2), (1, 3), low=-3.0, high=3.0, act_type="prelu"),
    ]  # fmt: skip

    @property
    def random(self) -> bool:
        """Whether a draw is used up."""
        return self.act_type == "rrelu"

    @cached_property
    def signature(self) -> Signature:
        """rrelu also has the factor of every element, hidden."""
        names = ("data", "gamma") if self.act_type == "prelu" else ("data",)
        return Signature(names, 2 if self.act_type == "rrelu" else 1, visible=1)

    variable_attrs: ClassVar[Mapping[str, Mapping[str, str]]] = {"gamma": {"__init__": '["Constant", {"value": 0.25}]'}}

    def check(self) -> None:
        if self.act_type == "rrelu" and not 0 <= self.lower_bound <= self.upper_bound:
            raise AttributeSpecError(
                f"LeakyReLU: lower_bound={self.lower_bound} and upper_bound={self.upper_bound} must be at least 0"
            )

    def bind_mode(self, train: bool) -> Operator:
        if train or self.act_type != "rrelu":
            return self
        return self.variant(act_type="leaky", slope=(self.lower_bound + self.upper_bound) / 2)

    def fix_mode(self, train: bool) -> Operator | None:
        return None if train and self.act_type == "rrelu" else self.bind_mode(train)

    def complete(self, data: PartialShape, gamma: PartialShape = None) -> PartialShapes:
        if self.act_type != "prelu":
            return (data,)
        if (gamma is None or None in gamma) and data is not None:
            gamma = (data[1] if len(data) > 1 else 1,)
        return data, gamma

    def infer_shape(self, data: Shape, gamma: tuple[int, ...] | None = None) -> Shapes:
        if self.act_type == "rrelu":
            return [data, data]
        if gamma is not None and not data:
            raise ShapeError("LeakyReLU: a scalar has no channels; use act_type='leaky'")
        if gamma is not None and gamma not in ((1,), data):
            channels = data[1:2] or (1,)
            fits = all(size in (1, wanted) for size, wanted in zip(gamma, data, strict=False))
            if (len(gamma) != 2 or len(data) < 2 or not fits) and (len(data) < 2 or gamma != channels):
                raise ShapeError(
                    f"LeakyReLU: gamma has shape {gamma}; data {data} needs {channels}, (1,), {data[:2]} or {data}"
                )
        return data

    def grad(self, F: Functions, data: Tensor, *rest: Tensor) -> Gradient | Gradients:
        dy, y = rest[-1], rest[-2]
        if self.act_type == "rrelu":
            return dy * y  # the last output, the factors
        if self.act_type == "gelu":
            return F._gelu_grad(dy, data)
        above = F.broadcast_greater(data, 0.0)
        if self.act_type in ("elu", "selu"):
            slope, scale = (_SELU_ALPHA, _SELU_LAMBDA) if self.act_type == "selu" else (self.slope, 1.0)
            return dy * F.where(above, F.ones_like(data) * scale, y + slope * scale)
        if self.act_type == "prelu":
            gamma = self._slopes(F, data, rest[0])
            below = dy * (1.0 - above)
            dgamma = F._sum_like(below * data, gamma)
            return dy * above + below * gamma, F.reshape_like(dgamma, rest[0])
        return F.where(above, dy, dy * self.slope)

    @staticmethod
    def _slopes(F: Functions, data: Tensor, gamma: Tensor) -> Tensor:
        """The slopes of prelu in a shape that broadcasts to the shape of data."""
        return F._channel_like(gamma, data)

    def lower(self, F: Functions, data: Tensor, gamma: Tensor | None = None) -> Tensor | tuple[Tensor, ...]:
        if self.act_type == "rrelu":
            slopes = F._random_slopes(data, low=self.lower_bound, high=self.upper_bound)
            factors = F.where(F.broadcast_greater(data, 0.0), F.ones_like(data), slopes)
            return data * factors, factors
        if self.act_type == "gelu":
            return data * (F.erf(data * math.sqrt(0.5)) + 1.0) * 0.5
        if self.act_type in ("elu", "selu"):
            slope, scale = (_SELU_ALPHA, _SELU_LAMBDA) if self.act_type == "selu" else (self.slope, 1.0)
            above = F.broadcast_maximum(data, 0.0)
            below = F.expm1(F.broadcast_minimum(data, 0.0)) * (slope * scale)
            return (above if scale == 1.0 else above * scale) + below
        if self.act_type == "leaky" and 0 < self.slope <= 1:
            return F.broadcast_maximum(data, data * self.slope)
        below = data * (self.slope if gamma is None else self._slopes(F, data, gamma))
        return F.where(F.broadcast_greater(data, 0.0), data, below)

    def onnx(self, g: OnnxGraph, data: str, gamma: str | None = None) -> str | tuple[str, ...]:
        dtype = g.dtype(data)
        if self.act_type == "rrelu":
            raise Unmappable("rrelu in training, whose slopes are random")
        if self.act_type == "gelu":
            # A division: so ONNX Runtime knows the pattern and runs it in one pass, 2.5 times as fast.
            inner = g.Add(g.Erf(g.Div(data, g.const(math.sqrt(2), dtype))), g.const(1, dtype))
            return g.Mul(g.Mul(data, inner), g.const(0.5, dtype))
        if self.act_type in ("elu", "selu"):
            # Not Elu and Selu: ONNX Runtime computes exp(x) - 1 there, which loses the digits of a small x. With
            # t = tanh(x / 2) it is 2 t / (1 - t).
            slope, scale = (_SELU_ALPHA, _SELU_LAMBDA) if self.act_type == "selu" else (self.slope, 1.0)
            t = g.Tanh(g.Mul(g.Min(data, g.const(0, dtype)), g.const(0.5, dtype)))
            below = g.Mul(g.Div(t, g.Sub(g.const(1, dtype), t)), g.const(2 * slope * scale, dtype))
            above = g.Max(data, g.const(0, dtype))
            return g.Add(above if scale == 1.0 else g.Mul(above, g.const(scale, dtype)), below)
        if gamma is not None:
            # Not PRelu, whose value at 0 is 0 for a slope of NaN, too.
            rank = len(g.shape(data))
            shape = g.shape(gamma)
            sizes = [-1] + [1] * max(rank - 2, 0) if len(shape) == 1 else [*shape, *[1] * (rank - len(shape))]
            slopes = gamma if len(shape) == rank else g.Reshape(gamma, sizes)
            return g.Where(g.Greater(data, g.const(0, dtype)), data, g.Mul(data, slopes))
        return g.LeakyRelu(data, alpha=self.slope)


class RandomSlopes(Operator, name="_random_slopes"):
    """Numbers uniform in [low, high), in the shape and dtype of data, of which nothing else is read."""

    shaped_like = 0
    low: float
    high: float
    dtype_kinds = "f"
    mxnet = None
    random = True
    shape_only = ("data",)
    numpy = draw_lowering
    samples = [sample((3, 4), low=0.0, high=1.0, attrs={"low": 0.125, "high": 0.25}, gradient=False)]

    def lower(self, F: Functions, data: Tensor) -> Tensor:
        return F.random_uniform(low=self.low, high=self.high, shape=data.shape, dtype=data.dtype.name)
