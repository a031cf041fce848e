"""The reference values of a graph, by the records' NumPy kernels in fresh memory, and the tolerances."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Constant, Input, Node, Value
from hybrid_lab.graph.passes.partition import Region
from hybrid_lab.ops.framework.dtypes import FLOATING, is_floating
from hybrid_lab.ops.framework.operator import find
from hybrid_lab.ops.framework.run import run_kernel

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

#: dtype name -> largest difference in a forward value and in a gradient, relative to the largest reference value.
#: Other dtypes (whole numbers, booleans, so masks too) must be equal bit for bit.
TOLERANCES = {"bfloat16": (8e-2, 0.16), "float16": (1e-2, 2e-2), "float32": (1e-5, 1e-4), "float64": (1e-9, 1e-8)}

#: How many times further than eager's rounding errors go a result may be from the one in float64.
ROUNDING = 16.0
#: How often, and by how much relative to each number, inputs are changed to see how large rounding errors are.
_SAMPLES, _CHANGE = 4, 1e-4

Values = dict[Value, Any]


def tolerance(dtype: DTypeLike | None, gradient: bool) -> float:
    """The tolerance for values of this dtype."""
    return TOLERANCES.get(np.dtype(dtype).name, (0.0, 0.0))[gradient]


def difference(value: object, wanted: object) -> float:
    """The largest difference relative to the largest reference value; infinite for another shape or dtype.

    NaN and infinity count as equal if both arrays have them.
    """
    value, wanted = np.asarray(value), np.asarray(wanted)
    if value.shape != wanted.shape or value.dtype != wanted.dtype:
        return float("inf")
    if not wanted.size or np.array_equal(value, wanted):
        return 0.0
    with np.errstate(all="ignore"):
        a, b = value.astype(np.float64), wanted.astype(np.float64)
        odd = ~(np.isfinite(a) & np.isfinite(b))
        if odd.any():
            same = (a == b) | (np.isnan(a) & np.isnan(b))
            if not same[odd].all():
                return float("inf")
            a, b = np.where(odd, 0, a), np.where(odd, 0, b)
        scale = float(np.abs(b).max())
        return float(np.abs(a - b).max()) / (scale if scale > 0 else 1.0)


def unlike(value: object, wanted: object) -> str:
    """Why the difference of hybrid from eager is infinite, in words: `NaN in eager at 8 places, a number in hybrid`;
    "" if it is not.
    """
    value, wanted = np.asarray(value), np.asarray(wanted)
    if value.shape != wanted.shape or value.dtype != wanted.dtype:
        return f"{value.dtype}{list(value.shape)} in hybrid, {wanted.dtype}{list(wanted.shape)} in eager"
    if value.dtype.kind not in f"{FLOATING}c":
        return ""
    here, there = np.isnan(value), np.isnan(wanted)
    infinite = (value != wanted) & ~here & ~there & (np.isinf(value) | np.isinf(wanted))
    cases = (
        (there & ~here, "NaN in eager at {}, a number in hybrid"),
        (here & ~there, "NaN in hybrid at {}, a number in eager"),
        (infinite, "infinite in one of them at {}"),
    )
    counts = [(int(np.count_nonzero(mask)), text) for mask, text in cases]
    return "; ".join(text.format(f"{n} place{'s' * (n != 1)}") for n, text in counts if n)


#: Computes a value again, in float64 and in its own dtype, from slightly changed inputs (0: unchanged).
Again = Callable[[int], tuple[Any, Any] | None]


class Nearness(NamedTuple):
    """The distance of a value from the one in eager mode.

    agrees : whether it is the same within rounding; difference : relative to the largest value
    rounding : if that did not decide, the distance from the value in float64 as a multiple of eager's rounding errors,
        `ROUNDING` at most; else None
    """

    agrees: bool
    difference: float
    rounding: float | None = None


def nearness(value: object, wanted: np.ndarray, allowed: float, again: Again | None = None) -> Nearness:
    """The distance of `value` from `wanted`.

    again : asked if the difference is larger than `allowed`. Sums that cancel have few correct digits in eager either;
    then what counts is the distance from the value in float64, beside eager's own distance for these inputs and for
    some that are nearly the same.
    """
    apart = difference(value, wanted)
    if apart <= allowed or not np.isfinite(apart) or allowed == 0 or again is None:
        return Nearness(apart <= allowed, apart)
    first, rounding = None, 0.0
    for change in range(_SAMPLES):
        pair = again(change)
        if pair is None or np.shape(pair[0]) != np.shape(wanted) or not np.isfinite(pair[0]).all():
            return Nearness(False, apart)
        first = pair[0] if first is None else first
        rounding = max(rounding, _distance(*pair))
    own = _distance(first, value)
    times = own / rounding if rounding else float("inf") if own else 0.0
    return Nearness(times <= ROUNDING, apart, times)


def _distance(one: object, other: object) -> float:
    return float(np.abs(np.asarray(one, np.float64) - np.asarray(other, np.float64)).max())


def region_in(node: Node) -> Region | None:
    """The region that an engine put behind one node of a contracted graph."""
    if find(node.op.name) is type(node.op):
        return None
    return next((item for item in vars(node.op).values() if isinstance(item, Region)), None)


def run_node(node: Node, operands: Sequence[object], rng: tuple[int, int]) -> tuple[Any, ...]:
    """All outputs of one operator as arrays; of a contracted region, operator by operator."""
    region = region_in(node)
    if region is not None:
        values = region_values(region, operands, rng)
        return tuple(values[value] for value in region.outputs)
    draw = (rng[0], rng[1] + node.draw) if node.draw is not None else rng
    results = run_kernel(node.op, operands, rng=draw)
    # Copied: a result that is a view of an input must not change with the input.
    return tuple(None if result is None else np.array(result) for result in results)


def region_values(region: Region, operands: Sequence[object], rng: tuple[int, int]) -> Values:
    """Every value inside a region, from the values of its inputs."""
    values: Values = dict(zip(region.inputs, operands, strict=True))
    for node in region.nodes:
        for item in node.values_in:
            if item not in values and isinstance(item.node.op, Constant):
                values[item] = item.node.op.array
        values.update(zip(node.outputs, run_node(node, operands_of(node, values), rng), strict=False))
    return values


def graph_values(graph: Graph, arrays: Sequence[object], rng: tuple[int, int]) -> Values:
    """Every value of a specialized graph (modes bound) for these inputs."""
    values: Values = dict(zip(graph.inputs, arrays, strict=True))
    for node in graph.nodes:
        if isinstance(node.op, Input):
            continue
        if isinstance(node.op, Constant):
            values[node.outputs[0]] = node.op.array
            continue
        values.update(zip(node.outputs, run_node(node, operands_of(node, values), rng), strict=False))
    return values


def all_values(graph: Graph, arrays: Sequence[object], rng: tuple[int, int]) -> Values:
    """As graph_values, with the values inside contracted regions."""
    values = graph_values(graph, arrays, rng)
    for node in graph.operators:
        region = region_in(node)
        if region is not None:
            values |= region_values(region, operands_of(node, values), rng)
    return values


def operands_of(node: Node, values: Values) -> list[Any]:
    """The inputs of a node: arrays, or Python scalars."""
    return [values[item] if isinstance(item, Value) else item for item in node.inputs]


def changed(array: object, change: int) -> object:
    """The array with slightly changed floating-point numbers, different for each `change`; 0 changes nothing."""
    if not change or not isinstance(array, np.ndarray) or not is_floating(array.dtype):
        return array
    factor = 1 + _CHANGE * np.random.RandomState(change).uniform(-1, 1, array.shape)
    return (array * factor).astype(array.dtype)


def in_float64(array: object) -> object:
    """The array in double precision if its numbers are floating-point."""
    return array.astype(np.float64) if isinstance(array, np.ndarray) and is_floating(array.dtype) else array


#: Gets each operator with its outputs, in order; None for an output that was not computed.
LookAt = Callable[[Node, Sequence[Any]], object]


def look_at_values(graph: Graph, arrays: Sequence[object], rng: tuple[int, int], look: LookAt) -> list[Any]:
    """Run a specialized graph with the records' NumPy kernels, in the order of its nodes; returns the roots' values.

    arrays : NumPy arrays, one per input
    """
    values: Values = dict(zip(graph.inputs, arrays, strict=True))
    last: dict[Value, Node] = {}
    for node in graph.nodes:
        for value in node.values_in:
            last[value] = node
    roots = set(graph.roots)
    for node in graph.nodes:
        if isinstance(node.op, Input):
            continue
        if isinstance(node.op, Constant):
            values[node.outputs[0]] = node.op.array
            continue
        results = run_node(node, operands_of(node, values), rng)
        look(node, results)
        values.update(zip(node.outputs, results, strict=False))
        for value in (*node.values_in, *node.outputs):
            if last.get(value, node) is node and value not in roots:
                values.pop(value, None)
    return [values[value] for value in graph.roots]
