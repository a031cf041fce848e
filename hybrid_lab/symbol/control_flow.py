"""`sym.contrib.foreach`, `while_loop` and `cond`: the body runs once on Symbols and becomes a graph inside one node."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from hybrid_lab.diagnostics.errors import ShapeError
from hybrid_lab.diagnostics.location import capture
from hybrid_lab.graph.graph import Graph, reachable
from hybrid_lab.graph.loops.body import Body
from hybrid_lab.graph.loops.composed import ControlFlow
from hybrid_lab.graph.loops.control_flow import Cond, Foreach, WhileLoop
from hybrid_lab.graph.node import Constant, Input, Node, Value, input_node
from hybrid_lab.ndarray import control_flow as eager
from hybrid_lab.ndarray.control_flow import flatten, regroup
from hybrid_lab.ops.framework.operator import get
from hybrid_lab.symbol import scopes, tracing
from hybrid_lab.symbol.symbol import Symbol, _operand, compose, free_draw, make_symbol


def foreach(body: Callable[..., Any], data: Any, init_states: Any, name: str = "foreach") -> tuple[Any, Any]:
    """Run `body(entry, states)` for every entry of data along its first axis; see nd.contrib.foreach."""
    items, form = flatten(data, "foreach: data")
    states, state_form = flatten(init_states, "foreach: init_states")
    if not items:
        raise ShapeError("foreach: there is no data to iterate over")
    sketch = _Sketch(name)
    entries = sketch.inputs("data", items, entry=True)
    inner = sketch.inputs("state", states)
    with sketch.drawing():
        outputs, new = body(regroup(iter(entries), form), regroup(iter(inner), state_form))
    leaves, output_form = flatten(outputs, "foreach: the outputs of the body")
    new_states, _ = flatten(new, "foreach: the new states")
    if len(new_states) != len(states):
        raise ShapeError(f"foreach: there are {len(states)} states, and a step returned {len(new_states)}")
    sketch.ends([*leaves, *new_states])
    (graph,), captures = sketch.cut()
    op = Foreach(bodies=(Body(graph),), num_data=len(items), num_states=len(states), num_out=len(leaves))
    results = sketch.node(op, [*items, *states], captures)
    return regroup(iter(results[: len(leaves)]), output_form), regroup(iter(results[len(leaves) :]), state_form)


def while_loop(
    cond: Callable[..., Any],
    func: Callable[..., Any],
    loop_vars: Any,
    max_iterations: int | None = None,
    name: str = "while_loop",
) -> tuple[Any, Any]:
    """Run `func(*loop_vars)` while `cond(*loop_vars)` is true; see nd.contrib.while_loop."""
    if max_iterations is None:
        raise ValueError("while_loop: max_iterations must be given; it is the length of the stacked outputs")
    variables, form = flatten(loop_vars, "while_loop: loop_vars")
    if not variables:
        raise ValueError("while_loop: loop_vars holds no tensor")
    sketch = _Sketch(name)
    inner = sketch.inputs("var", variables)
    with sketch.drawing():
        sketch.ends([cond(*eager.arguments(inner, form))])
    with sketch.drawing():
        outputs, new = func(*eager.arguments(inner, form))
    leaves, output_form = flatten([] if outputs is None else outputs, "while_loop: the outputs of func")
    new_variables, _ = flatten(new, "while_loop: the new loop_vars")
    if len(new_variables) != len(variables):
        raise ShapeError(f"while_loop: there are {len(variables)} loop_vars, and func returned {len(new_variables)}")
    sketch.ends([*leaves, *new_variables])
    graphs, captures = sketch.cut()
    op = WhileLoop(
        bodies=tuple(map(Body, graphs)),
        num_states=len(variables),
        num_out=len(leaves),
        max_iterations=int(max_iterations),
    )
    results = sketch.node(op, variables, captures)
    return regroup(iter(results[: len(leaves)]), output_form), regroup(iter(results[len(leaves) :]), form)


def cond(pred: object, then_func: Callable[[], object], else_func: Callable[[], object], name: str = "cond") -> Any:
    """`then_func()` if pred is true, else `else_func()`; see nd.contrib.cond."""
    sketch = _Sketch(name)
    forms = []
    for func in (then_func, else_func):
        with sketch.drawing():
            leaves, form = flatten(func(), "cond: the result of a branch")
        sketch.ends(leaves)
        forms.append(form)
    if forms[0] != forms[1]:
        raise ShapeError("cond: the two branches return different numbers or arrangements of tensors")
    graphs, captures = sketch.cut()
    op = Cond(bodies=tuple(map(Body, graphs)), num_out=len(leaves))
    return regroup(iter(sketch.node(op, [pred], captures)), forms[0])


class _Sketch:
    """The bodies of one call while they are traced: their own inputs, outputs and draw numbers.

    Nodes from before the sketch began are outside; a body that reads one captures it.
    """

    def __init__(self, name: str):
        self.name = scopes.NameManager.current.get(None, name)
        self.trace = tracing.current()
        self.first = input_node("").node.serial
        self.own: list[Value] = []
        self.outputs: list[list[Value]] = []
        self.spans: list[tuple[int, int]] = []

    def inputs(self, kind: str, items: Sequence[object], entry: bool = False) -> list[Symbol]:
        """The variables that the bodies see for these Symbols: of the same types, or of the types of their entries."""
        symbols = []
        for index, item in enumerate(items):
            value = input_node(f"{self.name}_{kind}{index}", tracing.INSIDE)
            self.own.append(value)
            known = self.trace.types.get(_value(item)) if self.trace is not None else None
            if known is not None and self.trace is not None:
                shape, dtype = known
                self.trace.types[value] = ((tuple(shape[1:]) or (1,)) if entry else shape, dtype)
            symbols.append(Symbol((value,)))
        return symbols

    @contextmanager
    def drawing(self) -> Iterator[None]:
        """Trace one body: its draws are numbered from 0."""
        trace = self.trace
        if trace is None:
            start = free_draw(0)
            yield
            self.spans.append((start, free_draw(0)))
            return
        outside, trace.draws = trace.draws, 0
        try:
            yield
            self.spans.append((0, trace.draws))
        finally:
            trace.draws = outside

    def ends(self, outputs: Sequence[object]) -> None:
        """Set the outputs of the body that was traced last. Each becomes a separate value, computed inside the body."""
        values: list[Value] = []
        for item in outputs:
            value = _value(item)
            if self.trace is not None:
                value = self.trace.outside_pause(value)
            if value.node.serial < self.first or value.is_input or value in values:
                value = _value(compose(get("identity").bind(), [item], None, hint="identity"))
            values.append(value)
        self.outputs.append(values)

    def cut(self) -> tuple[list[Graph], list[Value]]:
        """The bodies as graphs over their own inputs and captured values; all take the same inputs."""
        captures: dict[Value, None] = {}
        inside = []
        for outputs in self.outputs:
            stop = {value for node in reachable(outputs) if self._is_outside(node) for value in node.outputs}
            nodes = reachable(outputs, stop)
            captures.update(dict.fromkeys(value for node in nodes for value in node.values_in if value in stop))
            inside.append(nodes)
        graphs = [
            self._graph(nodes, outputs, list(captures), span)
            for nodes, outputs, span in zip(inside, self.outputs, self.spans, strict=True)
        ]
        return graphs, list(captures)

    def _is_outside(self, node: Node) -> bool:
        """Whether a body that reads the node captures it: earlier nodes, parameters and embedded arrays."""
        if isinstance(node.op, Input) and node.op.role == tracing.INSIDE and node.serial > self.first:
            if node.outputs[0] not in self.own:
                raise tracing.leaked(node)
            return False
        return node.serial < self.first or isinstance(node.op, (Input, Constant))

    def _graph(
        self, nodes: Sequence[Node], outputs: list[Value], captures: list[Value], span: tuple[int, int]
    ) -> Graph:
        new: dict[Value, Value] = {}
        inputs = []
        taken: set[str] = set()
        for value in [*self.own, *captures]:
            inputs.append(_variable(value, taken))
            new[value] = inputs[-1]
        for node in nodes:
            if all(value in new for value in node.outputs):
                continue
            operands = tuple(new[item] if isinstance(item, Value) else item for item in node.inputs)
            copy = node.replace(inputs=operands, draw=None if node.draw is None else node.draw - span[0])
            new.update(zip(node.outputs, copy.outputs, strict=True))
        return Graph(inputs, [new[value] for value in outputs], draws=span[1] - span[0], name=self.name)

    def node(self, op: ControlFlow, inputs: Sequence[object], captures: Sequence[Value]) -> list[Symbol]:
        """The finished node; its visible outputs, one Symbol each."""
        trace = self.trace
        node = Node(
            op,
            [*(_operand(op, at, "data", item, self.name) for at, item in enumerate(inputs)), *captures],
            name=scopes.NameManager.current.get(None, op.name),
            scope=trace.scope if trace else "",
            location=capture(),
            draw=trace.next_draw() if trace else free_draw(),
        )
        if trace is not None:  # operators of the bodies are inside of the node
            trace.nodes = [each for each in trace.nodes if each.serial < self.first]
        whole = make_symbol(node)
        if len(whole.outputs) == 1:
            return [whole]
        return [whole[index] for index in range(len(whole.outputs))]


def _value(item: object) -> Value:
    if not isinstance(item, Symbol):
        raise tracing.refuse("HL164", tensor="an output of a body")
    if len(item.outputs) != 1:
        raise ShapeError(f"{item!r} has {len(item.outputs)} outputs; pick one with [i]")
    return item.outputs[0]


def _variable(value: Value, taken: set[str]) -> Value:
    """The variable that stands for a value inside a body, under a name of its own."""
    source = value.node.op
    if not isinstance(source, Input) or source.role == tracing.INSIDE:
        name = value.node.name if len(value.node.outputs) == 1 else f"{value.node.name}_output{value.index}"
        return input_node(_fresh(name or "value", taken), "data", shape=value.shape, dtype=value.dtype)
    name = _fresh(value.node.name, taken)
    return input_node(name, source.role, shape=value.shape, dtype=value.dtype, attrs=value.node.attrs)


def _fresh(name: str, taken: set[str]) -> str:
    free, count = name, 0
    while free in taken:
        count += 1
        free = f"{name}_{count}"
    taken.add(free)
    return free
