"""Shapes and dtypes as far as they can be known, from inputs to outputs and back, repeated until nothing new follows.

    FullyConnected(data, weight, num_hidden=8) of data (4, 5)         says that weight is (8, 5)
    Convolution(data (?, 3, ?, ?), pad=(1, 1), ...) gives (2, 8, 32, 32)   says that data is (2, 3, 32, 32)

Most of it follows from the records' `infer_shape` and `infer_type` alone, called with several candidates for an unknown
size or dtype. `complete` and `complete_from` say the rest. As everywhere in the package, None is an unknown size, and
None in the place of a shape an unknown number of sizes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import prod
from typing import Any, Protocol, runtime_checkable

import numpy as np

from hybrid_lab.diagnostics.errors import DTypeError, HybridLabError, ShapeError
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Input, Node, Value
from hybrid_lab.ops.framework.contract import read_dtypes, read_shapes
from hybrid_lab.ops.framework.operator import Operator
from hybrid_lab.ops.framework.run import FAILURES, no_shapes
from hybrid_lab.ops.framework.run import infer as infer_operator
from hybrid_lab.ops.framework.shapes import alike, known_shape
from hybrid_lab.ops.framework.types import PartialShape, PartialSizes, Shape

#: Sizes in the place of unknown ones. Most divisors divide the large ones, and they differ by the first of them.
_SMALL, _LARGE = (1, 2, 3), (2520, 5040, 7560)
_SWEEPS = 12
_CANDIDATES = tuple(map(np.dtype, ("float32", "float64", "float16", "uint8", "int32", "int8", "int64", "bool")))


def located(error: HybridLabError, node: Node) -> HybridLabError:
    """The same error with the block and source line of the node behind it, once."""
    if getattr(error, "located", False):
        return error
    where = ", ".join(
        part
        for part in (node.location.describe() if node.location else "", f"block {node.scope}" if node.scope else "")
        if part
    )
    located_error = type(error)(f"{error}\n  {where}" if where else str(error))
    located_error.located = True  # type: ignore[attr-defined]
    return located_error


def is_complete(shape: PartialShape) -> bool:
    """Whether every dimension is known."""
    return shape is not None and all(size is not None for size in shape)


@runtime_checkable
class CompletesTypes(Protocol):
    """An operator that says which dtypes of its inputs follow from the others."""

    def complete_types(self, dtypes: Sequence[np.dtype | None]) -> Sequence[np.dtype | None]:
        """The dtypes of all inputs; None for a dtype that does not follow. Raises DTypeError."""
        ...


class PartialShapes:
    """Shapes of every Value as far as they can be known.

    known : Value -> shape with None for unknown dimensions, for some of the inputs
    Raises ShapeError if shapes contradict each other.
    """

    def __init__(self, graph: Graph, known: Mapping[Value, Any]):
        self.graph = graph
        self.shapes: dict[Value, Any] = {}
        for value, shape in known.items():
            if shape is not None:
                self.shapes[value] = tuple(shape)
        self._repeat()
        if any(node.op.is_open and not is_complete(self.shapes.get(node.outputs[0])) for node in graph.nodes):
            for node in graph.nodes:
                if (
                    node.op.assumes_equal_shapes
                ):  # a size of 1 was left out, since it broadcasts; an unknown size is taken for 1
                    self._learn_inputs(node, alike(self._inputs(node)))
            self._repeat()

    def _repeat(self) -> None:
        """Visit the nodes until nothing new follows."""
        for _ in range(_SWEEPS):
            if not self._sweep(assume=False) and not self._sweep(assume=True):
                break

    def _sweep(self, assume: bool) -> bool:
        """Visit every node in both directions; returns whether something was learned.

        assume : also ask the records that assume equal shapes, if operands might be broadcast
        """
        before = dict(self.shapes)
        for node in self.graph.nodes:
            if not isinstance(node.op, Input):
                self._forward(node, assume)
        for node in reversed(self.graph.nodes):
            if not isinstance(node.op, Input):
                self._backward(node, assume)
        return before != self.shapes

    def _forward(self, node: Node, assume: bool) -> None:
        if node.op.is_open:
            self._learn(node.outputs[0], tuple(size or None for size in node.op.attributes["shape"]), node)
            return
        try:
            if assume or not node.op.assumes_equal_shapes:
                self._learn_inputs(node, node.op.complete(*self._inputs(node)))
            shapes: Any = self._inputs(node)
            if not all(is_complete(shape) for shape in shapes):
                for value, shape in zip(node.outputs, _outputs_of(node.op, shapes), strict=False):
                    if shape is not None:
                        self._learn(value, shape, node)
                return
            if node.op.subgraphs:
                inferred = node.op.infer_shape(*shapes)
            else:
                # Only shapes are asked for; a dtype conflict is found when the dtypes are known.
                types = tuple(np.dtype("float32") if isinstance(item, Value) else None for item in node.inputs)
                try:
                    inferred = infer_operator(node.op, shapes, types)[0]
                except DTypeError:  # it takes no float32, as operators on numbers of 8 bits
                    inferred = read_shapes(node.op, node.op.infer_shape(*shapes))
            self.shapes.update(zip(node.outputs, map(tuple, inferred), strict=True))
        except ShapeError as error:
            raise located(error, node) from None
        except HybridLabError:
            raise
        except FAILURES as error:
            raise no_shapes(node.op, error) from error

    def _backward(self, node: Node, assume: bool) -> None:
        """Infer unknown shapes of inputs from the shapes of the outputs."""
        try:
            self._learn_backward(node, assume)
        except HybridLabError:
            raise
        except FAILURES as error:
            raise no_shapes(node.op, error) from error

    def _learn_backward(self, node: Node, assume: bool) -> None:
        outputs = [self.shapes.get(value) for value in node.outputs]
        inputs = self._inputs(node)
        if node.op.is_open or all(shape is None for shape in outputs) or all(map(is_complete, inputs)):
            return
        if outputs[0] is not None and (assume or not node.op.assumes_equal_shapes):
            inputs = node.op.complete_from(outputs[0], *inputs)
        like = _input_like_output(node)
        if like is not None and outputs[0] is not None and inputs[like] is None:
            inputs = (*inputs[:like], outputs[0], *inputs[like + 1 :])
        whole = known_shape(outputs[0])
        if node.op.in_order and whole is not None:
            inputs = (_of_as_many(inputs[0], prod(whole)), *inputs[1:])
        self._learn_inputs(node, _inputs_of(node.op, inputs, outputs))

    def _inputs(self, node: Node) -> tuple[Any, ...]:
        """The shapes of a node's inputs as far as they are known; numbers have shape ()."""
        return tuple(self.shapes.get(item) if isinstance(item, Value) else () for item in node.inputs)

    def _learn_inputs(self, node: Node, shapes: Sequence[PartialShape]) -> None:
        for item, shape in zip(node.inputs, shapes, strict=True):
            if isinstance(item, Value) and shape is not None:
                self._learn(item, tuple(shape), node)

    def _learn(self, value: Value, shape: PartialSizes, node: Node) -> None:
        old = self.shapes.get(value)
        if old is None:
            self.shapes[value] = shape
            return
        if len(old) != len(shape) or any(
            a is not None and b is not None and a != b for a, b in zip(old, shape, strict=True)
        ):
            raise ShapeError(f"{node.op.name}: {value.node.name or 'an input'} has shape {old}, {shape} is needed here")
        self.shapes[value] = tuple(b if a is None else a for a, b in zip(old, shape, strict=True))


def _input_like_output(node: Node) -> int | None:
    """The index of the input that has the same shape as the output at every rank; None if no input does."""
    if type(node.op).infer_shape is Operator.infer_shape:
        return node.op.shaped_like
    # An operand beside a number.
    return node.inputs.index(node.values_in[0]) if node.op.assumes_equal_shapes and len(node.values_in) == 1 else None


def _of_as_many(shape: PartialShape, elements: int) -> PartialShape:
    """The shape with its one unknown size filled in, so that it has this number of elements."""
    if shape is None or shape.count(None) != 1:
        return shape
    rest = prod(size for size in shape if size is not None)
    size, left = divmod(elements, rest) if rest else (0, 1)
    return shape if left else tuple(size if each is None else each for each in shape)


def _answer(op: Operator, shapes: Sequence[PartialShape], sizes: Iterator[int]) -> tuple[Shape, ...] | None:
    """The output shapes with these sizes in the place of the unknown ones; None if the record refuses them."""
    filled = [tuple(next(sizes) if size is None else size for size in shape or ()) for shape in shapes]
    try:
        return read_shapes(op, op.infer_shape(*filled))
    except HybridLabError:
        return None


def _outputs_of(op: Operator, shapes: Sequence[PartialShape]) -> Sequence[PartialShape]:
    """The output shapes that follow from inputs whose ranks are known: sizes that are the same whatever the unknown
    sizes are. None for an output whose rank depends on them.
    """
    if any(shape is None for shape in shapes):
        return ()
    count = sum(size is None for shape in shapes if shape for size in shape)
    trials = [[size] * count for size in (*_SMALL, *_LARGE)] + [[_LARGE[0] * (place + 1) for place in range(count)]]
    answers = [answer for trial in trials if (answer := _answer(op, shapes, iter(trial))) is not None]
    if len(answers) < 2:
        return ()
    made: list[PartialShape] = []
    for versions in zip(*answers, strict=True):
        ranks = {len(shape) for shape in versions}
        columns = zip(*versions, strict=True) if len(ranks) == 1 else ()
        sizes = tuple(column[0] if len(set(column)) == 1 else None for column in columns)
        made.append(sizes if len(ranks) == 1 else None)
    return made


def _inputs_of(op: Operator, shapes: Sequence[PartialShape], outputs: Sequence[PartialShape]) -> Sequence[PartialShape]:
    """The inputs with the sizes filled in that follow from known sizes of the outputs.

    A size of an output is taken for `a * size + b` of an unknown size of an input if it is so for three values of that
    size, with a whole number a, and depends on no other unknown size.
    """
    if any(shape is None for shape in shapes):
        return shapes
    unknown = [
        (number, axis) for number, shape in enumerate(shapes) for axis, size in enumerate(shape or ()) if size is None
    ]
    base = _answer(op, shapes, iter([_LARGE[0]] * len(unknown)))
    if base is None:
        return shapes
    lines: dict[tuple[int, int], list[tuple[int, int, int] | None]] = {}
    for place in range(len(unknown)):
        trials = [[size if index == place else _LARGE[0] for index in range(len(unknown))] for size in _LARGE[1:]]
        second, third = (_answer(op, shapes, iter(trial)) for trial in trials)
        if second is None or third is None:
            continue
        for number, versions in enumerate(zip(base, second, third, strict=True)):
            if len({len(shape) for shape in versions}) > 1:
                return shapes
            for axis, (a, b, c) in enumerate(zip(*versions, strict=True)):
                if not a == b == c:
                    slope, rest = divmod(b - a, _LARGE[0])
                    straight = rest == 0 and slope > 0 and c - b == b - a
                    line = (place, slope, a - slope * _LARGE[0]) if straight else None
                    lines.setdefault((number, axis), []).append(line)
    made = [list(shape or ()) for shape in shapes]
    for (number, axis), found in lines.items():
        target = outputs[number]
        wanted = None if target is None else target[axis]
        if wanted is None or len(found) != 1 or found[0] is None:
            continue
        place, slope, start = found[0]
        size, rest = divmod(wanted - start, slope)
        if rest == 0 and size >= 0:
            made[unknown[place][0]][unknown[place][1]] = size
    return [tuple(shape) for shape in made]


class PartialTypes:
    """dtypes of every Value as far as they can be known.

    known : Value -> dtype, for some of the Values
    Raises DTypeError if dtypes contradict each other.
    """

    def __init__(self, graph: Graph, known: Mapping[Value, np.dtype]):
        self.graph, self.types = graph, dict(known)
        for _ in range(_SWEEPS):
            before = len(self.types)
            for node in (*self.graph.nodes, *reversed(self.graph.nodes)):
                if not isinstance(node.op, Input):
                    self._visit(node)
            if len(self.types) == before:
                break

    def _visit(self, node: Node) -> None:
        try:
            if all(item in self.types for item in node.values_in):
                self.types.update(zip(node.outputs, self._outputs(node, self.types), strict=True))
            elif isinstance(node.op, CompletesTypes):
                completed = node.op.complete_types([self.types.get(item) for item in node.values_in])
                found = {
                    item: dtype for item, dtype in zip(node.values_in, completed, strict=True) if dtype is not None
                }
                self.types = {**found, **self.types}
            elif type(node.op).infer_type is Operator.infer_type and node.op.typed_like is None:
                self._spread((*node.values_in, *node.outputs))
            elif type(node.op).infer_type is Operator.infer_type:
                self._spread((node.inputs[node.op.typed_like or 0], *node.outputs))
                if node.op.own_gradient:  # a loss, whose label has the dtype of the prediction unless another is given
                    self._spread((node.inputs[node.op.typed_like or 0], *node.values_in))
            else:
                self._try(node)
        except DTypeError as error:
            raise located(DTypeError(f"{error} (at {node.name})"), node) from None

    @staticmethod
    def _outputs(node: Node, types: Mapping[Value, np.dtype]) -> tuple[np.dtype, ...]:
        given = [types[item] if isinstance(item, Value) else None for item in node.inputs]
        return read_dtypes(node.op, node.op.infer_type(*given))

    def _spread(self, values: Sequence[Value]) -> None:
        """Values of one dtype."""
        known = next((self.types[value] for value in values if value in self.types), None)
        if known is not None:
            for value in values:
                self.types.setdefault(value, known)

    def _try(self, node: Node) -> None:
        """Set each unknown dtype for which the record accepts only one candidate beside the known dtypes."""
        unknown = [item for item in dict.fromkeys(node.values_in) if item not in self.types]
        answers: dict[Value, set[np.dtype]] = {value: set() for value in (*unknown, *node.outputs)}
        for first, other in product(_CANDIDATES, _CANDIDATES):
            for place in range(len(unknown)):
                trial = {value: first if index == place else other for index, value in enumerate(unknown)}
                try:
                    outputs = self._outputs(node, {**self.types, **trial})
                except DTypeError:
                    continue
                made = dict(zip(node.outputs, outputs, strict=True))
                if any(self.types.get(value, dtype) != dtype for value, dtype in made.items()):
                    continue
                answers[unknown[place]].add(first)
                for value, dtype in made.items():
                    answers[value].add(dtype)
        for value, dtypes in answers.items():
            if len(dtypes) == 1:
                self.types.setdefault(value, dtypes.pop())
