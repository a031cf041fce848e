"""The parts of `sym` that are not one record each: creation, random and contrib namespaces, loading."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from hybrid_lab.diagnostics.location import capture
from hybrid_lab.diagnostics.unknown_names import unknown_name
from hybrid_lab.ndarray import random as draws
from hybrid_lab.ndarray.composed import split_v2_operator
from hybrid_lab.ops.framework.dtypes import dtype_of
from hybrid_lab.ops.framework.operator import Operator, find, get, registered_names
from hybrid_lab.ops.framework.surface import make_function
from hybrid_lab.symbol import tracing
from hybrid_lab.symbol.symbol import Symbol, compose, constant, dispatch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import DTypeLike

    from hybrid_lab.ndarray.context import Context


def unknown(where: str, name: str, known: Iterable[str]) -> AttributeError:
    """The error for a name that `where` does not have; inside a trace it says in which line of which block."""
    eager = sys.modules["hybrid_lab.ndarray"]
    advice = f"nd.{name} is eager only" if where == "sym" and hasattr(eager, name) else ""
    trace = tracing.current()
    if trace is None or name.startswith("_"):
        return unknown_name(where, name, known, advice)
    return unknown_name(where.replace("sym", "F", 1), name, known, advice, capture(), trace.scope)


class OperatorNamespace:
    """`sym.random.uniform`, `sym.contrib.x`: operators registered under a prefix."""

    def __init__(self, title: str, *prefixes: str):
        self._title, self._prefixes = title, prefixes

    def __getattr__(self, name: str) -> Any:
        for prefix in self._prefixes:
            record = find(prefix + name)
            if record is not None:
                function = make_function(record, dispatch, name)
                setattr(self, name, function)
                return function
        raise unknown(f"sym.{self._title}", name, () if name.startswith("_") else dir(self))

    def __dir__(self) -> list[str]:
        found = set(super().__dir__())
        for name in registered_names():
            found.update(name[len(prefix) :] for prefix in self._prefixes if prefix and name.startswith(prefix))
        return sorted(found)


random = OperatorNamespace("random", "random_", "_random_", "_sample_", "_")
contrib = OperatorNamespace("contrib", "_contrib_", "contrib_", "")
linalg = OperatorNamespace("linalg", "linalg_", "_linalg_")
image = OperatorNamespace("image", "_image_", "image_")


def _apply(op: Operator, inputs: Any) -> Symbol:
    return compose(op, list(inputs), None)


def _distribution(
    kind: str, parameters: dict[str, object], shape: object, dtype: DTypeLike | None, name: str | None
) -> Symbol:
    """Numbers of one distribution, as nd.random has them: parameters may be Symbols."""
    if any(isinstance(value, Symbol) for value in parameters.values()):
        return draws.sampled(_apply, kind, parameters, shape, dtype)
    kept = dtype_of(dtype).name if dtype is not None else None
    block = (1,) if shape is None else _shape(shape)
    return compose(get(f"_random_{kind}").bind(shape=block, dtype=kept, **parameters), [], name)


def _uniform(
    low: Any = 0,
    high: Any = 1,
    shape: Any = None,
    dtype: DTypeLike | None = None,
    ctx: Context | Sequence[Context] | None = None,
    name: str | None = None,
) -> Symbol:
    """Numbers in [low, high); see nd.random.uniform."""
    if isinstance(low, Symbol) or isinstance(high, Symbol):
        return draws.located(_apply, "uniform", low, high - low, shape, dtype)
    return _distribution("uniform", {"low": float(low), "high": float(high)}, shape, dtype, name)


def _normal(
    loc: Any = 0,
    scale: Any = 1,
    shape: Any = None,
    dtype: DTypeLike | None = None,
    ctx: Context | Sequence[Context] | None = None,
    name: str | None = None,
) -> Symbol:
    """Normally distributed numbers; see nd.random.normal."""
    if isinstance(loc, Symbol) or isinstance(scale, Symbol):
        return draws.located(_apply, "normal", loc, scale, shape, dtype)
    return _distribution("normal", {"loc": float(loc), "scale": float(scale)}, shape, dtype, name)


def _randn(
    *shape: int, loc: object = 0, scale: object = 1, dtype: DTypeLike | None = None, name: str | None = None
) -> Symbol:
    """`randn(2, 3)`: a (2, 3) array of normally distributed numbers."""
    return _normal(loc, scale, shape or None, dtype, name=name)


def _exponential(
    scale: object = 1, shape: object = None, dtype: DTypeLike | None = None, name: str | None = None
) -> Symbol:
    """Exponentially distributed numbers with mean `scale`."""
    return _distribution("exponential", {"lam": draws.rate(scale)}, shape, dtype, name)


def _gamma(
    alpha: object = 1, beta: object = 1, shape: object = None, dtype: DTypeLike | None = None, name: str | None = None
) -> Symbol:
    """Gamma distributed numbers with shape `alpha` and scale `beta`."""
    return _distribution("gamma", {"alpha": alpha, "beta": beta}, shape, dtype, name)


def _poisson(lam: object = 1, shape: object = None, dtype: DTypeLike | None = None, name: str | None = None) -> Symbol:
    """Poisson distributed numbers with mean `lam`."""
    return _distribution("poisson", {"lam": lam}, shape, dtype, name)


def _negative_binomial(
    k: object = 1, p: object = 1, shape: object = None, dtype: DTypeLike | None = None, name: str | None = None
) -> Symbol:
    """Failures before `k` successes of probability `p`."""
    return _distribution("negative_binomial", {"k": k, "p": p}, shape, dtype, name)


def _generalized_negative_binomial(
    mu: object = 1, alpha: object = 1, shape: object = None, dtype: DTypeLike | None = None, name: str | None = None
) -> Symbol:
    """Negative binomial numbers with mean `mu` and dispersion `alpha`."""
    return _distribution("generalized_negative_binomial", {"mu": mu, "alpha": alpha}, shape, dtype, name)


for _function in (
    *(_uniform, _normal, _randn, _exponential, _gamma, _poisson),
    *(_negative_binomial, _generalized_negative_binomial),
):
    setattr(random, _function.__name__[1:], _function)


def _shape(shape: Any) -> tuple[int, ...]:
    return (int(shape),) if isinstance(shape, (int, np.integer)) else tuple(shape)


def split_v2(
    ary: Symbol,
    indices_or_sections: Any,
    axis: int = 0,
    squeeze_axis: bool = False,
    name: str | None = None,
) -> Symbol:
    """`ary` cut along `axis`, one output per part; see nd.split_v2."""
    return compose(split_v2_operator(indices_or_sections, axis, squeeze_axis), [ary], name)


def histogram(a: Symbol, bins: object = 10, range: object = None, name: str | None = None) -> Symbol:
    """Counts and edges; see nd.histogram. `range` must be given with a number of bins."""
    if isinstance(bins, Symbol):
        return compose(get("_histogram").bind(), [a, bins], name)
    return compose(get("_histogram").bind(bin_cnt=bins, range=range), [a], name)


def boolean_mask(data: Symbol, index: Symbol, axis: int = 0) -> Symbol:
    """Refused, HybridizeError HL133: how many entries there are depends on numbers."""
    raise tracing.refuse(
        "HL133",
        tensor=data,
        message="the result of boolean_mask has no shape while a graph is made: it depends on numbers.",
        rewrite="F.where(mask, x, F.zeros_like(x))      or      nd.contrib.boolean_mask(x, mask) in a plain Block",
    )


contrib.boolean_mask = boolean_mask  # type: ignore[attr-defined]


def zeros(
    shape: object,
    dtype: DTypeLike | None = "float32",
    ctx: Context | Sequence[Context] | None = None,
    name: str | None = None,
) -> Symbol:
    """An array of zeros inside the graph."""
    return compose(get("_zeros").bind(shape=_shape(shape), dtype=dtype or "float32"), [], name)


def ones(
    shape: object,
    dtype: DTypeLike | None = "float32",
    ctx: Context | Sequence[Context] | None = None,
    name: str | None = None,
) -> Symbol:
    """An array of ones inside the graph."""
    return compose(get("_ones").bind(shape=_shape(shape), dtype=dtype or "float32"), [], name)


def full(
    shape: object,
    val: float,
    dtype: DTypeLike | None = "float32",
    ctx: Context | Sequence[Context] | None = None,
    name: str | None = None,
) -> Symbol:
    """An array filled with `val` inside the graph."""
    return compose(get("_full").bind(shape=_shape(shape), value=float(val), dtype=dtype or "float32"), [], name)


def arange(
    start: float,
    stop: float | None = None,
    step: float = 1.0,
    repeat: int = 1,
    dtype: DTypeLike | None = "float32",
    ctx: Context | Sequence[Context] | None = None,
    name: str | None = None,
    infer_range: bool | None = None,
) -> Symbol:
    """start, start + step, ... below stop, each `repeat` times. Raises AttributeSpecError for infer_range=True."""
    if stop is None:
        start, stop = 0, start
    asked, dtype = bool(infer_range), dtype or "float32"
    op = get("_arange").bind(start=start, stop=stop, step=step, repeat=repeat, infer_range=asked, dtype=dtype)
    return compose(op, [], name)


def array(source_array: Any, ctx: Any = None, dtype: Any = None, name: str | None = None) -> Symbol:
    """A constant embedded in the graph. MXNet's Symbol has no `array`: a portability note there."""
    if dtype is None:
        dtype = (
            source_array.dtype
            if isinstance(source_array, np.ndarray) and source_array.dtype != np.float64
            else np.float32
        )
    return constant(np.asarray(getattr(source_array, "_data", source_array), dtype=dtype), name)


def load(fname: str) -> Symbol:
    """The Symbol in an MXNet symbol JSON file."""
    from hybrid_lab.formats.mxnet import symbol_json

    return Symbol(symbol_json.load(fname).outputs)


def load_json(text: str) -> Symbol:
    """The Symbol in a string of MXNet's symbol JSON."""
    from hybrid_lab.formats.mxnet import symbol_json

    return Symbol(symbol_json.loads(text).outputs)


fromjson = load_json
