"""The functions of `sym` that are not generated from a record: creation, random, contrib, loading."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from hybrid_lab.diagnostics.location import capture
from hybrid_lab.diagnostics.unknown_names import unknown_name
from hybrid_lab.ndarray import tape
from hybrid_lab.ndarray.composed import zipfian
from hybrid_lab.ndarray.context import Context
from hybrid_lab.ndarray.distributions import Distributions, ShapeLike, shape_of
from hybrid_lab.ndarray.namespace import OperatorNamespace
from hybrid_lab.ndarray.numpy_mode import is_np_shape
from hybrid_lab.ops.arrays.slicing import split_v2_operator
from hybrid_lab.ops.framework.operator import Operator, find, get
from hybrid_lab.ops.layers.norm import BatchNorm
from hybrid_lab.symbol import tracing
from hybrid_lab.symbol.symbol import Group, Symbol, as_arrays, compose, constant, dispatch, symbol_function
from hybrid_lab.system.provided import Provided


def unknown(where: str, name: str, known: Iterable[str]) -> AttributeError:
    """The error for a name that `where` does not have; inside a trace it says in which line of which block."""
    eager = sys.modules["hybrid_lab.ndarray"]
    advice = f"nd.{name} is eager only" if where == "sym" and hasattr(eager, name) else ""
    trace = tracing.current()
    if trace is None or name.startswith("_"):
        return unknown_name(where, name, known, advice)
    return unknown_name(where.replace("sym", "F", 1), name, known, advice, capture(), trace.scope)


custom_symbol: Provided[..., Symbol | list[Symbol]] = Provided("custom_symbol")


def custom(*data: Any, op_type: str, **kwargs: Any) -> Symbol | list[Symbol]:
    """An operator written in Python, registered under the name `op_type`, as a node of a graph; see `mx.operator`."""
    return custom_symbol(*data, op_type=op_type, **kwargs)


def _namespace(title: str, *prefixes: str, later: Mapping[str, str] = MappingProxyType({})) -> OperatorNamespace:
    """A namespace whose functions name nodes as users write them: `sym.contrib.box_nms` makes box_nms0. The functions
    of random are written in Python in MXNet, and call operators such as _random_uniform.
    """

    def find_in_namespace(name: str) -> Callable[..., Any] | None:
        record = find(name)
        prefix = next((each for each in prefixes if len(each) > 1 and name.startswith(each)), "")
        hint = f"_{name.lstrip('_')}" if title == "sym.random" else name[len(prefix) :]
        return None if record is None else symbol_function(record, name, hint.lower())

    return OperatorNamespace(title, *prefixes, find=find_in_namespace, unknown=unknown, later=later)


random = _namespace("sym.random", "random_", "_random_", "_sample_", "_")
_LATER = dict.fromkeys(("foreach", "while_loop", "cond"), "hybrid_lab.symbol.control_flow")
contrib = _namespace("sym.contrib", "_contrib_", "contrib_", "", later=_LATER)
linalg = _namespace("sym.linalg", "linalg_", "_linalg_")
image = _namespace("sym.image", "_image_", "image_")
op = _namespace("sym.op", "")
_internal = _namespace("sym._internal", "", "_")
sparse = _namespace("sym.sparse", "", "_sparse_")


def _call(op: Operator, inputs: Sequence[Any], ctx: object, out: object, name: str | None) -> Any:
    """Compose an operator; a Symbol belongs to no context."""
    return dispatch(op, list(inputs), out, name, hint=f"_{op.name.lstrip('_')}")


_distributions: Distributions[Symbol] = Distributions(_call)
for _name in (
    *("uniform", "normal", "randn", "exponential", "gamma", "poisson"),
    *("negative_binomial", "generalized_negative_binomial"),
):
    setattr(random, _name, getattr(_distributions, _name))


def split_v2(
    ary: Symbol,
    indices_or_sections: Any,
    axis: int = 0,
    squeeze_axis: bool = False,
    name: str | None = None,
) -> Symbol | list[Symbol]:
    """`ary` cut along `axis`, one output per part; see nd.split_v2."""
    return as_arrays(compose(split_v2_operator(indices_or_sections, axis, squeeze_axis), [ary], name))


def histogram(a: Symbol, bins: object = 10, range: object = None, name: str | None = None) -> Symbol | list[Symbol]:
    """Counts and edges; see nd.histogram. `range` must be given with a number of bins."""
    if isinstance(bins, Symbol):
        return as_arrays(compose(get("_histogram").bind(), [a, bins], name))
    return as_arrays(compose(get("_histogram").bind(bin_cnt=bins, range=range), [a], name))


def sync_batch_norm(data: Symbol, *inputs: Symbol, key: str = "", ndev: int = 1, **attributes: Any) -> Symbol:
    """BatchNorm; see nd.contrib.SyncBatchNorm. Inputs that are not given become variables."""
    made: Symbol = symbol_function(BatchNorm, "BatchNorm")(data, *inputs, **attributes)
    op = made.outputs[0].node.op
    if not isinstance(op, BatchNorm) or not op.output_mean_var:
        return made
    normalized, mean, rate = made
    return Group([normalized, mean, 1.0 / (rate * rate) - op.eps])


def boolean_mask(data: Symbol, index: Symbol, axis: int = 0) -> Symbol:
    """Refused, HybridizeError HL133: how many entries there are depends on numbers. Hybridized Blocks that call it run
    eagerly.
    """
    error = tracing.refuse(
        "HL133",
        tensor=data,
        message="the result of boolean_mask has no shape while a graph is made: it depends on numbers.",
        rewrite="F.where(mask, x, F.zeros_like(x))      or      nd.contrib.boolean_mask(x, mask) in a plain Block",
    )
    error.runs_eagerly = True
    raise error


def rand_zipfian(true_classes: Symbol, num_sampled: int, range_max: int) -> tuple[Symbol, Symbol, Symbol]:
    """Classes drawn by about their frequency; see nd.contrib.rand_zipfian."""

    def apply(operator_name: str, *values: Any, **attributes: object) -> Symbol:
        return compose(get(operator_name).bind(**attributes), list(values), None)

    return zipfian(apply, true_classes, num_sampled, range_max)


contrib.rand_zipfian = rand_zipfian  # type: ignore[attr-defined]
contrib.boolean_mask = boolean_mask  # type: ignore[attr-defined]
contrib.SyncBatchNorm = sync_batch_norm  # type: ignore[attr-defined]


def _filled(name: str, shape: ShapeLike, **attributes: Any) -> Operator:
    """The operator that makes an array of one number, of which some sizes may be open."""
    sizes = shape_of(shape)
    op = get(name).bind(shape=tuple(max(size, 0) for size in sizes), **attributes)
    zero_is_open = tape.state.trace is None and not is_np_shape()
    if not any(size < 0 or (size == 0 and zero_is_open) for size in sizes):
        return op
    return op.variant(_open=True, _or_empty=tracing.current() is not None)


def zeros(
    shape: ShapeLike,
    dtype: DTypeLike | None = "float32",
    ctx: Context | Sequence[Context] | None = None,
    name: str | None = None,
) -> Symbol:
    """An array of zeros inside the graph. A size of -1, outside Blocks also one of 0, follows from what reads it."""
    return compose(_filled("_zeros", shape, dtype=dtype or "float32"), [], name)


def ones(
    shape: ShapeLike,
    dtype: DTypeLike | None = "float32",
    ctx: Context | Sequence[Context] | None = None,
    name: str | None = None,
) -> Symbol:
    """An array of ones inside the graph. A size of -1, outside Blocks also one of 0, follows from what reads it."""
    return compose(_filled("_ones", shape, dtype=dtype or "float32"), [], name)


def full(
    shape: ShapeLike,
    val: float,
    dtype: DTypeLike | None = "float32",
    ctx: Context | Sequence[Context] | None = None,
    name: str | None = None,
) -> Symbol:
    """An array filled with `val` inside the graph."""
    return compose(_filled("_full", shape, value=float(val), dtype=dtype or "float32"), [], name)


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
