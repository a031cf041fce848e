"""Probability densities of samples: random_pdf_uniform, random_pdf_normal and their like.

Parameters have the first dimensions of the sample, which holds a block of numbers for each element of the parameters.
"""

from __future__ import annotations

from math import log, pi

import numpy as np

from hybrid_lab.diagnostics.errors import ShapeError
from hybrid_lab.ops.framework import Element, Operator, into, sample
from hybrid_lab.ops.framework.lowering import differentiate_lowering, emit_lowering, run_lowering
from hybrid_lab.ops.framework.memory import like_of
from hybrid_lab.ops.framework.protocols import Elements, Functions, Gradients, OnnxGraph, Place, Tensor
from hybrid_lab.ops.framework.types import Array, Shape

_SHARES = np.array([0.3, 0.8], "float32")
_COUNTS = np.array([[0, 1, 4], [2, 7, 3]], "float32")


class _Blocks(Operator):
    """Base of operators that repeat elements over blocks. last : the number of last axes that both arrays share; the
    other axes of the small array are the first axes of the large array
    """

    mxnet = None
    last: int = 0

    def check_blocks(self, small: Shape, large: Shape) -> None:
        """Raises ShapeError."""
        lead = len(small) - self.last
        if lead < 0 or len(large) < len(small) or large[:lead] + large[len(large) - self.last :] != small:
            raise ShapeError(f"{self.name}: {small} are no axes of {large}")

    def spread(self, small: Shape, large: Shape) -> Shape:
        """The shape of the small array, with 1 for the axes that only the large one has."""
        lead = len(small) - self.last
        return (*small[:lead], *(1,) * (len(large) - len(small)), *small[lead:])


class BlockLike(_Blocks, name="_block_like"):
    """v repeated over the axes in the middle that only x has. x : read for its shape; returns : the shape of x."""

    typed_like = 0
    shape_only = ("x",)
    samples = [sample((2, 3), (2, 3, 4, 2)), sample((2, 3), (2, 4, 3), last=1), sample((3,), (3,))]

    def infer_shape(self, v: Shape, x: Shape) -> Shape:
        self.check_blocks(v, x)
        return x

    def numpy(self, v: Array, x: Array, out: Array | None = None) -> Array:
        result = np.empty(x.shape, v.dtype, like=like_of(v)) if out is None else out
        np.copyto(result, v.reshape(self.spread(v.shape, x.shape)))
        return result

    @Element
    def triton(self, elements: Elements, place: Place) -> str:
        count = len(elements.shape(0)) - self.last
        return elements.read(0, (*place[:count], *place[len(place) - self.last :]))

    def grad(self, F: Functions, v: Tensor, x: Tensor, y: Tensor, dy: Tensor) -> Gradients:
        return F._block_sum(dy, v, last=self.last), None

    def onnx(self, g: OnnxGraph, v: str, x: str) -> str:
        return g.Expand(g.Reshape(v, self.spread(g.shape(v), g.shape(x))), g.Shape(x))


class BlockSum(_Blocks, name="_block_sum"):
    """The gradient of _block_like: x added up over the axes in the middle that v does not have.

    v : read for its shape; returns : the shape of v
    """

    arrays_only = ("v",)
    typed_like = 0
    shape_only = ("v",)
    half_in_float32 = True
    samples = [sample((2, 3, 4, 2), (2, 3)), sample((2, 4, 3), (2, 3), last=1), sample((3,), (3,))]

    def infer_shape(self, x: Shape, v: Shape) -> Shape:
        self.check_blocks(v, x)
        return v

    def numpy(self, x: Array, v: Array, out: Array | None = None) -> Array:
        lead = v.ndim - self.last
        return into(x.sum(axis=tuple(range(lead, x.ndim - self.last)), dtype=x.dtype), out)

    def grad(self, F: Functions, x: Tensor, v: Tensor, y: Tensor, dy: Tensor) -> Gradients:
        return F._block_like(dy, x, last=self.last), None

    def onnx(self, g: OnnxGraph, x: str, v: str) -> str:
        lead, rank = len(g.shape(v)) - self.last, len(g.shape(x))
        axes = list(range(lead, rank - self.last))
        return g.ReduceSum(x, axes, keepdims=0) if axes else g.Identity(x)


class _Density(Operator):
    """Base: the density, or with is_log its logarithm, of every number in the sample."""

    dtype_kinds = "f"
    half_in_float32 = True
    is_log: bool = False
    numpy, onnx, grad = run_lowering, emit_lowering, differentiate_lowering

    def matched(self, sample: Shape, *parameters: Shape) -> Shape:
        """The shape of the result. Raises ShapeError."""
        first = parameters[0]
        if any(shape != first for shape in parameters) or sample[: len(first)] != first:
            names, shapes = self.input_names[1:], " and ".join(map(str, parameters))
            raise ShapeError(
                f"{self.name}: {' and '.join(names)} have the shapes {shapes}; they must be equal, and the first "
                f"dimensions of the sample, which has {sample}"
            )
        return sample

    def logarithm(self, F: Functions, sample: Tensor, *parameters: Tensor) -> Tensor:
        """The logarithm of the density, for parameters in the shape of the sample."""
        raise NotImplementedError

    def lower(self, F: Functions, sample: Tensor, *parameters: Tensor) -> Tensor:
        result = self.logarithm(F, sample, *(F._block_like(item, sample) for item in parameters))
        return result if self.is_log else F.exp(result)


class UniformDensity(_Density, name="random_pdf_uniform", aliases=("_random_pdf_uniform",)):
    """1 / (high - low) for every number in the sample; whether it lies between them is not checked, as in MXNet.

    sample : (..., any); low, high : (...); returns : as sample
    """

    mxnet = "_random_pdf_uniform"
    samples = [
        sample((2, 3), _SHARES, _SHARES + 2),
        sample((2,), _SHARES, _SHARES + 0.5, is_log=True),
    ]

    def infer_shape(self, sample: Shape, low: Shape, high: Shape) -> Shape:
        return self.matched(sample, low, high)

    def logarithm(self, F: Functions, sample: Tensor, *parameters: Tensor) -> Tensor:
        low, high = parameters
        return -F.log(high - low)


class NormalDensity(_Density, name="random_pdf_normal", aliases=("_random_pdf_normal",)):
    """Densities of normal distributions. sample : (..., any); mu, sigma : (...); returns : as sample."""

    mxnet = "_random_pdf_normal"
    samples = [sample((2, 3), _SHARES, _SHARES), sample((2, 2, 3), (2, 2), np.ones((2, 2), "float32") * 2, is_log=True)]

    def infer_shape(self, sample: Shape, mu: Shape, sigma: Shape) -> Shape:
        return self.matched(sample, mu, sigma)

    def logarithm(self, F: Functions, sample: Tensor, *parameters: Tensor) -> Tensor:
        mu, sigma = parameters
        return F.square((sample - mu) / sigma) * -0.5 - F.log(sigma) - log(2 * pi) / 2


class GammaDensity(_Density, name="random_pdf_gamma", aliases=("_random_pdf_gamma",)):
    """Densities of gamma distributions with shape alpha and rate beta.

    sample : (..., any), positive; alpha, beta : (...); returns : as sample
    """

    mxnet = "_random_pdf_gamma"
    samples = [
        sample((2, 3), _SHARES + 1, _SHARES, low=0.2, high=3.0),
        sample((2,), _SHARES, _SHARES + 1, is_log=True, low=0.2, high=3.0),
    ]

    def infer_shape(self, sample: Shape, alpha: Shape, beta: Shape) -> Shape:
        return self.matched(sample, alpha, beta)

    def logarithm(self, F: Functions, sample: Tensor, *parameters: Tensor) -> Tensor:
        alpha, beta = parameters
        return alpha * F.log(beta) - F.gammaln(alpha) + (alpha - 1.0) * F.log(sample) - beta * sample


class ExponentialDensity(_Density, name="random_pdf_exponential", aliases=("_random_pdf_exponential",)):
    """Densities of exponential distributions with rate lam. sample : (..., any); lam : (...); returns : as sample."""

    arrays_only = ("lam",)
    mxnet = "_random_pdf_exponential"
    samples = [sample((2, 3), _SHARES, low=0.1, high=2.0), sample((2,), _SHARES, is_log=True, low=0.1)]

    def infer_shape(self, sample: Shape, lam: Shape) -> Shape:
        return self.matched(sample, lam)

    def logarithm(self, F: Functions, sample: Tensor, *parameters: Tensor) -> Tensor:
        (lam,) = parameters
        return F.log(lam) - lam * sample


class PoissonDensity(_Density, name="random_pdf_poisson", aliases=("_random_pdf_poisson",)):
    """Probabilities of counts under Poisson distributions with mean lam; the sample has no gradient, as in MXNet.

    sample : (..., any); lam : (...); returns : as sample
    """

    arrays_only = ("lam",)
    mxnet = "_random_pdf_poisson"
    samples = [sample(_COUNTS, _SHARES * 3), sample(_COUNTS[:, 0].copy(), _SHARES, is_log=True)]

    def infer_shape(self, sample: Shape, lam: Shape) -> Shape:
        return self.matched(sample, lam)

    def logarithm(self, F: Functions, sample: Tensor, *parameters: Tensor) -> Tensor:
        (lam,) = parameters
        count = F.BlockGrad(sample)
        return count * F.log(lam) - F.gammaln(count + 1.0) - lam


def _negative_binomial(F: Functions, count: Tensor, k: Tensor, p: Tensor) -> Tensor:
    several = F.gammaln(count + k) - F.gammaln(count + 1.0) - F.gammaln(k)
    return several + k * F.log(p) + count * F.log(1.0 - p)


class NegativeBinomialDensity(
    _Density, name="random_pdf_negative_binomial", aliases=("_random_pdf_negative_binomial",)
):
    """Probabilities of counts before k events of probability p; the sample has no gradient, as in MXNet.

    sample : (..., any); k, p : (...); returns : as sample
    """

    mxnet = "_random_pdf_negative_binomial"
    samples = [sample(_COUNTS, _SHARES * 5, _SHARES), sample(_COUNTS[:, 1].copy(), _SHARES + 2, _SHARES, is_log=True)]

    def infer_shape(self, sample: Shape, k: Shape, p: Shape) -> Shape:
        return self.matched(sample, k, p)

    def logarithm(self, F: Functions, sample: Tensor, *parameters: Tensor) -> Tensor:
        return _negative_binomial(F, F.BlockGrad(sample), *parameters)


class GeneralizedNegativeBinomialDensity(
    _Density,
    name="random_pdf_generalized_negative_binomial",
    aliases=("_random_pdf_generalized_negative_binomial",),
):
    """Probabilities of counts with mean mu and dispersion alpha; the sample has no gradient, as in MXNet.

    sample : (..., any); mu, alpha : (...); returns : as sample
    """

    mxnet = "_random_pdf_generalized_negative_binomial"
    samples = [sample(_COUNTS, _SHARES * 5, _SHARES), sample(_COUNTS[:, 1].copy(), _SHARES + 2, _SHARES, is_log=True)]

    def infer_shape(self, sample: Shape, mu: Shape, alpha: Shape) -> Shape:
        return self.matched(sample, mu, alpha)

    def logarithm(self, F: Functions, sample: Tensor, *parameters: Tensor) -> Tensor:
        mu, alpha = parameters
        return _negative_binomial(F, F.BlockGrad(sample), 1.0 / alpha, 1.0 / (mu * alpha + 1.0))


class DirichletDensity(_Density, name="random_pdf_dirichlet", aliases=("_random_pdf_dirichlet",)):
    """Densities of Dirichlet distributions. sample : (..., any, k); alpha : (..., k); returns : (..., any)."""

    mxnet = "_random_pdf_dirichlet"
    samples = [
        sample((2, 4, 3), np.array([[0.5, 1.5, 2.0], [3.0, 1.0, 0.7]], "float32"), low=0.1, high=0.9),
        sample((2, 3), np.array([[0.5, 1.5, 2.0], [3.0, 1.0, 0.7]], "float32"), low=0.1, high=0.9, is_log=True),
    ]

    def infer_shape(self, sample: Shape, alpha: Shape) -> Shape:
        if not alpha or sample[: len(alpha) - 1] != alpha[:-1] or sample[-1:] != alpha[-1:]:
            raise ShapeError(f"{self.name}: alpha {alpha} needs a sample of shape (..., any, k), it has {sample}")
        return sample[:-1]

    def lower(self, F: Functions, sample: Tensor, *parameters: Tensor) -> Tensor:
        alpha = F._block_like(parameters[0], sample, last=1)
        total = F.sum((alpha - 1.0) * F.log(sample), axis=-1)
        normalizer = F.gammaln(F.sum(alpha, axis=-1)) - F.sum(F.gammaln(alpha), axis=-1)
        result = total + normalizer
        return result if self.is_log else F.exp(result)
