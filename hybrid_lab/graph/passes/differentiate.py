"""Differentiate: a forward graph becomes one joint forward and backward graph, by the records' own gradients.

y = tanh(dot(x, w))     becomes     y = tanh(dot(x, w))
                                    d = head_grad0 * (1.0 - y * y)
                                    returns y and _dot_rhs_grad(d, x, w), the gradient of w
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import count

from hybrid_lab.diagnostics.errors import AutogradError
from hybrid_lab.graph.builder import Builder, Expr
from hybrid_lab.graph.graph import Graph, ancestors, reachable, read_directly
from hybrid_lab.graph.node import Node, Value, input_node
from hybrid_lab.graph.passes.decompose import composite_names, lower
from hybrid_lab.ops.framework.contract import check_gradient_type
from hybrid_lab.ops.framework.dtypes import is_floating
from hybrid_lab.ops.framework.run import no_second_gradient, run_gradient


def differentiate(graph: Graph, wrt: Sequence[Value], heads: Collection[int] | None = None) -> Graph:
    """The joint graph: inputs + one head gradient per output; outputs + one gradient per Value in `wrt`.

    heads : numbers of the outputs that have a head gradient; None: all. The others are not differentiated, and nothing
        reads their head gradients: a gradient of zeros is something else, since 0 times infinity is NaN
    The graph is inferred and its mode bound. The gradient of an input that no such output depends on is zeros.
    Differentiate the result again for gradients of gradients.
    """
    return differentiate_present(graph, wrt, heads)[0]


def differentiate_present(
    graph: Graph, wrt: Sequence[Value], heads: Collection[int] | None = None
) -> tuple[Graph, list[bool]]:
    """The joint graph, and for each Value in `wrt` whether a gradient arrives there. If none does, its zeros are none
    either: what the Value was computed from must not be differentiated with them.
    """
    graph, made, arrived = _arrived(graph, wrt, heads)
    builder = arrived.builder
    readers = graph.users()
    results = []
    for value in wrt:
        with builder.origin(next(iter(readers.get(value, ())), None)):
            gradient = arrived.whole(value)
            results.append(builder.zeros_like(Expr(builder, value)) if gradient is None else gradient)
    joint = Graph(
        [*graph.inputs, *made],
        [*graph.outputs, *(expr.value for expr in results)],
        graph.effects,
        graph.draws,
        graph.name,
    )
    return joint, [value in arrived.gradients for value in wrt]


def present_gradients(graph: Graph, wrt: Sequence[Value]) -> tuple[Graph, list[tuple[int, bool]]]:
    """The gradients that there are, as a graph: inputs + one head gradient per output -> gradients, presences.

    Returns it with a row (index in `wrt`, whether it has a presence) per gradient. A presence is a number, 0 in calls
    in which there is no such gradient.
    """
    graph, made, arrived = _arrived(graph, wrt, None)
    found = [(index, arrived.gradients[value]) for index, value in enumerate(wrt) if value in arrived.gradients]
    numbers = [arrived.conditions.get(wrt[index]) for index, _ in found]
    outputs = [*(gradient.value for _, gradient in found), *(number.value for number in numbers if number is not None)]
    rows = [(index, number is not None) for (index, _), number in zip(found, numbers, strict=True)]
    return Graph([*graph.inputs, *made], outputs, (), graph.draws, graph.name), rows


def _arrived(graph: Graph, wrt: Sequence[Value], heads: Collection[int] | None) -> tuple[Graph, list[Value], _Arrived]:
    """The graph that is differentiated, the head gradients, and the gradients of all its Values."""
    backward = _backward(graph)
    if backward:
        graph = without_hidden_reads(graph)
    builder = Builder()
    needed = depends_on(graph, wrt)
    composites = composite_names(graph)
    arrived = _Arrived(builder)

    made = []
    taken = {value.node.name for value in graph.inputs}
    for index, output in enumerate(graph.outputs):
        name = _free_name(f"head_grad{index}", taken)
        head = input_node(name, "head_grad", shape=output.shape, dtype=output.dtype)
        made.append(head)
        if heads is None or index in heads:
            arrived.add(output, Expr(builder, head), None)

    for node in reversed(graph.nodes):
        if not any(value in needed for value in node.values_in):
            continue
        visible = node.outputs[: node.op.signature.visible]
        if not any(value in arrived.gradients for value in visible):
            continue
        if not node.op.differentiable:
            if node.op.refuses_gradient:
                raise _no_second(node)
            continue
        # The gradient of a composite is one too: what it is made of belongs together.
        origin = node.replace(composite=f"{composites[node]}_backward") if node in composites else node
        with builder.origin(origin):
            inputs, outputs = (list(map(builder.expr, items)) for items in (node.inputs, node.outputs))
            douts, condition = arrived.at(visible)
            wanted = [isinstance(item, Value) and item in needed for item in node.inputs]
            gradients = run_gradient(node.op, builder, inputs, outputs, douts, wanted)
            for index, (item, gradient) in enumerate(zip(node.inputs, gradients, strict=True)):
                if gradient is not None and isinstance(item, Value) and item in needed:
                    check_gradient_type(node.op, index, gradient.value, item)
                    origin = gradient.value.node
                    presence = builder.expr(origin.op.presence(origin, gradient.value.index))
                    arrived.add(item, gradient, _both(condition, presence))
    return graph, made, arrived


class _Arrived:
    """The gradients of Values, added up.

    conditions : of gradients that only some calls have, for example of a tensor that one branch of a `cond` reads: a
        number, 0 if there is no gradient; the gradient's own numbers then mean nothing. They may be NaN
    """

    def __init__(self, builder: Builder):
        self.builder = builder
        self.gradients: dict[Value, Expr] = {}
        self.conditions: dict[Value, Expr] = {}

    def add(self, value: Value, gradient: Expr, condition: Expr | None) -> None:
        held = self.gradients.get(value)
        before = self.conditions.pop(value, None)
        if held is not None:
            if not _same(before, condition):
                held, gradient = self._present(held, before), self._present(gradient, condition)
                condition = self._either(before, condition)
            # The gradient of a bool is a bool: whether one of its readers has a gradient other than 0.
            add = self.builder.broadcast_logical_or if held.dtype == bool else self.builder.broadcast_add
            gradient = add(held, gradient)
        self.gradients[value] = gradient
        if condition is not None:
            self.conditions[value] = condition

    def at(self, values: Sequence[Value]) -> tuple[list[Expr | None], Expr | None]:
        """The gradients of a node's outputs, None if there is none, and under which condition there is one."""
        either, *others = [self.conditions.get(value) for value in values if value in self.gradients]
        if all(_same(each, either) for each in others):
            return [self.gradients.get(value) for value in values], either
        for each in others:
            either = self._either(either, each)
        return [self.whole(value) for value in values], either

    def whole(self, value: Value) -> Expr | None:
        """The gradient, zeros in calls that do not have it; None if no call does."""
        gradient = self.gradients.get(value)
        return None if gradient is None else self._present(gradient, self.conditions.get(value))

    def _either(self, one: Expr | None, other: Expr | None) -> Expr | None:
        """The condition under which one of two holds."""
        return None if one is None or other is None else self.builder.broadcast_maximum(one, other)

    def _present(self, gradient: Expr, condition: Expr | None) -> Expr:
        return gradient if condition is None else self.builder._present(condition, gradient)


def _same(one: Expr | None, other: Expr | None) -> bool:
    return one is other or (one is not None and other is not None and one.value == other.value)


def _both(one: Expr | None, other: Expr | None) -> Expr | None:
    """The condition under which both hold."""
    if one is None or other is None:
        return other if one is None else one
    return one * other


def _free_name(name: str, taken: set[str]) -> str:
    """The name, or with a number behind it: a graph that was differentiated before has head gradients already."""
    return name if name not in taken else next(f"{name}_{n}" for n in count(2) if f"{name}_{n}" not in taken)


def _backward(graph: Graph) -> set[Value]:
    """What depends on head gradients, in a graph that was differentiated before."""
    heads = [value for value in graph.inputs if value.node.op.role == "head_grad"]  # type: ignore[attr-defined]
    return depends_on(graph, heads) if heads else set()


def without_hidden_reads(graph: Graph) -> Graph:
    """Operators of which a gradient reads a hidden output (a mean, a deviation) in their parts.

    A record's gradient knows of visible outputs only; its lowering says how the hidden ones depend on the inputs.
    Hidden outputs are read by gradients alone, though not always beside a head: one may be reshaped first.
    Raises AutogradError if there is no lowering.
    """
    read = {value for node in reachable(graph.outputs) for value in node.values_in}
    hidden = {
        node
        for node in graph.operators
        for value in node.outputs[node.op.signature.visible :]
        if value in read and is_floating(value.dtype)
    }
    for node in hidden:
        if not node.op.is_composite:
            raise _no_second(node)
    return graph.map(lambda node, inputs: lower(node, inputs) if node in hidden else None) if hidden else graph


def _no_second(node: Node) -> AutogradError:
    return no_second_gradient(node.op, f" (block {node.scope})" if node.scope else "")


def gradients_add_up(graph: Graph, sources: Sequence[Value]) -> bool:
    """Whether two backward passes with different head gradients give `sources`, together, what one pass with the sum of
    the head gradients gives. The layers that are losses give their own gradient in each pass, and a gradient
    that goes through whole numbers is cut to whole numbers in each.

    The graph is inferred.
    """
    reached = led_to(graph, sources, differentiable=True)
    for node in graph.nodes:
        visible = [value for value in node.outputs[: node.op.signature.visible] if value in reached]
        if any(value not in sources and (node.op.own_gradient or not is_floating(value.dtype)) for value in visible):
            return False
        if visible and not all(gradients_add_up(inner, inner.inputs) for _, inner in node.subgraphs):
            return False
    return True


def depends_on(graph: Graph, sources: Sequence[Value]) -> set[Value]:
    """All Values that a change of `sources` can change."""
    dependent = set(sources)
    for node in graph.nodes:
        if any(value in dependent for value in node.values_in):
            dependent.update(node.outputs)
    return dependent


def led_to(graph: Graph, sources: Sequence[Value], differentiable: bool = False) -> set[Value]:
    """All Values that have a history where `sources` have one. A condition gives none: it only chooses.

    differentiable : only through operators with a gradient, or with a gradient that is not written down
    """
    reached = set(sources)
    for node in graph.nodes:
        if any(value in reached for value in node.values_in) and (
            not differentiable or node.op.differentiable or node.op.refuses_gradient
        ):
            reached.update(
                [
                    value
                    for value in node.outputs
                    if any(item in reached for item in node.leading((value.index,), differentiable))
                ]
                if node.op.subgraphs or node.op.passes_inputs or len(node.outputs) > node.op.signature.visible
                else node.outputs
            )
    return reached


def leading_to(values: Sequence[Value]) -> set[Value]:
    """All Values that lead to these.

    All inputs of an operator of a call lead to its results. The steps of a gradient, which have no names, depend only
    on inputs whose values they read; hidden outputs likewise, because only such steps read them.
    """

    def inputs_of(value: Value) -> Sequence[Value]:
        node = value.node
        if node.name and value.index < node.op.signature.visible:
            return node.leading((value.index,))
        return () if node.is_mask(value.index) else read_directly(value)

    return ancestors(values, inputs_of)
