"""Branches, loops and sequences of ONNX. What they depend on must be known at the import; loops are unrolled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hybrid_lab.onnx import element_types
from hybrid_lab.onnx.errors import OnnxError
from hybrid_lab.onnx.importers.functions import Tensor
from hybrid_lab.onnx.nodes import BLOCKS

if TYPE_CHECKING:
    from hybrid_lab.onnx.importer import Environment, GraphImporter

FUNCTIONS: dict[str, Callable[..., Sequence[Any]]] = {}
"""Operator -> (importer, node, inputs, attributes, what is known) -> its outputs."""


def _control(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        FUNCTIONS[name] = function
        return function

    return enter


def run_body(importer: GraphImporter, graph: Any, inputs: Sequence[Any], known: Environment) -> list[Any]:
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
def _if(importer: GraphImporter, node: Any, inputs: list[Any], attributes: dict[str, Any], known: Environment) -> Any:
    F = importer.F
    (condition,) = inputs
    branches = attributes["then_branch"], attributes["else_branch"]
    if condition.array is not None:
        return run_body(importer, branches[0 if bool(F.number(condition, "the condition")) else 1], (), known)
    results = [run_body(importer, branch, (), known) for branch in branches]
    return [_either(F, condition, one, two) for one, two in zip(*results, strict=True)]


def _either(F: Any, condition: Tensor, one: Any, two: Any) -> Any:
    """Both branches are computed; the condition chooses between their results."""
    alike = isinstance(one, Tensor) and isinstance(two, Tensor) and one.dtype == two.dtype and one.rank == two.rank
    if not alike or not all(a is b or a == b for a, b in zip(one.shape, two.shape, strict=True)):
        F.known(condition, "the condition, because its branches give other shapes,")
    if one.rank == 0:
        return F.where(F.reshape_to(condition, ()), one, two)
    return F.select(F.reshape_to(condition, (1,) * one.rank), one, two)


@_control("Loop")
def _loop(importer: GraphImporter, node: Any, inputs: list[Any], attributes: dict[str, Any], known: Environment) -> Any:
    F, body = importer.F, attributes["body"]
    most, condition, *carried = inputs
    count = None if most is None else F.number(most, "the number of iterations")
    goes_on = True if condition is None else bool(F.number(condition, "the condition"))
    gathered: list[list[Any]] = [[] for _ in range(len(body.output) - 1 - len(carried))]
    step = 0
    while goes_on and (count is None or step < count):
        here = [F.constant(step, np.int64), F.constant(True), *carried]
        condition, *results = run_body(importer, body, here, known)
        carried = results[: len(carried)]
        for found, item in zip(gathered, results[len(carried) :], strict=True):
            found.append(item)
        goes_on = bool(F.number(condition, "the condition"))
        step += 1
    return [*carried, *(_stacked(importer, node, found, 0, body) for found in gathered)]


def _stacked(importer: GraphImporter, node: Any, found: list[Any], axis: int, body: Any) -> Tensor:
    if not found:
        raise importer.error(node, "a loop without iterations has no scan outputs here")
    result: Tensor = importer.F.stack(*found, axis=axis)
    return result


@_control("Scan")
def _scan(importer: GraphImporter, node: Any, inputs: list[Any], attributes: dict[str, Any], known: Environment) -> Any:
    F, body = importer.F, attributes["body"]
    if importer.opsets[""] < 9:
        raise importer.error(node, "Scan is read from opset 9 on")
    number = attributes["num_scan_inputs"]
    states, scanned = list(inputs[: len(inputs) - number]), inputs[len(inputs) - number :]
    outputs = len(body.output) - len(states)
    axes = attributes.get("scan_input_axes") or (0,) * number
    backward = attributes.get("scan_input_directions") or (0,) * number
    out_axes = attributes.get("scan_output_axes") or (0,) * outputs
    out_backward = attributes.get("scan_output_directions") or (0,) * outputs
    axes = [F.axis(axis, item.rank) for axis, item in zip(axes, scanned, strict=True)]
    length = F.numbers(F.constant(np.array([scanned[0].shape[axes[0]]], object)), "the length of the scanned axis")[0]
    gathered: list[list[Any]] = [[] for _ in range(outputs)]
    for step in range(length):
        parts = []
        for item, axis, back in zip(scanned, axes, backward, strict=True):
            at = length - 1 - step if back else step
            part = F.slice_axis(item, axis=axis, begin=at, end=at + 1)
            parts.append(F.reshape_to(part, [size for place, size in enumerate(item.shape) if place != axis]))
        results = run_body(importer, body, [*states, *parts], known)
        states = results[: len(states)]
        for found, item in zip(gathered, results[len(states) :], strict=True):
            found.append(item)
    ordered = [found[::-1] if back else found for found, back in zip(gathered, out_backward, strict=True)]
    return [
        *states,
        *(_stacked(importer, node, found, axis, body) for found, axis in zip(ordered, out_axes, strict=True)),
    ]


# -- sequences and optional values ---------------------------------------------------------------------------------


@_control("SequenceConstruct")
def _construct(importer: Any, node: Any, inputs: list[Any], attributes: Any, known: Any) -> Any:
    return [list(inputs)]


@_control("SequenceEmpty")
def _empty(importer: Any, node: Any, inputs: list[Any], attributes: Any, known: Any) -> Any:
    return [[]]


def _sequence(importer: GraphImporter, node: Any, item: Any) -> list[Any]:
    if not isinstance(item, list):
        raise importer.error(node, "its input is no sequence")
    return item


@_control("SequenceAt")
def _at(importer: GraphImporter, node: Any, inputs: list[Any], attributes: Any, known: Any) -> Any:
    sequence = _sequence(importer, node, inputs[0])
    place = importer.F.number(inputs[1], "the position")
    if not -len(sequence) <= place < len(sequence):
        raise importer.error(node, f"position {place} is outside of a sequence of {len(sequence)}")
    return [sequence[place]]


@_control("SequenceLength")
def _length(importer: GraphImporter, node: Any, inputs: list[Any], attributes: Any, known: Any) -> Any:
    return [importer.F.constant(len(_sequence(importer, node, inputs[0])), np.int64)]


@_control("SequenceInsert")
def _insert(importer: GraphImporter, node: Any, inputs: list[Any], attributes: Any, known: Any) -> Any:
    sequence = list(_sequence(importer, node, inputs[0]))
    place = len(sequence) if len(inputs) < 3 else importer.F.number(inputs[2], "the position")
    sequence.insert(place, inputs[1])
    return [sequence]


@_control("SequenceErase")
def _erase(importer: GraphImporter, node: Any, inputs: list[Any], attributes: Any, known: Any) -> Any:
    sequence = list(_sequence(importer, node, inputs[0]))
    place = len(sequence) - 1 if len(inputs) < 2 else importer.F.number(inputs[1], "the position")
    if not -len(sequence) <= place < len(sequence):
        raise importer.error(node, f"position {place} is outside of a sequence of {len(sequence)}")
    del sequence[place]
    return [sequence]


@_control("ConcatFromSequence")
def _concat(importer: GraphImporter, node: Any, inputs: list[Any], attributes: Any, known: Any) -> Any:
    sequence, F = _sequence(importer, node, inputs[0]), importer.F
    axis = attributes["axis"]
    return [F.stack(*sequence, axis=axis) if attributes.get("new_axis") else F.Concat(*sequence, dim=axis)]


@_control("SplitToSequence")
def _split(importer: GraphImporter, node: Any, inputs: list[Any], attributes: Any, known: Any) -> Any:
    F, data = importer.F, inputs[0]
    axis = F.axis(attributes.get("axis", 0), data.rank)
    size = F.numbers(F.constant(np.array([data.shape[axis]], object)), "the length of the axis")[0]
    keepdims = attributes.get("keepdims", 1)
    if len(inputs) < 2 or inputs[1] is None:
        lengths: list[int] = [1] * size
    elif inputs[1].rank == 0:
        keepdims, length = 1, F.number(inputs[1], "the length of a part")
        if length < 1:
            raise importer.error(node, "the length of a part must be at least 1")
        lengths = [min(length, size - start) for start in range(0, size, length)]
    else:
        keepdims, lengths = 1, list(F.numbers(inputs[1], "the lengths of the parts"))
    parts, start = [], 0
    for length in lengths:
        part = F.slice_axis(data, axis=axis, begin=start, end=start + length)
        if not keepdims:
            part = F.reshape_to(part, [size for place, size in enumerate(data.shape) if place != axis])
        parts.append(part)
        start += length
    return [parts]


@_control("Optional")
def _optional(importer: Any, node: Any, inputs: list[Any], attributes: Any, known: Any) -> Any:
    return [inputs[0] if inputs else None]


@_control("OptionalHasElement")
def _has_element(importer: GraphImporter, node: Any, inputs: list[Any], attributes: Any, known: Any) -> Any:
    return [importer.F.constant(bool(inputs) and inputs[0] is not None)]


@_control("OptionalGetElement")
def _get_element(importer: GraphImporter, node: Any, inputs: list[Any], attributes: Any, known: Any) -> Any:
    if inputs[0] is None:
        raise importer.error(node, "its input is empty")
    return [inputs[0]]


@_control("Identity")
def _identity(importer: GraphImporter, node: Any, inputs: list[Any], attributes: dict[str, Any], known: Any) -> Any:
    (item,) = inputs
    if isinstance(item, Tensor) and not item.is_constant and importer.running and importer.running[-1][0] == BLOCKS:
        return [importer.F.identity(item)]  # a Block that does nothing in prediction, such as Dropout
    if isinstance(item, Tensor) and item.is_parameter and item.rank == 1 and node.output[0]:
        # torch's exporter stores vectors of equal numbers once; they are parameters of their own.
        return [importer.F.own_copy(item, node.output[0])]
    return [item]
