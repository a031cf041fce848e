"""Nodes of files beside the nodes that records emit: calls of functions, and the bodies of loops and branches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hybrid_lab.ops.framework.onnx_emit import OnnxNode

BLOCKS = "hybrid_lab.blocks"
"""The domain of the functions: one for each Block."""
TRAINING = "ai.onnx.preview.training"
"""The domain of ONNX's gradients and optimizers."""

#: name, shape (with SymbolicSizes), dtype
Tensor = tuple[str, tuple[Any, ...], np.dtype]


@dataclass(frozen=True)
class Subgraph:
    """The body of a loop or a branch, as the value of a node's attribute. It reads the values around it by name."""

    name: str
    nodes: tuple[OnnxNode, ...]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]


class FunctionCall(OnnxNode):
    """A node that calls a function of the file: `op_type` is its name."""

    domain = BLOCKS


class TrainingNode(OnnxNode):
    """A node of the domain TRAINING: gradients, or one step of an optimizer."""

    domain = TRAINING


def reads(node: OnnxNode) -> set[str]:
    """The names that a node reads, also inside loops and branches."""
    inner = [value for value in node.attributes.values() if isinstance(value, Subgraph)]
    return {*node.inputs, *(name for each in inner for one in each.nodes for name in reads(one))}


def needed(nodes: Sequence[OnnxNode], outputs: Iterable[str]) -> list[int]:
    """The places of the nodes that some outputs need, in order."""
    wanted, places = set(outputs), list[int]()
    for place in reversed(range(len(nodes))):
        if wanted.intersection(nodes[place].outputs):
            wanted.update(reads(nodes[place]))
            places.append(place)
    return places[::-1]


def subgraph(name: str, nodes: Sequence[OnnxNode], inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Subgraph:
    """A body without nodes that its outputs do not need."""
    kept = [nodes[place] for place in needed(nodes, [output[0] for output in outputs])]
    return Subgraph(name, tuple(kept), tuple(inputs), tuple(outputs))
