"""Graph: inputs, outputs and effects over immutable nodes, with the few ways to walk and rebuild it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from hybrid_lab.graph.node import Constant, Input, Node, Value, constant_node, input_node
from hybrid_lab.graph.printer import format_graph
from hybrid_lab.system import forks

if TYPE_CHECKING:
    from hybrid_lab.ops.framework.sizes import Binding

_making = forks.rlock()
#: A rewrite of one node: new inputs -> the values that replace its outputs, or None to keep it.
Rewrite = Callable[[Node, tuple[Any, ...]], Sequence[Value] | None]


class Graph:
    """A program without side effects, except for `effects`: pairs (input, new value) applied after all readers have
    run.

    inputs : Values of Input nodes, in call order
    outputs : Values
    draws : the number of random streams that one run uses up (dead draws count too)
    symbolic, binding : the symbolic graph from which it was bound, and the values of its symbols; None if it was made
        of numbers (see graph.symbolic)
    cache : of a symbolic graph: results of engines that hold for all graphs bound from it, under the engines' own keys
    needs_numbers : of a symbolic graph: the reasons why passes of an engine run again for each batch
    """

    __slots__ = (
        *("__weakref__", "_nodes", "binding", "cache", "draws", "effects", "inputs", "name", "needs_numbers"),
        *("outputs", "symbolic"),
    )

    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    effects: tuple[tuple[Value, Value], ...]
    _nodes: tuple[Node, ...] | None
    symbolic: Graph | None
    binding: Binding | None

    def __init__(
        self,
        inputs: Sequence[Value],
        outputs: Sequence[Value],
        effects: Sequence[tuple[Value, Value]] = (),
        draws: int = 0,
        name: str = "",
    ):
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)
        self.effects, self.draws, self.name = tuple(effects), draws, name
        self._nodes = None
        self.symbolic, self.binding = None, None
        self.cache: dict[Hashable, Any] = {}
        self.needs_numbers: list[str] = []

    def bind(self, binding: Binding) -> Graph:
        """This symbolic graph at sizes that satisfy the guards. Inputs, outputs, effects and nodes are all made on the
        first access to any of them; the nodes correspond to the symbolic graph's nodes, in their order.
        """
        graph = Graph.__new__(Graph)
        graph.draws, graph.name, graph.symbolic, graph.binding = self.draws, self.name, self, binding
        return graph

    def bind_now(self, binding: Binding, formulas: bool = False) -> Graph:
        """`bind` with everything made at once. formulas : sizes of shapes are BoundSizes, which know their formulas"""
        new: dict[Value, Value] = {}
        nodes: list[Node] = []
        shape, size = binding.bound_shape if formulas else binding.shape, binding.size
        for node in self.nodes:
            if isinstance(node.op, Constant) and node.op.sized:
                copy = constant_node(node.op.at(binding), True, scope=node.scope, location=node.location).node
            else:
                copy = Node(
                    node.op,
                    [new[item] if type(item) is Value else size(item) for item in node.inputs],
                    name=node.name,
                    scope=node.scope,
                    location=node.location,
                    draw=node.draw,
                    attrs=node.attrs,
                    shapes=tuple([shape(each) for each in node.shapes]),  # type: ignore[union-attr]
                    dtypes=node.dtypes,
                    composite=node.composite,
                )
            nodes.append(copy)
            new.update(zip(node.outputs, copy.outputs, strict=True))
        graph = self.over(new, nodes)
        graph.symbolic, graph.binding = self, binding
        return graph

    if not TYPE_CHECKING:  # else type checkers would take any name for an attribute

        def __getattr__(self, name: str) -> object:
            # Python calls this for empty slots.
            if name not in ("inputs", "outputs", "effects", "_nodes"):
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            with _making:
                try:
                    return object.__getattribute__(self, name)
                except AttributeError:  # no other thread was faster
                    assert self.symbolic is not None and self.binding is not None
                    bound = self.symbolic.bind_now(self.binding)
                self.inputs, self.outputs, self.effects = bound.inputs, bound.outputs, bound.effects
                self._nodes = bound.nodes
                return object.__getattribute__(self, name)

    def over(self, new: Mapping[Value, Value], nodes: Sequence[Node] | None = None) -> Graph:
        """The graph with other Values in the place of its inputs, outputs and effects. nodes : its nodes, if known"""
        effects = [(new[target], new[value]) for target, value in self.effects]
        inputs, outputs = [new[value] for value in self.inputs], [new[value] for value in self.outputs]
        graph = Graph(inputs, outputs, effects, self.draws, self.name)
        graph._nodes = None if nodes is None else tuple(nodes)
        return graph

    @property
    def pattern(self) -> Graph:
        """The symbolic graph if there is one, else the graph: both have the same structure."""
        return self if self.symbolic is None else self.symbolic

    @property
    def roots(self) -> tuple[Value, ...]:
        """The values that a run must compute: outputs, then the new values of effects."""
        return self.outputs + tuple(new for _, new in self.effects)

    @property
    def nodes(self) -> tuple[Node, ...]:
        """All nodes that a run needs, including every input, each after the nodes it reads, in program order."""
        if self._nodes is None:
            self._nodes = reachable((*self.inputs, *self.roots))
        return self._nodes

    @property
    def operators(self) -> tuple[Node, ...]:
        """The nodes that compute: all except inputs and constants."""
        return tuple(
            node for node in self.nodes if node.inputs or not (isinstance(node.op, Input) or node.op.name == "constant")
        )

    def has(self, *properties: str) -> bool:
        """Whether some operator has one of these properties: `graph.has("random", "signature.aux")`."""
        getters = [attrgetter(name) for name in properties]
        return any(get(node.op) for node in self.operators for get in getters)

    @property
    def has_eight_bits(self) -> bool:
        """Whether it quantizes, also in a loop or branch: another rounding may change 8-bit numbers by a step."""
        return any(
            node.op.family == "quantize" or any(inner.has_eight_bits for _, inner in node.op.subgraphs)
            for node in self.operators
        )

    @property
    def states(self) -> set[Value]:
        """The inputs that some operator updates: running statistics."""
        states: set[Value] = set()
        for node in self.nodes:
            names = node.op.signature.aux
            if names:
                pairs = zip(node.op.signature.inputs, node.inputs, strict=False)
                states.update(item for name, item in pairs if name in names and type(item) is Value and item.is_input)
        return states

    def users(self) -> dict[Value, list[Node]]:
        """Value -> the nodes that read it (each once)."""
        users: dict[Value, list[Node]] = {}
        for node in self.nodes:
            for value in dict.fromkeys(node.values_in):
                users.setdefault(value, []).append(node)
        return users

    def map(self, rewrite: Rewrite) -> Graph:
        """Rebuild node by node. `rewrite(node, inputs)` returns replacement Values or None; untouched nodes stay."""
        return self.substitute({}, rewrite)

    def substitute(self, mapping: dict[Value, Any], rewrite: Rewrite | None = None) -> Graph:
        """As map, starting with some Values already replaced (by Values).

        A new node comes after all older nodes in program order. Therefore, after the first new node, nodes that read a
        state updated by some node are made anew as well: they keep their order.
        """
        new: dict[Value, Any] = dict(mapping)
        states: set[Value] | None = None  # known once a node was made anew
        for node in self.nodes:
            outputs = node.outputs
            if outputs[0] in new and all(map(new.__contains__, outputs)):
                continue
            inputs = tuple([new[item] if type(item) is Value else item for item in node.inputs])
            replacements = rewrite(node, inputs) if rewrite is not None else None
            if replacements is None:
                moved = inputs != node.inputs or (states and not states.isdisjoint(node.values_in))
                replacements = (node.replace(inputs=inputs) if moved else node).outputs
            if states is None and replacements is not outputs:
                states = self.states
            for value, replacement in zip(outputs, replacements, strict=False):
                new.setdefault(value, replacement)
        return self.over(new)

    def __copy__(self) -> Graph:
        return self

    def __deepcopy__(self, memo: object) -> Graph:
        """The graph itself, which is immutable."""
        return self

    def extract(self, inputs: Sequence[Value], outputs: Sequence[Value], names: Sequence[str] | None = None) -> Graph:
        """The part between `inputs` and `outputs` as a graph of its own, with fresh data inputs for `inputs`.

        Other variables that the part reads (parameters) stay inputs, after the given inputs.
        """
        return extract(inputs, outputs, names)

    def __repr__(self) -> str:
        return format_graph(self)


def reachable(values: Iterable[Value], stop: frozenset[Value] | set[Value] = frozenset()) -> tuple[Node, ...]:
    """All nodes that compute `values`, in program order, not going past the Values in `stop`.

    A node is always made after the nodes it reads, so creation order is a topological order.
    """
    seen: set[Node] = set()
    stack = [value.node for value in values if value not in stop]
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            if stop:
                stack += [value.node for value in node.values_in if value not in stop]
            else:
                stack += [value.node for value in node.values_in]
    return tuple(sorted(seen, key=_serial))


_serial = attrgetter("serial")


def ancestors(values: Iterable[Value], inputs_of: Callable[[Value], Iterable[Value]]) -> set[Value]:
    """`values`, and all Values that they come from. inputs_of : Value -> its direct sources"""
    visited, pending = set[Value](), list(values)
    while pending:
        value = pending.pop()
        if value not in visited:
            visited.add(value)
            pending += inputs_of(value)
    return visited


def read_directly(value: Value) -> list[Value]:
    """The inputs of the value's operator from whose values it is computed: without inputs read for their shape only,
    and without states read only to update them.
    """
    op, inputs = value.node.op, value.node.inputs
    return [item for at, item in enumerate(inputs) if isinstance(item, Value) and op.reads_for(value.index, at)]


def values_read(values: Iterable[Value]) -> set[Value]:
    """`values`, and all Values from which they are computed."""
    return ancestors(values, read_directly)


def extract(
    inputs: Sequence[Value], outputs: Sequence[Value], names: Sequence[str] | None = None, name: str = ""
) -> Graph:
    """See Graph.extract. Draw numbers start at zero in the new graph."""
    fresh = [
        input_node(
            names[index] if names else f"data{index}" if len(inputs) > 1 else "data",
            "data",
            shape=value.shape,
            dtype=value.dtype,
        )
        for index, value in enumerate(inputs)
    ]
    nodes = reachable(outputs, set(inputs))
    draws = [node.draw for node in nodes if node.draw is not None]
    first = min(draws, default=0)
    mapping: dict[Value, Value] = dict(zip(inputs, fresh, strict=True))
    variables: list[Value] = []
    new = dict(mapping)
    for node in nodes:
        if isinstance(node.op, Input):
            if node.outputs[0] not in new:
                variables.append(node.outputs[0])
                new[node.outputs[0]] = node.outputs[0]
            continue
        copied = node.replace(
            inputs=tuple(new[item] if isinstance(item, Value) else item for item in node.inputs),
            draw=None if node.draw is None else node.draw - first,
        )
        for value, replacement in zip(node.outputs, copied.outputs, strict=True):
            new.setdefault(value, replacement)
    count = max(draws) - first + 1 if draws else 0
    return Graph([*fresh, *variables], [new[value] for value in outputs], draws=count, name=name)
