"""Hoist: in inference, what depends on parameters alone is computed when they change and not at every call.

dot(x, transpose(w) * exp(g)) + g     becomes     v = transpose(w) * exp(g)     once, and
                                                  dot(x, v) + g                 at every call
"""

from __future__ import annotations

from hybrid_lab.graph.call_graphs import Specialized
from hybrid_lab.graph.graph import Graph, reachable
from hybrid_lab.graph.node import Constant, Input, Node, Value, input_node

#: Inputs that keep their values from one call to the next, unless code writes to them.
STEADY_ROLES = ("param", "aux")
#: A result larger than everything it is made of (a bias repeated over a batch) is hoisted only up to this many bytes.
_FREE_BYTES = 1 << 16


def hoist(graph: Graph) -> Specialized:
    """The prologue and the rest of an inferred, simplified graph that is bound to prediction.

    The rest has as inputs all data inputs, then the parameters that it reads itself, then one input with role "hoisted"
    per output of the prologue.

    Random nodes stay (they draw anew at each call), and so do views of parameters (they cost nothing) and results that
    merely repeat a smaller array (reading them from memory costs more than making them).
    """
    users, roots = graph.users(), set(graph.roots)
    chosen = _chosen(graph, users, roots)
    hoisted = [
        value
        for node in graph.nodes
        if node in chosen
        for value in node.outputs
        if value in roots or any(reader not in chosen for reader in users.get(value, ()))
    ]
    if not hoisted:
        return Specialized(graph, forward_sources=tuple(("input", index) for index in range(len(graph.inputs))))
    position = {value: index for index, value in enumerate(graph.inputs)}
    needed = {node.outputs[0] for node in reachable(hoisted) if isinstance(node.op, Input)}
    before = [value for value in graph.inputs if value in needed]
    prologue = Graph(before, hoisted, name=f"{graph.name} prologue".strip())

    taken = {value.node.name for value in graph.inputs}
    fresh = [input_node(_free_name(value, taken), "hoisted", shape=value.shape, dtype=value.dtype) for value in hoisted]
    # Every operator is made anew, so that creation order stays program order.
    rest = graph.substitute(
        dict(zip(hoisted, fresh, strict=True)),
        lambda node, inputs: node.replace(inputs=inputs).outputs if node.inputs else None,
    )
    read = {value for node in reachable(rest.roots) for value in node.outputs} | {target for target, _ in rest.effects}
    read_inputs = [value for value in graph.inputs if value in read or _role(value) not in STEADY_ROLES]
    forward = Graph([*read_inputs, *fresh], rest.outputs, rest.effects, rest.draws, rest.name)
    sources = [("input", position[value]) for value in read_inputs] + [
        ("hoisted", index) for index in range(len(hoisted))
    ]
    return Specialized(
        forward,
        prologue=prologue,
        forward_sources=tuple(sources),
        prologue_sources=tuple(position[value] for value in before),
    )


def steady_values(graph: Graph) -> set[Value]:
    """Everything that stays the same from call to call: parameters, constants, and what depends on them alone."""
    written = {target for target, _ in graph.effects}
    steady: set[Value] = set()
    for node in graph.nodes:
        if isinstance(node.op, Input):
            fixed = node.op.role in STEADY_ROLES and node.outputs[0] not in written
        else:
            fixed = not node.op.random and all(value in steady for value in node.values_in)
        if fixed:
            steady.update(node.outputs)
    return steady


def _chosen(graph: Graph, users: dict[Value, list[Node]], roots: set[Value]) -> set[Node]:
    """The operators to take out: operators with steady values, except operators that cost nothing in their place."""
    steady = steady_values(graph)
    order = [node for node in graph.operators if node.outputs[0] in steady and not isinstance(node.op, Constant)]
    chosen = set(order)
    for node in reversed(order):
        readers = [reader for value in node.outputs for reader in users.get(value, ())]
        if readers and all(reader in chosen for reader in readers):
            continue
        if _repeats(node) or (node.op.view and not _is_alone(node, chosen, users, roots)):
            chosen.discard(node)
    return chosen


def _is_alone(view: Node, chosen: set[Node], users: dict[Value, list[Node]], roots: set[Value]) -> bool:
    """Whether the view is all that is read of a computed value; one of a parameter costs nothing."""
    while view.op.view and isinstance(view.inputs[0], Value):
        source = view.inputs[0]
        if source.node not in chosen or source in roots or len(users[source]) > 1:
            return False
        view = source.node
    return True


def _repeats(node: Node) -> bool:
    """Whether the outputs are larger than the inputs, and too large to be hoisted for nothing."""
    size = sum(value.nbytes for value in node.outputs)
    return size > _FREE_BYTES and size > 2 * sum(value.nbytes for value in node.values_in)


def _role(value: Value) -> str:
    return getattr(value.node.op, "role", "")


def _free_name(value: Value, taken: set[str]) -> str:
    """A name that no other input has, from the node's name, else the operator's."""
    base = value.node.name or value.node.op.name.strip("_").lower()
    name, number = base, 1
    while name in taken:
        number += 1
        name = f"{base}{number}"
    taken.add(name)
    return name
