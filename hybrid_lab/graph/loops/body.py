"""Body: a graph that an operator runs inside, as the bodies of loops and the branches of cond."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from hybrid_lab.diagnostics.errors import DTypeError, ShapeError
from hybrid_lab.graph.graph import Graph, values_read
from hybrid_lab.graph.node import Input, Value, input_node
from hybrid_lab.graph.partial import PartialShapes, located
from hybrid_lab.graph.passes.bind_mode import bound, lowered_by_shapes
from hybrid_lab.graph.passes.differentiate import present_gradients
from hybrid_lab.graph.passes.infer import closed, infer
from hybrid_lab.graph.passes.simplify import simplify
from hybrid_lab.ops.framework.contract import read_dtypes, read_shapes
from hybrid_lab.system import forks
from hybrid_lab.system.provided import Provided

#: (arrays, (seed, first draw)) -> outputs in fresh memory.
Run = Callable[[Sequence[np.ndarray], tuple[int, int]], list[np.ndarray]]
#: (arrays, (seed, first draw)) -> gradients by the number of their input; none for what gets none.
RunBackward = Callable[[Sequence[np.ndarray], tuple[int, int]], dict[int, np.ndarray]]

compile_graph: Provided[[Graph], Run] = Provided("compile_body")
"""Compiles an inferred graph whose mode is bound, with the NumPy engine."""

#: Number of programs that a body keeps, forward and backward: the latest to run.
KEPT = 16
_changes = forks.lock()


class Body:
    """A neutral graph with the programs compiled for it, one per shapes and dtypes of its inputs.

    graph : draws are numbered from 0; it has no effects: updated states are outputs
    compiles : number of programs compiled so far, including dropped programs
    """

    __slots__ = ("_compiled", "_leading", "compiles", "graph")

    def __init__(self, graph: Graph):
        self.graph = graph
        self._compiled: dict[Any, Any] = {}
        self._leading: dict[tuple[tuple[int, ...], bool], frozenset[int]] = {}
        self.compiles = 0

    # -- rules -------------------------------------------------------------------------------------------------

    def shapes(self, given: Sequence[object]) -> list[tuple[int, ...]]:
        """Complete input shapes -> output shapes. Raises ShapeError with the line inside the body."""
        shapes: dict[Value, Any] = dict(zip(self.graph.inputs, given, strict=True))
        graph = closed(self.graph, shapes)
        for node in graph.nodes:
            if isinstance(node.op, Input):
                continue
            inputs = [shapes[item] if isinstance(item, Value) else () for item in node.inputs]
            try:
                shapes.update(zip(node.outputs, read_shapes(node.op, node.op.infer_shape(*inputs)), strict=True))
            except ShapeError as error:
                raise located(error, node) from None
        return [shapes[value] for value in graph.outputs]

    def types(self, given: Sequence[object]) -> list[np.dtype]:
        """Input dtypes -> output dtypes. Raises DTypeError with the line inside the body."""
        dtypes: dict[Value, Any] = dict(zip(self.graph.inputs, given, strict=True))
        for node in self.graph.nodes:
            if isinstance(node.op, Input):
                continue
            inputs = [dtypes[item] if isinstance(item, Value) else None for item in node.inputs]
            try:
                dtypes.update(zip(node.outputs, read_dtypes(node.op, node.op.infer_type(*inputs)), strict=True))
            except DTypeError as error:
                raise located(error, node) from None
        return [dtypes[value] for value in self.graph.outputs]

    def complete(self, given: Sequence[object]) -> list[Any]:
        """Input shapes, unknown ones filled in as far as they follow."""
        known = {value: shape for value, shape in zip(self.graph.inputs, given, strict=True) if shape is not None}
        completed = PartialShapes(self.graph, known).shapes
        return [completed.get(value) for value in self.graph.inputs]

    # -- forms -------------------------------------------------------------------------------------------------

    def bound(self, train: bool) -> Graph:
        """The graph for one mode; updates of states are its effects."""
        # Deferred parameters have partial shapes; nothing is inferred from them here, and `_lowered` expands operators
        # that have to wait for the shapes.
        fresh = {
            value: input_node(value.node.name, value.node.op.role, attrs=value.node.attrs)  # type: ignore[attr-defined]
            for value in self.graph.inputs
        }
        return bound(self.graph.substitute(fresh), train)

    def inferred(self, shapes: Sequence[object], dtypes: Sequence[object]) -> Graph:
        """The graph with types on every node."""
        inputs = self.graph.inputs
        return infer(self.graph, dict(zip(inputs, shapes, strict=True)), dict(zip(inputs, dtypes, strict=True)))

    def _lowered(self, arrays: Sequence[np.ndarray]) -> Graph:
        """The graph with types on every node, for these arrays, in operators that an engine knows."""
        return lowered_by_shapes(self.inferred([array.shape for array in arrays], [array.dtype for array in arrays]))

    # -- programs ----------------------------------------------------------------------------------------------

    def program(self, arrays: Sequence[np.ndarray]) -> Run:
        """Runs the graph on arrays of these shapes and dtypes."""
        key = tuple([(array.shape, array.dtype) for array in arrays])
        run = self._compiled.get(key)
        if run is None:
            run = compile_graph(simplify(self._lowered(arrays)))
            self.compiles += 1
        return self._keep(key, run)

    def leading(self, heads: tuple[int, ...], differentiable: bool = True) -> frozenset[int]:
        """The inputs, by number, that lead to one of these outputs.

        differentiable : only through operators with a gradient, or with a gradient that is not written down
        """
        key = heads, differentiable
        if key not in self._leading:
            reached = {self.graph.outputs[index] for index in heads}
            for node in reversed(self.graph.nodes):
                has = not differentiable or node.op.differentiable or node.op.refuses_gradient
                here = tuple([index for index, value in enumerate(node.outputs) if value in reached]) if has else ()
                if here:
                    reached.update(node.leading(here, differentiable))
            self._leading[key] = frozenset([i for i, value in enumerate(self.graph.inputs) if value in reached])
        return self._leading[key]

    def read_for(self, outputs: Collection[int]) -> list[int]:
        """The inputs, by number, whose values these outputs are computed from."""
        read = values_read([self.graph.outputs[index] for index in outputs])
        return [index for index, value in enumerate(self.graph.inputs) if value in read]

    def backward(self, arrays: Sequence[np.ndarray], heads: tuple[int, ...], wrt: tuple[int, ...]) -> RunBackward:
        """Takes the inputs and a gradient for each of the outputs `heads`; gives the gradients of the inputs `wrt`."""
        key = (heads, wrt, *[(array.shape, array.dtype) for array in arrays])
        found = self._compiled.get(key)
        if found is None:
            graph = self._lowered(arrays)
            part = Graph(graph.inputs, [graph.outputs[index] for index in heads], (), graph.draws, graph.name)
            gradients, rows = present_gradients(part, [part.inputs[index] for index in wrt])
            run = compile_graph(simplify(gradients))

            def found(inputs: Sequence[np.ndarray], rng: tuple[int, int]) -> dict[int, np.ndarray]:
                results = run(inputs, rng)
                numbers = iter(results[len(rows) :])
                there = [not conditional or next(numbers).item() for _, conditional in rows]
                return {wrt[row[0]]: result for row, result, here in zip(rows, results, there, strict=False) if here}

            self.compiles += 1
        return self._keep(key, found)

    def _keep(self, key: object, run: object) -> Any:
        """Note that the program is used now, and drop the one unused for longest if there are too many."""
        with _changes:
            self._compiled.pop(key, None)
            self._compiled[key] = run
            if len(self._compiled) > KEPT:
                del self._compiled[next(iter(self._compiled))]
        return run
