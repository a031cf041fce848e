"""The graph of this package's operators in the metadata of an ONNX file, from which an import makes the same network.

One operator is often many nodes of ONNX: an LSTM is a hundred. So the file says beside its nodes which operators they
were written from. An import trusts the graph only after writing these operators again: if the result differs from the
file's nodes (the file was changed), the nodes are imported and the graph is ignored.

Both sides use the graph as read from the text, so that exporting, importing and exporting a network again gives the
same nodes.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from hybrid_lab import ops
from hybrid_lab.diagnostics.errors import HybridLabError, Unmappable
from hybrid_lab.diagnostics.formatting import first_line
from hybrid_lab.diagnostics.location import Location
from hybrid_lab.formats import strict_json
from hybrid_lab.formats.mxnet import symbol_json
from hybrid_lab.formats.mxnet.graph_reader import read_graph
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Constant, Node, Scope, Value, constant_node, input_node
from hybrid_lab.graph.passes.bind_mode import bind_mode
from hybrid_lab.graph.passes.infer import infer
from hybrid_lab.graph.scope import ReadScopes
from hybrid_lab.hybridize.neutral import NeutralGraph
from hybrid_lab.ops.framework.dtypes import dtype_of
from hybrid_lab.ops.framework.operator import Operator
from hybrid_lab.ops.framework.run import infer as infer_operator
from hybrid_lab.ops.framework.sizes import Guards, NeedsNumber, SymbolicSize
from hybrid_lab.system.logger import logger

from . import element_types
from .reading.importers.functions import FIRST_HINT, HINT_STEP, LARGEST_TABLE, ROOM, Size
from .reading.model_file import OnnxFile
from .writing.emitter import FileEmitter
from .writing.file import Contents
from .writing.network import Network, NetworkWriter
from .writing.open_sizes import dimension_text

if TYPE_CHECKING:
    from numpy.typing import DTypeLike
    from onnx import FunctionProto, ModelProto, NodeProto, TensorProto, TensorShapeProto, TypeProto

METADATA = "hybrid_lab.graph"
"""Key of the graph among the metadata of a file."""
_ROOT = "model"
"""The first part of all scopes, in place of the name that the exported Block has in this process."""
_LONGEST = 8 << 20
"""Characters of the longest text that is written and read."""
_BROKEN = (TypeError, ValueError, IndexError, KeyError, AttributeError, ArithmeticError, MemoryError, RecursionError)
"""What Python and NumPy raise for attributes and shapes that make no sense."""


# -- written ---------------------------------------------------------------------------------------------------------


@dataclass
class NormalForm:
    """A network as an import of its file will have it.

    neutral : without parameters that no mode reads; names : of the graph's inputs; text : the graph as JSON
    constants : digest -> array, of the constants in the graph
    """

    neutral: NeutralGraph
    names: list[str]
    text: str
    constants: Mapping[str, np.ndarray]

    def is_told_by(self, network: Network, arrays: Mapping[str, np.ndarray]) -> bool:
        """Whether a file of this network and these arrays has all constants and parameters of the graph."""
        bodies = (network.body, *network.functions.values())
        known = {digest(array) for body in bodies for array in body.constants.values()} if self.constants else set()
        return self.constants.keys() <= known and {*self.names[self.neutral.num_data :]} <= arrays.keys()


def normal_form(neutral: NeutralGraph, names: Sequence[str]) -> NormalForm | None:
    """The network in the form that is written; None if a file cannot tell it. names : of the graph's inputs"""
    if neutral.bound:
        return None
    unread = _unread_scales(neutral)
    graph, locations = _plain_graph(neutral.graph, names, unread)
    kept = [name for name, value in zip(names, neutral.graph.inputs, strict=True) if value not in unread]
    constants: dict[str, np.ndarray] = {}
    try:
        text = symbol_json.dumps(graph, portable=False, constants=constants, in_program_order=True)
        read = _read(text, constants, kept)
    except HybridLabError:
        return None
    if len(text) >= _LONGEST or len(read.operators) != len(locations):
        return None
    places = dict(zip(read.operators, locations, strict=True))

    def located(node: Node, inputs: tuple[object, ...]) -> Sequence[Value] | None:
        return node.replace(inputs=inputs, location=places[node]).outputs if node in places else None

    variables = neutral.graph.inputs[neutral.num_data :]
    parameters = [each for each, value in zip(neutral.parameters, variables, strict=True) if value not in unread]
    return NormalForm(replace(neutral, graph=read.map(located), parameters=tuple(parameters)), kept, text, constants)


def _unread_scales(neutral: NeutralGraph) -> dict[Value, np.ndarray]:
    """The scales of BatchNorms without one, as arrays: ONNX's operator needs arrays of ones in their place."""
    record = ops.get("BatchNorm")
    users = neutral.graph.users()
    unread: dict[Value, np.ndarray] = {}
    for value, parameter in zip(neutral.graph.inputs[neutral.num_data :], neutral.parameters, strict=True):
        readers = users.get(value, [])
        if readers and all(_ignores(node, value, record) for node in readers):
            unread[value] = np.ones(parameter.shape or (), parameter.dtype)
    return unread


def _ignores(node: Node, value: Value, record: type[Operator]) -> bool:
    places = [place for place, item in enumerate(node.inputs) if item is value]
    return isinstance(node.op, record) and bool(node.op.attributes["fix_gamma"]) and places == [1]


def _plain_graph(
    graph: Graph, names: Sequence[str], arrays: Mapping[Value, np.ndarray]
) -> tuple[Graph, list[Location | None]]:
    """The graph without the names of this process, its inputs first; and the location of each operator.

    names : of the inputs; arrays : inputs that become constants
    """
    scopes = ReadScopes()
    constants: dict[str, Value] = {}
    new: dict[Value, Value] = {}
    draws = [node.draw for node in graph.nodes if node.draw is not None]
    locations = []

    def constant(array: np.ndarray) -> Value:
        key = digest(array)
        if key not in constants:
            constants[key] = constant_node(array, name=key)
        return constants[key]

    for value, name in zip(graph.inputs, names, strict=True):
        if value not in arrays:
            new[value] = input_node(name)
    inputs = list(new.values())
    for node in graph.nodes:
        if node.outputs[0] in new:
            continue
        array = node.op.array if isinstance(node.op, Constant) else arrays.get(node.outputs[0])
        if array is not None:
            new[node.outputs[0]] = constant(array)
            continue
        copy = node.replace(
            inputs=[new[item] if isinstance(item, Value) else item for item in node.inputs],
            name="", scope=_below_root(node.scope, scopes), shapes=None, dtypes=None,
            draw=None if node.draw is None else node.draw - min(draws),
        )  # fmt: skip
        locations.append(node.location)
        new.update(zip(node.outputs, copy.outputs, strict=True))
    return Graph(inputs, [new[value] for value in graph.outputs]), locations


def _below_root(scope: str, scopes: ReadScopes) -> str:
    _, dot, path = scope.partition(".")
    numbers = scope.numbers if isinstance(scope, Scope) else ""
    return scopes.scope(f"{_ROOT}{dot}{path}", tuple(map(int, numbers.split("."))) if numbers else ())


def digest(array: np.ndarray) -> str:
    """A name that tells an array's contents."""
    found = hashlib.blake2b(f"{array.dtype.str} {array.shape} ".encode(), digest_size=12)
    found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()


def _read(text: str, constants: Mapping[str, np.ndarray], names: Sequence[str]) -> Graph:
    """The graph in a text. names : of its inputs, in order. Raises ArchiveError"""
    graph = read_graph(strict_json.parse(text.encode("utf-8")), constants)
    known = {value.node.name: value for value in graph.inputs}
    if known.keys() != {*names} or len(known) != len(names):
        raise HybridLabError("the graph has other inputs than the file")
    return Graph([known[name] for name in names], graph.outputs, draws=graph.draws)


# -- read ------------------------------------------------------------------------------------------------------------


@dataclass
class Restored:
    """The network of a file in the operators that it was written from.

    graph : inputs are the data, then the parameters; parameters : their names
    tensors : name in the file -> Value, for the results of nodes that are results of operators
    """

    graph: Graph
    parameters: list[str]
    tensors: dict[str, Value]


def restored(file: OnnxFile, inputs: Sequence[str], outputs: Sequence[str]) -> Restored | None:
    """The network in a file's metadata; None if the metadata have no network, or if the file's nodes differ from it.

    inputs, outputs : the names in the file's own metadata
    """
    text = next((item.value for item in file.model.metadata_props if item.key == METADATA), "")
    if not 0 < len(text) < _LONGEST:
        return None
    try:
        return _restored(file, text, inputs, outputs)
    except (HybridLabError, NeedsNumber, *_BROKEN) as error:
        reason = first_line(error)[:200]
    logger.info(f"the graph in the metadata of the ONNX file is not that of its nodes, which are imported ({reason})")
    return None


def _restored(file: OnnxFile, text: str, inputs: Sequence[str], outputs: Sequence[str]) -> Restored:
    model = file.model
    described = {item.name: item.type.tensor_type for item in model.graph.input}
    if [*described] != [*inputs] or [item.name for item in model.graph.output] != [*outputs]:
        raise HybridLabError("other inputs or outputs")
    initializers = {item.name: item for item in model.graph.initializer}
    document = strict_json.parse(text.encode("utf-8"))
    nodes = document.get("nodes") if isinstance(document, dict) else None
    if not isinstance(nodes, list) or len(nodes) > 4 * (file.nodes + len(initializers) + len(inputs)) + 64:
        raise HybridLabError("more operators than nodes")
    constants = dict(_constants(file))
    variables = [
        str(node.get("name")) for node in nodes
        if isinstance(node, dict) and node.get("op") == "null" and node.get("name") not in constants
    ]  # fmt: skip
    names = [*inputs, *(name for name in variables if name not in described)]
    if not {*names[len(inputs) :]} <= initializers.keys():
        raise HybridLabError("parameters that the file does not have")
    graph = _read(text, constants, names)
    shapes, dtypes, dimensions = _types(described, [initializers[name] for name in names[len(inputs) :]])
    types = [dict(zip(graph.inputs, each, strict=True)) for each in (shapes, dtypes)]
    typed = bind_mode(infer(graph, *types), train=False)
    room = Room(ROOM + 2 * sum(prod(item.dims) for item in initializers.values()))
    emitter = functools.partial(BoundedEmitter, room)
    writer = NetworkWriter(typed, names, len(inputs), file.opsets.get("", 0), emitter)
    network = writer.network(outputs, flat=not model.functions)
    _check_equal(network, model, dimensions)
    made = {name for node in network.body.nodes for name in node.outputs}
    by_name = {node.name: node for node in graph.operators}
    tensors = {
        name: by_name[value.node.name].outputs[value.index]
        for value, name in writer.root_names.items()
        if name in made and value.node.name in by_name
    }
    return Restored(graph, names[len(inputs) :], tensors)


def _constants(file: OnnxFile) -> Iterator[tuple[str, np.ndarray]]:
    """(digest, array) of the constants among the nodes of the graph and of its functions."""
    for nodes in (file.model.graph.node, *(function.node for function in file.model.functions)):
        for node in nodes:
            if node.op_type == "Constant" and len(node.attribute) == 1 and node.attribute[0].name == "value":
                array = file.array(node.attribute[0].t, f"node {node.name!r}")[0]
                yield digest(array), array


def _types(
    described: Mapping[str, TypeProto.Tensor], tensors: Sequence[TensorProto]
) -> tuple[list[tuple[Size, ...]], list[np.dtype], list[str]]:
    """Shapes and dtypes of inputs and parameters; the names of the open sizes."""
    guards = Guards()
    sizes: dict[str, Size] = {}

    def size(dimension: TensorShapeProto.Dimension) -> Size:
        if dimension.HasField("dim_value"):
            return int(dimension.dim_value)
        name = dimension.dim_param
        if name not in sizes:
            sizes[name] = guards.symbol(FIRST_HINT + HINT_STEP * len(sizes))
        return sizes[name]

    shapes: list[tuple[Size, ...]] = [tuple(map(size, item.shape.dim)) for item in described.values()]
    kinds = [item.elem_type for item in described.values()] + [item.data_type for item in tensors]
    shapes += [tuple(item.dims) for item in tensors]
    names = [element_types.type_name(kind) for kind in kinds]
    if not {*names} <= element_types.OWN.keys():
        raise HybridLabError("an element type that arrays do not have")
    return shapes, [dtype_of(element_types.OWN[name]) for name in names], [*sizes]


def _check_equal(network: Network, model: ModelProto, dimensions: Sequence[str]) -> None:
    """Raise HybridLabError if the nodes of a network differ from the nodes of a file. dimensions : names of open
    sizes
    """
    dimension = functools.partial(dimension_text, names=dimensions)
    again = Contents("", network, (), (), {}, {}, {}, dimension).model()
    pairs = [(again.graph.node, model.graph.node), *((x.node, y.node) for x, y in _functions(again, model))]
    for ours, theirs in pairs:
        if len(ours) != len(theirs) or not all(map(_equal_nodes, ours, theirs)):
            raise HybridLabError("its nodes are others")


def _functions(again: ModelProto, model: ModelProto) -> list[tuple[FunctionProto, FunctionProto]]:
    fields = ("name", "domain", "input", "output", "attribute", "attribute_proto", "opset_import")
    if len(again.functions) != len(model.functions):
        raise HybridLabError("it has other functions")
    pairs = list(zip(again.functions, model.functions, strict=True))
    if any(getattr(x, field) != getattr(y, field) for x, y in pairs for field in fields):
        raise HybridLabError("its functions are others")
    return pairs


def _equal_nodes(one: NodeProto, two: NodeProto) -> bool:
    fields = ("op_type", "domain", "name", "input", "output", "attribute")
    return all(getattr(one, field) == getattr(two, field) for field in fields)


# -- limits ----------------------------------------------------------------------------------------------------------


@dataclass
class Room:
    """How many numbers the constants of a network may still have while it is written again."""

    left: int


class BoundedEmitter(FileEmitter):
    """Writes the nodes of a file that may be hostile: with no more memory for tables than an import takes."""

    def __init__(self, room: Room, opset: int, taken: Sequence[str] = ()) -> None:
        super().__init__(opset, taken)
        self.room = room

    def const(self, value: Any, dtype: DTypeLike) -> str:
        """As FileEmitter's. Raises Unmappable if no room is left."""
        self.room.left -= np.size(value)
        if self.room.left < 0:
            raise Unmappable("larger constants than an import makes")
        return super().const(value, dtype)

    def emit_node(self, node: Node, names: dict[Value, str]) -> None:
        """As FileEmitter's. Raises Unmappable for arrays that are too large."""
        _check_sizes([value.shape for value in node.outputs])
        super().emit_node(node, names)

    def emit(self, op: Operator, inputs: Sequence[Any], scope: str = "") -> tuple[str, ...]:
        """As FileEmitter's. Raises Unmappable for arrays that are too large."""
        known = [self._known[item] if isinstance(item, str) else ((), None) for item in inputs]
        _check_sizes(infer_operator(op, tuple(shape for shape, _ in known), tuple(dtype for _, dtype in known))[0])
        return super().emit(op, inputs, scope)


def _check_sizes(shapes: Sequence[Sequence[Size]]) -> None:
    """Records may make tables of as many numbers as their outputs have."""
    for shape in shapes:
        if prod(size for size in shape if not isinstance(size, SymbolicSize)) > LARGEST_TABLE:
            raise Unmappable("arrays of fixed sizes that are larger than the tables of an import")
