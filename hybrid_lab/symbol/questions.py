"""Queries of a Symbol's graph: names, shapes and dtypes of inputs and outputs, values, MXNet's JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from hybrid_lab.diagnostics.errors import DTypeError, HybridLabError, ShapeError
from hybrid_lab.graph.graph import Graph, reachable
from hybrid_lab.graph.infer import PartialShapes, infer, is_complete
from hybrid_lab.graph.node import Input, Node, Value
from hybrid_lab.ndarray.context import Context


class GraphQuestions:
    """Mixin of Symbol, which has the Values."""

    __slots__ = ()
    outputs: tuple[Value, ...]

    def __init__(self, values: Sequence[Value]):
        raise NotImplementedError

    def _nodes(self) -> tuple[Node, ...]:
        return reachable(self.outputs)

    def graph(self, inputs: Sequence[Value] | None = None) -> Graph:
        """The graph that computes this Symbol; inputs default to all variables in MXNet's order."""
        variables = list(inputs) if inputs is not None else _variables(self.outputs)
        draws = [node.draw for node in self._nodes() if node.draw is not None]
        return Graph(variables, self.outputs, draws=max(draws, default=-1) + 1)

    def list_inputs(self) -> list[str]:
        """Names of all variables, auxiliary states included."""
        return [value.node.name for value in _variables(self.outputs)]

    def list_arguments(self) -> list[str]:
        """Names of the variables that are no auxiliary states."""
        states = set(_states(self._nodes()))
        return [value.node.name for value in _variables(self.outputs) if value not in states]

    def list_auxiliary_states(self) -> list[str]:
        """Names of the variables that an operator updates."""
        states = set(_states(self._nodes()))
        return [value.node.name for value in _variables(self.outputs) if value in states]

    def list_outputs(self) -> list[str]:
        """`fc1_output`; `split0_output0` where the operator has several."""
        result = []
        for value in self.outputs:
            if isinstance(value.node.op, Input):
                result.append(value.node.name)
            else:
                several = value.node.op.signature.visible > 1
                result.append(f"{value.node.name}_output{value.index if several else ''}")
        return result

    def get_internals(self) -> Self:
        """All visible outputs of all nodes, each after what it reads, inputs in their order, as MXNet lists them."""
        nodes = _depth_first(self.outputs)
        return type(self)([value for node in nodes for value in node.outputs[: max(node.op.signature.visible, 1)]])

    def get_children(self) -> Self | None:
        """The inputs of the nodes behind this Symbol; None for a variable."""
        values = [item for value in self.outputs for item in value.node.values_in]
        return type(self)(values) if values else None

    @property
    def num_outputs(self) -> int:
        """How many outputs the Symbol stands for."""
        return len(self.outputs)

    def infer_shape(self, *args: object, **known: object) -> tuple[Any, Any, Any]:
        """(argument shapes, output shapes, aux shapes) from the shapes of some inputs; raises ShapeError if not all
        follow.
        """
        arguments, outputs, states = self.infer_shape_partial(*args, **known)
        unknown = [n for n, s in zip(self.list_arguments(), arguments, strict=True) if not is_complete(s)]
        if unknown:
            raise ShapeError(
                f"the shapes of {', '.join(unknown)} cannot be inferred from the given shapes; pass them to infer_shape"
            )
        return arguments, outputs, states

    def infer_shape_partial(self, *args: object, **known: object) -> tuple[Any, Any, Any]:
        """As infer_shape, with None for what is not known. A 0 among the given sizes means unknown, as in MXNet."""
        shapes = self._partial(args, known).shapes
        by_name = {value.node.name: shapes.get(value) for value in _variables(self.outputs)}
        return (
            [by_name[name] for name in self.list_arguments()],
            [shapes.get(value) for value in self.outputs],
            [by_name[name] for name in self.list_auxiliary_states()],
        )

    def _partial(self, args: tuple[Any, ...], known: Mapping[str, Any]) -> PartialShapes:
        sizes = {**dict(zip(self.list_arguments(), args, strict=False)), **known}
        variables = {value.node.name: value for value in _variables(self.outputs)}
        unknown = [name for name in sizes if name not in variables]
        if unknown:
            raise HybridLabError(f"{self!r} has no input {unknown[0]!r}; it has {', '.join(variables)}")
        shapes: dict[Value, Any] = {value: value.shape for value in variables.values() if value.shape is not None}
        for name, shape in sizes.items():
            if shape is not None:
                shapes[variables[name]] = tuple(size or None for size in shape)
        return PartialShapes(self.graph(), shapes)

    def infer_type(self, *args: Any, **known: Any) -> tuple[Any, Any, Any]:
        """(argument dtypes, output dtypes, aux dtypes); inputs without a dtype are float32."""
        dtypes = {**dict(zip(self.list_arguments(), args, strict=False)), **known}
        default = next(iter(dtypes.values()), np.float32)
        types: dict[Value, np.dtype] = {}
        for node in self._nodes():
            if isinstance(node.op, Input):
                types[node.outputs[0]] = np.dtype(dtypes.get(node.name, node.dtypes[0] if node.dtypes else default))
                continue
            try:
                out = node.op.infer_type(*(types[item] if isinstance(item, Value) else None for item in node.inputs))
            except DTypeError as error:
                raise DTypeError(f"{error} (at {node.name})") from None
            out = out if isinstance(out, (list, tuple)) else [out] * len(node.outputs)
            types.update(zip(node.outputs, map(np.dtype, out), strict=True))
        by_name = {value.node.name: types[value].type for value in _variables(self.outputs)}
        return (
            [by_name[name] for name in self.list_arguments()],
            [types[value].type for value in self.outputs],
            [by_name[name] for name in self.list_auxiliary_states()],
        )

    def eval(self, ctx: Context | Sequence[Context] | None = None, **inputs: Any) -> list[Any]:
        """Run the graph eagerly on arrays given by input name; returns a list of NDArrays."""
        from hybrid_lab.ndarray.interpret import interpret

        variables = _variables(self.outputs)
        missing = [value.node.name for value in variables if value.node.name not in inputs]
        if missing:
            raise HybridLabError(f"eval needs arrays for {', '.join(missing)}")
        return interpret(self.graph(variables), [inputs[value.node.name] for value in variables])

    def tojson(self) -> str:
        """The graph in MXNet's symbol JSON."""
        from hybrid_lab.formats.mxnet import symbol_json

        return symbol_json.dumps(self.graph())

    def save(self, fname: str) -> None:
        """Write `tojson()` to a file."""
        from hybrid_lab.formats.mxnet import symbol_json

        symbol_json.save(fname, self.graph())

    def inferred(self, **shapes: object) -> Graph:
        """The graph with shapes and float32 dtypes on every node, for printing and inspection."""
        graph = self.graph()
        inferred = self._partial((), shapes).shapes
        return infer(graph, inferred, {value: value.dtype or np.dtype("float32") for value in graph.inputs})


def _depth_first(values: Sequence[Value]) -> list[Node]:
    """All nodes behind `values`, each after its inputs."""
    ordered: dict[Node, None] = {}
    stack: list[tuple[Node, bool]] = [(value.node, False) for value in reversed(values)]
    while stack:
        node, ready = stack.pop()
        if ready:
            ordered[node] = None
        elif node not in ordered:
            stack.append((node, True))
            stack.extend((value.node, False) for value in reversed(node.values_in) if value.node not in ordered)
    return list(ordered)


def _variables(values: Sequence[Value]) -> list[Value]:
    """Input Values in depth-first order of use, as MXNet lists arguments."""
    return [node.outputs[0] for node in _depth_first(values) if isinstance(node.op, Input)]


def _states(nodes: Sequence[Node]) -> list[Value]:
    """The variables that some operator uses as auxiliary state."""
    states: dict[Value, None] = {}
    for node in nodes:
        for name, item in zip(node.op.signature.inputs, node.inputs, strict=False):
            if name in node.op.signature.aux and isinstance(item, Value):
                states[item] = None
    return list(states)
