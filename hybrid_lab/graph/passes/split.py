"""Split: cut the joint graph into a forward and a backward graph, keeping as few bytes between them as possible.

y = square(z) of z = dot(x, w):
forward     z = dot(x, w);  returns square(z), and z to keep: a product is never computed twice
backward    d = head_grad0 * (z * 2.0);  returns _dot_rhs_grad(d, x): z * 2.0 is cheaper made again than kept
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

from hybrid_lab.graph.call_graphs import Source, Split
from hybrid_lab.graph.graph import Graph, reachable
from hybrid_lab.graph.node import Constant, Input, Node, Value, input_node
from hybrid_lab.graph.passes.differentiate import depends_on
from hybrid_lab.graph.passes.flow import INFINITE, FlowNetwork
from hybrid_lab.ops.framework.pointwise import Elementwise
from hybrid_lab.ops.framework.sizes import Binding


def split(joint: Graph, num_inputs: int, num_outputs: int) -> Split:
    """Cut `joint`: inputs [original inputs, head gradients], outputs [original outputs, gradients].

    A minimum cut weighted in bytes decides what is saved; see `recompute_price` for what may be computed twice instead.
    The result depends on the graph alone.
    """
    return Cutter(joint, num_inputs, num_outputs).split()


_nbytes = attrgetter("nbytes")


class Cutter:
    """Cuts one joint graph, at any sizes: what does not depend on them is looked up once."""

    def __init__(self, joint: Graph, num_inputs: int, num_outputs: int):
        self.joint, self.num_outputs = joint, num_outputs
        self.inputs, self.heads = joint.inputs[:num_inputs], joint.inputs[num_inputs:]
        self.outputs, self.gradients = joint.outputs[:num_outputs], joint.outputs[num_outputs:]
        updated = {target for target, _ in joint.effects}
        self._origins: dict[Value, Source] = {}
        for kind, values in (("input", self.inputs), ("output", self.outputs), ("head", self.heads)):
            for index, value in enumerate(values):
                # An input that an effect overwrites is gone by the time of the backward: keeping it means saving a
                # copy.
                if value not in updated:
                    self._origins.setdefault(value, (kind, index))
        late = depends_on(joint, list(self.heads))
        self._forward = set(reachable(self.outputs + tuple(new for _, new in joint.effects)))
        self._early = [
            node
            for node in joint.nodes
            if not isinstance(node.op, Constant) and not any(value in late for value in node.outputs)
        ]
        self._needed = {
            value for node in joint.nodes if any(out in late for out in node.outputs) for value in node.values_in
        } | set(self.gradients)
        self._network = FlowNetwork(2)
        self._vertex: dict[Node | Value, int] = {}
        self._priced: list[tuple[int, Node]] = []
        self._sized: list[tuple[int, Value]] = []
        self._splits: dict[tuple[Value, ...], Split] = {}
        self._latest: tuple[tuple[int, ...] | None, Split] | None = None  # values of the symbols
        self._build()

    def split(self, binding: Binding | None = None) -> Split:
        """The cheapest cut, at these values of symbolic sizes. Equal kept Values give the same Split."""
        values = None if binding is None else binding.values
        if self._latest is None or self._latest[0] != values:
            kept = tuple(self._kept(_nbytes if binding is None else binding.nbytes))
            if kept not in self._splits:
                self._splits[kept] = self._parts(kept)
            self._latest = values, self._splits[kept]
        return self._latest[1]

    def _parts(self, kept: Sequence[Value]) -> Split:
        """Both graphs, if the backward receives these Values."""
        joint, origins = self.joint, dict(self._origins)
        saved = [value for value in kept if value not in origins]
        for index, value in enumerate(saved):
            origins[value] = ("saved", index)
        boundary = {*kept, *self.heads}
        nodes = reachable(self.gradients, boundary)
        read = {value for node in nodes for value in node.values_in} | set(self.gradients)
        borders = sorted(
            (value for value in boundary if value in read),
            key=lambda value: _ORDER[origins[value][0]] + origins[value][1],
        )
        backward = _cut_out(joint, nodes, borders, self.gradients, origins)
        forward = Graph(self.inputs, [*self.outputs, *saved], joint.effects, joint.draws, joint.name)
        return Split(forward, backward, tuple(origins[value] for value in borders))

    def _kept(self, nbytes: Callable[[Value], int]) -> list[Value]:
        """The Values that the backward receives from the forward, in program order. nbytes : of a Value

        The network: a vertex per node (on the source side: it runs in the forward only) and per value (on the source
        side: the backward does not have it). Cutting node -> value keeps the value, cutting source -> node computes it
        again. What runs in the forward and never again is one with the source.
        """
        for edge, node in self._priced:
            self._network.set_capacity(edge, recompute_price(node, sum(map(nbytes, node.outputs))) or 0)
        for edge, value in self._sized:
            self._network.set_capacity(edge, (nbytes(value) + _HANDOVER) * _BYTE)
        behind = self._network.minimum_cut(_SOURCE, _SINK)
        return [
            value
            for node in self._early
            for value in node.outputs
            if self._vertex[node] not in behind and self._vertex[value] in behind
        ]

    def _build(self) -> None:
        """The network of `_kept`, without what depends on bytes."""
        network, vertices = self._network, self._vertex
        for node in self._early:
            again = node in self._forward
            if isinstance(node.op, Input) or (again and recompute_price(node, 0) is None):
                vertex = _SOURCE
            else:
                vertex = network.add_vertex()
                if again:
                    self._priced.append((network.add_edge(_SOURCE, vertex, 0), node))
                else:
                    # Only gradients need it: it runs once either way, and rather later than earlier.
                    network.add_edge(vertex, _SINK, 1)
                for value in node.values_in:
                    if value in vertices:
                        network.add_edge(vertices[value], vertex, INFINITE)
            vertices[node] = vertex
            for value in node.outputs:
                vertices[value] = network.add_vertex()
                if value not in self._origins:
                    self._sized.append((network.add_edge(vertex, vertices[value], 0), value))
                if value in self._needed:
                    network.add_edge(vertices[value], _SINK, INFINITE)
        for node in self.joint.nodes:
            if node.op.name in _COMPARISONS:
                compared = [vertices[base] for base in map(_base, node.values_in) if base in vertices]
                if len(compared) == 2:
                    network.add_edge(compared[0], compared[1], INFINITE)
                    network.add_edge(compared[1], compared[0], INFINITE)


_SOURCE, _SINK = 0, 1
_ORDER = {"input": 0, "output": 1 << 24, "saved": 2 << 24, "head": 3 << 24}


# -- what to keep ----------------------------------------------------------------------------------------------

#: Everything is priced in 1/64 byte, so that a preference can weigh less than the smallest value.
_BYTE = 64
#: What it costs to hand one more array over, in bytes: allocating it and carrying it on the tape.
_HANDOVER = 256
#: A gradient finds the places of a maximum by comparing numbers with it. Two engines, or two fused kernels, may round
#: one number differently: so either both sides of a comparison are computed again, or neither is.
_COMPARISONS = frozenset(
    "broadcast_equal broadcast_not_equal broadcast_greater broadcast_greater_equal broadcast_lesser "
    "broadcast_lesser_equal".split()
)


def _base(value: Value) -> Node | None:
    """The operator that rounds a value: not a view of it, nor an input or constant, which is the same everywhere."""
    node = value.node
    while node.op.view or node.op.identity:
        node = node.values_in[0].node
    return None if isinstance(node.op, (Input, Constant)) else node


def recompute_price(node: Node, size: int) -> int | None:
    """The price of computing `node` a second time in the backward, in 1/64 byte; None: never. size : of its outputs

    Views are free, cheap pointwise arithmetic costs a quarter of its result, random numbers (draws are counters, so
    they come out the same) and slow functions more than keeping them; products, convolutions, poolings, reductions,
    orderings, recurrent layers, control flow and operators in Python never run twice.
    """
    if node.op.view or node.op.name in ("identity", "BlockGrad"):
        return 1
    if node.op.subgraphs or node.op.family in ("rnn", "custom"):
        return None
    if node.op.random:
        return size * _BYTE * 2
    moves = node.op.family in ("movement", "slicing", "creation")
    if not isinstance(node.op, Elementwise) and node.inputs and not moves:
        return None
    if node.op.expensive:
        return size * _BYTE * 2
    return size * _BYTE // 4 + 1


# -- building the backward -------------------------------------------------------------------------------------


def _cut_out(
    joint: Graph,
    nodes: tuple[Node, ...],
    borders: list[Value],
    gradients: tuple[Value, ...],
    origins: dict[Value, Source],
) -> Graph:
    """The nodes as a graph whose inputs are fresh variables in the place of `borders`."""
    new: dict[Value, Any] = {}
    for value in borders:
        kind, index = origins[value]
        name = value.node.name if kind in ("input", "head") else f"{kind}{index}"
        new[value] = input_node(name, "head_grad" if kind == "head" else "saved", shape=value.shape, dtype=value.dtype)
    fresh = [new[value] for value in borders]
    for node in nodes:
        if isinstance(node.op, Input):
            continue
        inputs = tuple(new.get(item, item) if isinstance(item, Value) else item for item in node.inputs)
        copied = node if isinstance(node.op, Constant) else node.replace(inputs=inputs)
        for value, replacement in zip(node.outputs, copied.outputs, strict=True):
            new.setdefault(value, replacement)
    return Graph(fresh, [new[value] for value in gradients], (), joint.draws, f"{joint.name} backward".strip())
