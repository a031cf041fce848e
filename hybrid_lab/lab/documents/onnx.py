"""The structure of an ONNX file as data of the protocol: its nodes, in parts. Weights are not read, nothing is run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from hybrid_lab.diagnostics.errors import ArchiveError
from hybrid_lab.diagnostics.formatting import count, visible
from hybrid_lab.lab.errors import RequestError
from hybrid_lab.lab.messages.common import Tensor
from hybrid_lab.lab.messages.graphs import Badge, GraphBox, GraphNode, GraphReply, NodeKind, Read
from hybrid_lab.lab.messages.models import BlockNode, Model
from hybrid_lab.lab.picture.boxes import LARGEST

_NOTHING: Tensor = {"shape": None, "dtype": ""}


class OnnxFile:
    """An ONNX file. Raises ArchiveError if it cannot be read, RequestError if the package onnx is missing."""

    def __init__(self, path: Path):
        self.path = path

    @cached_property
    def model(self) -> Any:  # noqa: ANN401 - a message of the package onnx, which may be missing
        """The file's content, without arrays that lie in other files."""
        try:
            import onnx
        except ModuleNotFoundError:
            raise RequestError(
                "failed",
                "an .onnx file is read with the package onnx, which is not installed in the server's environment",
                "Run pip install onnx there, and open the file again.",
            ) from None
        try:
            return onnx.load(str(self.path), load_external_data=False)
        except Exception as error:  # protobuf's errors, which differ between its versions
            raise ArchiveError(f"not a readable ONNX file: {type(error).__name__}", path=str(self.path)) from None

    def facts(self) -> list[tuple[str, str]]:
        """What the file says of itself: (name, text)."""
        model, graph = self.model, self.model.graph
        operators = Counter(node.op_type for node in graph.node).most_common(8)
        return [
            ("Made by", f"{model.producer_name} {model.producer_version}".strip()),
            ("Operator sets", ", ".join(f"{item.domain or 'ai.onnx'} {item.version}" for item in model.opset_import)),
            ("Operators", f"{len(graph.node):,}: " + ", ".join(f"{name} x{number}" for name, number in operators)),
            ("Initializers", f"{len(graph.initializer):,}"),
        ]

    def answer(self, kind: str) -> Mapping[str, object]:
        """The reply to a request about the model: one Block with one graph."""
        if kind == "models":
            return {"models": [self._model()], "busy": False, "notes": [], "saving": {}}
        if kind == "tree":
            return {"model": self._model(), "root": self._block()}
        if kind == "graph":
            return self.graph()
        return {"findings": []} if kind == "findings" else {"text": "\n".join(f"{a}: {b}" for a, b in self.facts())}

    def _model(self) -> Model:
        name = visible(self.model.graph.name or self.path.stem)
        return {
            "id": "m1",
            "name": name,
            "block": name,
            "class": "ONNX graph",
            "hybrid": True,
            "hybridized": True,
            "blocks": 1,
            "graphs": 1,
            "findings": 0,
            "parameters": None,
            "engine": "",
            "file": self.path.name,
            "undo": "",
            "undoes": "",
            "revision": 1,
            "summary": count(len(self.model.graph.node), "operator"),
        }

    def _block(self) -> BlockNode:
        name = visible(self.model.graph.name or self.path.stem)
        return {
            "path": "",
            "attr": name,
            "codes": [],
            "group": False,
            "name": name,
            "class": "ONNX graph",
            "hybrid": True,
            "state": "file",
            "why": "the structure of an ONNX file",
            "failed_in": "",
            "repr": "ONNX graph",
            "parameters": [],
            "parameter_count": 0,
            "output": [],
            "graphs": 1,
            "engine": "",
            "findings": 0,
            "shared_with": None,
            "location": None,
            "children": [],
        }

    def graph(self) -> GraphReply:
        """The picture: the nodes in the file's order, large graphs in parts."""
        graph = self.model.graph
        nodes = _nodes(graph)
        return {
            "path": "",
            "program": "traced",
            "programs": [
                {"id": "traced", "label": "traced", "half": "traced", "engine": "", "reason": "", "seconds": 0.0}
            ],
            "boxes": _parts(nodes),
            "nodes": nodes,
            "locations": [],
            "text": "\n".join(
                f"{', '.join(node.output)} = {node.op_type}({', '.join(node.input)})" for node in graph.node
            ),
            "dot": "",
            "summary": f"{count(len(graph.node), 'operator')}, from an ONNX file",
            "missing": "" if nodes else "This file has no graph.",
            "variants": 1,
            "failed": None,
        }


class _Picture:
    """The nodes of a graph's picture. outputs : name of a value in the file -> the node that gives it, and which"""

    def __init__(self) -> None:
        self.nodes: list[GraphNode] = []
        self.outputs: dict[str, Read] = {}

    def add(self, kind: NodeKind, label: str, op: str, outputs: Mapping[str, Tensor]) -> GraphNode:
        """Add a node without inputs. outputs : name of a value -> its type"""
        node: GraphNode = {
            "id": f"n{len(self.nodes)}",
            "box": "",
            "kind": kind,
            "label": visible(label),
            "op": visible(op),
            "attributes": {},
            "inputs": [],
            "outputs": list(outputs.values()),
            "badges": [],
            "block": "",
            "location": None,
            "engine": "",
        }
        self.nodes.append(node)
        self.outputs.update({name: {"node": node["id"], "output": place} for place, name in enumerate(outputs)})
        return node


def _nodes(graph: Any) -> list[GraphNode]:  # noqa: ANN401
    """The nodes of a GraphProto: its inputs, the weights that several operators read, its operators and outputs."""
    types = {item.name: _type(item.type.tensor_type) for item in [*graph.input, *graph.value_info, *graph.output]}
    weights = {item.name: item for item in graph.initializer}
    readers = Counter(name for node in graph.node for name in dict.fromkeys(node.input) if name in weights)
    picture = _Picture()
    for item in graph.input:
        if item.name not in weights:
            picture.add("input", item.name, "", {item.name: types[item.name]})
    for name, item in weights.items():
        if readers[name] > 1:
            picture.add("parameter", name, "", {name: _weight(item)})
    for node in graph.node:
        outputs = {name: types.get(name, _NOTHING) for name in node.output if name}
        row = picture.add("operator", node.op_type, node.op_type, outputs)
        row["attributes"] = {visible(item.name): visible(_text(item)) for item in node.attribute}
        if node.name:
            row["attributes"]["name"] = visible(node.name)
        row["badges"] = [_badge(name, weights[name]) for name in node.input if readers[name] == 1]
        row["inputs"] = [picture.outputs[name] for name in node.input if name in picture.outputs]
    for item in graph.output:
        row = picture.add("output", item.name, "", {})
        row["outputs"] = [types[item.name]]
        row["inputs"] = [picture.outputs[item.name]] if item.name in picture.outputs else []
    return picture.nodes


def _parts(nodes: list[GraphNode]) -> list[GraphBox]:
    """Boxes of at most LARGEST members, in levels, so that no layer has more."""
    levels: list[list[GraphBox]] = []
    members: list[Any] = list(nodes)
    while len(members) > LARGEST:
        boxes: list[GraphBox] = []
        for start in range(0, len(members), LARGEST):
            piece = members[start : start + LARGEST]
            operators = sum(each.get("operators", int(each["kind"] == "operator")) for each in piece)
            box: GraphBox = {
                "id": f"b{len(levels)}_{len(boxes)}",
                "parent": "",
                "kind": "part",
                "block": None,
                "copies": 1,
                "label": count(operators, "operator"),
                "class": "",
                "operators": operators,
                "summary": "",
                "text": "",
                "notes": [],
                "outputs": [],
                "location": None,
            }
            for each in piece:
                each["parent" if "parent" in each else "box"] = box["id"]
            boxes.append(box)
        levels.append(boxes)
        members = list(boxes)
    return [box for level in reversed(levels) for box in level]


def _type(tensor: Any) -> Tensor:  # noqa: ANN401
    shape = [dim.dim_value if dim.HasField("dim_value") else None for dim in tensor.shape.dim]
    return {"shape": shape if tensor.HasField("shape") else None, "dtype": _dtype(tensor.elem_type)}


def _weight(item: Any) -> Tensor:  # noqa: ANN401
    return {"shape": list(item.dims), "dtype": _dtype(item.data_type)}


def _badge(name: str, item: Any) -> Badge:  # noqa: ANN401
    short = visible(name.rsplit(".", 1)[-1])
    return {"name": short, "path": visible(name), **_weight(item), "kind": "parameter"}


def _dtype(number: int) -> str:
    from onnx import TensorProto

    known = {value: name.lower() for name, value in TensorProto.DataType.items()}
    return {"float": "float32", "double": "float64"}.get(known.get(number, ""), known.get(number, ""))


def _text(attribute: Any) -> str:  # noqa: ANN401
    """An attribute's value, cut; of a tensor or a graph only what it is."""
    from onnx import helper

    value = helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value[:80].decode("utf-8", "replace")
    if isinstance(value, (int, float)):
        return f"{value:g}" if isinstance(value, float) else str(value)
    if all(isinstance(each, (int, float)) for each in (value if not hasattr(value, "DESCRIPTOR") else [""])):
        return str(tuple(value))[:80]
    return type(value).__name__
