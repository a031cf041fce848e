"""nd.random: random arrays, and the random state behind all of them.

The same seed gives the same numbers eagerly, in compiled graphs and on GPUs; they are not MXNet's numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from hybrid_lab.diagnostics.errors import AttributeSpecError
from hybrid_lab.diagnostics.unknown_names import unknown_name as _unknown_name
from hybrid_lab.ndarray.context import Context, resolve
from hybrid_lab.ndarray.functions import find_function
from hybrid_lab.ndarray.invoke import invoke
from hybrid_lab.ndarray.ndarray import NDArray
from hybrid_lab.ndarray.random_state import state
from hybrid_lab.ops.framework.dtypes import dtype_of
from hybrid_lab.ops.framework.operator import get

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

__all__ = [
    "exponential",
    "gamma",
    "generalized_negative_binomial",
    "multinomial",
    "negative_binomial",
    "normal",
    "poisson",
    "randint",
    "randn",
    "shuffle",
    "state",
    "uniform",
]


def _shape(shape: Any) -> tuple[int, ...]:
    if shape is None:
        return ()
    return (int(shape),) if isinstance(shape, (int, np.integer)) else tuple(shape)


def _draw(
    name: str,
    shape: tuple[int, ...],
    dtype: DTypeLike | None,
    ctx: Context | None,
    out: NDArray | None,
    **attributes: object,
) -> Any:
    if dtype is not None:
        attributes["dtype"] = dtype_of(dtype).name
    op = get(name).bind(shape=shape, **attributes)
    where = out.context if isinstance(out, NDArray) else ctx
    if where is None:
        return invoke(op, (), out)
    with resolve(where):
        return invoke(op, (), out)


def _is_array(value: object) -> bool:
    return isinstance(value, NDArray) or getattr(value, "_is_symbol", False)


def located(
    apply: Callable[..., object], kind: str, first: object, second: object, shape: object, dtype: DTypeLike | None
) -> Any:
    """first + second * standard numbers, one (shape)-sized block for each element of the parameters, so that gradients
    reach them.

    apply : runs an operator on arrays, or composes it of Symbols; kind : "uniform" or "normal"
    """
    array = first if _is_array(first) else second
    block = () if shape is None else _shape(shape)
    zeros, ones = (apply(get(name).bind(), (array,)) for name in ("zeros_like", "ones_like"))
    numbers = apply(get(f"_sample_{kind}").bind(shape=block), (zeros, ones))
    numbers = apply(get("_cast_like").bind(), (numbers, array))
    spread = []
    for value in (first, second):
        for _ in block if _is_array(value) else ():
            value = apply(get("expand_dims").bind(axis=-1), (value,))
        spread.append(value)
    add, multiply = get("broadcast_add").bind(), get("broadcast_mul").bind()
    made = apply(add, (spread[0], apply(multiply, (numbers, spread[1]))))
    return made if dtype is None else apply(get("Cast").bind(dtype=dtype_of(dtype).name), (made,))


def sampled(
    apply: Callable[..., object], kind: str, parameters: Mapping[str, object], shape: object, dtype: DTypeLike | None
) -> Any:
    """A block of `shape` numbers for each element of the parameters, of which some are arrays; see `located`."""
    array = next(value for value in parameters.values() if _is_array(value))
    multiply = get("broadcast_mul").bind()
    arrays = [
        value if _is_array(value) else apply(multiply, (apply(get("ones_like").bind(), (array,)), value))
        for value in parameters.values()
    ]
    kept = dtype_of(dtype).name if dtype is not None else None
    return apply(get(f"_sample_{kind}").bind(shape=() if shape is None else _shape(shape), dtype=kept), arrays)


def _filled(made: object, out: NDArray | None) -> Any:
    if out is None:
        return made
    out[:] = made
    return out


def uniform(
    low: Any = 0,
    high: Any = 1,
    shape: Any = None,
    dtype: DTypeLike | None = None,
    ctx: Context | None = None,
    out: NDArray | None = None,
) -> NDArray:
    """Numbers in [low, high), of `shape` (default one number, shape (1,)).

    low, high : numbers, or NDArrays of one shape: then a block of `shape` for each of their elements
    """
    if _is_array(low) or _is_array(high):
        return _filled(located(invoke, "uniform", low, high - low, shape, dtype), out)
    shape = (out.shape if out is not None else (1,)) if shape is None else _shape(shape)
    return _draw("_random_uniform", shape, dtype, ctx, out, low=float(low), high=float(high))


def normal(
    loc: Any = 0,
    scale: Any = 1,
    shape: Any = None,
    dtype: DTypeLike | None = None,
    ctx: Context | None = None,
    out: NDArray | None = None,
) -> NDArray:
    """Normally distributed numbers with mean `loc` and standard deviation `scale`; parameters as for `uniform`."""
    if _is_array(loc) or _is_array(scale):
        return _filled(located(invoke, "normal", loc, scale, shape, dtype), out)
    shape = (out.shape if out is not None else (1,)) if shape is None else _shape(shape)
    return _draw("_random_normal", shape, dtype, ctx, out, loc=float(loc), scale=float(scale))


def randn(
    *shape: int,
    loc: float = 0,
    scale: float = 1,
    dtype: DTypeLike | None = None,
    ctx: Context | None = None,
    out: NDArray | None = None,
) -> NDArray:
    """`randn(2, 3)`: a (2, 3) array of normally distributed numbers."""
    return normal(loc, scale, shape or None, dtype, ctx, out)


def randint(
    low: int,
    high: int,
    shape: object = None,
    dtype: DTypeLike | None = None,
    ctx: Context | None = None,
    out: NDArray | None = None,
) -> NDArray:
    """Whole numbers in [low, high), int32 unless dtype says int64."""
    shape = (out.shape if out is not None else (1,)) if shape is None else _shape(shape)
    return _draw("_random_randint", shape, dtype or "int32", ctx, out, low=int(low), high=int(high))


def _distribution(
    kind: str,
    parameters: dict[str, object],
    shape: object,
    dtype: DTypeLike | None,
    ctx: Context | None,
    out: NDArray | None,
) -> Any:
    """Numbers of one distribution; where a parameter is an array, a block of `shape` for each of its elements."""
    if any(map(_is_array, parameters.values())):
        return _filled(sampled(invoke, kind, parameters, shape, dtype), out)
    shape = (out.shape if out is not None else (1,)) if shape is None else _shape(shape)
    return _draw(f"_random_{kind}", shape, dtype, ctx, out, **parameters)


def exponential(
    scale: object = 1,
    shape: object = None,
    dtype: DTypeLike | None = None,
    ctx: Context | None = None,
    out: NDArray | None = None,
) -> NDArray:
    """Exponentially distributed numbers with mean `scale`; shape and parameters as for `uniform`."""
    return _distribution("exponential", {"lam": rate(scale)}, shape, dtype, ctx, out)


def rate(scale: Any) -> Any:
    """1 / scale of an exponential distribution. Raises AttributeSpecError for a number that is not above 0."""
    if not _is_array(scale) and not scale > 0:
        raise AttributeSpecError(f"exponential: scale={scale}; scale > 0 is needed")
    return 1.0 / scale


def gamma(
    alpha: object = 1,
    beta: object = 1,
    shape: object = None,
    dtype: DTypeLike | None = None,
    ctx: Context | None = None,
    out: NDArray | None = None,
) -> NDArray:
    """Gamma distributed numbers with shape `alpha` and scale `beta`; shape and parameters as for `uniform`."""
    return _distribution("gamma", {"alpha": alpha, "beta": beta}, shape, dtype, ctx, out)


def poisson(
    lam: object = 1,
    shape: object = None,
    dtype: DTypeLike | None = None,
    ctx: Context | None = None,
    out: NDArray | None = None,
) -> NDArray:
    """Poisson distributed numbers with mean `lam`; shape and parameters as for `uniform`."""
    return _distribution("poisson", {"lam": lam}, shape, dtype, ctx, out)


def negative_binomial(
    k: object = 1,
    p: object = 1,
    shape: object = None,
    dtype: DTypeLike | None = None,
    ctx: Context | None = None,
    out: NDArray | None = None,
) -> NDArray:
    """Failures before `k` successes of probability `p`; shape and parameters as for `uniform`."""
    return _distribution("negative_binomial", {"k": k, "p": p}, shape, dtype, ctx, out)


def generalized_negative_binomial(
    mu: object = 1,
    alpha: object = 1,
    shape: object = None,
    dtype: DTypeLike | None = None,
    ctx: Context | None = None,
    out: NDArray | None = None,
) -> NDArray:
    """Negative binomial numbers with mean `mu` and dispersion `alpha`; shape and parameters as for `uniform`."""
    return _distribution("generalized_negative_binomial", {"mu": mu, "alpha": alpha}, shape, dtype, ctx, out)


def multinomial(
    data: NDArray, shape: object = None, get_prob: bool = False, out: object = None, dtype: DTypeLike | None = "int32"
) -> Any:
    """Class numbers drawn with the probabilities in data, (..., classes): (..., shape) of them for every row.

    get_prob : a list with the logarithms of their probabilities too, through which a gradient reaches data
    """
    block = () if shape is None else _shape(shape)
    op = get("_sample_multinomial").bind(shape=block, get_prob=get_prob, dtype=dtype_of(dtype).name)
    return invoke(op, (data,), out)


def shuffle(data: NDArray, out: NDArray | None = None) -> NDArray:
    """The rows (along the first axis) in random order, as a copy."""
    return invoke(get("shuffle").bind(), (data,), out)


def __getattr__(name: str) -> Any:
    """The other operators of the family: `nd.random.exponential` is the operator `_random_exponential`."""
    if not name.startswith("_"):
        for prefix in ("_random_", "random_", "_sample_", "sample_", "_"):
            function = find_function(prefix + name)
            if function is not None:
                globals()[name] = function
                return function
    raise _unknown_name("nd.random", name, __all__)
