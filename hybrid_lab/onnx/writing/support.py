"""`mx.onnx.get_operator_support`: the names of the operators that `mx.onnx.export` can write to a file."""

from __future__ import annotations

import numpy as np

from hybrid_lab.diagnostics.errors import Unmappable
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Node, Value, input_node
from hybrid_lab.graph.passes.infer import infer
from hybrid_lab.ops.framework.operator import Operator, records, registered_names
from hybrid_lab.ops.framework.sample import Sample

from .. import opsets
from .exporting import check_opset
from .network import NetworkWriter


def get_operator_support(opset_version: int | None = None) -> list[str]:
    """The names of the operators that `mx.onnx.export` can write for an opset, sorted. With aliases, and with operators
    that only this package has, whose names begin with an underscore.

    opset_version : 13 to the newest that the installed onnx and onnxruntime both know, which is the default

    An operator is listed if one of the samples of its record can be written. With other attributes or dtypes the same
    operator may have no form; `mx.onnx.export` then raises Unmappable. Loops and branches are written, too, and are no
    operators of this list. The call takes some seconds.
    """
    check_opset(opset_version)
    opset = opsets.newest() if opset_version is None else opset_version
    supported = {
        record for record in records() if any(_can_be_written(record, sample, opset) for sample in record.samples)
    }
    return sorted(name for name, record in registered_names().items() if record in supported)


def _can_be_written(record: type[Operator], sample: Sample, opset: int) -> bool:
    op, arrays = record.bind(**sample.attributes).bind_mode(False), sample.arrays(record.name)
    inputs = [
        input_node(f"x{place}", shape=item.shape, dtype=item.dtype) if isinstance(item, np.ndarray) else item
        for place, item in enumerate(arrays)
    ]
    node = Node(op, inputs, draw=0 if op.random else None)
    graph = Graph([item for item in inputs if isinstance(item, Value)], node.outputs[: op.signature.visible], draws=1)
    given = [item for item in arrays if isinstance(item, np.ndarray)]
    shapes = {value: item.shape for value, item in zip(graph.inputs, given, strict=True)}
    typed = infer(graph, shapes, {value: item.dtype for value, item in zip(graph.inputs, given, strict=True)})
    outputs = [f"y{place}" for place, _ in enumerate(graph.outputs)]
    try:
        NetworkWriter(typed, [value.node.name for value in typed.inputs], len(given), opset).network(outputs, flat=True)
    except Unmappable:
        return False
    return True
