"""A network as ONNX nodes: the body of the file's graph, and a body of each function."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hybrid_lab.diagnostics.errors import HybridLabError, Unmappable
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Node, Value
from hybrid_lab.graph.partial import located
from hybrid_lab.ops.framework.onnx_emit import OnnxNode
from hybrid_lab.ops.framework.sizes import NeedsNumber, SymbolicSize

from .. import opsets
from .calls import BlockCall, calls_of
from .emitter import FileEmitter
from .nodes import Subgraph, needed, reads


@dataclass
class Body:
    """The nodes of the file's graph or of a function.

    path : of the Block below the file's Block, "" for the file's Block itself
    inputs, outputs : names
    constants : name -> array
    operators : for each node, the node of our graph that it is a part of; None for a call
    sizes : the last inputs of a function that takes sizes, each a vector of one number: name -> the size
    """

    path: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[OnnxNode, ...]
    constants: dict[str, np.ndarray]
    operators: tuple[Node | None, ...] = ()
    sizes: dict[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> Any:
        """Hashable; of equal text are bodies that compute the same."""
        constants = [(name, array.dtype.str, array.shape, array.tobytes()) for name, array in self.constants.items()]
        return self.inputs, self.outputs, tuple(map(_text, self.nodes)), tuple(constants)


def _text(node: OnnxNode) -> Any:
    attributes = [
        (name, tuple(map(_text, value.nodes)) if isinstance(value, Subgraph) else repr(value))
        for name, value in sorted(node.attributes.items())
    ]
    return node.op_type, node.inputs, node.outputs, tuple(attributes)


@dataclass
class Network:
    """A network as ONNX nodes.

    graph : as emitted: inferred, in prediction
    body : of the file's graph; functions : by name, each after the functions that it calls
    """

    graph: Graph
    body: Body
    functions: dict[str, Body]
    opset: int

    @property
    def op_types(self) -> set[str]:
        """The operators of ONNX in it, and the functions that it calls."""
        return {name for body in (self.body, *self.functions.values()) for name in _op_types(body.nodes)}


class NetworkWriter:
    """Writes a graph, inferred and bound to prediction, as a Network.

    names : of the graph's inputs; parameters have the paths below the Block that the file is of
    num_data : how many of the inputs are data
    emitter : makes the emitter of each body: (opset, names that are taken)
    root_names : the names of values in the file's graph, once it is written
    """

    def __init__(
        self, graph: Graph, names: Sequence[str], num_data: int, opset: int,
        emitter: Callable[[int, Sequence[str]], FileEmitter] = FileEmitter,
    ) -> None:  # fmt: skip
        self.graph, self.opset, self.emitter = graph, opset, emitter
        self.root_names: dict[Value, str] = {}
        self.names = dict(zip(graph.inputs, names, strict=True))
        self.parameters = set(graph.inputs[num_data:])
        self.functions: dict[str, Body] = {}
        self._texts: dict[Any, str] = {}

    def network(self, outputs: Sequence[str], flat: bool) -> Network:
        """The graph's network. outputs : their names. Raises Unmappable, NeedsNumber"""
        root = calls_of(self.graph, self.parameters, flat)
        root.inputs = list(self.graph.inputs)
        return Network(self.graph, self._body(root, outputs), self.functions, self.opset)

    def _body(self, call: BlockCall, outputs: Sequence[str] = ()) -> Body:
        inputs = self._input_names(call) if call.path else self.names
        emitter = self.emitter(self.opset, [*inputs.values(), *outputs])
        names = dict(inputs)
        for value, name in inputs.items():
            emitter.declare(name, value.shape, value.dtype)
        for item in call.items:
            if isinstance(item, BlockCall):
                self._emit_call(emitter, item, names)
            else:
                self.emit_node(emitter, item, names)
        results = self._results(emitter, call, names, outputs)
        body = pruned(call.path, tuple(inputs.values()), results, emitter)
        if not call.path:
            self.root_names = names | dict(zip(call.outputs, results, strict=True))
        else:  # an operand that an operator takes and does not read, such as the gamma of a BatchNorm without a scale
            read = {name for node in body.nodes for name in reads(node)}
            call.inputs = [value for value in inputs if value not in self.parameters or inputs[value] in read]
            body.inputs = (*(inputs[value] for value in call.inputs), *body.sizes)
        return body

    def _input_names(self, call: BlockCall) -> dict[Value, str]:
        """Names for the inputs of a function: parameters by their path below its Block, data by number."""
        named: dict[Value, str] = {}
        data = [value for value in call.inputs if value not in self.parameters]
        for index, value in enumerate(data):
            named[value] = "data" if len(data) == 1 else f"data{index}"
        for value in call.inputs[len(data) :]:
            named[value] = self.names[value].removeprefix(f"{call.path}.")
        if len(set(named.values())) < len(named):
            return {value: f"input{index}" for index, value in enumerate(call.inputs)}
        return named

    def emit_node(self, emitter: FileEmitter, node: Node, names: dict[Value, str]) -> None:
        """Emit an operator; adds the names of its outputs to `names`. Raises Unmappable with its line, NeedsNumber."""
        sizes = [size for value in (*node.values_in, *node.outputs) for size in value.shape]
        try:
            if any(size == 0 for size in sizes if not isinstance(size, SymbolicSize)):
                raise Unmappable("arrays without elements: operators of ONNX read a size of 0 as another size")
            emitter.emit_node(node, names)
        except NeedsNumber as need:
            raise NeedsNumber(need.symbols, f"the ONNX form of {node.op.name}") from None
        except Unmappable as error:
            reason = self._reason(node, error).removeprefix(f"{node.op.name}: ")
            raise located(Unmappable(f"{node.op.name}: {reason}"), node) from None

    def _reason(self, node: Node, error: Unmappable) -> str:
        """Why the node has no form in this opset, and the lowest opset that has one."""
        for opset in range(self.opset + 1, opsets.newest() + 1):
            emitter = self.emitter(opset, ())
            inner: dict[Value, str] = {}
            try:
                for index, value in enumerate(node.values_in):
                    inner[value] = emitter.declare(f"x{index}", value.shape, value.dtype)
                emitter.emit_node(node, inner)
            except HybridLabError:
                continue
            return f"not in opset {self.opset}, the lowest that has it is {opset} ({error})"
        return str(error)

    def _emit_call(self, emitter: FileEmitter, call: BlockCall, names: dict[Value, str]) -> None:
        body = self._body(call)
        key = call.path, body.text
        name = self._texts.get(key)
        if name is None:
            number = sum(path == call.path for path, _ in self._texts) + 1
            name = self._texts[key] = call.path if number == 1 else f"{call.path}@{number}"
            self.functions[name] = body
        sizes = [emitter.vector(size) for size in body.sizes.values()]
        results = emitter.add(name, [*(names[value] for value in call.inputs), *sizes], len(call.outputs))
        for value, result in zip(call.outputs, results, strict=True):
            names[value] = emitter.declare(result, value.shape, value.dtype)

    @staticmethod
    def _results(
        emitter: FileEmitter, call: BlockCall, names: dict[Value, str], outputs: Sequence[str]
    ) -> tuple[str, ...]:
        """The outputs of a body: values that nodes of it compute, each once. outputs : names for them"""
        results: list[str] = []
        made = {name for node in emitter.nodes for name in node.outputs}
        wanted = outputs or [""] * len(call.outputs)
        renamed: dict[str, str] = {}
        for value, name in zip(call.outputs, wanted, strict=True):
            result = emitter.operand(value, names)
            if result not in made or result in results or result in renamed:
                result = emitter.add("Identity", [renamed.get(result, result)], 1, {})[0]
            if name:
                renamed[result] = name
            results.append(name or result)
        for index, node in enumerate(emitter.nodes if renamed else ()):
            emitter.nodes[index] = _renamed(node, renamed)
        return tuple(results)


def _renamed(node: OnnxNode, names: Mapping[str, str]) -> OnnxNode:
    """The node with other names for some values, also inside loops and branches."""
    attributes = {
        key: Subgraph(value.name, tuple(_renamed(each, names) for each in value.nodes), value.inputs, value.outputs)
        if isinstance(value, Subgraph)
        else value
        for key, value in node.attributes.items()
    }
    inputs, outputs = ([names.get(name, name) for name in each] for each in (node.inputs, node.outputs))
    return node._replace(inputs=tuple(inputs), outputs=tuple(outputs), attributes=attributes)


def pruned(path: str, inputs: tuple[str, ...], outputs: tuple[str, ...], emitter: FileEmitter) -> Body:
    """The body without nodes that its outputs do not need."""
    places = needed(emitter.nodes, outputs)
    nodes = [emitter.nodes[place] for place in places]
    operators = [emitter.operators[place] for place in places]
    read = {*outputs, *(name for node in nodes for name in reads(node))}
    constants = {name: array for name, array in emitter.initializers.items() if name in read}
    sizes = {name: size for name, size in emitter.wanted_sizes.items() if name in read}
    return Body(path, (*inputs, *sizes), outputs, tuple(nodes), constants, tuple(operators), sizes)


def _op_types(nodes: Sequence[OnnxNode]) -> Iterator[str]:
    for node in nodes:
        yield node.op_type
        for value in node.attributes.values():
            if isinstance(value, Subgraph):
                yield from _op_types(value.nodes)


def unused(name: str, taken: set[str]) -> str:
    """The name, with underscores at its end if it is taken; it is taken then."""
    while name in taken:
        name += "_"
    taken.add(name)
    return name
