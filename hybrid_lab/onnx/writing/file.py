"""The bytes of an ONNX file: a network and its arrays, checked, and written without a second copy of the arrays.

A file is one ModelProto. Its fields are written in the order of their numbers, as protobuf writes them, so that the
bytes are the same each time; only the arrays are written by hand, straight from their memory.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from hybrid_lab import _version
from hybrid_lab.diagnostics.errors import HybridLabError
from hybrid_lab.formats.atomic import atomic_write, write_early
from hybrid_lab.graph.node import Node
from hybrid_lab.ops.framework.dtypes import name_of
from hybrid_lab.ops.framework.onnx_emit import DATA_TYPES, OnnxNode
from hybrid_lab.ops.framework.sizes import Size
from hybrid_lab.system.progress import Progress

from .. import opsets
from ..package import import_onnx
from ..training_info.writing import Training
from .network import Body, Network
from .nodes import BLOCKS, TRAINING, FunctionCall, Subgraph, Tensor

if TYPE_CHECKING:
    from onnx import FunctionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, ValueInfoProto

LARGEST = (1 << 31) - 1
"""Protobuf's limit: no file has more bytes."""
SMALL = 1 << 10
"""Arrays of fewer bytes stay in the file when the others go to a file beside it."""
ALIGNMENT = 1 << 12
"""Arrays in the file beside it begin at multiples of this, so that readers can map them."""


@dataclass
class Contents:
    """The contents of a file.

    inputs, outputs : name, dimensions (numbers, or names of open sizes), dtype
    arrays : name -> array, the parameters
    training : the training information, None without
    classes : path of a Block -> its class; metadata : key -> text
    """

    name: str
    network: Network
    inputs: Sequence[Tensor]
    outputs: Sequence[Tensor]
    arrays: Mapping[str, np.ndarray]
    classes: Mapping[str, str]
    metadata: Mapping[str, str]
    dimension: Callable[[Size], int | str]
    training: Training | None = None

    @property
    def training_arrays(self) -> Mapping[str, np.ndarray]:
        """The initializers of the training information."""
        return {} if self.training is None else self.training.arrays

    def model(self) -> ModelProto:
        """The ModelProto, without the arrays."""
        onnx = import_onnx()
        functions = [self._function(name, body) for name, body in self.network.functions.items()]
        graph = onnx.helper.make_graph(self._nodes(self.network.body), self.name, [], [])
        graph.input.extend(self._value(item) for item in self.inputs)
        graph.output.extend(self._value(item) for item in self.outputs)
        model = onnx.helper.make_model(
            graph,
            functions=functions,
            opset_imports=self._opsets(),
            ir_version=opsets.ir_version(self.network.opset),
            producer_name="hybrid_lab",
            producer_version=_version.__version__,
        )
        for key, text in self.metadata.items():
            model.metadata_props.add(key=key, value=text)
        if self.training is not None:
            self._add_training(model, self.training)
        return model

    def _add_training(self, model: ModelProto, training: Training) -> None:
        """Add the training information; its initializers are written with the arrays."""
        onnx = import_onnx()
        info = model.training_info.add()
        for graph, name, body, inputs, outputs in (
            (info.initialization, "initialization", training.initialization, (), training.first_outputs),
            (info.algorithm, "algorithm", training.algorithm, training.inputs, training.outputs),
        ):
            graph.CopyFrom(onnx.helper.make_graph(
                self._nodes(body), name, list(map(self._value, inputs)), list(map(self._value, outputs))
            ))  # fmt: skip
        info.algorithm.value_info.extend(map(self._value, training.gradients))
        for bindings, pairs in (
            (info.initialization_binding, training.first_values), (info.update_binding, training.bindings),
        ):  # fmt: skip
            for key, value in pairs.items():
                bindings.add(key=key, value=value)
        model.opset_import.append(onnx.helper.make_opsetid(TRAINING, 1))

    def _opsets(self) -> list[OperatorSetIdProto]:
        onnx = import_onnx()
        own = [onnx.helper.make_opsetid(BLOCKS, 1)] if self.network.functions else []
        return [onnx.helper.make_opsetid("", self.network.opset), *own]

    def _function(self, name: str, body: Body) -> FunctionProto:
        onnx = import_onnx()
        function = onnx.helper.make_function(BLOCKS, name, body.inputs, body.outputs, self._nodes(body), self._opsets())
        function.metadata_props.add(key="path", value=body.path)
        function.metadata_props.add(key="class", value=self.classes.get(body.path, ""))
        return function

    def _nodes(self, body: Body) -> list[NodeProto]:
        onnx = import_onnx()
        nodes = [
            onnx.helper.make_node(
                "Constant", [], [name], value=onnx.numpy_helper.from_array(np.ascontiguousarray(array))
                if array.ndim else onnx.numpy_helper.from_array(array),
            )
            for name, array in body.constants.items()
        ]  # fmt: skip
        for item, operator in zip(body.nodes, body.operators, strict=True):
            node = self._node(item)
            for key, value in self._origin(body, item, operator).items():
                node.metadata_props.add(key=key, value=value)
            nodes.append(node)
        return nodes

    def _node(self, item: OnnxNode) -> NodeProto:
        onnx = import_onnx()
        domain = getattr(item, "domain", None)
        node = onnx.helper.make_node(item.op_type, item.inputs, item.outputs, name=item.name, domain=domain)
        for key, value in sorted(item.attributes.items()):
            value = self._subgraph(value) if isinstance(value, Subgraph) else value
            kind = onnx.AttributeProto.INTS if value == [] else None
            node.attribute.append(onnx.helper.make_attribute(key, value, attr_type=kind))
        return node

    def _subgraph(self, part: Subgraph) -> GraphProto:
        onnx = import_onnx()
        inputs, outputs = ([self._value(item) for item in each] for each in (part.inputs, part.outputs))
        return onnx.helper.make_graph([self._node(each) for each in part.nodes], part.name, inputs, outputs)

    def _value(self, item: Tensor) -> ValueInfoProto:
        name, shape, dtype = item
        dimensions = [self.dimension(size) for size in shape]
        return import_onnx().helper.make_tensor_value_info(name, DATA_TYPES[name_of(dtype)], dimensions)

    def _origin(self, body: Body, item: OnnxNode, operator: Node | None) -> dict[str, str]:
        """Where a node comes from, in the form in which PyTorch's exporter says it."""
        if isinstance(item, FunctionCall):
            path, what = self.network.functions[item.op_type].path, ""
        elif operator is None:
            return {}
        else:
            path, what = str(operator.scope).partition(".")[2], item.op_type
        names = path.split(".") if path else []
        paths = ["", *(".".join(names[:count]) for count in range(1, len(names) + 1))]
        scopes = [*paths, *([what] if what else [])]
        classes = [*(self.classes.get(each, "") for each in paths), *([what] if what else [])]
        pairs = [f"{scope}: {kind}" for scope, kind in zip(paths, classes, strict=False)]
        return {
            "namespace": "/".join([*pairs, *([what] if what else [])]),
            "class_hierarchy": repr(classes),
            "name_scopes": repr(scopes),
        }


# -- checks ----------------------------------------------------------------------------------------------------------


def check(
    model: ModelProto, arrays: Mapping[str, np.ndarray], training_arrays: Mapping[str, np.ndarray] | None = None
) -> None:
    """Let onnx check the model in full, and each graph of its training information with it.

    onnx.checker itself does not look at training information: the network and the algorithm are one graph by the
    format's definition, and the initialization is a separate graph.
    """
    _check_graph(model, arrays)
    onnx = import_onnx()
    for info in model.training_info:
        whole = onnx.ModelProto()
        whole.CopyFrom(model)
        del whole.training_info[:]
        for field in ("node", "input", "output", "value_info"):
            getattr(whole.graph, field).extend(getattr(info.algorithm, field))
        _check_graph(whole, {**arrays, **(training_arrays or {})})
        whole.graph.CopyFrom(info.initialization)
        _check_graph(whole, {})
        known = {*arrays, *(training_arrays or {})}
        for bindings, graph in (
            (info.initialization_binding, info.initialization), (info.update_binding, info.algorithm),
        ):  # fmt: skip
            outputs = {item.name for item in graph.output}
            wrong = [item.key for item in bindings if item.key not in known or item.value not in outputs]
            if wrong:
                raise HybridLabError(f"the training information binds {wrong[0]!r} to no value")


def _check_graph(model: ModelProto, arrays: Mapping[str, np.ndarray]) -> None:
    """Large arrays are inputs meanwhile, of which only the types matter."""
    onnx = import_onnx()
    checked = onnx.ModelProto()
    checked.CopyFrom(model)
    for name, array in arrays.items():
        if array.nbytes < SMALL:
            checked.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
        else:
            kind = DATA_TYPES[name_of(array.dtype)]
            checked.graph.input.append(onnx.helper.make_tensor_value_info(name, kind, array.shape))
    try:
        onnx.checker.check_model(checked, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise HybridLabError(f"onnx.checker does not accept the model: {error}") from error


# -- writing ---------------------------------------------------------------------------------------------------------


def write(
    path: str, model: ModelProto, arrays: Mapping[str, np.ndarray], external: bool | None,
    training_arrays: Mapping[str, np.ndarray] | None = None,
) -> list[str]:  # fmt: skip
    """Write the model and its arrays to `path`, atomically; returns the files.

    training_arrays : the initializers of the algorithm
    external : whether arrays go to a file beside it; None: if they do not fit into one file
    """
    arrays, added = (
        {name: np.ascontiguousarray(array).reshape(array.shape) for name, array in each.items()}
        for each in (arrays, training_arrays or {})
    )
    whole = {**arrays, **added}
    if external is None:
        external = model.ByteSize() + sum(array.nbytes + len(name) + 64 for name, array in whole.items()) > LARGEST
    beside = {name: array for name, array in whole.items() if external and array.nbytes >= SMALL}
    total = sum(array.nbytes for array in whole.values())
    progress = Progress(f"writing {os.path.basename(path)}", total >> 20, "MB")
    try:
        places: dict[str, tuple[str, int]] = {}
        files = [path]
        if beside:
            # The name depends on the contents: a killed write leaves the old file and the arrays that it names.
            digest = hashlib.blake2b(digest_size=8)
            for name, array in beside.items():
                digest.update(f"{name} {array.dtype} {array.shape} ".encode())
                digest.update(_raw(array))
            data_file = f"{path}.{digest.hexdigest()}.data"
            files.append(data_file)
            with atomic_write(data_file) as file:
                places = _write_beside(file, os.path.basename(data_file), beside, progress)
        for name, array in added.items():
            model.training_info[0].algorithm.initializer.append(_whole_tensor(name, array, places.get(name)))
        with atomic_write(path) as file:
            _write_model(file, model, arrays, places, progress)
    finally:
        progress.close()
    _remove_others(path, files)
    return files


def _remove_others(path: str, files: Sequence[str]) -> None:
    """Remove the files of arrays that earlier models of this path had beside them."""
    folder, name = os.path.split(os.path.abspath(path))
    pattern = re.compile(re.escape(name) + r"\.[0-9a-f]{16}\.data")
    kept = {os.path.basename(file) for file in files}
    for entry in os.listdir(folder):
        if pattern.fullmatch(entry) and entry not in kept:
            os.unlink(os.path.join(folder, entry))


def _raw(array: np.ndarray) -> memoryview:
    """The bytes of a contiguous array, without a copy."""
    data: Any = array.reshape(-1).view(np.uint8)
    return memoryview(data) if array.size else memoryview(b"")


def _write_beside(
    file: BinaryIO, location: str, arrays: Mapping[str, np.ndarray], progress: Progress
) -> dict[str, tuple[str, int]]:
    places: dict[str, tuple[str, int]] = {}
    end = 0
    for name, array in arrays.items():
        places[name] = location, -(-end // ALIGNMENT) * ALIGNMENT
        end = places[name][1] + array.nbytes

    def chunks() -> Iterator[bytes | memoryview]:
        position = 0
        for name, array in arrays.items():
            start = places[name][1]
            yield bytes(start - position)
            yield _raw(array)
            position = start + array.nbytes

    done = 0
    for piece in write_early(file, chunks(), end):
        done += len(piece)
        progress.step(done >> 20)
    return places


def _write_model(
    file: BinaryIO,
    model: ModelProto,
    arrays: Mapping[str, np.ndarray],
    places: Mapping[str, tuple[str, int]],
    progress: Progress,
) -> None:
    onnx = import_onnx()
    # protobuf writes fields by number: the fields before field 7 (graph), the graph, the fields behind it.
    head, tail = onnx.ModelProto(), onnx.ModelProto()
    head.ir_version, head.producer_name = model.ir_version, model.producer_name
    head.producer_version = model.producer_version
    tail.CopyFrom(model)
    for name in ("ir_version", "producer_name", "producer_version", "graph"):
        tail.ClearField(name)
    # Within the graph, field 5 (initializer) stands behind nodes and name.
    first, last = onnx.GraphProto(), onnx.GraphProto()
    last.CopyFrom(model.graph)
    first.node.extend(last.node)
    first.name = last.name
    last.ClearField("node")
    last.ClearField("name")
    before, behind = (part.SerializeToString(deterministic=True) for part in (first, last))
    tensors = [_tensor(name, array, places.get(name)) for name, array in arrays.items()]
    size = len(before) + len(behind)
    for header, array in tensors:
        length = len(header) + (0 if array is None else array.nbytes)
        size += 1 + len(_varint(length)) + length
    start = head.SerializeToString(deterministic=True) + _key(7) + _varint(size) + before
    end = behind + tail.SerializeToString(deterministic=True)
    if len(start) + size + len(end) > LARGEST:
        raise HybridLabError("nodes and constants of the network alone have more than 2 GB, which no ONNX file holds")

    def chunks() -> Iterator[bytes | memoryview]:
        yield start
        for header, array in tensors:
            yield _key(5) + _varint(len(header) + (0 if array is None else array.nbytes)) + header
            if array is not None:
                yield _raw(array)
        yield end

    done = 0
    for piece in write_early(file, chunks(), len(start) + size - len(before) + len(end) - len(behind)):
        done += len(piece)
        if not places:
            progress.step(done >> 20)


def _tensor(name: str, array: np.ndarray, place: tuple[str, int] | None) -> tuple[bytes, np.ndarray | None]:
    """A TensorProto up to its bytes, and the array of the bytes; None if they stand in another file."""
    onnx = import_onnx()
    tensor = onnx.TensorProto(name=name, dims=array.shape, data_type=DATA_TYPES[name_of(array.dtype)])
    if place is not None:
        tensor.data_location = onnx.TensorProto.EXTERNAL
        for key, value in (("location", place[0]), ("offset", place[1]), ("length", array.nbytes)):
            tensor.external_data.add(key=key, value=str(value))
        return tensor.SerializeToString(deterministic=True), None
    # raw_data is field 9, the last of the fields in use
    return tensor.SerializeToString(deterministic=True) + _key(9) + _varint(array.nbytes), array


def _whole_tensor(name: str, array: np.ndarray, place: tuple[str, int] | None) -> Any:
    """A TensorProto with its bytes, or with the place where they stand."""
    onnx = import_onnx()
    if place is None:
        return onnx.numpy_helper.from_array(array, name)
    return onnx.TensorProto.FromString(_tensor(name, array, place)[0])


def _key(field: int) -> bytes:
    """The start of a field that is a message or bytes."""
    return bytes([field << 3 | 2])


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def as_json(data: object) -> str:
    """Metadata as text, the same each time."""
    return json.dumps(data, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
