"""Nodes of files beside those that records emit: calls of functions, and the bodies of loops and branches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hybrid_lab.ops.framework.onnx_emit import OnnxNode

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
