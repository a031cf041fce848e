"""A region as an ONNX model, by the records' own mapping."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from hybrid_lab.diagnostics.errors import Unmappable
from hybrid_lab.graph.node import Constant, Node, Value
from hybrid_lab.graph.partition import Region
from hybrid_lab.ops.onnx_emit import DATA_TYPES, OPSET, OnnxEmitter, OnnxNode

#: (name, shape, dtype)
Tensor = tuple[str, tuple[int, ...], np.dtype]
#: The newest file format that all supported releases of onnxruntime read together with the opset.
IR_VERSION = 8


class Model(NamedTuple):
    """A serialized model with the names of its inputs and outputs in the region's order."""

    data: bytes
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]


class RegionEmitter(OnnxEmitter):
    """Every shape is known here, so asking for one is a constant."""

    def Shape(self, value: str) -> str:
        return self.const(self.shape(value), "int64")

    def Size(self, value: str) -> str:
        return self.const(math.prod(self.shape(value)), "int64")


def refusal(node: Node) -> str | None:
    """Why the node cannot become part of a model, or None. What only onnxruntime dislikes shows later."""
    op = node.op
    if op.random:
        return "random numbers come from the counter-based generator that all engines share"
    if op.onnx is None:
        return "the operator has no ONNX form"
    for value in (*node.values_in, *node.outputs):
        if 0 in value.shape:
            return "arrays without elements"
        if value.dtype.name == "float16":
            return "float16: ONNX Runtime would compute in float32 on a CPU"
        if value.dtype.name not in DATA_TYPES:
            return f"ONNX has no {value.dtype.name}"
    try:
        emit(RegionEmitter(), node, {})
    except Unmappable as error:
        return str(error)
    return None


def emit(emitter: OnnxEmitter, node: Node, names: dict[Value, str]) -> None:
    """Emit one node; unknown inputs are declared under fresh names. Adds the names of its outputs to `names`."""
    operands: list[Any] = []
    for index, item in enumerate(node.inputs):
        if not isinstance(item, Value):
            operands.append(item)
        elif item in names:
            operands.append(names[item])
        elif isinstance(item.node.op, Constant) and node.op.reads_values(index):
            operands.append(emitter.const(item.node.op.array, item.dtype))
        else:
            # A constant of which only the shape is read may stand for gigabytes: it gets a name, never a value.
            operands.append(emitter.declare(f"shape_of_{len(names)}_{index}", item.shape, item.dtype))
    results = emitter.emit(node.op, operands)
    if len(results) < len(node.outputs):
        raise Unmappable(f"{node.op.name}: its ONNX form lacks hidden outputs")
    names.update(zip(node.outputs, results, strict=False))


def build_model(region: Region, name: str = "region") -> Model:
    """The region's model. Raises Unmappable."""
    emitter = RegionEmitter()
    names: dict[Value, str] = {}
    inputs: list[Tensor] = []
    for index, value in enumerate(region.inputs):
        names[value] = emitter.declare(f"x{index}", value.shape, value.dtype)
        inputs.append((names[value], value.shape, value.dtype))
    for node in region.nodes:
        emit(emitter, node, names)
    outputs: list[Tensor] = []
    for index, value in enumerate(region.outputs):
        # A name of its own for every output: a mapping may hand its input on, or give one name to two outputs.
        emitter.nodes.append(OnnxNode("Identity", (names[value],), (f"y{index}",), {}, f"out{index}"))
        outputs.append((f"y{index}", value.shape, value.dtype))
    return Model(_serialize(emitter, inputs, outputs, name), tuple(inputs), tuple(outputs))


def _serialize(emitter: OnnxEmitter, inputs: list[Tensor], outputs: list[Tensor], name: str) -> bytes:
    from onnx import helper, numpy_helper

    needed = {output[0] for output in outputs}
    nodes: list[OnnxNode] = []
    for node in reversed(emitter.nodes):
        if needed.intersection(node.outputs):
            needed.update(node.inputs)
            nodes.append(node)

    def info(tensor: Tensor) -> Any:
        return helper.make_tensor_value_info(tensor[0], DATA_TYPES[tensor[2].name], tensor[1])

    graph = helper.make_graph(
        [helper.make_node(n.op_type, n.inputs, n.outputs, name=n.name, **n.attributes) for n in reversed(nodes)],
        name or "region",
        list(map(info, inputs)),
        list(map(info, outputs)),
        [
            numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), key)
            for key, array in emitter.initializers.items()
            if key in needed
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="hybrid_lab")
    model.ir_version = IR_VERSION
    return model.SerializeToString()
