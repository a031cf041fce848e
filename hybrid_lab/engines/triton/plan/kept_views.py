"""Views that the forward would keep for the backward: what they look at is kept instead.

A kernel reads through a view for nothing, but a view in memory is a copy. The split counts bytes, and to it three views
of a product weigh as much as the product; here the backward gets the product, and sees it as the forward does:

    forward     h = dense(x);  q = transpose(h[..., :256]);  keeps q        h = dense(x);  keeps h
    backward    ... dot(%q, g)                                              ... dot(transpose(%h[..., :256]), g)
"""

from __future__ import annotations

from hybrid_lab.engines.triton.plan.pair import Pair, Source
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Constant, Node, Value, input_node

#: How many times more memory is kept rather than a copy made, which is written once and read once.
WORTH = 2


def without_views(pair: Pair, num_outputs: int) -> Pair:
    """The same graphs without copies of views. num_outputs : how many outputs of the forward are the caller's"""
    forward, backward = pair.forward, pair.backward
    saved = {
        value: forward.outputs[num_outputs + number]
        for value, (kind, number) in zip(backward.inputs, pair.sources, strict=True)
        if kind == "saved"
    }
    of: dict[Value, list[Value]] = {}  # what is looked at -> inputs of the backward that are views of it
    written = {target for target, _ in forward.effects}
    for value, kept in saved.items():
        if (looked_at := _looked_at(kept)) is not kept and looked_at not in written:
            of.setdefault(looked_at, []).append(value)
    for looked_at, views in list(of.items()):
        known = looked_at in forward.inputs or looked_at in forward.outputs
        if not known and looked_at.nbytes > WORTH * sum(value.nbytes for value in views):
            del of[looked_at]
    if not of:
        return pair
    gone = {value for views in of.values() for value in views}
    outputs = list(forward.outputs[:num_outputs])
    places: dict[Value, Source] = {}
    for value, source in zip(backward.inputs, pair.sources, strict=True):
        if source[0] != "saved":
            places[value] = source
        elif value not in gone:
            places[value] = ("saved", len(outputs) - num_outputs)
            outputs.append(saved[value])
    new: dict[Value, Value] = {}
    sources = {source: value for value, source in places.items()}
    for looked_at, views in of.items():
        if looked_at in forward.inputs:
            source = ("input", forward.inputs.index(looked_at))
        elif looked_at in outputs[:num_outputs]:
            source = ("output", outputs.index(looked_at))
        elif looked_at in outputs:
            source = ("saved", outputs.index(looked_at, num_outputs) - num_outputs)
        else:
            source = ("saved", len(outputs) - num_outputs)
            outputs.append(looked_at)
        if source not in sources:
            name = looked_at.node.name if looked_at.is_input else "kept"
            sources[source] = input_node(name, "saved", shape=looked_at.shape, dtype=looked_at.dtype)
            places[sources[source]] = source
        for value in views:
            new[value] = _seen(saved[value], looked_at, sources[source])
    made = Graph(forward.inputs, outputs, forward.effects, forward.draws, forward.name)
    return Pair.of(made, backward.substitute(new), places)


def _is_view(node: Node) -> bool:
    """Of one value, and of numbers that are known."""
    return (
        node.op.view
        and len(node.outputs) == 1
        and bool(node.values_in)
        and node.inputs[0] is node.values_in[0]
        and all(isinstance(value.node.op, Constant) for value in node.values_in[1:])
    )


def _looked_at(value: Value) -> Value:
    while _is_view(value.node):
        value = value.node.values_in[0]
    return value


def _seen(value: Value, looked_at: Value, there: Value) -> Value:
    """The view, or view of a view, of something that stands for what it looks at."""
    if value is looked_at:
        return there
    node = value.node
    return node.replace(inputs=(_seen(node.values_in[0], looked_at, there), *node.inputs[1:])).outputs[0]
