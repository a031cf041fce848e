"""One-operator ONNX models from what a record emits, run through onnxruntime."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper, numpy_helper

from hybrid_lab.diagnostics.errors import EngineError
from hybrid_lab.engines.onnxruntime.session import create_session
from hybrid_lab.ops.framework.onnx_emit import DATA_TYPES, OPSET, OnnxEmitter
from hybrid_lab.ops.framework.run import infer


class NotImplementedByRuntime(Exception):
    """onnxruntime has no kernel for this operator and dtype on the CPU."""


def run_model(op, arrays: list) -> list[np.ndarray]:
    """The outputs of `op` in onnxruntime. Raises Unmappable, NotImplementedByRuntime."""
    g = OnnxEmitter()
    names = [
        g.declare(f"x{index}", np.shape(item), item.dtype) if isinstance(item, np.ndarray) else item
        for index, item in enumerate(arrays)
    ]
    outputs = g.emit(op, names)
    shapes, dtypes = infer(
        op, tuple(np.shape(item) for item in arrays), tuple(getattr(item, "dtype", None) for item in arrays)
    )
    nodes = [
        helper.make_node(node.op_type, node.inputs, node.outputs, name=node.name, **node.attributes) for node in g.nodes
    ]
    graph = helper.make_graph(
        nodes,
        "one",
        [
            helper.make_tensor_value_info(name, DATA_TYPES[item.dtype.name], item.shape)
            for name, item in zip(names, arrays)
            if isinstance(item, np.ndarray)
        ],
        [
            helper.make_tensor_value_info(name, DATA_TYPES[dtype.name], shape)
            for name, shape, dtype in zip(outputs, shapes, dtypes)
        ],
        [numpy_helper.from_array(array, name) for name, array in g.initializers.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
    onnx.checker.check_model(model)
    try:
        session = create_session(model.SerializeToString())
    except EngineError as error:
        if "NOT_IMPLEMENTED" in str(error):
            raise NotImplementedByRuntime(str(error)) from None
        raise
    feeds = {name: item for name, item in zip(names, arrays) if isinstance(item, np.ndarray)}
    return session.run(list(outputs), feeds)
