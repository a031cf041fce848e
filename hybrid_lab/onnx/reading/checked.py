"""The declaration of an imported graph's inputs: the shapes and dtypes for which the graph is valid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Node, Value
from hybrid_lab.ops.framework.declared_shapes import Declared, DeclaredInput, DeclaredShapes
from hybrid_lab.ops.framework.dtypes import is_floating, name_of
from hybrid_lab.ops.framework.sizes import SymbolicSize

_INDICES = {"Embedding": 0, "take": 1, "one_hot": 0, "pick": 1, "gather_nd": 1, "batch_take": 1}
"""Operator -> its input of whole numbers in any dtype, as arrays of MXNet are float32 by default."""


def declared_size(size: Any) -> Declared:
    """A declared size: a number, or the formula of an open size."""
    return repr(size) if isinstance(size, SymbolicSize) else int(size)


def declared_shapes(
    names: Sequence[str], shapes: Sequence[Sequence[Any]], dtypes: Sequence[np.dtype | None],
    conditions: Sequence[str] = (),
) -> DeclaredShapes:  # fmt: skip
    """What inputs of these shapes, of which some sizes are open, declare. dtypes : None if any will do"""
    return DeclaredShapes(
        tuple([
            DeclaredInput(name, tuple(map(declared_size, shape)), None if dtype is None else name_of(dtype))
            for name, shape, dtype in zip(names, shapes, dtypes, strict=True)
        ]),
        tuple(conditions),
    )  # fmt: skip


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
