"""ONNX files of one operator: written, checked in full, and run by ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hybrid_lab.engines.onnxruntime.session import create_session
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Node, Value, input_node
from hybrid_lab.graph.passes.infer import infer
from hybrid_lab.onnx.writing import file
from hybrid_lab.onnx.writing.network import Network, NetworkWriter
from hybrid_lab.onnx.writing.open_sizes import Described, OpenSizes
from hybrid_lab.ops.framework.sizes import SymbolicSize


def graph_of(op: Any, arrays: Sequence[Any]) -> Graph:
    """The graph of one operator; numbers among the inputs stay numbers."""
    values = [
        input_node(f"x{index}", shape=item.shape, dtype=item.dtype) if isinstance(item, np.ndarray) else item
        for index, item in enumerate(arrays)
    ]
    node = Node(op, values, name="y", draw=0 if op.random else None)
    visible = node.outputs[: op.signature.visible]
    return Graph([item for item in values if isinstance(item, Value)], visible, draws=1)


def write(op: Any, arrays: Sequence[Any], opset: int, tried: bool = False) -> tuple[Any, OpenSizes]:
    """The ModelProto of one operator, checked. tried : with open sizes where they can be. Raises Unmappable."""
    graph = graph_of(op, arrays)
    given = [item for item in arrays if isinstance(item, np.ndarray)]
    inputs = [
        Described(value.node.name, item.shape, item.dtype, exact=not tried)
        for value, item in zip(graph.inputs, given, strict=True)
    ]
    outputs = [f"y{index}" for index in range(len(graph.outputs))]

    types = {value: item.dtype for value, item in zip(graph.inputs, given, strict=True)}

    def inferred(shapes: list[Any]) -> Graph:
        return infer(graph, dict(zip(graph.inputs, shapes, strict=True)), types)

    def network(typed: Graph) -> Network:
        return NetworkWriter(typed, [item.name for item in inputs], len(inputs), opset).network(outputs, False)

    sizes = OpenSizes(inputs)
    made = sizes.solve(inferred, network)
    contents = file.Contents(
        "one",
        made,
        [(value.node.name, value.shape, value.dtype) for value in made.graph.inputs],
        [(name, value.shape, value.dtype) for name, value in zip(outputs, made.graph.outputs, strict=True)],
        {}, {}, {},
        lambda size: repr(size) if isinstance(size, SymbolicSize) else int(size),
    )  # fmt: skip
    model = contents.model()
    file.check(model, {})
    return model, sizes


def run(model: Any, arrays: Sequence[Any]) -> list[np.ndarray]:
    """What ONNX Runtime gives. Raises EngineError."""
    feeds = {f"x{index}": item for index, item in enumerate(arrays) if isinstance(item, np.ndarray)}
    return create_session(model.SerializeToString()).run(None, feeds)
