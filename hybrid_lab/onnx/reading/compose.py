"""The graph of an ONNX file in this package's operators, with its parameters apart."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from hybrid_lab.diagnostics.errors import HybridLabError
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.input_checks import Source, checked
from hybrid_lab.graph.node import Constant, Input, Node, Value, input_node
from hybrid_lab.hybridize.structure import LEAF, Spec, count_leaves, from_json
from hybrid_lab.ndarray.buffer import Buffer
from hybrid_lab.onnx import element_types, own_graph
from hybrid_lab.onnx.errors import OnnxError, OpenValueError, UnsupportedOperatorError
from hybrid_lab.onnx.reading.checked import declared_shapes, dtypes_that_matter
from hybrid_lab.onnx.reading.importer import GraphImporter, block_classes
from hybrid_lab.onnx.reading.importers.functions import Functions, Item, Size, Tensor
from hybrid_lab.onnx.reading.model_file import OnnxFile
from hybrid_lab.system.progress import Progress

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, TypeProto, ValueInfoProto

    from hybrid_lab.gluon.hybrid import HybridBlock

_MOST_METADATA = 1 << 20
_LARGEST_SIZE = 2**31 - 1


@dataclass(frozen=True)
class Layer:
    """A node of an ONNX file. name : its own, or its first result's; kind : its operator

    inputs, outputs : names of tensors
    """

    name: str
    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass
class Composed:
    """The graph of an ONNX file.

    graph : inputs are the data, then the parameters
    inputs : names of the data; structure, results : of the arguments and of the result, as neutral graphs have them
    parameters : name -> array; states : names of parameters that training does not change by gradients
    tensors : name in the file -> Value, for all results of nodes
    outputs : names of the outputs in the file; classes : path of a Block -> the name of its class, as the file says
    frozen : parameters that the model's owner did not train
    shapes : the shape of each Value as imported, with symbols for open sizes; {} if unknown
    conditions : on the symbols
    source : where the graph comes from
    views : Blocks of the same graph with further outputs, by the names of these outputs
    buffers : name -> the memory of a parameter that others read and write, too
    layers : the nodes of the file
    """

    graph: Graph
    inputs: list[str]
    structure: Spec
    results: Spec
    parameters: dict[str, np.ndarray]
    states: set[str]
    tensors: dict[str, Value]
    outputs: list[str]
    classes: dict[str, str]
    frozen: frozenset[str] = frozenset()
    views: dict[tuple[str, ...], HybridBlock] = field(default_factory=dict)
    buffers: dict[str, Buffer] = field(default_factory=dict)
    layers: list[Layer] = field(default_factory=list)
    shapes: dict[Value, tuple[Any, ...]] = field(default_factory=dict)
    conditions: tuple[str, ...] = ()
    source: Source = "onnx"

    def __deepcopy__(self, memo: object) -> Composed:
        """Graphs are not changed and need no copy; the views are made anew, of the copied parameters."""
        return replace(self, views={})


def compose(
    source: str | PathLike[str] | ModelProto | OnnxFile, shapes: Mapping[str, Sequence[int | str | None]] | None = None,
    values: Mapping[str, object] | None = None, last_layers: int | None = None, training: bool = False,
    by_nodes: bool = False,
) -> Composed:  # fmt: skip
    """The graph of an ONNX file in this package's operators. See `imports`.

    last_layers : cut the graph: -k leaves out the last k nodes, and the last that remains gives the output
    values : name of an input -> its value; for an optional input None, for a sequence a list of arrays of which the
        shapes are read
    training : the graph is for training: its operators get both modes
    by_nodes : always import the nodes. By default an unchanged file of this package, requested as a whole, gives the
        operators that it was written from
    """
    path = os.fspath(source) if isinstance(source, (str, PathLike)) else None
    try:
        file = source if isinstance(source, OnnxFile) else OnnxFile(source)
        if not (shapes or values or last_layers or training or by_nodes):
            composed = _restored(file)
            if composed is not None:
                return composed
        composer = _Composer(file, shapes or {}, values or {})
        composer.F.training = training
        return composer.compose(last_layers)
    except OnnxError as error:
        if path is not None:
            name_file(error, path)
        raise


def _restored(file: OnnxFile) -> Composed | None:
    """The graph in the operators that a file of this package was written from; None for other files."""
    graph = file.model.graph
    inputs, outputs = [item.name for item in graph.input], [item.name for item in graph.output]
    own = own_metadata(file.model)
    structure = own_structure(own, inputs, outputs)
    found = None if structure is None else own_graph.restored(file, inputs, outputs)
    if structure is None or found is None:
        return None
    tensors = {item.name: item for item in graph.initializer}
    arrays = {name: file.array(tensors[name], f"initializer {name!r}")[0] for name in found.parameters}
    states = {value.node.name for value in found.graph.states}
    return Composed(
        Graph(found.graph.inputs, found.graph.outputs, draws=found.graph.draws, name=graph.name), inputs,
        structure[0], structure[1], arrays, states & arrays.keys(), found.tensors, outputs, block_classes(file),
        frozen=_frozen(own), layers=_layers(graph.node),
    )  # fmt: skip


def _layers(nodes: Sequence[NodeProto]) -> list[Layer]:
    """The nodes with names of their own: a name that two have gets a number."""
    found: dict[str, Layer] = {}
    for node in nodes:
        name = base = node.name or next(iter(node.output), node.op_type)
        number = 0
        while name in found:
            number += 1
            name = f"{base}_{number}"
        found[name] = Layer(name, node.op_type, tuple(node.input), tuple(node.output))
    return [*found.values()]


def _frozen(own: Mapping[str, Any]) -> frozenset[str]:
    """The parameters that the model's owner did not train."""
    names = own.get("states")
    return frozenset(name for name in names if isinstance(name, str)) if isinstance(names, list) else frozenset()


METADATA = "hybrid_lab"
"""Key of the structure around the network among the metadata of the files that this package writes."""


def own_metadata(model: ModelProto) -> dict[str, Any]:
    """The facts in a file of this package about its arguments, results and frozen parameters; of other files
    nothing.
    """
    text = next((item.value for item in model.metadata_props if item.key == METADATA), "")
    try:
        data = json.loads(text) if 0 < len(text) < _MOST_METADATA else {}
    except (ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


def own_structure(data: Mapping[str, Any], inputs: Sequence[str], outputs: Sequence[str]) -> tuple[Spec, Spec] | None:
    """The structures of arguments and results that the file's metadata tell for these inputs and outputs."""
    try:
        if [data.get("inputs"), data.get("outputs")] != [list(inputs), list(outputs)]:
            return None
        found = from_json(data["in"]), from_json(data["out"])
    except (ValueError, KeyError, TypeError, RecursionError, HybridLabError):
        return None
    whole = found[0][0] == "tuple" and [count_leaves(each) for each in found] == [len(inputs), len(outputs)]
    return found if whole else None


def name_file(error: OnnxError, path: str | PathLike[str]) -> None:
    """Put the file into the message, if no file is there."""
    if error.path is None:
        error.path = os.fspath(path)
        error.args = (f"{error.reason} ({error.path!r})",)


_TOLD = 50
"""Operators between two looks at how long an import takes."""


class _Composer:
    def __init__(
        self, file: OnnxFile, shapes: Mapping[str, Sequence[int | str | None]], values: Mapping[str, object]
    ) -> None:
        self.file, self.shapes, self.values = file, shapes, values
        self.F = Functions()
        self.importer = GraphImporter(file, self.F)
        self.open: dict[str, Size] = {}
        self.data: list[Value] = []
        self.names: list[str] = []
        self.spec: list[Spec] = []

    def compose(self, last_layers: int | None) -> Composed:
        graph = self.file.model.graph
        known: dict[str, Item] = {}
        initializers = self._initializers(graph)
        known.update(initializers)
        for item in graph.input:
            if item.name not in initializers:
                known[item.name] = self._input(item)
        unknown = [name for name in (*self.shapes, *self.values) if name not in known]
        if unknown:
            raise OnnxError(f"the file has no input {unknown[0]!r}; its inputs are {', '.join(self.names)}")
        nodes, outputs = _cut(graph, last_layers)
        self._run(nodes, known)
        missing = [name for name in outputs if known.get(name) is None]
        if missing:
            raise OnnxError(f"no node computes the output {missing[0]!r}")
        results: list[Value] = []
        out_spec = [self._result(known[name], results) for name in outputs]
        tensors = {name: item.value for name, item in known.items() if isinstance(item, Tensor) and item.is_in_graph}
        own = own_metadata(self.file.model)
        structure: tuple[Spec, Spec] = (
            ("tuple", tuple(self.spec)), out_spec[0] if len(out_spec) == 1 else ("list", tuple(out_spec))
        )  # fmt: skip
        if not self.values:
            structure = own_structure(own, self.names, outputs) or structure
        composed = finished(
            self.F, self.data, self.names, structure[0], results, structure[1], outputs, tensors, self.importer.names,
            self.importer.classes, graph.name,
        )  # fmt: skip
        composed.frozen = _frozen(own)
        composed.layers = _layers(nodes)
        return composed

    def _run(self, nodes: Sequence[NodeProto], known: dict[str, Item]) -> None:
        """Import the nodes; if it takes long, a bar says how far it is."""
        with closing(Progress("importing the ONNX file", len(nodes), "operators")) as bar:
            for place in range(0, len(nodes), _TOLD):
                bar.step(place, nodes[place].op_type)
                self.importer.run(nodes[place : place + _TOLD], known)

    def _result(self, item: Item, results: list[Value]) -> Spec:
        if isinstance(item, list):
            if not item:
                raise UnsupportedOperatorError("an output is an empty sequence, which no graph computes")
            return "list", tuple(self._result(part, results) for part in item)
        if item is None:
            raise UnsupportedOperatorError("an output is an empty optional value, which no graph computes")
        value = item.value
        if isinstance(value.node.op, (Input, Constant)):
            value = self.F.identity(Tensor(self.F, value)).value  # an output is always computed
        results.append(value)
        return LEAF

    def _initializers(self, graph: GraphProto) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        for item in graph.initializer:
            array, kind = self.file.array(item, f"initializer {item.name!r}")
            self.F.room += 2 * array.size
            trained = array.dtype.kind in "fV" and array.ndim > 0 and kind in element_types.OWN
            found[item.name] = Tensor(self.F, None, array, element_types.carried(kind), item.name, trained)
        if graph.sparse_initializer:
            raise OnnxError(f"the sparse initializer {graph.sparse_initializer[0].values.name!r} is not supported")
        return found

    def _input(self, item: ValueInfoProto) -> Item:
        name = item.name
        if name in self.values:
            value = self.values[name]
            kind = _tensor_kind(item.type)
            if isinstance(value, (list, tuple)) and kind is None:
                parts: list[Item] = [
                    self._data(f"{name}:{number}", part.shape, part.dtype.name) for number, part in enumerate(value)
                ]
                self.spec.append(("list", (LEAF,) * len(parts)))
                return parts
            if value is None:
                return None
            return Tensor(self.F, array=np.asarray(value), carries=element_types.carried(kind or ""))
        kind = _tensor_kind(item.type)
        form = item.type.WhichOneof("value")
        if form != "tensor_type" or kind is None:
            raise OpenValueError(
                f"the input {name!r} is {form}, not a tensor: give imports(..., values={{...}})", [name]
            )
        dtype = element_types.dtype_for(kind)
        if dtype is None:
            raise UnsupportedOperatorError(f"the input {name!r} has elements of type {kind}, which arrays do not have")
        self.spec.append(LEAF)
        return self._data(name, self._shape(item), dtype.name, element_types.carried(kind))

    def _data(self, name: str, shape: Sequence[Size], dtype: str, carries: str = "") -> Tensor:
        made = self.F.input(name, tuple(shape), dtype, carries)
        self.data.append(made.value)
        self.names.append(name)
        return made

    def _shape(self, item: ValueInfoProto) -> list[Size]:
        stated = item.type.tensor_type
        given = self.shapes.get(item.name)
        if given is not None:
            return [self._given_size(item.name, size) for size in given]
        if not stated.HasField("shape"):
            raise OnnxError(f"the input {item.name!r} has no shape: imports(..., shapes={{{item.name!r}: (None, 3)}})")
        found: list[Size] = []
        for dimension in stated.shape.dim:
            if dimension.HasField("dim_value"):
                if not 0 <= dimension.dim_value <= _LARGEST_SIZE:
                    raise OnnxError(f"the input {item.name!r} has a size of {dimension.dim_value}")
                found.append(int(dimension.dim_value))
            elif dimension.dim_param:
                found.append(self._named_size(dimension.dim_param))
            else:
                found.append(self.F.open_size())
        return found

    def _named_size(self, name: str) -> Size:
        """The open size of a name: one size wherever the name stands."""
        if name not in self.open:
            self.open[name] = self.F.open_size()
        return self.open[name]

    def _given_size(self, name: str, size: int | str | None) -> Size:
        """A size of `shapes=`."""
        if isinstance(size, str):
            return self._named_size(size)
        if size is not None and (not isinstance(size, (int, np.integer)) or not 0 <= size <= _LARGEST_SIZE):
            raise OnnxError(f"shapes={{{name!r}: ...}} has numbers, names, and None for open sizes, not {size!r}")
        return self.F.open_size() if size is None else int(size)


def finished(
    F: Functions, data: Sequence[Value], names: list[str], structure: Spec, results: Sequence[Value], out_spec: Spec,
    outputs: list[str], tensors: Mapping[str, Value], node_names: Mapping[Node, str], classes: dict[str, str],
    name: str = "",
) -> Composed:  # fmt: skip
    """The graph of what F composed, without shapes. data, names : the inputs; node_names : of the file"""
    parameters = {name: array for name, (_, array) in F.parameters.items()}
    states = set(F.states)
    variables = [value for value, _ in F.parameters.values()]
    whole = Graph([*data, *variables], [*results, *tensors.values()], draws=F.draws)
    used: set[str] = set()
    new: dict[Value, Value] = {}
    for node in whole.nodes:
        copy = _without_types(node, new, used, states, node_names)
        new.update(zip(node.outputs, copy.outputs, strict=True))
    values = [value for node in whole.nodes for value in node.outputs]
    plain = Graph([new[value] for value in whole.inputs], [new[value] for value in values])
    dtypes = dtypes_that_matter(plain, [value.dtype for value in data])
    declared = declared_shapes(names, [value.shape for value in data], dtypes, F.conditions)
    graph = checked(plain, declared, F.source)
    new = dict(zip(values, graph.outputs, strict=True))
    F.parameters.clear()  # a remaining reference to F does not keep the arrays
    return Composed(
        Graph(graph.inputs, [new[value] for value in results], draws=F.draws, name=name), names, structure, out_spec,
        parameters, states, {name: new[value] for name, value in tensors.items()}, outputs, classes,
        shapes={new[value]: value.shape for value in values}, conditions=tuple(F.conditions), source=F.source,
    )  # fmt: skip


def _without_types(
    node: Node, new: Mapping[Value, Value], used: set[str], states: set[str], names: Mapping[Node, str]
) -> Node:
    if isinstance(node.op, Constant):
        return node
    if isinstance(node.op, Input):
        role = "aux" if node.name in states else node.op.role
        used.add(node.name)
        return input_node(node.name, role).node
    name = base = names.get(node, "") or node.op.name.lower()
    number = 0
    while name in used:
        number += 1
        name = f"{base}_{number}"
    used.add(name)
    inputs = [new[item] if isinstance(item, Value) else item for item in node.inputs]
    return node.replace(inputs=inputs, shapes=None, dtypes=None, name=name)


def _tensor_kind(kind: TypeProto) -> str | None:
    """The element type of a tensor, also of an optional one; None for a sequence."""
    while kind.WhichOneof("value") == "optional_type":
        kind = kind.optional_type.elem_type
    if kind.WhichOneof("value") != "tensor_type":
        return None
    try:
        return element_types.type_name(kind.tensor_type.elem_type)
    except ValueError:
        raise OnnxError(f"there is no element type {kind.tensor_type.elem_type}") from None


def _cut(graph: GraphProto, last_layers: int | None) -> tuple[Sequence[NodeProto], list[str]]:
    """The nodes of a graph up to a number of them, constants not counted, and the names of the outputs then."""
    outputs = [item.name for item in graph.output]
    if last_layers is None:
        return graph.node, outputs
    layers = [place for place, node in enumerate(graph.node) if node.op_type != "Constant"]
    if type(last_layers) is not int:
        raise OnnxError(f"last_layers is a whole number, -1 to leave out the last node, not {last_layers!r}")
    kept = layers[:last_layers]
    if not kept:
        raise OnnxError(f"last_layers={last_layers} leaves none of the graph's {len(layers)} nodes")
    return graph.node[: kept[-1] + 1], [name for name in graph.node[kept[-1]].output if name]
