"""Save values instead of their views: a kernel that saves a view for the backward writes a copy of it.

A kernel reads through a view at no cost. `graph.passes.split` counts bytes only, and to it three views of a product
weigh as much as the product. Here the backward gets the product, and views it as the forward does:

    forward     h = dense(x);  q = transpose(h[..., :256]);  saves q        h = dense(x);  saves h
    backward    ... dot(%q, g)                                              ... dot(transpose(%h[..., :256]), g)
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from hybrid_lab.graph.call_graphs import Source, Split
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Constant, Node, Value, input_node

#: The order in which a backward takes its inputs.
_ORDER = ("input", "output", "saved", "head")
#: A larger value is saved in the place of its views if it has at most WORTH times their bytes.
WORTH = 2


def forward_value(split: Split, source: Source) -> Value | None:
    """The value of the forward that a source names; None for gradients handed in."""
    kind, index = source
    if kind == "head":
        return None
    if kind == "input":
        return split.forward.inputs[index] if index < len(split.forward.inputs) else None
    return split.forward.outputs[index + (split.num_outputs if kind == "saved" else 0)]


def with_saved(split: Split, backward: Graph, dropped: Collection[Value], added: Mapping[Value, Value]) -> Split:
    """The split with another backward, which takes other values from the forward.

    backward : with its inputs in any order
    dropped : inputs of the old backward that the new one does not have; added : value of the forward -> new input
    """
    forward, num_outputs = split.forward, split.num_outputs
    outputs = list(forward.outputs[:num_outputs])
    sources: dict[Value, Source] = {}
    for value, (kind, index) in zip(split.backward.inputs, split.sources, strict=True):
        if value in dropped:
            continue
        if kind == "saved":
            outputs.append(forward.outputs[num_outputs + index])
            index = len(outputs) - num_outputs - 1
        sources[value] = (kind, index)
    for value, new in added.items():
        if value in forward.inputs:
            sources[new] = ("input", forward.inputs.index(value))
        elif value in outputs[:num_outputs]:
            sources[new] = ("output", outputs.index(value))
        else:
            sources[new] = ("saved", len(outputs) - num_outputs)
            outputs.append(value)
    inputs = sorted(sources, key=lambda value: (_ORDER.index(sources[value][0]), sources[value][1]))
    return Split(
        Graph(forward.inputs, outputs, forward.effects, forward.draws, forward.name),
        Graph(inputs, backward.outputs, backward.effects, backward.draws, backward.name),
        tuple([sources[value] for value in inputs]),
    )


def without_views(split: Split) -> Split:
    """The same graphs without copies of views."""
    forward, backward = split.forward, split.backward
    updated = {target for target, _ in forward.effects}
    known: dict[Value, Value] = {}  # value of the forward -> input of the backward
    views: dict[Value, list[tuple[Value, Value]]] = {}  # base -> (input of the backward, the view of the base)
    for value, source in zip(backward.inputs, split.sources, strict=True):
        saved = forward_value(split, source)
        if saved is None:
            continue
        base = _base(saved) if source[0] == "saved" else saved
        if base is not saved and base not in updated:
            views.setdefault(base, []).append((value, saved))
        else:
            known[saved] = value
    for base, inputs in list(views.items()):
        at_hand = base in forward.inputs or base in forward.outputs
        if not at_hand and base.nbytes > WORTH * sum(value.nbytes for value, _ in inputs):
            del views[base]
    if not views:
        return split
    added: dict[Value, Value] = {}
    new: dict[Value, Value] = {}
    for base, inputs in views.items():
        if base not in known:
            name = base.node.name if base.is_input else "kept"
            known[base] = added[base] = input_node(name, "saved", shape=base.shape, dtype=base.dtype)
        new.update({value: _viewed(view, base, known[base]) for value, view in inputs})
    return with_saved(split, backward.substitute(new), set(new), added)


def _is_view(node: Node) -> bool:
    """Whether an operator is a view of its first input, with constants as its other inputs."""
    return (
        node.op.view
        and len(node.outputs) == 1
        and bool(node.values_in)
        and node.inputs[0] is node.values_in[0]
        and all(isinstance(value.node.op, Constant) for value in node.values_in[1:])
    )


def _base(value: Value) -> Value:
    """The value that a view, or a view of a view, shows."""
    while _is_view(value.node):
        value = value.node.values_in[0]
    return value


def _viewed(view: Value, base: Value, there: Value) -> Value:
    """The same view, or view of a view, of another value than `base`."""
    if view is base:
        return there
    node = view.node
    return node.replace(inputs=(_viewed(node.values_in[0], base, there), *node.inputs[1:])).outputs[0]
