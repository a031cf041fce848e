"""Random inputs for a graph: normal numbers, and whole numbers where operators read indices, labels or lengths."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np

from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Node, Value
from hybrid_lab.ops.framework.dtypes import is_floating
from hybrid_lab.ops.framework.operator import Operator

_Shapes: TypeAlias = Sequence[Any]
_Operands: TypeAlias = Iterable[tuple[int, int, int]]
_AnyOperator: TypeAlias = Any
"""An Operator, with the attributes of its own class."""
_Rule: TypeAlias = Callable[[_AnyOperator, _Shapes], _Operands]

#: Operators that hand on the numbers of their first input.
_HANDED_ON = frozenset({
    "Cast", "amp_cast", "identity", "BlockGrad", "Reshape", "Flatten", "expand_dims", "squeeze",
    "transpose", "SwapAxis", "slice", "slice_axis", "slice_like", "broadcast_to", "broadcast_like", "broadcast_axis",
    "tile", "repeat", "reverse", "stack", "Concat", "SliceChannel", "_split_v2", "floor", "ceil", "round", "rint",
    "fix", "trunc", "abs", "relu", "clip",
})  # fmt: skip


def random_inputs(graph: Graph, types: Sequence[tuple[tuple[int, ...], np.dtype]]) -> list[np.ndarray]:
    """An array for each of the first inputs of a graph, the same ones each time. types : their shapes and dtypes

    graph : with shapes, if `reads_whole_numbers` of it; if it has none, whole numbers are 0 and 1
    """
    random = np.random.RandomState(0)
    allowed = _allowed(graph)
    arrays = []
    for value, (shape, dtype) in zip(graph.inputs, types, strict=False):
        numbers: Any
        low, high = allowed.get(value, (0, 2))
        if value in allowed or not is_floating(dtype):
            numbers = random.randint(low, max(high, low + 1), shape)
        else:
            numbers = random.normal(size=shape)
        arrays.append(np.asarray(numbers, order="C").astype(dtype))
    return arrays


def reads_whole_numbers(graph: Graph) -> bool:
    """Whether an operator of the graph may read indices, labels or lengths; only then `random_inputs` needs shapes."""
    return any(_rule(node.op) is not None for node in graph.operators)


def _allowed(graph: Graph) -> dict[Value, tuple[int, int]]:
    """The inputs that operators read as whole numbers: the lowest, and the number after the largest that all allow."""
    found: dict[Value, tuple[int, int]] = {}
    for node in graph.operators:
        for operand, low, high in _whole_numbers(node):
            for value in _sources(node, operand):
                before = found.get(value, (low, high))
                found[value] = max(before[0], low), min(before[1], high)
    return found


def _sources(node: Node, operand: int) -> Iterable[Value]:
    """The inputs of the graph whose numbers an operand holds."""
    pending: list[object] = list(node.inputs[operand : operand + 1])
    seen: set[Value] = set()
    for value in pending:
        if not isinstance(value, Value) or value in seen:
            continue
        seen.add(value)
        if value.is_input:
            yield value
        elif value.node.op.name in _HANDED_ON:
            pending += value.node.inputs


def _whole_numbers(node: Node) -> Iterable[tuple[int, int, int]]:
    """(operand, lowest, number after the largest) of the operands that hold indices, labels or lengths."""
    rule = _rule(node.op)
    shapes: list[Any] = [] if rule is None else [item.shape if isinstance(item, Value) else () for item in node.inputs]
    return () if rule is None or None in shapes else rule(node.op, shapes)


def _rule(op: Operator) -> _Rule | None:
    return _RULES.get(op.name) or (_sequence_lengths if "sequence_length" in op.signature.inputs else None)


def _sequence_lengths(op: _AnyOperator, shapes: _Shapes) -> _Operands:  # of SequenceMask and the like, and of RNN
    yield op.signature.inputs.index("sequence_length"), 1, shapes[0][getattr(op, "axis", 0)] + 1


def _embedding(op: _AnyOperator, shapes: _Shapes) -> _Operands:
    yield 0, 0, op.input_dim


def _rows(op: _AnyOperator, shapes: _Shapes) -> _Operands:
    yield 1, 0, shapes[0][0]


def _softmax(op: _AnyOperator, shapes: _Shapes) -> _Operands:
    if getattr(op, "use_length", False):
        yield 1, 1, shapes[0][op.axis] + 1


def _labels(op: _AnyOperator, shapes: _Shapes) -> _Operands:
    if op.name != "SoftmaxOutput" or shapes[1] != shapes[0]:
        yield 1, 0, shapes[0][1 if getattr(op, "multi_output", False) else -1]


def _ctc_loss(op: _AnyOperator, shapes: _Shapes) -> _Operands:
    blank_first = op.blank_label == "first"
    steps, _, classes = shapes[0]
    yield 1, int(blank_first), classes - (not blank_first)
    if op.use_data_lengths:
        yield 2, steps, steps + 1
    if op.use_label_lengths:
        yield 2 + op.use_data_lengths, 1, shapes[1][1] + 1


_RULES: dict[str, _Rule] = {
    "Embedding": _embedding,
    "_contrib_SparseEmbedding": _embedding,
    "one_hot": lambda op, shapes: [(0, 0, op.depth)],
    "take": lambda op, shapes: [(1, 0, shapes[0][op.axis])],
    "pick": lambda op, shapes: [(1, 0, shapes[0][op.axis] if op.axis is not None else _product(shapes[0]))],
    "batch_take": lambda op, shapes: [(1, 0, shapes[0][-1])],
    "fill_element_0index": lambda op, shapes: [(2, 0, shapes[0][-1])],
    "_contrib_index_copy": _rows,
    "_sparse_retain": _rows,
    "gather_nd": lambda op, shapes: [(1, 0, min(shapes[0][: shapes[1][0]]))],
    "scatter_nd": lambda op, shapes: [(1, 0, min(op.shape[: shapes[1][0]]))],
    "_unravel_index": lambda op, shapes: [(0, 0, _product(op.shape))],
    "_ravel_multi_index": lambda op, shapes: [(0, 0, min(size for size in op.shape if size > 0))],
    "softmax": _softmax,
    "softmin": _softmax,
    "softmax_cross_entropy": _labels,
    "SVMOutput": _labels,
    "SoftmaxOutput": _labels,
    "CTCLoss": _ctc_loss,
}
"""What each operator reads as whole numbers: (operand, lowest, number after the largest)."""


def _product(shape: Sequence[int]) -> int:
    return int(np.prod(shape, dtype=np.int64))
