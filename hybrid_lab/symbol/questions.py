"""Queries of a Symbol's graph: names, shapes and dtypes of inputs and outputs, values, MXNet's JSON."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from hybrid_lab.diagnostics.errors import HybridLabError
from hybrid_lab.graph.graph import Graph, reachable
from hybrid_lab.graph.node import Input, Node, Value
from hybrid_lab.graph.partial import PartialShapes, PartialTypes, is_complete
from hybrid_lab.graph.passes.infer import infer
from hybrid_lab.ndarray.context import Context
from hybrid_lab.ndarray.numpy_mode import is_np_shape
from hybrid_lab.ops.framework.dtypes import dtype_of
from hybrid_lab.ops.framework.types import PartialShape


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
        """MXNet's names: `fc1_output`, `split0_output0` for one of several, `lstm0_state_output` and the like if MXNet
        names them one by one. An operator in Python names its own.
        """
        result = []
        for value in self.outputs:
            if isinstance(value.node.op, Input):
                result.append(value.node.name)
            else:
                result.append(f"{value.node.name}_{_output_name(value)}")
        return result

    def get_internals(self) -> Self:
        """All visible outputs of all nodes, each after its operands, inputs in their order, as MXNet lists them."""
        nodes = _depth_first(self.outputs)
        return type(self)([value for node in nodes for value in node.outputs[: max(node.op.signature.visible, 1)]])

    def get_children(self) -> Self | None:
        """The inputs of the nodes behind this Symbol; None for a variable."""
        nodes = dict.fromkeys(value.node for value in self.outputs)
        values = [item for node in nodes for item in node.values_in]
        return type(self)(values) if values else None

    @property
    def num_outputs(self) -> int:
        """How many outputs the Symbol stands for."""
        return len(self.outputs)

    def infer_shape(self, *args: object, **known: object) -> tuple[Any, Any, Any]:
        """(argument shapes, output shapes, aux shapes) from the shapes of some inputs, in the order of
        `list_arguments()` or by name. (None, None, None) and a warning if not all follow. Raises ShapeError.
        """
        shapes = self.known_shapes(*args, **known)
        unknown = [
            name for name, shape in zip(self._names(), (*shapes[0], *shapes[2]), strict=True) if not is_complete(shape)
        ]
        if unknown:
            warnings.warn(
                f"the shapes of {', '.join(unknown)} cannot be inferred from the given ones; pass them to infer_shape",
                stacklevel=2,
            )
            return None, None, None
        return shapes

    def infer_shape_partial(self, *args: object, **known: object) -> tuple[Any, Any, Any]:
        """As infer_shape, with partial results: 0 for an unknown size and () for an unknown shape; with NumPy's shapes
        (`mx.np_shape()`) -1 and None. The given shapes say it in the same way.
        """
        arguments, outputs, states = self.known_shapes(*args, **known)
        return list(map(shown_shape, arguments)), list(map(shown_shape, outputs)), list(map(shown_shape, states))

    def known_shapes(self, *args: object, **known: object) -> tuple[list[Any], list[Any], list[Any]]:
        """As infer_shape_partial, with None for all that is unknown, as everywhere inside this package."""
        shapes = self._partial(args, known).shapes
        return self._by_kind(shapes)

    def _by_kind(self, known: Mapping[Value, Any]) -> tuple[list[Any], list[Any], list[Any]]:
        """The known facts of arguments, outputs and auxiliary states."""
        by_name = {value.node.name: known.get(value) for value in _variables(self.outputs)}
        return (
            [by_name[name] for name in self.list_arguments()],
            [known.get(value) for value in self.outputs],
            [by_name[name] for name in self.list_auxiliary_states()],
        )

    def _names(self) -> list[str]:
        return [*self.list_arguments(), *self.list_auxiliary_states()]

    def _given(self, args: tuple[Any, ...], known: Mapping[str, Any]) -> dict[Value, Any]:
        """The values passed for inputs, in their order or by name. Raises HybridLabError for an unknown name."""
        given = {**dict(zip(self.list_arguments(), args, strict=False)), **known}
        variables = {value.node.name: value for value in _variables(self.outputs)}
        unknown = [name for name in given if name not in variables]
        if unknown:
            raise HybridLabError(f"{self!r} has no input {unknown[0]!r}; it has {', '.join(variables)}")
        return {variables[name]: item for name, item in given.items() if item is not None}

    def _partial(self, args: tuple[Any, ...], known: Mapping[str, Any]) -> PartialShapes:
        shapes: dict[Value, Any] = {value: value.shape for value in _variables(self.outputs) if value.shape is not None}
        shapes |= {value: read_shape(shape) for value, shape in self._given(args, known).items()}
        return PartialShapes(self.graph(), shapes)

    def infer_type(self, *args: Any, **known: Any) -> tuple[Any, Any, Any]:
        """(argument dtypes, output dtypes, aux dtypes) from the dtypes of some inputs. (None, None, None) and a warning
        if not all follow. Raises DTypeError.
        """
        types = self.infer_type_partial(*args, **known)
        unknown = [name for name, dtype in zip(self._names(), (*types[0], *types[2]), strict=True) if dtype is None]
        if unknown:
            warnings.warn(
                f"the dtypes of {', '.join(unknown)} cannot be inferred from the given ones; pass them to infer_type",
                stacklevel=2,
            )
            return None, None, None
        return types

    def infer_type_partial(self, *args: Any, **known: Any) -> tuple[Any, Any, Any]:
        """As infer_type, with None for an unknown dtype."""
        arguments, outputs, states = self._by_kind(self._partial_types(args, known))
        return _scalar_types(arguments), _scalar_types(outputs), _scalar_types(states)

    def default_types(self, **known: Any) -> tuple[Any, Any, Any]:
        """As infer_type, with float32 for inputs whose dtype does not follow."""
        types = self._partial_types((), known)
        defaults = {value: types.get(value, np.dtype("float32")) for value in _variables(self.outputs)}
        arguments, outputs, states = self._by_kind(PartialTypes(self.graph(), defaults).types)
        return _scalar_types(arguments), _scalar_types(outputs), _scalar_types(states)

    def _partial_types(self, args: tuple[Any, ...], known: Mapping[str, Any]) -> dict[Value, np.dtype]:
        types = {value: value.dtype for value in _variables(self.outputs) if value.dtype is not None}
        types |= {value: dtype_of(dtype) for value, dtype in self._given(args, known).items()}
        return PartialTypes(self.graph(), types).types

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

        return symbol_json.dumps(self.graph(), attrs=_shape_attributes())

    def save(self, fname: str) -> None:
        """Write `tojson()` to a file."""
        from hybrid_lab.formats.mxnet import symbol_json

        symbol_json.save(fname, self.graph(), attrs=_shape_attributes())

    def inferred(self, **shapes: object) -> Graph:
        """The graph with shapes and float32 dtypes on every node, for printing and inspection."""
        graph = self.graph()
        inferred = self._partial((), shapes).shapes
        return infer(graph, inferred, {value: value.dtype or np.dtype("float32") for value in graph.inputs})


def _shape_attributes() -> dict[str, Any]:
    """A file's statement about its shapes: whether they are NumPy's."""
    return {"is_np_shape": ["int", 1]} if is_np_shape() else {}


def _scalar_types(dtypes: Sequence[np.dtype | None]) -> list[Any]:
    """NumPy's scalar types, as np.float32."""
    return [None if dtype is None else dtype.type for dtype in dtypes]


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


def _output_name(value: Value) -> str:
    op = value.node.op
    from hybrid_lab.graph.custom import Custom

    if isinstance(op, Custom):
        return op.code.outputs[value.index]
    from hybrid_lab.formats.mxnet.operator_names import output_name

    return output_name(op, value.index)


def read_shape(shape: int | Sequence[int | None] | None) -> PartialShape:
    """A shape that the user gave. Its unknown parts, which MXNet writes as 0 and () and NumPy's shapes as -1 and None,
    are None.
    """
    if shape is None:
        return None
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    if is_np_shape():
        return tuple([None if size is None or size < 0 else size for size in sizes])
    return tuple([size or None for size in sizes]) or None


def shown_shape(shape: PartialShape) -> PartialShape:
    """A shape for the user, with unknown parts as in `read_shape`."""
    if is_np_shape():
        return shape if shape is None else tuple([-1 if size is None else size for size in shape])
    return tuple([size or 0 for size in shape or ()])
