"""Convolutions in 8 bits in MXNet's symbol JSON: `_sg_mkldnn_conv`, a node with a subgraph of the fused operators.

The record has the attributes of those operators as its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Node, Value, input_node
from hybrid_lab.ops.framework.operator import Operator, get

CONVOLUTION = "_sg_mkldnn_conv"
_FLAGS = {"with_bn": "with_bn", "with_act": "with_act", "with_relu": "with_act", "with_sum": "with_sum"}
_FLAGS |= {"with_postsum_act": "with_postsum_act", "with_postsum_relu": "with_postsum_act"}
"""Maps attribute names in MXNet's files, including the names used before 1.5, to attribute names of the record."""


def read(attributes: Mapping[str, str], graph: Graph) -> Operator:
    """The record of a node. graph : its subgraph. Raises ValueError for an operator without a record."""
    if attributes.get("quantized", "").lower() not in ("true", "1"):
        raise ValueError("it is not in 8 bits; write the network without MXNet's MKLDNN backend")
    if not {"min_calib_range", "max_calib_range"} <= attributes.keys():
        raise ValueError("it has no calibrated range of its result")
    bound = {ours: attributes[key] for key, ours in _FLAGS.items() if key in attributes}
    bound |= {key: attributes[key] for key in ("min_calib_range", "max_calib_range")}
    for node in graph.nodes:
        op = node.op
        if op.name == "Convolution":
            bound |= op.written
        elif op.name == "BatchNorm":
            bound |= {key: op.attributes[key] for key in ("eps", "fix_gamma")}
        elif op.name not in ("null", "broadcast_add") and not _is_relu(op):
            raise ValueError(f"its subgraph has {op}, which is not supported in 8 bits")
    return get(CONVOLUTION).bind(**bound)


def _is_relu(op: Operator) -> bool:
    """Whether an operator cuts off at zero. The upper end of a clip is the end of the result's range."""
    if op.name == "clip":
        return bool(op.attributes["a_min"] == 0)
    return op.name == "relu" or (op.name == "Activation" and op.attributes["act_type"] == "relu")


def write(node: Node, document: Callable[[Graph], dict[str, Any]]) -> tuple[dict[str, str], list[dict[str, Any]]]:
    """Attributes and subgraphs of a node in a file. document : makes the JSON of a graph"""
    op = node.op
    made = document(_unfused(op))
    made.pop("attrs", None)
    flags = [name for name in ("with_bn", "with_act", "with_sum", "with_postsum_act") if op.attributes[name]]
    attributes = dict.fromkeys(["quantized", *flags], "true")
    return attributes | {key: str(op.attributes[key]) for key in ("min_calib_range", "max_calib_range")}, [made]


def _unfused(op: Operator) -> Graph:
    """The operators that a record stands for, as floating point computes them."""
    inputs = {name: input_node(name) for name in op.signature.inputs if not name.endswith(("_min", "_max"))}
    convolution = get("Convolution")
    shared = {key: value for key, value in op.written.items() if key in convolution.fields}
    operands: list[Value] = [inputs[name] for name in ("data", "weight", "bias") if name in inputs]
    last = Node(convolution.bind(**shared), operands, name="conv").outputs[0]
    if op.attributes["with_bn"]:
        norm = get("BatchNorm").bind(eps=op.attributes["eps"], fix_gamma=op.attributes["fix_gamma"])
        last = Node(norm, [last, *(inputs[name] for name in ("gamma", "beta", "mean", "var"))], name="bn").outputs[0]
    if op.attributes["with_sum"]:
        last = Node(get("broadcast_add").bind(), [last, inputs["sum"]], name="add").outputs[0]
    if op.attributes["with_act"] or op.attributes["with_postsum_act"]:
        last = Node(get("Activation").bind(act_type="relu"), [last], name="relu").outputs[0]
    return Graph(list(inputs.values()), [last])
