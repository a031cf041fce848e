"""Channels last: chains of the vendor's convolutions compute on arrays (N, H, W, C), as cuDNN's tensor cores do.

A value x of such a chain is replaced by x', its transpose in memory of its own. What lies between convolutions is
written on x' too - operators element by element, reductions, pooling - so nothing is transposed there:

    y = Convolution(x, w);  m = sum(y, axis=(0, 2, 3));  z = relu(y - m)
    x' = stored(transpose(x));  y' = Convolution_channels_last(x', w);  m = sum(y', axis=(0, 1, 2));  z' = ...

At the start of a chain, the kernel that makes x stores x'; at its end, readers see transpose(x'), a view. A forward
saves x' in the place of x, so the backward's chains go on with it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np

from hybrid_lab.engines.triton.plan.saved import forward_value, with_saved
from hybrid_lab.engines.triton.write.kinds import element_of, is_pointwise, is_reduction
from hybrid_lab.graph.builder import make_node
from hybrid_lab.graph.call_graphs import Split
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Constant, Input, Node, Value, input_node
from hybrid_lab.ops.framework.kernel import Element
from hybrid_lab.ops.framework.operator import Operator, get
from hybrid_lab.ops.framework.run import run_kernel
from hybrid_lab.ops.framework.signature import Signature

if TYPE_CHECKING:
    from hybrid_lab.ops.framework import protocols

#: Operator -> its inputs with channels, and whether its result has channels, that become the last axis.
TURNED: dict[str, tuple[tuple[int, ...], bool]] = {
    "Convolution": ((0,), True),
    "_conv_data_grad": ((0,), True),
    "_conv_weight_grad": ((0, 1), False),
    "Pooling": ((0,), True),
    "_max_pool_place": ((0,), True),
    "_max_pool_spread": ((0, 1), True),
    "_spread_pool_grad": ((0,), True),
}
_TO_LAST, _TO_FIRST = (0, 2, 3, 1), (0, 3, 1, 2)


class ChannelsLast(Operator):
    """An operator on images (N, C, H, W) as it computes on (N, H, W, C). Weights are not changed.

    record : that operator; turned, turns : its row in TURNED
    """

    name: ClassVar[str] = "channels_last"
    record: Any
    turned: tuple[int, ...]
    turns: bool

    def __init__(self, record: Operator):
        turned, turns = TURNED[record.name]
        members = {"record": record, "turned": turned, "turns": turns, "name": f"{record.name}_channels_last"}
        members |= {"signature": record.signature, "attributes": {}, "inferred": {}, "triton": _element(record)}
        for key, value in members.items():
            object.__setattr__(self, key, value)

    def __repr__(self) -> str:
        return f"{self.record!r} of channels last"

    def reads_values(self, index: int) -> bool:
        return self.record.reads_values(index)

    def numpy(self, *inputs: Any) -> np.ndarray:  # type: ignore[override]
        given = [np.moveaxis(item, -1, 1) if index in self.turned else item for index, item in enumerate(inputs)]
        result = run_kernel(self.record, given)[0]
        return np.ascontiguousarray(np.moveaxis(result, 1, -1)) if self.turns else result


class Stored(Operator):
    """A copy of images in the order of memory; unlike `identity` it is not simplified away."""

    name: ClassVar[str] = "stored"
    triton = get("identity").triton

    def __init__(self) -> None:
        for key, value in (("signature", Signature(("data",))), ("attributes", {}), ("inferred", {})):
            object.__setattr__(self, key, value)

    def __repr__(self) -> str:
        return "stored()"

    def numpy(self, data: np.ndarray) -> np.ndarray:  # type: ignore[override]
        return np.array(data, order="C")


STORED = Stored()


@functools.lru_cache(maxsize=4096)
def channels_last(record: Operator) -> ChannelsLast:
    """The operator on images with channels last: equal operators are one, as everywhere."""
    return ChannelsLast(record)


def convolves_last(node: Node) -> bool:
    """Whether an operator is a convolution, or a gradient of one, with channels last, which has no kernel of ours."""
    return isinstance(node.op, ChannelsLast) and node.op.triton is None


def _element(record: Operator) -> Element | None:
    """The record's element at a place whose channel comes last; None for a convolution."""
    element = None if "conv" in record.name.lower() else element_of(record)
    if element is None:
        return None

    def read(op: ChannelsLast, elements: protocols.Elements, place: protocols.Place) -> str:
        first: Any = (place[0], place[3], place[1], place[2])
        return element.read(op.record, cast("protocols.Elements", _Turned(op, elements)), first)

    return Element(read)


class _Turned:
    """The elements of images with channels last, for a record that reads them with channels first."""

    def __init__(self, op: ChannelsLast, elements: protocols.Elements):
        self._turned, self._elements = op.turned, elements

    def __getattr__(self, name: str) -> object:
        return getattr(self._elements, name)

    def shape(self, number: int) -> tuple[int, ...]:
        shape = tuple(self._elements.shape(number))
        return _first(shape) if number in self._turned else shape

    def read(self, number: int, place: Sequence[Any], guard: str = "") -> str:
        return self._elements.read(number, _last(place) if number in self._turned else place, guard)


def _first(shape: Sequence[Any]) -> tuple[Any, ...]:
    return tuple([shape[axis] for axis in _TO_FIRST])


def _last(shape: Sequence[Any]) -> tuple[Any, ...]:
    return tuple([shape[axis] for axis in _TO_LAST])


# -- graphs ------------------------------------------------------------------------------------------------------------


class _Conversion:
    """A lowered graph rebuilt with channels last in chains of convolutions that gain from it.

    convolves : whether to write a convolution with channels last; last : value -> its transpose, at first of inputs
    """

    def __init__(self, graph: Graph, convolves: Callable[[Node], bool], last: Mapping[Value, Value]):
        self.graph, self.last = graph, dict(last)
        self.new: dict[Value, Value] = {}
        for node in graph.nodes:
            if isinstance(node.op, (Input, Constant)):
                self.new.update({value: value for value in node.outputs if value not in last})
                continue
            converted = self._converted(node, convolves)
            if converted is not None:
                self.last[node.outputs[0]] = converted
            elif node.outputs[0] not in self.new:
                inputs = tuple([self.first(item) if isinstance(item, Value) else item for item in node.inputs])
                self.new.update(zip(node.outputs, node.replace(inputs=inputs).outputs, strict=True))

    def first(self, value: Value) -> Value:
        """The value with channels first: the original, or a view of its transpose."""
        if value not in self.new:
            self.new[value] = _transposed(self.last[value], _TO_FIRST)
        return self.new[value]

    def stored(self, value: Value) -> Value:
        """The value's transpose in memory of its own."""
        if value not in self.last:
            if _axes(value.node) == _TO_FIRST:  # it has channels last at its source
                self.last[value] = self.first(value.node.values_in[0])
            else:
                view = _transposed(self.first(value), _TO_LAST)
                self.last[value] = view.node.replace(op=STORED, inputs=(view,)).outputs[0]
        return self.last[value]

    def _converted(self, node: Node, convolves: Callable[[Node], bool]) -> Value | None:
        """The result of an operator on images with channels last, transposed too; None if the operator is unchanged."""
        output = node.outputs[0]
        if node.op.name in ("Convolution", "_conv_data_grad", "_conv_weight_grad"):
            return self._turned(node) if convolves(node) else None
        if node.op.name in TURNED and node.values_in and _axes(node.values_in[0].node) == _TO_FIRST:
            return self._turned(node) if element_of(node.op) is not None else None
        known = [item for item in node.values_in if item in self.last and len(item.shape) == 4]
        if not known or len(node.outputs) != 1:
            return None
        if _axes(node) == _TO_LAST:
            self.new[output] = self.last[known[0]]
            return None
        if node.op.name in TURNED and element_of(node.op) is not None:
            return self._turned(node)
        if is_pointwise(node) and len(output.shape) == 4 and any(item.shape == output.shape for item in known):
            return self._pointwise(node)
        return self._reduced(node) if is_reduction(node) else None

    def _turned(self, node: Node) -> Value | None:
        op = channels_last(node.op)
        inputs = tuple([
            item if not isinstance(item, Value) else self.stored(item) if index in op.turned else self.first(item)
            for index, item in enumerate(node.inputs)
        ])  # fmt: skip
        if op.turns:
            return node.replace(op=op, inputs=inputs, shapes=(_last(node.outputs[0].shape),)).outputs[0]
        self.new[node.outputs[0]] = node.replace(op=op, inputs=inputs).outputs[0]
        return None

    def _pointwise(self, node: Node) -> Value | None:
        inputs: list[Any] = []
        for item in node.inputs:
            if not isinstance(item, Value) or not item.shape or item.shape == (1,):
                inputs.append(item if not isinstance(item, Value) else self.first(item))
            elif len(item.shape) != 4:
                return None
            elif item in self.last:
                inputs.append(self.last[item])
            else:
                inputs.append(_transposed(self.first(item), _TO_LAST))
        return node.replace(inputs=tuple(inputs), shapes=(_last(node.outputs[0].shape),)).outputs[0]

    def _reduced(self, node: Node) -> Value | None:
        """A reduction of axes that leaves the remaining axes in their order."""
        op: Any = node.op
        value = node.inputs[0]
        if not isinstance(value, Value) or value not in self.last or len(node.values_in) != 1:
            return None
        axes = {axis % 4 for axis in op.axes(4)}
        left = [axis for axis in _TO_LAST if axis not in axes]
        keeps = len(node.outputs[0].shape) == 4
        if not keeps and left != sorted(left):
            return None
        changes: dict[str, Any] = {"axis": tuple(sorted(_TO_LAST.index(axis) for axis in axes))}
        bound = op.variant(**changes, **({"exclude": False} if hasattr(op, "exclude") else {}))
        shape = node.outputs[0].shape
        made = node.replace(op=bound, inputs=(self.last[value],), shapes=(_last(shape) if keeps else shape,)).outputs[0]
        if keeps:
            return made
        self.new[node.outputs[0]] = made
        return None

    def rebuilt(self, saved: Collection[int] = ()) -> Graph:
        """The graph. saved : positions of outputs that may be handed out with channels last"""
        graph = self.graph
        outputs = [
            self.last[value] if index in saved and value in self.last else self.first(value)
            for index, value in enumerate(graph.outputs)
        ]
        effects = [(target, self.first(value)) for target, value in graph.effects]
        return Graph(graph.inputs, outputs, effects, graph.draws, graph.name)


def _axes(node: Node) -> tuple[int, ...] | None:
    """The axes of a transposition of images."""
    axes: Any = getattr(node.op, "axes", None) if node.op.name == "transpose" else None
    return tuple(axes) if isinstance(axes, tuple) else None


def _transposed(value: Value, axes: tuple[int, ...]) -> Value:
    return make_node(get("transpose").bind(axes=axes), [value]).outputs[0]


def with_channels_last(graph: Graph, convolves: Callable[[Node], bool]) -> Graph:
    """A lowered graph with channels last in the chains of these convolutions; the same graph if there is none."""
    if not any(map(convolves, graph.operators)):
        return graph
    return _Conversion(graph, convolves, {}).rebuilt()


def split_with_channels_last(split: Split, convolves: Callable[[Node], bool]) -> Split:
    """The same of both graphs of a recorded call, lowered, between which images are saved with channels last."""
    operators = [*split.forward.operators, *split.backward.operators]
    if not any(map(convolves, operators)):
        return split
    first = _Conversion(split.forward, convolves, {})
    outputs = len(split.forward.outputs)
    forward = first.rebuilt(range(split.num_outputs, outputs))
    last: dict[Value, Value] = {}
    added: dict[Value, Value] = {}
    changed = Split(forward, split.backward, split.sources)
    for value, source in zip(split.backward.inputs, split.sources, strict=True):
        kept = forward_value(split, source) if source[0] == "saved" else None
        turned = None if kept is None else first.last.get(kept)
        if turned is not None and len(value.shape) == 4:
            if turned not in added:
                added[turned] = input_node("kept", "saved", shape=turned.shape, dtype=turned.dtype)
            last[value] = added[turned]
    inputs = [value for value in split.backward.inputs if value not in last]
    second = _Conversion(split.backward, convolves, last)
    backward = second.rebuilt()
    backward = Graph(inputs, backward.outputs, backward.effects, backward.draws, backward.name)
    return with_saved(changed, backward, set(last), added)
