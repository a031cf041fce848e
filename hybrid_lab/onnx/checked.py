"""The check of an imported graph's inputs: it computes for the shapes that it was made for, and refuses all others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Input, Node, Value
from hybrid_lab.ops.framework.declared_shapes import Declared, DeclaredInput, DeclaredShapes
from hybrid_lab.ops.framework.dtypes import is_floating, name_of
from hybrid_lab.ops.framework.operator import get
from hybrid_lab.ops.framework.sizes import SymbolicSize

NAME = "check_inputs"
_INDICES = {"Embedding": 0, "take": 1, "one_hot": 0, "pick": 1, "gather_nd": 1, "batch_take": 1}
"""Operator -> its input of whole numbers in any dtype, as arrays of MXNet are float32 unless they are told otherwise."""
Source = Literal["torch", "onnx"]


def declared_size(size: Any) -> Declared:
    """A size as it is declared: a number, or the formula of an open size."""
    return repr(size) if isinstance(size, SymbolicSize) else int(size)


def declared_shapes(
    names: Sequence[str], shapes: Sequence[Sequence[Any]], dtypes: Sequence[np.dtype | None], conditions: Sequence[str] = ()
) -> DeclaredShapes:
    """What inputs of these shapes, of which some sizes are open, declare. dtypes : None where any will do"""
    return DeclaredShapes(
        tuple([
            DeclaredInput(name, tuple(map(declared_size, shape)), None if dtype is None else name_of(dtype))
            for name, shape, dtype in zip(names, shapes, dtypes, strict=True)
        ]),
        tuple(conditions),
    )  # fmt: skip


def checked(graph: Graph, declared: DeclaredShapes, source: Source) -> Graph:
    """The graph with a check of its first inputs, which all its operators read them from."""
    data = graph.inputs[: len(declared.inputs)]
    if not data:
        return graph
    inputs, conditions = declared.dumps()
    op = get("_check_inputs").bind(declares=inputs, conditions=conditions, source=source)
    check = Node(op, data, name=NAME)
    behind = dict(zip(data, check.outputs, strict=True))

    def rewrite(node: Node, inputs: tuple[Any, ...]) -> Sequence[Value] | None:
        if isinstance(node.op, Input) or behind.keys().isdisjoint(node.values_in):
            return None
        return node.replace(inputs=[behind.get(item, item) if type(item) is Value else item for item in inputs]).outputs

    return graph.map(rewrite)


def dtypes_that_matter(graph: Graph, dtypes: Sequence[np.dtype]) -> list[np.dtype | None]:
    """The dtypes of the first inputs; None for one of whole numbers that the graph reads as indices alone."""
    users = graph.users()

    def as_index(node: Node, value: Value) -> bool:
        place = _INDICES.get(node.op.name)
        return place is not None and [index for index, item in enumerate(node.inputs) if item is value] == [place]

    found: list[np.dtype | None] = []
    for value, dtype in zip(graph.inputs, dtypes, strict=False):
        readers = users.get(value, [])
        free = not is_floating(dtype) and readers and all(as_index(node, value) for node in readers)
        found.append(None if free else dtype)
    return found
