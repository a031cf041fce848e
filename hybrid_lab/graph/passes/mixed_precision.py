"""Mixed precision: conversions in front of operators, so that products run in float16 or bfloat16, and sums in float32.

    y = FullyConnected(x, w)      becomes      y = FullyConnected(Cast(x, float16), Cast(w, float16))
    p = softmax(y)                             p = softmax(Cast(y, float32))

Which operator computes in what is said in ops/framework/precision.py; eager calls ask there too. The pass runs before
shapes and gradients are known: gradients go back through the conversions, so that a float32 parameter has a float32
gradient, which adds up in float32 where the parameter is read several times.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from hybrid_lab.diagnostics.errors import DTypeError
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.loops.composed import ControlFlow
from hybrid_lab.graph.loops.control_flow import Cond
from hybrid_lab.graph.node import Input, Node, Value
from hybrid_lab.graph.partial import located
from hybrid_lab.ops.elementwise.cast import AMPCast, Cast
from hybrid_lab.ops.framework.contract import read_dtypes
from hybrid_lab.ops.framework.dtypes import dtype_of
from hybrid_lab.ops.framework.operator import Operator
from hybrid_lab.ops.framework.precision import SINGLE, Precision


def mixed_precision(
    graph: Graph,
    dtypes: Mapping[Value, Any],
    precision: Precision,
    excluded: Collection[str] = (),
    written: bool = False,
) -> Graph:
    """A graph with the conversions that `precision` asks for.

    dtypes : of every input Value of the graph
    excluded : names of nodes that take their inputs as they come
    written : use MXNet's `amp_cast`, which files know, instead of Cast
    Raises DTypeError if an operator does not take its converted inputs' dtypes.
    """
    return _Pass(precision, frozenset(excluded), AMPCast if written else Cast).graph(graph, dtypes)[0]


def inside(op: ControlFlow, dtypes: Sequence[object], precision: Precision) -> ControlFlow:
    """A loop or branch with the conversions in its bodies, for inputs of these dtypes."""
    return _Pass(precision, frozenset(), Cast).control_flow(op, dtypes)


def without_conversions(graph: Graph) -> Graph:
    """A graph without `amp_cast` and `amp_multicast`, as it was before it was converted for a file."""

    def rewrite(node: Node, inputs: tuple[Value, ...]) -> Sequence[Value] | None:
        return inputs if node.op.name in ("amp_cast", "amp_multicast") else None

    return graph.map(rewrite)


class _Pass:
    def __init__(self, precision: Precision, excluded: frozenset[str], cast: type[Operator]):
        self.precision, self.excluded, self.cast = precision, excluded, cast

    def graph(self, graph: Graph, given: Mapping[Value, object]) -> tuple[Graph, list[Any]]:
        """The converted graph, and the dtypes of its outputs."""
        types: dict[Value, Any] = {}
        changed = False  # nodes behind a new node are made anew, too: the program order stays

        def rewrite(node: Node, inputs: tuple[Any, ...]) -> Sequence[Value] | None:
            nonlocal changed
            if isinstance(node.op, Input):
                types[node.outputs[0]] = dtype_of(given[node.outputs[0]])
                return None
            dtypes = tuple(types[item] if isinstance(item, Value) else None for item in inputs)
            op = node.op
            if isinstance(op, ControlFlow):
                op = self.control_flow(op, dtypes)
            wanted = None if node.name and node.name in self.excluded else self.precision.wanted(op, dtypes)
            if wanted is not None:
                inputs = tuple(
                    item if dtype is None else self._converted(item, dtype, node, index)
                    for index, (item, dtype) in enumerate(zip(inputs, wanted, strict=True))
                )
                dtypes = self.precision.of(op, dtypes)
            try:
                found = read_dtypes(op, op.infer_type(*dtypes))
            except DTypeError as error:
                raise located(error, node) from None
            known = None if node.dtypes is None else tuple(found)
            changed = changed or op is not node.op or inputs != node.inputs or known != node.dtypes
            made = node.replace(op=op, inputs=inputs, dtypes=known) if changed else node
            types.update(zip(made.outputs, found, strict=True))
            return made.outputs

        made = graph.map(rewrite)
        return made, [types[value] for value in made.outputs]

    def _converted(self, item: Value, dtype: Any, node: Node, index: int) -> Value:
        names = node.op.signature.inputs
        name = f"{node.name}_{names[index] if index < len(names) else index}_{dtype.name}" if node.name else ""
        return Node(
            self.cast.bind(dtype=dtype.name),
            (item,),
            name=name,
            scope=node.scope,
            location=node.location,
            shapes=None if item.shape is None else (item.shape,),
            dtypes=None if item.dtype is None else (dtype,),
        ).outputs[0]

    def control_flow(self, op: ControlFlow, dtypes: Sequence[object]) -> ControlFlow:
        """The same loop or branch over converted bodies.

        States of a loop keep their dtype from step to step; what the branches of a cond return is float32 in both.
        """
        bodies = [self.graph(body.graph, self._inputs(op, body.graph, dtypes)) for body in op.bodies]
        graphs = []
        for number, (graph, found) in enumerate(bodies):
            wanted: list[Any] = [None] * len(found)
            if isinstance(op, Cond):
                wanted[: op.num_out] = [SINGLE] * op.num_out
            elif number == len(bodies) - 1:
                first = op.num_data  # type: ignore[attr-defined]
                states = op.num_states  # type: ignore[attr-defined]
                wanted[op.signature.visible - states : op.signature.visible] = dtypes[first : first + states]
            graphs.append(self._ending_in(graph, found, wanted))
        return op.rebuilt(graphs, ())

    @staticmethod
    def _inputs(op: ControlFlow, graph: Graph, dtypes: Sequence[object]) -> dict[Value, Any]:
        return dict(zip(graph.inputs, dtypes[op.first :], strict=True))

    def _ending_in(self, graph: Graph, found: Sequence[object], wanted: Sequence[object]) -> Graph:
        """The graph with its outputs in these dtypes, as far as they are two of ours."""
        ours = (self.precision.target, SINGLE)
        outputs = [
            self._converted(value, dtype, value.node, 0) if dtype in ours and old in ours and dtype != old else value
            for value, old, dtype in zip(graph.outputs, found, wanted, strict=True)
        ]
        return Graph(graph.inputs, outputs, graph.effects, graph.draws, graph.name)
