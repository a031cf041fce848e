"""examples/: one input and output per graph, computed when saving and checked when loading."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from hybrid_lab import autograd
from hybrid_lab.diagnostics import HybridLabError
from hybrid_lab.diagnostics.formatting import first_line
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Value
from hybrid_lab.graph.passes.infer import infer
from hybrid_lab.hybridize.neutral import NeutralGraph
from hybrid_lab.ndarray.interpret import interpret
from hybrid_lab.ndarray.ndarray import NDArray
from hybrid_lab.ops.framework.dtypes import dtype_of, is_bfloat16, is_floating

from .graphs import SavedGraph

SIZE_LIMIT = 1 << 20
"""Largest example in bytes of a graph that was called from outside; a larger one is left out."""
NESTED_LIMIT = 1 << 16
"""The same for graphs inside of another one, which the outer example runs too."""
TOLERANCE = 1e-4
"""Largest difference between stored and computed outputs, relative to the largest stored value."""
MOST_BYTES = 4 << 30
"""So large an array belongs to no example, unless inputs or parameters are that large too."""
MOST_STEPS = 10_000_000
"""So many steps of a loop belong to no example."""


def run(graph: Graph, inputs: Sequence[np.ndarray], training: bool | None) -> list[np.ndarray]:
    """The graph's outputs, without touching auxiliary states, random state or tape; never in mixed precision."""
    arrays = [NDArray.wrap(np.asarray(array, order="C")) for array in inputs]
    with autograd.pause(train_mode=bool(training)):
        return [output.asnumpy() for output in interpret(graph, arrays, rng=(0, 0), update=False, cast=False)]


class Examples:
    """Collects examples while saving.

    values : id() of a Parameter -> its array; parameters without values have none, and neither have their graphs
    given : id() of a NeutralGraph -> arrays that the user's `inputs` brought it
    """

    def __init__(self, values: Mapping[int, np.ndarray], given: Mapping[int, Sequence[np.ndarray]]) -> None:
        self.values = values
        self.given = given
        self.inputs: dict[int, list[np.ndarray]] = {}
        self.results: dict[int, list[np.ndarray]] = {}

    def collect(self, members: Mapping[str, NeutralGraph]) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Tensors `<member>:in0`, `<member>:out0`, and per member the types of its inputs if they are known."""
        tensors: dict[str, np.ndarray] = {}
        types: dict[str, Any] = {}
        nested = [neutral for neutral in members.values() if neutral.origin is not None]
        for neutral in members.values():
            if neutral.origin is None:
                self._run_outer(neutral, nested)
        for neutral in nested:
            # From a file, if the values of the outer graph are no longer known, or if the outer graph could not run.
            if id(neutral) not in self.inputs:
                for small in self._candidates(neutral, NESTED_LIMIT):
                    self.inputs[id(neutral)] = small
                    break
        for member, neutral in members.items():
            inputs = self.inputs.get(id(neutral))
            types[member] = neutral.types
            if inputs is None:
                continue
            if neutral.types is None:
                types[member] = tuple((array.shape, array.dtype.name) for array in inputs)
            limit = SIZE_LIMIT if neutral.origin is None else NESTED_LIMIT
            if _bytes(inputs) > limit:
                continue
            outputs = self.results.get(id(neutral)) or self._outputs(neutral, inputs, neutral.graph.outputs)
            if outputs is not None and _bytes([*inputs, *outputs]) <= limit:
                tensors |= {f"{member}:in{index}": array for index, array in enumerate(inputs)}
                tensors |= {f"{member}:out{index}": array for index, array in enumerate(outputs)}
        return tensors, types

    def _run_outer(self, neutral: NeutralGraph, nested: Sequence[NeutralGraph]) -> None:
        """Inputs for a graph that was called from outside, and through it for the graphs inside."""
        inside = {value for node in neutral.graph.nodes for value in node.outputs}
        within = [
            item for item in nested if item.origin and id(item) not in self.inputs and inside.issuperset(item.origin)
        ]
        wanted: list[Value] = list(dict.fromkeys(value for item in within for value in item.origin or ()))
        for inputs in self._candidates(neutral, 16 * SIZE_LIMIT):
            found = self._outputs(neutral, inputs, [*neutral.graph.outputs, *wanted])
            if found is not None:
                count = len(neutral.graph.outputs)
                self.inputs[id(neutral)] = inputs
                self.results[id(neutral)] = found[:count]
                known = dict(zip(wanted, found[count:], strict=True))
                for item in within:
                    self.inputs[id(item)] = [known[value] for value in item.origin or ()]
                return

    def _candidates(self, neutral: NeutralGraph, limit: int) -> Iterator[list[np.ndarray]]:
        """Inputs to try, up to `limit` bytes: the user's, else numbers of one row each, else of the shape seen last."""
        if id(neutral) in self.given:
            yield list(self.given[id(neutral)])
            return
        whole = list(neutral.types or ())
        tries = [whole]
        if neutral.observation.types is None and all(shape for shape, _ in whole):
            tries = [[((1, *shape[1:]), dtype) for shape, dtype in whole], whole]
        for types in tries:
            if types and sum(math.prod(shape) * dtype_of(dtype).itemsize for shape, dtype in types) <= limit:
                yield [_numbers(shape, dtype) for shape, dtype in types]

    def _outputs(
        self, neutral: NeutralGraph, inputs: Sequence[np.ndarray], outputs: Sequence[Value]
    ) -> list[np.ndarray] | None:
        owners = [self.values.get(id(parameter)) for parameter in neutral.parameters]
        if any(array is None for array in owners):
            return None
        graph = Graph(neutral.graph.inputs, outputs, draws=neutral.graph.draws)
        try:
            values = [*inputs, *(array for array in owners if array is not None)]
            return run(graph, values, neutral.observation.training)
        except (HybridLabError, ValueError, IndexError, ArithmeticError):
            return None  # such inputs do not suit the model; there is no example then


def _bytes(arrays: Sequence[np.ndarray]) -> int:
    return sum(array.nbytes for array in arrays)


def _numbers(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Numbers that depend on the shape only: in [0, 1), or 0 and 1 for whole-number types."""
    generator = np.random.Generator(np.random.PCG64(zlib.crc32(f"{shape}{dtype}".encode())))
    if is_floating(dtype_of(dtype)):
        return generator.random(shape).astype(dtype)
    return generator.integers(0, 2, shape).astype(dtype)


def check(saved: SavedGraph, values: Mapping[str, np.ndarray], tensors: Mapping[str, np.ndarray]) -> str | None:
    """Compute a saved graph's example again; what differs, in words, or None (without an example, too).

    values : parameter id -> array; tensors : the examples
    """
    inputs = _numbered(saved.member, "in", tensors)
    expected = _numbered(saved.member, "out", tensors)
    if not inputs or any(key not in values for key in saved.parameters):
        return None
    arrays = [*inputs, *(values[key] for key in saved.parameters)]
    try:
        problem = _too_large(saved.graph, arrays)
        if problem is not None:
            return problem
        found = run(saved.graph, arrays, saved.observation.training)
    except (HybridLabError, ValueError, TypeError, IndexError, ArithmeticError, MemoryError) as error:
        return f"its example cannot be run: {first_line(error)[:200]}"
    if len(found) != len(expected):
        return f"its example has {len(expected)} outputs, the graph {len(found)}"
    for index, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
        if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
            kinds = [f"{array.dtype}{list(array.shape)}" for array in (ours, theirs)]
            return f"output {index} of its example is {kinds[0]}, stored {kinds[1]}"
        worst = _difference(ours, theirs)
        if not worst <= TOLERANCE:
            return f"output {index} of its example differs by {worst:.1e} of the largest value"
    return None


def _too_large(graph: Graph, arrays: Sequence[np.ndarray]) -> str | None:
    """Why an example cannot be meant to run, which a number in a damaged file may cause; None if it can.

    It is known from the shapes, before anything is computed. If no shapes follow without the numbers, it may run.
    """
    try:
        shapes = dict(zip(graph.inputs, (array.shape for array in arrays), strict=True))
        dtypes = dict(zip(graph.inputs, (array.dtype for array in arrays), strict=True))
        inferred = infer(graph, shapes, dtypes)
    except (HybridLabError, ValueError, TypeError, IndexError, ArithmeticError):
        return None
    largest = max((_size(value) for node in inferred.operators for value in node.outputs), default=0)
    if largest > max(MOST_BYTES, 16 * max(array.nbytes for array in arrays)):
        return f"its example would take {largest >> 30} GiB for one array"
    steps = max((getattr(node.op, "max_iterations", 0) for node in inferred.operators), default=0)
    return f"its example has a loop of up to {steps:,} steps" if steps > MOST_STEPS else None


def _size(value: Value) -> int:
    return math.prod(value.shape) * np.dtype(value.dtype).itemsize if value.shape and value.dtype else 0


def _difference(ours: np.ndarray, theirs: np.ndarray) -> float:
    if ours.tobytes() == theirs.tobytes() or np.array_equal(ours, theirs, equal_nan=is_floating(ours.dtype)):
        return 0.0
    a, b = ours.astype(np.float64), theirs.astype(np.float64)
    if not np.array_equal(np.isfinite(a), np.isfinite(b)):
        return float("inf")
    finite = np.isfinite(b)
    scale = float(np.abs(b[finite]).max(initial=0.0))
    tolerance = 50.0 if ours.dtype == np.float16 else 400.0 if is_bfloat16(ours.dtype) else 1.0
    return float(np.abs(a[finite] - b[finite]).max(initial=0.0)) / max(scale, 1e-6) / tolerance


def _numbered(member: str, kind: str, tensors: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    found: list[np.ndarray] = []
    while f"{member}:{kind}{len(found)}" in tensors:
        found.append(tensors[f"{member}:{kind}{len(found)}"])
    return found
