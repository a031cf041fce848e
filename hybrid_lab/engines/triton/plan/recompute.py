"""Attention in training without its weights in memory: the forward keeps two numbers for each query instead.

As split, the forward of an attention keeps the weights, an element for each query and key, and with dropout once more.
Here it keeps the largest score and the sum of the exponentials of each query, and the backward computes

    weights = exp(scores - largest) / sum

again from queries and keys, which the backward has in any case; the kernels in attention_grad.py do so tile by tile.
The softmax's gradient sums weights times their gradient over a row. This sum equals the result times its gradient,
summed over the numbers of a value, with or without dropout between: so no kernel needs whole rows of weights.

If another reader of weights, scores or their gradients exists - a user, a learned bias - the graphs are not changed.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import prod

import numpy as np

from hybrid_lab.engines.triton.plan.groups import views_for_each_reader
from hybrid_lab.engines.triton.plan.saved import forward_value, with_saved
from hybrid_lab.engines.triton.support import lowered
from hybrid_lab.engines.triton.write.kinds import combine, contraction_of, is_pointwise, is_reduction
from hybrid_lab.engines.triton.write.special.attention import LINEAR, MOST_WIDTH, Attention, attention_at
from hybrid_lab.engines.triton.write.special.attention_grad import MOST_EXACT, chained_products
from hybrid_lab.graph.builder import make_node
from hybrid_lab.graph.call_graphs import Split
from hybrid_lab.graph.node import Constant, Input, Node, Value, input_node
from hybrid_lab.graph.symbolic import stand_in
from hybrid_lab.ops.framework.dtypes import NARROW
from hybrid_lab.ops.framework.operator import get

#: The letters in the names of an attention's products.
_PRODUCTS = ("dot", "matmul", "gemm")


def without_weights(split: Split) -> Split | None:
    """The graphs of a recorded call without saved weights of attention; None if that changes nothing."""
    names = [node.op.name for node in split.forward.operators]
    if "softmax" not in names or sum(part in name for name in names for part in _PRODUCTS) < 2:
        return None
    before = split = Split(lowered(split.forward), lowered(split.backward), split.sources)
    for node in split.forward.operators:
        if (attention := attention_at(node)) is not None:
            with suppress(_Impossible):
                split = _Rewriting(split, attention).rewritten()
    return None if split is before else split


class _Impossible(Exception):
    """The weights of this attention stay."""


@dataclass
class _Rewriting:
    """What becomes of one attention.

    inputs : forward's value -> its input in the backward, existing or new
    new : values of the forward that the backward reads after the rewrite -> its inputs for them
    same : forward's value -> the equal value of the backward, if it has one
    """

    split: Split
    attention: Attention
    inputs: dict[Value, Value] = field(default_factory=dict)
    new: dict[Value, Value] = field(default_factory=dict)
    same: dict[Value, Value] = field(default_factory=dict)

    def rewritten(self) -> Split:
        """The split in which this attention's weights are computed again. Raises _Impossible."""
        backward, attention = self.split.backward, self.attention
        for value, source in zip(backward.inputs, self.split.sources, strict=True):
            if (there := forward_value(self.split, source)) is not None:
                self.inputs[there] = value
        self.check()
        inner = attention.nodes - {attention.mixed}
        saved = {value: new for value, new in self.inputs.items() if value.node in inner}
        if not any(value.node is attention.weights for value in saved) or any(
            value.node in (attention.maximum, attention.total) for value in saved
        ):
            raise _Impossible
        for value in saved:
            del self.inputs[value]
        self.find_same()
        replaced = self.sums(saved[attention.weights.outputs[0]], prod(attention.scaled.shape))
        again = {old: self.again(value) for value, old in saved.items()}
        if sum(value.nbytes for value in self.new) >= sum(value.nbytes for value in saved):
            raise _Impossible
        rewritten = backward.substitute({**again, **replaced})
        return self.checked(with_saved(self.split, rewritten, set(again), self.new))

    def check(self) -> None:
        """Whether only the backward reads parts of the attention, and its kernels can hold it."""
        attention, forward = self.attention, self.split.forward
        users, first, second = forward.users(), contraction_of(attention.scores), contraction_of(attention.mixed)
        assert first is not None and second is not None
        outside = {*forward.outputs[: self.split.num_outputs], *(new for _, new in forward.effects)}
        for node in attention.nodes - {attention.mixed}:
            if any(reader not in attention.nodes for value in node.outputs for reader in users.get(value, ())):
                raise _Impossible
            if not outside.isdisjoint(node.outputs):
                raise _Impossible
        most = MOST_WIDTH if attention.mixed.outputs[0].dtype.name in NARROW else MOST_EXACT
        if max(prod(first.inner), prod(second.columns)) > most or first.bias or second.bias:
            raise _Impossible
        if attention.mixed.outputs[0].dtype.name == "float64" or 1 in (prod(first.rows), prod(first.columns)):
            raise _Impossible

    # -- weights again -------------------------------------------------------------------------------------------------

    def again(self, value: Value) -> Value:
        """The value in the backward: handed over, or computed again."""
        attention = self.attention
        if value in self.inputs:
            return self.inputs[value]
        if isinstance(value.node.op, Constant):
            return value
        node = value.node
        if node in (attention.maximum, attention.total):
            wide = _cast(value, "float32") if _is_narrow(value) else value  # a score can be compared with it
            self.inputs[value] = new = self.hand_over(wide, "largest" if node is attention.maximum else "total")
            return new
        if node in attention.nodes:
            inputs = [self.again(item) if isinstance(item, Value) else item for item in node.inputs]
            if any(item.dtype.name == "float32" for item in inputs if isinstance(item, Value)):
                inputs = [_cast(item, "float32") if _is_narrow(item) else item for item in inputs]
            copy = make_like(node, inputs)
            new = copy.outputs[value.index]
            between = node not in (attention.exponential, attention.exponential.values_in[0].node)
            self.inputs[value] = new = _cast(new, value.dtype.name) if between else new
            return new
        if isinstance(node.op, Input) or not self.is_at_hand(value):
            return self.hand_over(value)
        inputs = [self.again(item) if isinstance(item, Value) else item for item in node.inputs]
        self.inputs[value] = new = make_like(node, inputs).outputs[value.index]
        return new

    def is_at_hand(self, value: Value, known: set[Value] | None = None) -> bool:
        """Whether the backward has the value for nothing: as a view, or element by element, of its own values.

        known : values that are at hand, each looked at once
        """
        known = set() if known is None else known
        if value in known or value in self.inputs or isinstance(value.node.op, (Constant, Input)):
            return True
        node = value.node
        simple = node.op.view or (is_pointwise(node) and not node.op.random)
        if simple and len(node.outputs) == 1 and all(self.is_at_hand(item, known) for item in node.values_in):
            known.add(value)
            return True
        return False

    def hand_over(self, value: Value, name: str = "kept") -> Value:
        shown = value.node.name if value.is_input else name
        new = input_node(shown, "saved", shape=value.shape, dtype=value.dtype)
        self.inputs[value] = self.new[value] = new
        return new

    def find_same(self) -> None:
        """Find the values that forward and backward both have or compute: equal operators of equal inputs."""
        self.same = dict(self.inputs)
        known = {_key(node, node.inputs): node for node in self.split.backward.operators}
        for node in self.split.forward.operators:
            inputs = [self.same.get(item, item) if isinstance(item, Value) else item for item in node.inputs]
            if (equal := known.get(_key(node, inputs))) is not None:
                for value, twin in zip(node.outputs, equal.outputs, strict=True):
                    self.same.setdefault(value, twin)

    # -- the sum over the keys -----------------------------------------------------------------------------------------

    def sums(self, weights: Value, size: int) -> dict[Value, Value]:
        """Value of the backward -> its replacement: the sums over keys of weights times their gradients."""
        replacements = {}
        for node in self.split.backward.operators:
            if not is_reduction(node) or prod(node.values_in[0].shape) != size:
                continue
            weighted = node.values_in[0].node
            if weights not in weighted.values_in:
                continue
            if combine(node) != "sum" or weighted.op.name != "broadcast_mul":
                raise _Impossible
            other = next((item for item in weighted.values_in if item is not weights), None)
            rank = len(node.values_in[0].shape)
            last = tuple(node.op.axes(rank)) == (rank - 1,)  # type: ignore[attr-defined]
            if other is None or not last or len(node.outputs[0].shape) != rank:
                raise _Impossible
            gradient = self.gradient_of_result(other)
            result = self.result()
            if result.dtype != gradient.dtype:
                raise _Impossible
            times = make_node(get("broadcast_mul").bind(), [_cast(gradient, "float32"), _cast(result, "float32")])
            total = make_node(get("sum").bind(axis=-1, keepdims=True), list(times.outputs)).outputs[0]
            if total.shape != node.outputs[0].shape:
                raise _Impossible
            replacements[node.outputs[0]] = _cast(total, node.outputs[0].dtype.name)
        return replacements

    def gradient_of_result(self, value: Value) -> Value:
        """The gradient of the attention's result, from which this gradient of its weights is made."""
        attention, node, steps = self.attention, value.node, []
        while node.op.name in LINEAR:
            steps.append(node)
            node = node.values_in[0].node
        between, part = [], attention.mixed.values_in[0].node
        while part is not attention.weights:
            if part.op.name not in LINEAR:
                raise _Impossible
            between.append(part)
            part = part.values_in[0].node
        scales = _scales(steps), _scales(between)[::-1]
        if [item.op for item in scales[0]] != [item.op for item in scales[1]]:
            raise _Impossible
        for one, other in zip(*scales, strict=True):
            if [self.same.get(value, value) for value in other.values_in[1:]] != list(one.values_in[1:]):
                raise _Impossible
        if node.op.name != "batch_dot" or attention.mixed.op.name != "batch_dot" or node.op.transpose_a:  # type: ignore[attr-defined]
            raise _Impossible
        if attention.mixed.op.transpose_a or node.op.transpose_b == attention.mixed.op.transpose_b:  # type: ignore[attr-defined]
            raise _Impossible
        gradient, values = node.values_in
        if self.same.get(attention.mixed.values_in[1], attention.mixed.values_in[1]) is not values:
            raise _Impossible
        return gradient

    def result(self) -> Value:
        """The attention's result in the backward: the kept value, if need be seen through the views in front of it."""
        result = self.attention.mixed.outputs[0]
        if result in self.inputs:
            return self.inputs[result]
        for value, here in list(self.inputs.items()):
            views, at = [], value
            while at.node.op.view and at.node.values_in and at is not result:
                views.append(at.node)
                at = at.node.values_in[0]
            if at is not result or prod(value.shape) != prod(result.shape):
                continue
            for view in views:
                before = view.values_in[0]
                if view.op.name == "transpose":
                    axes = [int(axis) for axis in np.argsort(view.op.axes or range(len(before.shape))[::-1])]  # type: ignore[attr-defined]
                    here = make_node(get("transpose").bind(axes=tuple(axes)), [here]).outputs[0]
                elif here.shape != before.shape:
                    stub = stand_in(before.shape, before.dtype)
                    here = make_node(get("reshape_like").bind(), [here, stub]).outputs[0]
            return here
        return self.hand_over(result)

    # -- the result ----------------------------------------------------------------------------------------------------

    def checked(self, split: Split) -> Split:
        """The split, if kernels can hold all that is computed again. Raises _Impossible."""
        backward = views_for_each_reader(split.backward)
        chained = chained_products(backward.operators, backward.users(), set(backward.roots))
        inside = {node for item in chained for node in item.nodes}
        size = prod(self.attention.scaled.shape)
        for node in backward.operators:
            exponential = node.op.name == "exp" and prod(node.outputs[0].shape) == size
            if exponential and node.composite == self.attention.exponential.composite and node not in inside:
                raise _Impossible
        return split


def _key(node: Node, inputs: Sequence[object]) -> Hashable:
    return node.op, node.draw, tuple([item if isinstance(item, Value) else repr(item) for item in inputs])


def _scales(nodes: Sequence[Node]) -> list[Node]:
    return [node for node in nodes if node.op.name == "_masked_scale"]


def _is_narrow(item: object) -> bool:
    return isinstance(item, Value) and item.dtype.name in NARROW


def _cast(value: Value, dtype: str) -> Value:
    if value.dtype.name == dtype:
        return value
    return make_node(get("Cast").bind(dtype=dtype), [value]).outputs[0]


def make_like(node: Node, inputs: Sequence[object]) -> Node:
    """The operator over other inputs, with its annotations; its outputs have the dtypes that follow."""
    copy = make_node(node.op, list(inputs))
    return copy.replace(scope=node.scope, location=node.location, composite=node.composite, draw=node.draw)
