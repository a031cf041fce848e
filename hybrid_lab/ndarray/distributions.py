"""Random numbers by distribution, with the same functions for `nd.random` and `sym.random`.

A parameter of a distribution is a number or an array. If one is an array, the result has a block of `shape` numbers for
each element of the parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar, cast

import numpy as np
from numpy.typing import DTypeLike

from hybrid_lab.diagnostics.errors import AttributeSpecError
from hybrid_lab.ndarray.context import Context
from hybrid_lab.ndarray.ndarray import NDArray
from hybrid_lab.ops.framework.dtypes import dtype_of
from hybrid_lab.ops.framework.operator import Operator, get

ShapeLike = int | Sequence[int] | None
#: NDArray or Symbol.
Array = TypeVar("Array")
#: An operator on inputs, then ctx, out and name of the call.
Call = Callable[[Operator, Sequence[Any], Any, Any, str | None], Any]


def shape_of(shape: ShapeLike) -> tuple[int, ...]:
    """A shape argument as a tuple; () for None."""
    if shape is None:
        return ()
    return (int(shape),) if isinstance(shape, (int, np.integer)) else tuple(shape)


def _number(value: object) -> float:
    return float(cast(Any, value))


def _is_array(value: object) -> bool:
    return isinstance(value, NDArray) or getattr(value, "_is_symbol", False)


class Distributions(Generic[Array]):
    """The functions. Each takes `shape` (default one number, shape (1,)), `dtype`, `ctx`, `out` and `name`.

    call : runs an operator on arrays, or composes it of Symbols
    """

    def __init__(self, call: Call) -> None:
        self._call = call

    def uniform(
        self,
        low: object = 0,
        high: object = 1,
        shape: ShapeLike = None,
        dtype: DTypeLike | None = None,
        ctx: Context | None = None,
        out: NDArray | None = None,
        name: str | None = None,
    ) -> Array:
        """Numbers in [low, high), of `shape` (default one number, shape (1,)).

        low, high : numbers, or arrays of one shape: then a block of `shape` for each element
        """
        if _is_array(low) or _is_array(high):
            return self._scaled("uniform", low, cast(Any, high) - low, shape, dtype, out)
        return self._numbers("uniform", {"low": _number(low), "high": _number(high)}, shape, dtype, ctx, out, name)

    def normal(
        self,
        loc: object = 0,
        scale: object = 1,
        shape: ShapeLike = None,
        dtype: DTypeLike | None = None,
        ctx: Context | None = None,
        out: NDArray | None = None,
        name: str | None = None,
    ) -> Array:
        """Normally distributed numbers with mean `loc` and standard deviation `scale`; parameters as for `uniform`."""
        if _is_array(loc) or _is_array(scale):
            return self._scaled("normal", loc, scale, shape, dtype, out)
        return self._numbers("normal", {"loc": _number(loc), "scale": _number(scale)}, shape, dtype, ctx, out, name)

    def randn(self, *shape: int, loc: object = 0, scale: object = 1, **options: Any) -> Array:
        """`randn(2, 3)`: a (2, 3) array of normally distributed numbers. options : dtype, ctx, out, name"""
        return self.normal(loc, scale, shape or None, **options)

    def exponential(
        self,
        scale: object = 1,
        shape: ShapeLike = None,
        dtype: DTypeLike | None = None,
        ctx: Context | None = None,
        out: NDArray | None = None,
        name: str | None = None,
    ) -> Array:
        """Exponentially distributed numbers with mean `scale`; shape and parameters as for `uniform`.

        Raises AttributeSpecError for a scale that is not above 0.
        """
        mean = cast(Any, scale)
        if not _is_array(mean) and not mean > 0:
            raise AttributeSpecError(f"exponential: scale={scale}; scale > 0 is needed")
        return self._numbers("exponential", {"lam": 1.0 / mean}, shape, dtype, ctx, out, name)

    def gamma(
        self,
        alpha: object = 1,
        beta: object = 1,
        shape: ShapeLike = None,
        dtype: DTypeLike | None = None,
        ctx: Context | None = None,
        out: NDArray | None = None,
        name: str | None = None,
    ) -> Array:
        """Gamma distributed numbers with shape `alpha` and scale `beta`; shape and parameters as for `uniform`."""
        return self._numbers("gamma", {"alpha": alpha, "beta": beta}, shape, dtype, ctx, out, name)

    def poisson(
        self,
        lam: object = 1,
        shape: ShapeLike = None,
        dtype: DTypeLike | None = None,
        ctx: Context | None = None,
        out: NDArray | None = None,
        name: str | None = None,
    ) -> Array:
        """Poisson distributed numbers with mean `lam`; shape and parameters as for `uniform`."""
        return self._numbers("poisson", {"lam": lam}, shape, dtype, ctx, out, name)

    def negative_binomial(
        self,
        k: object = 1,
        p: object = 1,
        shape: ShapeLike = None,
        dtype: DTypeLike | None = None,
        ctx: Context | None = None,
        out: NDArray | None = None,
        name: str | None = None,
    ) -> Array:
        """Failures before `k` successes of probability `p`; shape and parameters as for `uniform`."""
        return self._numbers("negative_binomial", {"k": k, "p": p}, shape, dtype, ctx, out, name)

    def generalized_negative_binomial(
        self,
        mu: object = 1,
        alpha: object = 1,
        shape: ShapeLike = None,
        dtype: DTypeLike | None = None,
        ctx: Context | None = None,
        out: NDArray | None = None,
        name: str | None = None,
    ) -> Array:
        """Negative binomial numbers with mean `mu` and dispersion `alpha`; shape and parameters as for `uniform`."""
        parameters = {"mu": mu, "alpha": alpha}
        return self._numbers("generalized_negative_binomial", parameters, shape, dtype, ctx, out, name)

    # -- operators -------------------------------------------------------------------------------------------------

    def _numbers(
        self,
        kind: str,
        parameters: dict[str, object],
        shape: ShapeLike,
        dtype: DTypeLike | None,
        ctx: Context | None,
        out: NDArray | None,
        name: str | None,
    ) -> Any:
        """The operator `_random_<kind>`; if a parameter is an array, `_sample_<kind>` with all parameters as arrays."""
        dtype = None if dtype is None else dtype_of(dtype).name
        like = next(filter(_is_array, parameters.values()), None)
        if like is None:
            shape = (out.shape if out is not None else (1,)) if shape is None else shape_of(shape)
            return self._call(get(f"_random_{kind}").bind(shape=shape, dtype=dtype, **parameters), [], ctx, out, name)
        arrays = [
            value if _is_array(value) else self._apply("broadcast_mul", self._apply("ones_like", like), value)
            for value in parameters.values()
        ]
        return _written(self._apply(f"_sample_{kind}", *arrays, shape=shape_of(shape), dtype=dtype), out)

    def _scaled(
        self, kind: str, first: object, second: object, shape: ShapeLike, dtype: DTypeLike | None, out: NDArray | None
    ) -> Any:
        """first + second * standard numbers of "uniform" or "normal", so that gradients reach first and second."""
        like = first if _is_array(first) else second
        block = shape_of(shape)
        zeros, ones = self._apply("zeros_like", like), self._apply("ones_like", like)
        numbers = self._apply("_cast_like", self._apply(f"_sample_{kind}", zeros, ones, shape=block), like)
        spread = []
        for value in (first, second):
            for _ in block if _is_array(value) else ():
                value = self._apply("expand_dims", value, axis=-1)
            spread.append(value)
        result = self._apply("broadcast_add", spread[0], self._apply("broadcast_mul", numbers, spread[1]))
        return _written(result if dtype is None else self._apply("Cast", result, dtype=dtype_of(dtype).name), out)

    def _apply(self, operator: str, *inputs: object, **attributes: Any) -> Any:
        return self._call(get(operator).bind(**attributes), inputs, None, None, None)


def _written(result: object, out: NDArray | None) -> Any:
    if out is None:
        return result
    out[:] = result
    return out
