"""The calls of Blocks in a graph, nested as they were made: what becomes a function of the file.

net0.features.0   Convolution                     BlockCall ""             BlockCall "features"
net0.features.0   Activation            ->          BlockCall "features"     BlockCall "features.0"
net0.output       FullyConnected                    BlockCall "output"         Convolution, Activation
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Constant, Node, Scope, Value


@dataclass(eq=False)
class BlockCall:
    """One call of a Block.

    path : of the Block, below the Block of the graph; "" for the graph's own Block
    items : the operators and calls in it, in an order in which they can run
    inputs, outputs : the values read from the graph around the call, data before parameters, and the values read from
    the call; constants belong to each call that reads them
    """

    path: str
    items: list[Node | BlockCall] = field(default_factory=list)
    inputs: list[Value] = field(default_factory=list)
    outputs: list[Value] = field(default_factory=list)

    @property
    def nodes(self) -> list[Node]:
        """The operators in it and in the calls below."""
        return [node for item in self.items for node in (item.nodes if isinstance(item, BlockCall) else [item])]


def calls_of(graph: Graph, parameters: Collection[Value], flat: bool = False) -> BlockCall:
    """The call that the whole graph is. flat : with all operators in it, and no calls below"""
    root = BlockCall("")
    known: dict[int, BlockCall] = {}

    def call_of(scope: str) -> BlockCall:
        if flat or not isinstance(scope, Scope) or scope.caller is None:
            return root
        if id(scope) not in known:
            call = known[id(scope)] = BlockCall(scope.partition(".")[2])
            call_of(scope.caller).items.append(call)
        return known[id(scope)]

    for node in graph.operators:
        call_of(node.scope).items.append(node)
    _order(root)
    _connect(root, graph.outputs, parameters)
    return root


def _order(call: BlockCall) -> set[Value]:
    """Put the items into an order in which they can run; returns the values read from outside.

    The operators of one call stand together in a trace, so that the calls can run one after the other. In a changed
    graph, operators of one call may wait for operators between them: such a call is taken apart.
    """
    while True:
        reads = [_order(item) if isinstance(item, BlockCall) else set(item.values_in) for item in call.items]
        order = _sorted(call.items, reads)
        if order is not None:
            call.items = order
            made = {value for node in call.nodes for value in node.outputs}
            return {value for each in reads for value in each if value not in made}
        # A circle: take the calls apart, so that only operators are left, in the order of the graph.
        call.items = [*sorted(call.nodes, key=lambda node: node.serial)]


def _sorted(items: Sequence[Node | BlockCall], reads: Sequence[set[Value]]) -> list[Node | BlockCall] | None:
    """The items so that each comes after the items whose values it reads, else in their order; None if there is
    none.
    """
    maker = {
        value: index
        for index, item in enumerate(items)
        for node in (item.nodes if isinstance(item, BlockCall) else [item])
        for value in node.outputs
    }
    waits = [{maker[value] for value in each if value in maker} - {index} for index, each in enumerate(reads)]
    if all(not needed or max(needed) < index for index, needed in enumerate(waits)):
        return list(items)
    done: dict[int, None] = {}
    while len(done) < len(items):
        ready = [index for index, needed in enumerate(waits) if index not in done and needed <= done.keys()]
        if not ready:
            return None
        done[ready[0]] = None
    return [items[index] for index in done]


def _connect(call: BlockCall, outputs: Sequence[Value], parameters: Collection[Value]) -> None:
    """Fill in the values that each call reads from the graph around it, and the values read from the call."""
    call.outputs = list(outputs)
    nodes = call.nodes
    made = {value for node in nodes for value in node.outputs}
    read = dict.fromkeys(value for node in nodes for value in node.values_in if value not in made)
    outer = [value for value in read if not isinstance(value.node.op, Constant)]
    call.inputs = sorted(outer, key=lambda value: value in parameters)
    inner = [item for item in call.items if isinstance(item, BlockCall)]
    if not inner:
        return
    readers: dict[Value, set[int]] = {}
    for index, item in enumerate(call.items):
        for node in item.nodes if isinstance(item, BlockCall) else [item]:
            for value in node.values_in:
                readers.setdefault(value, set()).add(index)
    wanted = set(outputs)
    for index, item in enumerate(call.items):
        if isinstance(item, BlockCall):
            values = [value for node in item.nodes for value in node.outputs]
            _connect(
                item, [value for value in values if value in wanted or readers.get(value, set()) - {index}], parameters
            )
