"""autograd.get_symbol: the recorded history of an array as a Symbol."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any, Protocol, runtime_checkable

from hybrid_lab.diagnostics.errors import AutogradError
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Node, Value, input_node
from hybrid_lab.ndarray import tape
from hybrid_lab.ndarray.backward import Identity
from hybrid_lab.ndarray.function import FunctionEntry
from hybrid_lab.ndarray.indexing import IndexEntry
from hybrid_lab.ndarray.invoke import EagerEntry, ZeroEntry
from hybrid_lab.ndarray.ndarray import NDArray
from hybrid_lab.ops.framework.operator import Operator, get
from hybrid_lab.ops.layers.softmax import SoftmaxWith
from hybrid_lab.symbol.indexing import index_operators
from hybrid_lab.symbol.symbol import Symbol, free_draw


@runtime_checkable
class RecordedGraph(Protocol):
    """A step of the tape that is a whole graph, as a compiled call is."""

    @property
    def recorded_graph(self) -> Graph:
        """The graph; it has an input for each input of the recorded step."""
        ...


def symbol_of(array: NDArray) -> Symbol:
    """See `autograd.get_symbol`."""
    if not isinstance(array, NDArray):
        raise AutogradError(f"get_symbol needs an NDArray, not {type(array).__name__}")
    link = array.tape_link
    if link is None or (type(link) is tape.Output and link.node.entry is None):
        raise AutogradError(
            "get_symbol needs an array that was computed under autograd.record() and was not differentiated yet"
        )
    return Symbol((_History(link).value,))


class _History:
    """The graph behind one link of the tape. value : the link's value"""

    def __init__(self, link: tape.Leaf | tape.Output) -> None:
        self._leaves: dict[tape.Leaf, Value] = {}
        self._outputs: dict[tape.Node, Sequence[Value]] = {}
        self._variables, self._steps = count(), count()
        for node in _steps_behind(link):
            self._outputs[node] = self._step(node)
        self.value = self._linked(link, "")

    def _linked(self, link: tape.Link, role: str) -> Value:
        """The value for a link: one variable for all reads of an array with a gradient, a new variable for each read of
        an array without history.
        """
        if type(link) is tape.Output:
            return self._outputs[link.node][link.index]
        if type(link) is not tape.Leaf:
            return input_node(f"null{next(self._variables)}", role)
        if link not in self._leaves:
            grad = link.grad
            name = f"var{next(self._variables)}"
            self._leaves[link] = input_node(name, "data", shape=grad.shape, dtype=grad.host_view.dtype)
        return self._leaves[link]

    def _step(self, node: tape.Node) -> Sequence[Value]:
        """The outputs of a recorded step."""
        entry = node.entry
        if isinstance(entry, EagerEntry):
            return self._operator(entry.op, node, entry.immediates)
        if isinstance(entry, ZeroEntry):
            return self._operator(entry.op, node, entry.immediates)
        if isinstance(entry, IndexEntry) and not entry.advanced:
            return (self._indexed(self._linked(node.links[0], "data"), entry),)
        if isinstance(entry, RecordedGraph):
            return self._graph(entry.recorded_graph, node)
        if isinstance(entry, FunctionEntry) and entry.operator is not None:
            operands = [self._linked(link, "data") for link in node.links]
            states = entry.operator.signature.aux
            return self._made(entry.operator, [*operands, *(self._linked(None, "aux") for _ in states)])
        if isinstance(entry, Identity):
            return self._made(get("identity").bind(), [self._linked(node.links[0], "data")])
        assert entry is not None
        raise AutogradError(f"get_symbol: {entry.name} is a step of this history, and has no form in a Symbol")

    def _operator(self, op: Operator, node: tape.Node, immediates: Sequence[object]) -> Sequence[Value]:
        names = (*op.signature.inputs, *[""] * len(node.links))
        operands = [
            self._linked(link, "aux" if names[place] in op.signature.aux else "data") if number is None else number
            for place, (link, number) in enumerate(zip(node.links, immediates, strict=True))
        ]
        return self._made(_neutral(op), operands)

    def _made(self, op: Operator, operands: Sequence[Any]) -> Sequence[Value]:
        draw = free_draw() if op.random else None
        return Node(op, operands, name=f"node_{next(self._steps)}", draw=draw).outputs[: op.signature.visible]

    def _indexed(self, value: Value, entry: IndexEntry) -> Value:
        symbol = Symbol((value,))
        for op in index_operators(symbol.as_np_ndarray() if entry.is_np else symbol, entry.key):
            (value,) = self._made(op, [value])
        return value

    def _graph(self, graph: Graph, node: tape.Node) -> Sequence[Value]:
        """The outputs of a compiled call, whose nodes keep their names."""
        states, first = graph.states, free_draw(graph.draws)
        starts = {
            value: self._linked(link, "aux" if value in states else "data")
            for value, link in zip(graph.inputs, node.links, strict=True)
        }

        def numbered(inner: Node, inputs: tuple[Any, ...]) -> Sequence[Value] | None:
            return None if inner.draw is None else inner.replace(inputs=inputs, draw=first + inner.draw).outputs

        return graph.substitute(dict(starts), numbered).outputs


def _steps_behind(link: tape.Link) -> list[tape.Node]:
    """All recorded steps behind a link, in the order of recording."""
    found: set[tape.Node] = set()
    pending = [link]
    while pending:
        item = pending.pop()
        if type(item) is tape.Output and item.node not in found:
            if item.node.entry is None:
                raise AutogradError("get_symbol: a part of this history was used up by an earlier backward()")
            found.add(item.node)
            pending += item.node.links
    return sorted(found, key=lambda node: node.order)


def _neutral(op: Operator) -> Operator:
    """The operator without its mode, if only hidden attributes hold the mode."""
    if isinstance(op, SoftmaxWith):
        record = get(op.kind)
        return record.bind(**{name: value for name, value in op.attributes.items() if name in record.fields})
    hidden = {name: field.default for name, field in op.fields.items() if name.startswith("_")}
    plain: Operator = op.variant(**hidden) if hidden and op.mode_dependent else op
    return plain if op in (plain.bind_mode(True), plain.bind_mode(False)) else op
