"""Random numbers of other distributions, from Philox blocks: exponential, gamma, Poisson, binomial, multinomial.

Element e of a draw reads the blocks stage * 2^40 + e of that draw, a stage for every attempt of a rejection method, so
that a number depends on (seed, draw, e) and its parameters alone: the same eagerly and in a graph.

random_X makes an array of a shape, _sample_X one block of numbers for every element of its parameters, and
_random_X_like an array of the shape of another one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from math import prod
from typing import Any, ClassVar

import numpy as np

from hybrid_lab.diagnostics.errors import AttributeSpecError, HybridLabError, ShapeError
from hybrid_lab.ops.arrays.coordinates import inside
from hybrid_lab.ops.arrays.reduce import chosen
from hybrid_lab.ops.elementwise.special import log_gamma
from hybrid_lab.ops.framework import Operator, Pointwise, Sample, Signature, into, printed, sample
from hybrid_lab.ops.framework.attributes import DType, Shape
from hybrid_lab.ops.framework.memory import like_of, overridable
from hybrid_lab.ops.framework.protocols import Functions, Gradient, Scratch, Tensor
from hybrid_lab.ops.framework.shapes import alike
from hybrid_lab.ops.framework.types import Array, Arrays, PartialShape, PartialShapes, Shapes
from hybrid_lab.ops.kernels import philox
from hybrid_lab.ops.random.random import refuse_attributes

_STAGE = 1 << 40
_ATTEMPTS = 128
"""Far more than a rejection method with an acceptance of 3/4 ever needs."""

Key = tuple[int, int]


def blocks(key: Key, stage: int, elements: np.ndarray) -> np.ndarray:
    """The four words of each element at a stage, (n, 4) uint32. elements : int64"""
    if stage == 0 and type(elements) is np.ndarray and elements.size and elements[-1] == elements.size - 1:
        return philox.words(*key, 4 * elements.size).reshape(-1, 4)  # all numbers: blocks 0, 1, 2 ...
    return philox.words_at(*key, elements + stage * _STAGE)


@overridable
def searched(edges: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """How many edges of its row each number has reached. edges : (rows, m), rising; numbers : (rows, n); returns :
    (rows, n) int64
    """
    places = np.empty(numbers.shape, np.int64)
    for place, edge, row in zip(places, edges, numbers, strict=True):
        place[:] = np.searchsorted(edge, row, side="right")
    return places


def opened(words: np.ndarray) -> np.ndarray:
    """A word as a number in (0, 1)."""
    return (words + 0.5) * 2.0**-32


LIMITS: dict[str, tuple[str, Callable[..., Any]]] = {
    "uniform": ("low <= high", lambda low, high: low <= high),
    "normal": ("sigma >= 0", lambda mu, sigma: sigma >= 0),
    "exponential": ("lam > 0", lambda lam: lam > 0),
    "gamma": ("alpha > 0 and beta > 0", lambda alpha, beta: (alpha > 0) & (beta > 0)),
    "poisson": ("lam >= 0", lambda lam: (lam >= 0) & np.isfinite(lam)),
    "negative_binomial": ("k > 0 and 0 < p <= 1", lambda k, p: (k > 0) & (p > 0) & (p <= 1)),
    "generalized_negative_binomial": ("mu >= 0 and alpha >= 0", lambda mu, alpha: (mu >= 0) & (alpha >= 0)),
}
"""Per distribution what its parameters must be, in words and as a function."""


def refuse_parameters(kind: str, *parameters: np.ndarray) -> None:
    """Raise HybridLabError unless the parameters of a distribution are within its limits everywhere."""
    wanted, holds = LIMITS[kind]
    if not bool(np.all(holds(*parameters))):
        raise HybridLabError(f"{kind}: the parameters must be {wanted}")


# -- the methods: (key, parameters as float64 arrays of n elements, first stage) -> n numbers in float64 --------


def draw_uniform(key: Key, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Uniform in [low, high)."""
    return low + (high - low) * philox.uniform(*key, low.size, "float64", like=low)


def draw_normal(key: Key, mu: np.ndarray, sigma: np.ndarray) -> np.ndarray:
    """Normal with mean mu and standard deviation sigma."""
    refuse_parameters("normal", mu, sigma)
    return mu + sigma * philox.normal(*key, mu.size, "float64", like=mu)


def draw_exponential(key: Key, lam: np.ndarray) -> np.ndarray:
    """Exponential with rate lam, by inversion."""
    refuse_parameters("exponential", lam)
    return -np.log(opened(philox.words(*key, lam.size, like=lam))) / lam


def draw_gamma(key: Key, alpha: np.ndarray, beta: np.ndarray) -> np.ndarray:
    """Gamma with shape alpha and scale beta (Marsaglia and Tsang, 2000); below 1 alpha is raised by 1 first."""
    refuse_parameters("gamma", alpha, beta)
    result = np.empty_like(alpha)
    shape = np.where(alpha < 1, alpha + 1, alpha) - 1 / 3
    pending = np.arange(alpha.size, like=like_of(alpha))
    for attempt in range(_ATTEMPTS):
        d = shape[pending]
        first, second, third, fourth = opened(blocks(key, attempt, pending)).T
        x = np.sqrt(-2 * np.log(first)) * np.cos(2 * np.pi * second)
        base = np.maximum(1 + x / np.sqrt(9 * d), 0)
        v = base**3
        with np.errstate(divide="ignore"):
            accepted = (v > 0) & (np.log(third) < 0.5 * x * x + d - d * v + d * np.log(v))
        places = pending[accepted]
        raised = np.where(alpha[places] < 1, fourth[accepted] ** (1 / alpha[places]), 1.0)
        result[places] = (d * v)[accepted] * raised
        pending = pending[~accepted]
        if not pending.size:
            break
    return result * beta


def draw_poisson(key: Key, lam: np.ndarray, stage: int = 0) -> np.ndarray:
    """Poisson with mean lam: by inversion below 10, else by transformed rejection (Hoermann, 1993, PTRS)."""
    refuse_parameters("poisson", lam)
    result = np.zeros_like(lam)
    few = np.flatnonzero(lam < 10)
    if few.size:
        words = blocks(key, stage, few)
        u = ((words[:, 0] >> 5) * 2.0**26 + (words[:, 1] >> 6) + 0.5) * 2.0**-53
        weight = np.exp(-lam[few])
        total, count = weight.copy(), np.zeros_like(weight)
        for number in range(1, 80):
            behind = u > total
            if not behind.any():
                break
            count[behind] = number
            weight *= lam[few] / number
            total += weight
        result[few] = count
    pending = np.flatnonzero(lam >= 10)
    for attempt in range(_ATTEMPTS):
        if not pending.size:
            break
        mean = lam[pending]
        b = 0.931 + 2.53 * np.sqrt(mean)
        a = -0.059 + 0.02483 * b
        first, second = opened(blocks(key, stage + attempt, pending)).T[:2]
        u, v = first - 0.5, second
        us = 0.5 - np.abs(u)
        k = np.floor((2 * a / us + b) * u + mean + 0.43)
        quick = (us >= 0.07) & (v <= 0.9277 - 3.6224 / (b - 2))
        possible = (k >= 0) & ~((us < 0.013) & (v > us))
        bound = -mean + k * np.log(mean) - log_gamma(np.maximum(k, 0) + 1)
        slow = np.log(v) + np.log(1.1239 + 1.1328 / (b - 3.4)) - np.log(a / (us * us) + b) <= bound
        accepted = quick | (possible & slow)
        result[pending[accepted]] = k[accepted]
        pending = pending[~accepted]
    return result


def draw_negative_binomial(key: Key, k: np.ndarray, p: np.ndarray) -> np.ndarray:
    """Failures before k successes of probability p: Poisson with a gamma mean."""
    refuse_parameters("negative_binomial", k, p)
    certain = p == 1
    means = draw_gamma(key, k, np.where(certain, 1.0, (1 - p) / p))
    return draw_poisson(key, np.where(certain, 0.0, means), _ATTEMPTS)


def draw_generalized_negative_binomial(key: Key, mu: np.ndarray, alpha: np.ndarray) -> np.ndarray:
    """Negative binomial with mean mu and dispersion alpha; alpha 0 is Poisson."""
    refuse_parameters("generalized_negative_binomial", mu, alpha)
    spread = alpha > 0
    shape = 1 / np.where(spread, alpha, 1.0)
    means = draw_gamma(key, shape, np.where(spread & (mu > 0), mu / shape, 1.0))
    return draw_poisson(key, np.where(spread & (mu > 0), means, mu), _ATTEMPTS)


# -- the records -----------------------------------------------------------------------------------------------


class _Distribution(Operator):
    """Base: `method` with its parameters by name, which are attributes or inputs."""

    random = True
    method: ClassVar[Any]
    parameters: ClassVar[tuple[str, ...]]

    def infer_type(self, *dtypes: np.dtype) -> np.dtype:
        return np.dtype(self.attributes.get("dtype") or "float32")

    def check(self) -> None:
        if self.infer_type().kind == "b":
            raise AttributeSpecError(f"{self.name}: dtype must be a number type, not bool")
        given = [self.attributes[name] for name in self.parameters if name in self.attributes]
        if given:
            wanted, holds = LIMITS[self.method.__name__.removeprefix("draw_")]
            refuse_attributes(self, wanted.replace("sigma", "scale"), holds(*given))

    def numbers(
        self, rng: Key | None, parameters: list[Any], shape: Shape, dtype: np.dtype, out: Array | None, like: Array
    ) -> Array:
        """`shape` numbers for parameters that broadcast against it. like : an array of the device that draws them"""
        count, device = prod(shape), like_of(like)
        flat = [np.broadcast_to(np.asarray(item, np.float64, like=device), shape).reshape(count) for item in parameters]
        made = type(self).method(rng if rng is not None else (0, 0), *flat) if count else np.empty(0)
        return into(made.astype(dtype).reshape(shape), out)


class _Array(_Distribution):
    """Base of random_X: the shape is an attribute."""

    shape: Shape = (1,)
    dtype: DType | None = None

    def infer_shape(self) -> Shape:
        return self.shape

    def numpy(self, out: Array | None = None, rng: Key | None = None, scratch: Scratch = np.empty) -> Array:
        given = [self.attributes[name] for name in self.parameters]
        return self.numbers(rng, given, self.shape, self.infer_type(), out, scratch((), np.float64))


class _Like(_Distribution):
    """Base of _random_X_like: the shape and dtype of data."""

    shaped_like = 0
    shape_only = ("data",)

    def infer_type(self, *dtypes: np.dtype) -> np.dtype:
        return dtypes[0] if dtypes else np.dtype("float32")

    def numpy(self, data: Array, out: Array | None = None, rng: Key | None = None) -> Array:
        given = [self.attributes[name] for name in self.parameters]
        return self.numbers(rng, given, data.shape, data.dtype, out, data)


class _PerElement(_Distribution):
    """Base of _sample_X: a block of `shape` numbers for every element of the parameters."""

    shape: Shape = ()
    dtype: DType | None = None

    @classmethod
    def named_inputs(cls) -> tuple[tuple[str, ...], bool]:
        return cls.parameters, False

    def complete(self, *shapes: PartialShape) -> PartialShapes:
        return alike(shapes)

    def infer_shape(self, *shapes: Shape) -> Shape:
        if any(item != shapes[0] for item in shapes):
            raise ShapeError(f"{self.name}: the parameters have the shapes {' and '.join(map(str, shapes))}")
        return (*shapes[0], *self.shape)

    def numpy(self, *inputs: Array, out: Array | None = None, rng: Key | None = None) -> Array:
        lead = inputs[0].shape
        spread = [item.reshape(*lead, *(1,) * len(self.shape)) for item in inputs]
        return self.numbers(rng, spread, (*lead, *self.shape), self.infer_type(), out, inputs[0])


def _exponential_text(op: Any, dtype: np.dtype) -> str:
    """`draw_exponential` as an expression of a kernel."""
    word = "(philox_word({seed}, {draw}, {element}).to(tl.float64) + 0.5)"
    return f"(-tl.log({word} * {2.0**-32!r}) / {printed(op.lam, np.dtype('float64'))})"


_SHARES, _PAIR = np.array([0.3, 0.9, 0.5], "float32"), np.array([0.7, 20.0], "float32")
_TWO = [
    sample(_SHARES, _SHARES[::-1].copy(), gradient=False),
    sample(_PAIR, _SHARES[:2], gradient=False, shape=(4, 2)),
]
_ONE = [sample(_SHARES, gradient=False), sample(_PAIR, gradient=False, shape=(4, 2))]


def _families(
    kind: str, method: Callable[..., np.ndarray], parameters: dict[str, Any], doc: str, block: str, **members: Any
) -> None:
    """Declare random_X, _random_X_like and _sample_X. parameters : name -> default, whose type is the attribute's;
    doc, block : descriptions of the numbers; members : further class members of the first two
    """
    shared = {"method": staticmethod(method), "parameters": tuple(parameters), "__module__": __name__}
    kinds = {name: type(default) for name, default in parameters.items()}
    values: dict[str, Any] = {name: 3 if number is int else 0.5 for name, number in kinds.items()}
    listed = ", ".join(parameters)

    def declare(base: type[_Distribution], name: str, doc: str, samples: list[Sample], **body: Any) -> None:
        title = "".join(part.capitalize() for part in name.split("_"))
        names = {"name": name, "aliases": (name[1:] if name.startswith("_") else f"_{name}",)}
        type(title, (base,), {**shared, "__doc__": doc, "samples": samples, **body}, **names)

    declare(
        _Array, f"random_{kind}", f"An array of `shape` with independent numbers: {doc}. {listed} : numbers.",
        [sample(shape=(3, 4)), sample(attrs={"shape": (5,), "dtype": "float64", **values})],
        **parameters, shape=(1,), dtype=None, mxnet=f"_random_{kind}",
        __annotations__={**kinds, "shape": Shape, "dtype": DType | None}, **members,
    )  # fmt: skip
    declare(
        _Like, f"_random_{kind}_like",
        f"Independent numbers in the shape and dtype of data: {doc}. {listed} : numbers.",
        [sample((3, 4), gradient=False), sample((2, 3), gradient=False, **values)],
        **parameters, __annotations__=kinds, **members,
    )  # fmt: skip
    declare(
        _PerElement, f"_sample_{kind}", f"{block}, a block of `shape` for every element.",
        _ONE if len(parameters) == 1 else _TWO,
    )  # fmt: skip


_families(
    "exponential", draw_exponential, {"lam": 1.0}, "exponential with rate lam", "Exponential numbers with rate lam",
    triton=Pointwise(_exponential_text, floating=True),
)  # fmt: skip
_families(
    "gamma", draw_gamma, {"alpha": 1.0, "beta": 1.0}, "gamma with shape alpha and scale beta",
    "Gamma numbers with shape alpha and scale beta",
)  # fmt: skip
_families("poisson", draw_poisson, {"lam": 1.0}, "Poisson with mean lam", "Poisson numbers with mean lam")
_families(
    "negative_binomial", draw_negative_binomial, {"k": 1, "p": 1.0}, "failures before k successes",
    "Failures before k successes of probability p",
)  # fmt: skip
_families(
    "generalized_negative_binomial", draw_generalized_negative_binomial, {"mu": 1.0, "alpha": 1.0},
    "negative binomial with mean mu and dispersion alpha",
    "Negative binomial numbers with mean mu and dispersion alpha",
)  # fmt: skip


class UniformLike(_Like, name="_random_uniform_like", aliases=("random_uniform_like",)):
    """Independent numbers in the shape and dtype of data: uniform in [low, high)."""

    method, parameters = staticmethod(draw_uniform), ("low", "high")
    low: float = 0.0
    high: float = 1.0
    samples = [sample((3, 4), gradient=False, attrs={"low": -1.0, "high": 2.0})]

    @Pointwise
    def triton(self, dtype: np.dtype) -> str:
        return philox.moved_text(philox.uniform_text(dtype, wide=True), self.high - self.low, self.low)


class NormalLike(_Like, name="_random_normal_like", aliases=("random_normal_like",)):
    """Independent numbers in the shape and dtype of data: normal with mean loc and standard deviation scale."""

    method, parameters = staticmethod(draw_normal), ("loc", "scale")
    loc: float = 0.0
    scale: float = 1.0
    samples = [sample((3, 4), gradient=False, loc=-1.0, scale=2.0)]

    @Pointwise
    def triton(self, dtype: np.dtype) -> str:
        return philox.moved_text(philox.normal_text(dtype), self.scale, self.loc)


class SampleUniform(_PerElement, name="_sample_uniform", aliases=("sample_uniform",)):
    """Uniform numbers in [low, high), a block of `shape` for every element. low, high : of one shape."""

    method, parameters, samples = staticmethod(draw_uniform), ("low", "high"), _TWO

    def lower(self, F: Functions, low: Tensor, high: Tensor) -> Tensor:
        shape = self.infer_shape(low.shape, high.shape)
        spread = (*low.shape, *(1,) * len(self.shape))
        low, high = (F.Reshape(F.Cast(item, dtype="float64"), shape=spread) for item in (low, high))
        numbers = F.random_uniform(shape=shape, dtype="float64")
        return F.Cast(low + (high - low) * numbers, dtype=self.infer_type().name)


class SampleNormal(_PerElement, name="_sample_normal", aliases=("sample_normal",)):
    """Normal numbers with mean mu and standard deviation sigma, a block of `shape` for every element."""

    method, parameters, samples = staticmethod(draw_normal), ("mu", "sigma"), _TWO


# -- choices ---------------------------------------------------------------------------------------------------


class Multinomial(Operator, name="_sample_multinomial", aliases=("sample_multinomial",)):
    """Class numbers drawn with the given probabilities, a block of `shape` for every row.

    data : (..., classes), rows that sum to 1; get_prob : the logarithm of the probability of each choice too, through
    which a gradient reaches data (REINFORCE). returns : (..., shape) in `dtype`; the logarithms in the dtype of data
    """

    shape: Shape = ()
    get_prob: bool = False
    dtype: DType = DType("int32")
    random = True
    samples = [
        sample(np.array([0.1, 0.2, 0.7], "float32"), gradient=False),
        sample(np.array([[0.1, 0.2, 0.7], [0.5, 0.5, 0.0]], "float32"), gradient=False, shape=(5,)),
        sample(np.array([[0.1, 0.2, 0.7], [0.3, 0.5, 0.2]], "float32"), shape=(2, 3), get_prob=True),
        sample(np.array([[0.1, 0.9], [0.4, 0.6]], "float32"), get_prob=True),
    ]

    @cached_property
    def signature(self) -> Signature:
        return Signature(self.input_names, 1 + self.get_prob)

    def infer_shape(self, data: Shape) -> Shapes:
        if not data or not data[-1]:
            raise ShapeError(f"multinomial: data {data} has no classes to choose from")
        chosen = (*data[:-1], *self.shape) or (1,)
        return [chosen] * 2 if self.get_prob else chosen

    def infer_type(self, *dtypes: np.dtype) -> np.dtype | list[np.dtype]:
        return [np.dtype(self.dtype), dtypes[0]] if self.get_prob else np.dtype(self.dtype)

    def numpy(self, data: Array, out: Any = None, rng: Key | None = None) -> Array | Arrays:
        shape = (*data.shape[:-1], *self.shape) or (1,)
        rows = data.reshape(-1, data.shape[-1]).astype(np.float64)
        if not np.all(rows >= 0):
            raise HybridLabError("multinomial: the probabilities must be numbers of at least 0")
        edges = np.cumsum(rows, axis=1)
        drawn = philox.uniform(*(rng if rng is not None else (0, 0)), prod(shape), "float64", like=data)
        numbers = drawn.reshape(len(rows), prod(self.shape))
        # The last class that has a probability takes what rounding leaves over.
        last = rows.shape[1] - 1 - np.argmax(rows[:, ::-1] > 0, axis=1)
        places = np.minimum(searched(edges, numbers * edges[:, -1:]), last[:, None])
        y = places.astype(self.dtype).reshape(shape)
        if not self.get_prob:
            return into(y, out)
        with np.errstate(divide="ignore"):
            logarithms = np.log(np.take_along_axis(rows, places, 1)).astype(data.dtype).reshape(shape)
        return tuple(map(into, (y, logarithms), out or (None, None)))

    def grad(self, F: Functions, data: Tensor, *rest: Tensor) -> Gradient:
        if not self.get_prob or rest[3] is None:
            return None
        return F._multinomial_grad(rest[3], rest[0], data)


class MultinomialGrad(Operator, name="_multinomial_grad"):
    """The gradient of multinomial's logarithms: dy / probability at every choice, added up. choices : its output."""

    shaped_like = 2
    refuses_gradient = True
    mxnet = None
    samples = [
        sample(
            *(
                (2, 3),
                np.array([[0, 2, 2], [1, 0, 1]], "int32"),
                np.array([[0.1, 0.2, 0.7], [0.3, 0.5, 0.2]], "float32"),
            ),
            gradient=False,
        )
    ]

    def first_shape(self, dy: Shape, choices: Shape, data: Shape) -> Shape:
        rows = data[:-1]
        if not data or choices[: len(rows)] != rows:
            raise ShapeError(f"{self.name}: choices {choices} do not have the rows of data {data}")
        return chosen(self, data, choices)

    def infer_type(self, *dtypes: np.dtype) -> np.dtype:
        return dtypes[2]

    def numpy(self, dy: Array, choices: Array, data: Array, out: Array | None = None) -> Array:
        rows = data.reshape(-1, data.shape[-1])
        places = choices.astype(np.int64).reshape(len(rows), prod(choices.shape[data.ndim - 1 :]))
        result = np.zeros_like(rows)
        with np.errstate(divide="ignore", invalid="ignore"), inside(self):
            shares = dy.reshape(places.shape) / np.take_along_axis(rows, places, 1)
        np.add.at(result, (np.arange(len(rows), like=rows)[:, None], places), shares.astype(data.dtype))
        return into(result.reshape(data.shape), out)
