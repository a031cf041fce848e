"""`mx.np.random`: random arrays with NumPy's arguments. If a parameter is an array, its gradient flows through the
numbers of `uniform`, `normal`, `exponential` and the distributions computed from these.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hybrid_lab.diagnostics.errors import AttributeSpecError, UnsupportedArgument
from hybrid_lab.diagnostics.unknown_names import suggest_names as _suggest_names
from hybrid_lab.ndarray.context import Context
from hybrid_lab.ndarray.ndarray import NDArray, check_dtype
from hybrid_lab.ndarray.random_state import state as _state
from hybrid_lab.numpy.errors import named as _named
from hybrid_lab.numpy.host import numbers_of, to_arrays, to_host
from hybrid_lab.numpy.methods import FUNCTIONS as _FUNCTIONS
from hybrid_lab.numpy.operators import (
    R,
    alike,
    as_tensor,
    call,
    cast,
    common,
    dtype_of,
    from_values,
    is_tensor,
    shape_of,
    write,
)
from hybrid_lab.numpy.shaping import broadcast_to, sizes_of
from hybrid_lab.numpy.types import ArrayLike, DType, Function, Out, ShapeLike, Tensor
from hybrid_lab.ops.framework.operator import get

__all__ = [
    "bernoulli",
    "beta",
    "binomial",
    "chisquare",
    "choice",
    "exponential",
    "f",
    "gamma",
    "geometric",
    "gumbel",
    "laplace",
    "logistic",
    "lognormal",
    "multinomial",
    "multivariate_normal",
    "negative_binomial",
    "normal",
    "pareto",
    "permutation",
    "poisson",
    "power",
    "rand",
    "randint",
    "randn",
    "rayleigh",
    "seed",
    "shuffle",
    "standard_normal",
    "uniform",
    "weibull",
]

seed = _state.seed


def _shape(size: ShapeLike | None, *parameters: object) -> tuple[int, ...]:
    """The shape of the result: `size`, or the broadcast shape of the parameters."""
    if size is not None:
        return sizes_of(size)
    return np.broadcast_shapes(*(shape_of(item) for item in parameters))


def _dtype(dtype: DType, *parameters: object) -> str:
    if dtype is not None:
        return check_dtype(dtype).name
    tensors = [item for item in parameters if is_tensor(item)]
    found = common(*tensors, floating=True) if tensors else None
    return "float32" if found is None else found.name


def _drawn(record: str, shape: tuple[int, ...], dtype: str, ctx: Context | None, **attributes: object) -> Tensor:
    return call(get(record).bind(shape=shape, dtype=dtype, **attributes), (), ctx)


def _parameter(value: Any, dtype: str) -> Any:
    """A parameter as a number, or as a tensor of the result's dtype."""
    if isinstance(value, (list, tuple, np.ndarray)):
        value = as_tensor(value)
    return cast(value, dtype) if is_tensor(value) else float(value)


def _check(function: str, holds: Callable[[np.ndarray], np.ndarray], wanted: str, **parameters: ArrayLike) -> None:
    """Raise ValueError for a parameter outside its range. Values inside a graph are unknown and are not checked."""
    for name, value in parameters.items():
        numbers = None if getattr(value, "_is_symbol", False) else np.asarray(to_host(value))
        if numbers is not None and not np.all(holds(numbers)):
            raise ValueError(f"np.random.{function}: {name} must be {wanted}")


def _moved(numbers: Tensor, first: ArrayLike, spread: ArrayLike) -> Tensor:
    """first + numbers * spread."""
    add, multiply = _FUNCTIONS["add"], _FUNCTIONS["multiply"]
    return add(multiply(numbers, spread), first)


def uniform(
    low: Any = 0.0,
    high: Any = 1.0,
    size: ShapeLike | None = None,
    dtype: DType = None,
    ctx: Context | None = None,
    out: Out = None,
) -> Tensor:
    """Numbers between low and high."""
    name, shape = _dtype(dtype, low, high), _shape(size, low, high)
    low, high = _parameter(low, name), _parameter(high, name)
    if not is_tensor(low) and not is_tensor(high) and low <= high:
        return write(out, _drawn("_random_uniform", shape, name, ctx, low=low, high=high))
    numbers = _drawn("_random_uniform", shape, name, ctx)
    return write(out, _moved(numbers, low, _FUNCTIONS["subtract"](high, low)))


def normal(
    loc: ArrayLike = 0.0,
    scale: ArrayLike = 1.0,
    size: ShapeLike | None = None,
    dtype: DType = None,
    ctx: Context | None = None,
    out: Out = None,
) -> Tensor:
    """Normally distributed numbers with mean `loc` and standard deviation `scale`."""
    name, shape = _dtype(dtype, loc, scale), _shape(size, loc, scale)
    loc, scale = _parameter(loc, name), _parameter(scale, name)
    _check("normal", lambda x: x >= 0, "0 or above", scale=scale)
    if not is_tensor(loc) and not is_tensor(scale):
        return write(out, _drawn("_random_normal", shape, name, ctx, loc=loc, scale=scale))
    return write(out, _moved(_drawn("_random_normal", shape, name, ctx), loc, scale))


def standard_normal(size: ShapeLike | None = None, dtype: DType = None, ctx: Context | None = None) -> Tensor:
    """Normally distributed numbers with mean 0 and standard deviation 1."""
    return normal(0.0, 1.0, () if size is None else size, dtype, ctx)


def randn(*size: int, **options: Any) -> Tensor:
    """`randn(2, 3)`: normally distributed numbers."""
    return normal(0.0, 1.0, size, **options)


def rand(*size: int, **options: Any) -> Tensor:
    """`rand(2, 3)`: numbers between 0 and 1."""
    return uniform(0.0, 1.0, size, **options)


def lognormal(
    mean: ArrayLike = 0.0,
    sigma: ArrayLike = 1.0,
    size: ShapeLike | None = None,
    dtype: DType = None,
    ctx: Context | None = None,
    out: Out = None,
) -> Tensor:
    """exp of normally distributed numbers."""
    return write(out, R.exp(normal(mean, sigma, size, dtype, ctx)))


def _of_uniform(
    name: str, doc: str, formula: Function, defaults: dict[str, float], limited: str | None = None
) -> Function:
    """A distribution as a function of a uniform number u: formula(u, parameters ...)."""

    def function(
        *parameters: Any,
        size: ShapeLike | None = None,
        ctx: Context | None = None,
        out: Out = None,
        **named: Any,
    ) -> Tensor:
        names = list(defaults)
        if len(parameters) > len(names):  # size may be given by place
            size, parameters = parameters[len(names)], parameters[: len(names)]
        given = {**defaults, **dict(zip(names, parameters, strict=False)), **named}
        dtype = _dtype(given.pop("dtype", None), *given.values())
        if given.keys() != defaults.keys():
            raise AttributeSpecError(f"np.random.{name} takes {', '.join(defaults)}, size, ctx and out")
        values = [_parameter(value, dtype) for value in given.values()]
        if limited == "a":
            _check(name, lambda x: x > 0, "above 0", a=values[names.index("a")])
        elif limited is not None:
            _check(name, lambda x: x >= 0, "0 or above", **{limited: values[names.index(limited)]})
        numbers = _drawn("_random_uniform", _shape(size, *values), dtype, ctx, low=1e-7, high=1.0 - 1e-7)
        return write(out, formula(numbers, *values))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{doc} Parameters: {', '.join(f'{key}={value}' for key, value in defaults.items())}."
    return function


_times, _plus, _over, _to_the = (_FUNCTIONS[name] for name in ("multiply", "add", "true_divide", "power"))


def _minus_log(u: ArrayLike) -> Tensor:
    return R.negative(R.log(u))


exponential = _of_uniform(
    "exponential", "Exponentially distributed numbers with mean `scale`.",
    lambda u, scale: _times(_minus_log(u), scale), {"scale": 1.0}, "scale",
)  # fmt: skip
gumbel = _of_uniform(
    "gumbel", "Numbers of a Gumbel distribution.",
    lambda u, loc, scale: _plus(loc, _times(R.negative(R.log(_minus_log(u))), scale)), {"loc": 0.0, "scale": 1.0},
    "scale",
)  # fmt: skip
logistic = _of_uniform(
    "logistic", "Numbers of a logistic distribution.",
    lambda u, loc, scale: _plus(loc, _times(R.log(_over(u, R.broadcast_sub(1.0, u))), scale)),
    {"loc": 0.0, "scale": 1.0}, "scale",
)  # fmt: skip
rayleigh = _of_uniform(
    "rayleigh", "Numbers of a Rayleigh distribution.",
    lambda u, scale: _times(R.sqrt(_times(_minus_log(u), 2.0)), scale), {"scale": 1.0}, "scale",
)  # fmt: skip
weibull = _of_uniform(
    "weibull", "Numbers of a Weibull distribution.", lambda u, a: _to_the(_minus_log(u), _over(1.0, a)), {"a": 1.0}, "a"
)
pareto = _of_uniform(
    "pareto", "Numbers of a Pareto (Lomax) distribution.",
    lambda u, a: _plus(R.exp(_over(_minus_log(u), a)), -1.0), {"a": 1.0}, "a",
)  # fmt: skip
power = _of_uniform(
    "power", "Numbers of a power distribution.", lambda u, a: _to_the(u, _over(1.0, a)), {"a": 1.0}, "a"
)


def laplace(
    loc: ArrayLike = 0.0,
    scale: ArrayLike = 1.0,
    size: ShapeLike | None = None,
    dtype: DType = None,
    ctx: Context | None = None,
    out: Out = None,
) -> Tensor:
    """Numbers of a Laplace distribution."""
    name, shape = _dtype(dtype, loc, scale), _shape(size, loc, scale)
    u = _drawn("_random_uniform", shape, name, ctx, low=-0.4999999, high=0.4999999)
    distance = _minus_log(_plus(_times(R.abs(u), -2.0), 1.0))
    return write(out, _plus(loc, _times(_times(R.sign(u), distance), scale)))


def gamma(
    shape: ArrayLike,
    scale: ArrayLike = 1.0,
    size: ShapeLike | None = None,
    dtype: DType = None,
    ctx: Context | None = None,
    out: Out = None,
) -> Tensor:
    """Gamma distributed numbers with parameter `shape` and scale `scale`."""
    _check("gamma", lambda x: x > 0, "above 0", shape=shape, scale=scale)
    name, wanted = _dtype(dtype, shape, scale), _shape(size, shape, scale)
    shape, scale = _parameter(shape, name), _parameter(scale, name)
    if not is_tensor(shape):
        numbers = _drawn("_random_gamma", wanted, name, ctx, alpha=shape, beta=1.0)
    else:
        alpha = broadcast_to(shape, wanted)
        numbers = R.sample_gamma(alpha, R.ones_like(alpha), dtype=name)
    return write(out, numbers if not is_tensor(scale) and scale == 1.0 else _times(numbers, scale))


def chisquare(df: ArrayLike, size: ShapeLike | None = None, dtype: DType = None, ctx: Context | None = None) -> Tensor:
    """Numbers of a chi-square distribution with `df` degrees of freedom."""
    return _times(gamma(_over(df, 2.0), 1.0, size, dtype, ctx), 2.0)


def beta(
    a: ArrayLike, b: ArrayLike, size: ShapeLike | None = None, dtype: DType = None, ctx: Context | None = None
) -> Tensor:
    """Beta distributed numbers with parameters a and b."""
    wanted = _shape(size, a, b)
    first, second = gamma(a, 1.0, wanted, dtype, ctx), gamma(b, 1.0, wanted, dtype, ctx)
    return _over(first, _plus(first, second))


def f(dfnum: ArrayLike, dfden: ArrayLike, size: ShapeLike | None = None, ctx: Context | None = None) -> Tensor:
    """Numbers of an F distribution."""
    wanted = _shape(size, dfnum, dfden)
    return _over(_over(chisquare(dfnum, wanted, None, ctx), dfnum), _over(chisquare(dfden, wanted, None, ctx), dfden))


def poisson(
    lam: ArrayLike = 1.0, size: ShapeLike | None = None, ctx: Context | None = None, dtype: DType = None
) -> Tensor:
    """Poisson distributed numbers with mean `lam`."""
    name, wanted = _dtype(dtype, lam), _shape(size, lam)
    lam = _parameter(lam, "float32")
    if not is_tensor(lam):
        return _drawn("_random_poisson", wanted, name, ctx, lam=lam)
    return R.sample_poisson(broadcast_to(lam, wanted), dtype=name)


def bernoulli(
    prob: ArrayLike | None = None, logit: ArrayLike | None = None, size: ShapeLike | None = None,
    dtype: DType = None, ctx: Context | None = None, out: Out = None,
) -> Tensor:  # fmt: skip
    """1 with probability `prob`, else 0; logit : log(prob / (1 - prob)) in place of prob"""
    if (prob is None) == (logit is None):
        raise ValueError("bernoulli takes either prob or logit")
    if prob is not None:
        _check("bernoulli", lambda x: (x >= 0) & (x <= 1), "between 0 and 1", prob=prob)
    given = prob if logit is None else logit
    name, shape = _dtype(dtype, given), _shape(size, given)
    chance = _parameter(given, "float32")
    if logit is not None:
        chance = R.sigmoid(chance) if is_tensor(chance) else 1.0 / (1.0 + float(np.exp(-chance)))
    numbers = _drawn("_random_uniform", shape, "float32", ctx)
    return write(out, cast(R.broadcast_lesser(numbers, chance), name))


def randint(
    low: int,
    high: int | None = None,
    size: ShapeLike | None = None,
    dtype: DType = None,
    ctx: Context | None = None,
    out: Out = None,
) -> Tensor:
    """Whole numbers from low to high - 1; with one number from 0 to it. dtype : default int64"""
    low, high = (0, low) if high is None else (low, high)
    if not low < high:
        raise ValueError(f"randint: low={low}, high={high}; low < high is needed")
    name = check_dtype("int64" if dtype is None or dtype is int else dtype).name
    drawn = name if name in ("int32", "int64") else "int64"
    shape = sizes_of(size) if size is not None else ()
    made = _drawn("_random_randint", shape, drawn, ctx, low=int(low), high=int(high))
    return write(out, cast(made, name))


# -- draws that read numbers ---------------------------------------------------------------------------------------


def _generator() -> np.random.Generator:
    """A generator of NumPy that follows the package's random state."""
    given, draw = _state.next_draws(1)
    return np.random.Generator(np.random.Philox(key=[given & (2**64 - 1), draw]))


def binomial(
    n: ArrayLike, p: ArrayLike, size: ShapeLike | None = None, dtype: DType = None, ctx: Context | None = None
) -> Tensor:
    """How many of n trials of probability p succeed, int64."""
    trials, chances = numbers_of("random.binomial", n, p)
    made = np.asarray(_generator().binomial(trials, np.asarray(chances, np.float64), size))
    return from_values(made, dtype or np.int64, ctx)


def negative_binomial(n: ArrayLike, p: ArrayLike, size: ShapeLike | None = None, ctx: Context | None = None) -> Tensor:
    """Failures before n successes of probability p, int64."""
    successes, chances = numbers_of("random.negative_binomial", n, p)
    return from_values(np.asarray(_generator().negative_binomial(successes, chances, size)), np.int64, ctx)


def geometric(p: ArrayLike, size: ShapeLike | None = None, ctx: Context | None = None) -> Tensor:
    """Trials of probability p up to the first success, int64."""
    (chances,) = numbers_of("random.geometric", p)
    return from_values(np.asarray(_generator().geometric(chances, size)), np.int64, ctx)


def multinomial(n: int, pvals: ArrayLike, size: ShapeLike | None = None, **options: object) -> Tensor:
    """How often each outcome comes in n trials, int64. Raises ValueError for probabilities above 1 in sum."""
    (numbers,) = numbers_of("random.multinomial", pvals)
    chances = np.asarray(numbers, np.float64)
    if chances.size == 0:
        return from_values(np.empty((*(() if size is None else sizes_of(size)), 0)), np.int64, None)
    total = chances[..., :-1].sum(axis=-1)
    if np.any(total > 1.0 + 1e-5):
        raise ValueError("sum(pvals[:-1]) > 1.0")
    chances = chances / np.maximum(chances.sum(axis=-1, keepdims=True), 1.0)
    return from_values(_generator().multinomial(n, chances, size), np.int64, None)


def choice(
    a: ArrayLike,
    size: ShapeLike | None = None,
    replace: bool = True,
    p: ArrayLike | None = None,
    ctx: Context | None = None,
    out: Out = None,
) -> Tensor:
    """Elements of a vector, or of the numbers below a, drawn at random. p : their probabilities"""
    elements, given = numbers_of("random.choice", a, p)
    chances = None if given is None else np.asarray(given, np.float64)
    chances = None if chances is None else chances / chances.sum()
    made = np.asarray(_generator().choice(elements, size, replace, chances))
    return write(out, from_values(made, np.int64 if isinstance(a, int) else made.dtype, ctx))


def permutation(x: ArrayLike) -> Tensor:
    """The rows of an array, or the numbers below x, in random order."""
    (rows,) = numbers_of("random.permutation", x)
    return from_values(_generator().permutation(rows), np.int64 if isinstance(x, int) else None, None)


def shuffle(x: NDArray) -> None:
    """Bring the rows of an array into random order, in place."""
    (numbers,) = numbers_of("random.shuffle", x)
    x[...] = to_arrays(_generator().permutation(numbers), narrow=False)


def multivariate_normal(
    mean: ArrayLike,
    cov: ArrayLike,
    size: ShapeLike | None = None,
    check_valid: str | None = None,
    tol: float | None = None,
) -> Tensor:
    """Vectors of a normal distribution with these means and covariances."""
    if check_valid is not None or tol is not None:
        raise UnsupportedArgument("multivariate_normal: check_valid and tol are not supported")
    mean, cov = alike(as_tensor(mean), as_tensor(cov), floating=True)
    if dtype_of(cov) == np.float16:
        return cast(multivariate_normal(cast(mean, np.float32), cast(cov, np.float32), size), np.float16)
    factor = R._linalg_potrf(cov)
    means, factors = shape_of(mean), shape_of(cov)
    batch = np.broadcast_shapes(means[:-1], factors[:-2])
    shape = (*(() if size is None else sizes_of(size)), *batch, means[-1])
    numbers = normal(0.0, 1.0, shape, dtype=dtype_of(cov))
    turned = R.sum(R.broadcast_mul(factor, R.expand_dims(numbers, axis=-2)), axis=-1)
    return _plus(turned, mean)


globals().update({name: _named(f"np.random.{name}", globals()[name]) for name in __all__})
_suggest_names(__name__)
