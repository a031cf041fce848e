"""nd.random: random arrays, and the random state behind them.

The same seed gives the same numbers eagerly, in compiled graphs and on GPUs; they are not MXNet's numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import DTypeLike

from hybrid_lab.diagnostics.unknown_names import unknown_name as _unknown_name
from hybrid_lab.ndarray.context import Context, resolve
from hybrid_lab.ndarray.distributions import Distributions, ShapeLike, shape_of
from hybrid_lab.ndarray.invoke import invoke
from hybrid_lab.ndarray.namespace import find_function
from hybrid_lab.ndarray.ndarray import NDArray
from hybrid_lab.ndarray.random_state import state
from hybrid_lab.ops.framework.dtypes import dtype_of
from hybrid_lab.ops.framework.operator import Operator, get, registered_names

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


def _call(op: Operator, inputs: Sequence[Any], ctx: Context | None, out: Any, name: str | None) -> Any:
    """Run an operator; one without inputs makes its array on the context of `out`, or on `ctx`."""
    where = out.context if isinstance(out, NDArray) else ctx
    if where is None:
        return invoke(op, inputs, out, name)
    with resolve(where):
        return invoke(op, inputs, out, name)


_distributions: Distributions[NDArray] = Distributions(_call)
uniform, normal, randn = _distributions.uniform, _distributions.normal, _distributions.randn
exponential, gamma, poisson = _distributions.exponential, _distributions.gamma, _distributions.poisson
negative_binomial = _distributions.negative_binomial
generalized_negative_binomial = _distributions.generalized_negative_binomial


def randint(
    low: int,
    high: int,
    shape: ShapeLike = None,
    dtype: DTypeLike | None = None,
    ctx: Context | None = None,
    out: NDArray | None = None,
) -> NDArray:
    """Whole numbers in [low, high), int32 unless dtype says int64."""
    size = (out.shape if out is not None else (1,)) if shape is None else shape_of(shape)
    dtype = dtype_of(dtype or "int32").name
    return _call(get("_random_randint").bind(shape=size, dtype=dtype, low=int(low), high=int(high)), (), ctx, out, None)


def multinomial(
    data: NDArray,
    shape: ShapeLike = None,
    get_prob: bool = False,
    out: object = None,
    dtype: DTypeLike | None = "int32",
) -> Any:
    """Class numbers drawn with the probabilities in data, (..., classes): (..., shape) of them for every row.

    get_prob : a list with the logarithms of their probabilities too, through which a gradient reaches data
    """
    op = get("_sample_multinomial").bind(shape=shape_of(shape), get_prob=get_prob, dtype=dtype_of(dtype).name)
    return invoke(op, (data,), out)


def shuffle(data: NDArray, out: NDArray | None = None) -> NDArray:
    """The rows (along the first axis) in random order, as a copy."""
    return invoke(get("shuffle").bind(), (data,), out)


def _operators() -> dict[str, str]:
    """Name here -> operator, of all random operators: `exponential_like` is the operator `_random_exponential_like`."""
    found: dict[str, str] = {}
    records = registered_names()
    for prefix in ("_random_", "random_", "_sample_", "sample_", "_"):
        for name, record in records.items():
            if name.startswith(prefix) and (prefix != "_" or record.random):
                short = name.removeprefix(prefix)
                if not short.startswith(("random_", "sample_", "image_")):
                    found.setdefault(short, name)
    return found


def __getattr__(name: str) -> Any:
    """The remaining operators of the family."""
    operator = None if name.startswith("_") else _operators().get(name)
    if operator is None:
        raise _unknown_name("nd.random", name, () if name.startswith("_") else __dir__())
    globals()[name] = function = find_function(operator)
    return function


def __dir__() -> list[str]:
    return sorted({*__all__, *_operators()})
