"""Branches, loops and sequences of ONNX. The numbers that they depend on must be known at the import; loops are
unrolled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from hybrid_lab.onnx import element_types
from hybrid_lab.onnx.errors import OnnxError
from hybrid_lab.onnx.reading.importers.functions import Attributes, Functions, Item, Tensor
from hybrid_lab.onnx.writing.nodes import BLOCKS

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto

    from hybrid_lab.onnx.reading.importer import Environment, GraphImporter

Outputs: TypeAlias = Sequence[Item]


@dataclass
class ControlFlowNode:
    """One node of control flow or of sequences.

    inputs, attributes : of the node; known : the values computed by the nodes before it, by name
    """

    importer: GraphImporter
    node: NodeProto
    inputs: list[Any]
    attributes: Attributes
    known: Environment

    @property
    def F(self) -> Functions:
        """Where its operators are made."""
        return self.importer.F

    def error(self, message: str) -> OnnxError:
        """The error for this node."""
        return self.importer.error(self.node, message)

    def run(self, graph: GraphProto, inputs: Sequence[Item] = ()) -> list[Any]:
        """The outputs of a graph inside the node; it also reads names from outside."""
        return run_body(self.importer, graph, inputs, self.known)

    def sequence(self) -> list[Item]:
        """The first input, which must be a sequence."""
        if not isinstance(self.inputs[0], list):
            raise self.error("its input is no sequence")
        return self.inputs[0]


Function: TypeAlias = Callable[[ControlFlowNode], Outputs]
FUNCTIONS: dict[str, Function] = {}
"""Operator -> the outputs of a call."""


def _control(name: str) -> Callable[[Function], Function]:
    def enter(function: Function) -> Function:
        FUNCTIONS[name] = function
        return function

    return enter


def run_body(importer: GraphImporter, graph: GraphProto, inputs: Sequence[Item], known: Environment) -> list[Any]:
    """The outputs of a graph inside a node; it also reads names from outside."""
    if len(importer.running) > 60:
        raise OnnxError("graphs lie too deep inside one another")
    names = {**known, **dict(zip([item.name for item in graph.input], inputs, strict=False))}
    for tensor in graph.initializer:
        array, kind = importer.file.array(tensor, f"initializer {tensor.name!r}")
        names[tensor.name] = importer.F.constant(array, carries=element_types.carried(kind))
    importer.running.append(graph.name)
    try:
        importer.run(graph.node, names)
    finally:
        importer.running.pop()
    missing = [item.name for item in graph.output if item.name not in names]
    if missing:
        raise OnnxError(f"the graph {graph.name!r} does not compute its output {missing[0]!r}")
    return [names[item.name] for item in graph.output]


@_control("If")
def _if(call: ControlFlowNode) -> Outputs:
    F = call.F
    (condition,) = call.inputs
    branches = call.attributes["then_branch"], call.attributes["else_branch"]
    if condition.array is not None:
        return call.run(branches[0 if bool(F.number(condition, "the condition")) else 1])
    results = [call.run(branch) for branch in branches]
    return [_either(F, condition, one, two) for one, two in zip(*results, strict=True)]


def _either(F: Functions, condition: Tensor, one: Item, two: Item) -> Tensor:
    """Both branches are computed; the condition chooses between their results."""
    if not isinstance(one, Tensor) or not isinstance(two, Tensor) or not _alike(one, two):
        F.known(condition, "the condition, because its branches give other shapes,")
        raise AssertionError("unreachable: the condition is not known")
    if one.rank == 0:
        return F.where(F.reshape_to(condition, ()), one, two)
    return F.select(F.reshape_to(condition, (1,) * one.rank), one, two)


def _alike(one: Tensor, two: Tensor) -> bool:
    pairs = zip(one.shape, two.shape, strict=False)
    return one.dtype == two.dtype and one.rank == two.rank and all(a is b or a == b for a, b in pairs)


@_control("Loop")
def _loop(call: ControlFlowNode) -> Outputs:
    F, body = call.F, call.attributes["body"]
    most, condition, *carried = call.inputs
    count = None if most is None else F.number(most, "the number of iterations")
    goes_on = True if condition is None else bool(F.number(condition, "the condition"))
    gathered: list[list[Any]] = [[] for _ in range(len(body.output) - 1 - len(carried))]
    step = 0
    while goes_on and (count is None or step < count):
        here = [F.constant(step, np.int64), F.constant(True), *carried]
        condition, *results = call.run(body, here)
        carried = results[: len(carried)]
        for found, item in zip(gathered, results[len(carried) :], strict=True):
            found.append(item)
        goes_on = bool(F.number(condition, "the condition"))
        step += 1
    return [*carried, *(_stacked(call, found, 0) for found in gathered)]


def _stacked(call: ControlFlowNode, found: Sequence[Item], axis: int) -> Tensor:
    if not found:
        raise call.error("a loop without iterations has no scan outputs here")
    result: Tensor = call.F.stack(*found, axis=axis)
    return result


@_control("Scan")
def _scan(call: ControlFlowNode) -> Outputs:
    F, body = call.F, call.attributes["body"]
    if call.importer.opsets[""] < 9:
        raise call.error("Scan is read from opset 9 on")
    number = call.attributes["num_scan_inputs"]
    states, scanned = list(call.inputs[: len(call.inputs) - number]), call.inputs[len(call.inputs) - number :]
    outputs = len(body.output) - len(states)
    axes = call.attributes.get("scan_input_axes") or (0,) * number
    backward = call.attributes.get("scan_input_directions") or (0,) * number
    out_axes = call.attributes.get("scan_output_axes") or (0,) * outputs
    out_backward = call.attributes.get("scan_output_directions") or (0,) * outputs
    axes = [F.axis(axis, item.rank) for axis, item in zip(axes, scanned, strict=True)]
    length = F.numbers(F.constant(np.array([scanned[0].shape[axes[0]]], object)), "the length of the scanned axis")[0]
    gathered: list[list[Any]] = [[] for _ in range(outputs)]
    for step in range(length):
        parts = []
        for item, axis, back in zip(scanned, axes, backward, strict=True):
            at = length - 1 - step if back else step
            part = F.slice_axis(item, axis=axis, begin=at, end=at + 1)
            parts.append(F.reshape_to(part, [size for place, size in enumerate(item.shape) if place != axis]))
        results = call.run(body, [*states, *parts])
        states = results[: len(states)]
        for found, item in zip(gathered, results[len(states) :], strict=True):
            found.append(item)
    ordered = [found[::-1] if back else found for found, back in zip(gathered, out_backward, strict=True)]
    return [
        *states,
        *(_stacked(call, found, axis) for found, axis in zip(ordered, out_axes, strict=True)),
    ]


# -- sequences and optional values ---------------------------------------------------------------------------------


@_control("SequenceConstruct")
def _construct(call: ControlFlowNode) -> Outputs:
    return [list(call.inputs)]


@_control("SequenceEmpty")
def _empty(call: ControlFlowNode) -> Outputs:
    return [[]]


@_control("SequenceAt")
def _at(call: ControlFlowNode) -> Outputs:
    sequence = call.sequence()
    place = call.F.number(call.inputs[1], "the position")
    if not -len(sequence) <= place < len(sequence):
        raise call.error(f"position {place} is outside of a sequence of {len(sequence)}")
    return [sequence[place]]


@_control("SequenceLength")
def _length(call: ControlFlowNode) -> Outputs:
    return [call.F.constant(len(call.sequence()), np.int64)]


@_control("SequenceInsert")
def _insert(call: ControlFlowNode) -> Outputs:
    sequence = list(call.sequence())
    place = len(sequence) if len(call.inputs) < 3 else call.F.number(call.inputs[2], "the position")
    sequence.insert(place, call.inputs[1])
    return [sequence]


@_control("SequenceErase")
def _erase(call: ControlFlowNode) -> Outputs:
    sequence = list(call.sequence())
    place = len(sequence) - 1 if len(call.inputs) < 2 else call.F.number(call.inputs[1], "the position")
    if not -len(sequence) <= place < len(sequence):
        raise call.error(f"position {place} is outside of a sequence of {len(sequence)}")
    del sequence[place]
    return [sequence]


@_control("ConcatFromSequence")
def _concat(call: ControlFlowNode) -> Outputs:
    sequence, F = call.sequence(), call.F
    axis = call.attributes["axis"]
    return [F.stack(*sequence, axis=axis) if call.attributes.get("new_axis") else F.Concat(*sequence, dim=axis)]


@_control("SplitToSequence")
def _split(call: ControlFlowNode) -> Outputs:
    F, data = call.F, call.inputs[0]
    axis = F.axis(call.attributes.get("axis", 0), data.rank)
    size = F.numbers(F.constant(np.array([data.shape[axis]], object)), "the length of the axis")[0]
    keepdims = call.attributes.get("keepdims", 1)
    if len(call.inputs) < 2 or call.inputs[1] is None:
        lengths: list[int] = [1] * size
    elif call.inputs[1].rank == 0:
        keepdims, length = 1, F.number(call.inputs[1], "the length of a part")
        if length < 1:
            raise call.error("the length of a part must be at least 1")
        lengths = [min(length, size - start) for start in range(0, size, length)]
    else:
        keepdims, lengths = 1, list(F.numbers(call.inputs[1], "the lengths of the parts"))
    parts, start = [], 0
    for length in lengths:
        part = F.slice_axis(data, axis=axis, begin=start, end=start + length)
        if not keepdims:
            part = F.reshape_to(part, [size for place, size in enumerate(data.shape) if place != axis])
        parts.append(part)
        start += length
    return [parts]


@_control("Optional")
def _optional(call: ControlFlowNode) -> Outputs:
    return [call.inputs[0] if call.inputs else None]


@_control("OptionalHasElement")
def _has_element(call: ControlFlowNode) -> Outputs:
    return [call.F.constant(bool(call.inputs) and call.inputs[0] is not None)]


@_control("OptionalGetElement")
def _get_element(call: ControlFlowNode) -> Outputs:
    if call.inputs[0] is None:
        raise call.error("its input is empty")
    return [call.inputs[0]]


@_control("Identity")
def _identity(call: ControlFlowNode) -> Outputs:
    (item,) = call.inputs
    running, name = call.importer.running, call.node.output[0]
    if isinstance(item, Tensor) and not item.is_constant and running and running[-1][0] == BLOCKS:
        return [call.F.identity(item)]  # a Block that does nothing in prediction, such as Dropout
    if isinstance(item, Tensor) and item.is_parameter and item.rank == 1 and name:
        # torch's exporter stores vectors of equal numbers once; they are parameters of their own.
        return [call.F.own_copy(item, name)]
    return [item]
