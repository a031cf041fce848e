"""Plans: the groups of a fused graph, kept for every batch of its symbolic graph.

Fusing takes half a second for a ResNet's training step, writing the kernels of its groups less than a tenth. So the
groups stay those of the first batch - they depend on the structure of the graph and on what is faster, and every group
that can be written is right - while kernels are written for the sizes of each batch. Where a group cannot be written
any more, the graph is fused as if there had been no plan.

A `History` says for each group which tile choices and which texts earlier batches had, so that the next text is one of
these wherever possible, and its binary is at hand (see writing/reuse.py).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hybrid_lab.engines.triton.fusing.fusion import Fusion, Plan, fuse
from hybrid_lab.engines.triton.fusing.groups import views_for_each_reader
from hybrid_lab.engines.triton.running import availability
from hybrid_lab.engines.triton.support import misfit_of_sizes, refusal
from hybrid_lab.engines.triton.writing.body import Refused
from hybrid_lab.engines.triton.writing.reuse import Outcomes, Writing, writing
from hybrid_lab.engines.triton.writing.source import KernelSource, Text
from hybrid_lab.engines.triton.writing.words import Remark, Said, label
from hybrid_lab.engines.triton.writing.write import write_kernels
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Constant, Node, Value, input_node
from hybrid_lab.graph.partition import Region
from hybrid_lab.graph.symbolic import SymbolicConstant, SymbolicGraph
from hybrid_lab.ops.sizes import Binding, shapes_key

Kernels = tuple[KernelSource, ...]
Write = Callable[[Region], Kernels]
#: By what factor each symbol may differ for tile choices to be repeated.
NEAR = 4
#: The first texts of a group have numbers for all sizes; those of later batches arguments for what has varied.
LITERAL = 2
#: What a KernelSource computes of itself that does not depend on its values.
SAME = ("code", "passed", "signature", "multiples", "fixed")
#: So many sets of tile choices, and so many texts, are kept for a group.
MOST = 8


def fused(graph: Graph, precision: str) -> Fusion:
    """The groups and kernels of a lowered graph. precision : how float32 is multiplied, see write_kernels"""
    write = functools.partial(_checked, precision=precision)
    symbolic, binding = graph.symbolic, graph.binding
    if symbolic is None or binding is None:
        return fuse(graph, refusal, functools.partial(write_kernels, precision=precision))
    key = "plan", precision, availability.multiplies_float64(), symbolic.ones(binding)
    plan: FusionPlan | None = symbolic.cache.get(key)
    found = None if plan is None else plan.at(binding, write)
    if found is None:
        outcomes: dict[int, tuple[Kernels, Outcomes]] = {}
        found = fuse(graph, refusal, functools.partial(write_kernels, precision=precision), _recording(write, outcomes))
        assert found.plan is not None
        symbolic.cache[key] = FusionPlan(symbolic, binding, found.plan, outcomes)
    return found


def _recording(write: Write, outcomes: dict[int, tuple[Kernels, Outcomes]]) -> Write:
    """The writer, which notes the outcomes of choices by the kernels' id."""

    def recorded(region: Region) -> Kernels:
        with writing() as made:
            kernels = write(region)
        outcomes[id(kernels)] = kernels, tuple(made.outcomes)
        return kernels

    return recorded


def _checked(region: Region, precision: str) -> Kernels:
    """As write_kernels, where the sizes fit."""
    for node in region.nodes:
        if why := misfit_of_sizes(node):
            raise Refused(why)
    return write_kernels(region, precision)


class FusionPlan:
    """The groups of a symbolic graph.

    plan, binding : of the graph that was fused; outcomes : id of a group's kernels -> them and their tile choices
    """

    def __init__(
        self, symbolic: SymbolicGraph, binding: Binding, plan: Plan, outcomes: dict[int, tuple[Kernels, Outcomes]]
    ):
        views = views_for_each_reader(symbolic.graph)
        fusion = plan.on(views).fusion()
        guards = symbolic.guards
        self._fused, self._before = SymbolicGraph(fusion.graph, guards), SymbolicGraph(fusion.given, guards)
        self._fusion, self._count = fusion, guards.count
        histories: dict[Any, History] = {}
        self._histories: list[History] = []
        for group, kernels in zip(fusion.groups, plan.kernels.values(), strict=True):
            history = histories.setdefault(_key(group), History(group))
            history.remember(binding, kernels, outcomes[id(kernels)][1])
            self._histories.append(history)

    def at(self, binding: Binding, write: Write) -> Fusion | None:
        """The groups and their kernels at these sizes; None where a group cannot be written, or an operator without a
        kernel may have one now.
        """
        if not binding.satisfies(self._count):
            return None
        found = self._bound(binding)
        if any(refusal(node) != why for node, why in found.refused.items()):
            return None
        first: dict[int, tuple[Region, Kernels]] = {}
        for group, history in zip(found.groups, self._histories, strict=True):
            known = first.get(id(history))
            if known is None:
                try:
                    known = first[id(history)] = group, history.write(group, binding, write)
                except Refused:
                    return None
                found.kernels[group] = known[1]
            else:
                found.kernels[group] = _for_equal_region(known[1], known[0], group)
        return found

    def _bound(self, binding: Binding) -> Fusion:
        """The groups at these sizes, without kernels."""
        graph = self._fused.bound(binding)
        nodes = dict(zip(self._fused.graph.nodes, graph.nodes, strict=True))

        def values(items: Sequence[Value]) -> tuple[Value, ...]:
            return tuple([nodes[item.node].outputs[item.index] for item in items])

        def before() -> tuple[Graph, dict[Node, Node]]:
            given = self._before.bind(binding)
            of = dict(zip(self._before.graph.nodes, given.nodes, strict=True))
            copies = self._fusion.copied.items()
            return given, {nodes[node]: of[original] for node, original in copies if node in nodes}

        groups = [
            Region(tuple([nodes[node] for node in group.nodes]), values(group.inputs), values(group.outputs))
            for group in self._fusion.groups
        ]
        refused = {nodes[node]: why for node, why in self._fusion.refused.items()}
        apart = {nodes[node]: why for node, why in self._fusion.apart.items()}
        return Fusion(graph, before, groups, {}, refused, apart)


@dataclass
class History:
    """What was written for equal groups so far.

    group : with symbolic sizes
    choices : values of the symbols -> the outcomes of the tile choices for them
    texts : texts of the kernels -> the sizes that they were first written for
    """

    group: Region
    choices: dict[tuple[int, ...], Outcomes] = field(default_factory=dict)
    texts: dict[tuple[str, ...], Binding] = field(default_factory=dict)

    def write(self, region: Region, binding: Binding, write: Write) -> Kernels:
        """The kernels of the group at these sizes. Raises Refused."""
        repeated = self.near(binding.values)
        try:
            with writing(repeated) as made:
                kernels = write(region)
        except Refused:
            if not repeated:
                raise
            with writing() as made:
                kernels = write(region)
        if _texts(kernels) not in self.texts and len(self.texts) >= LITERAL and not _multiplies(kernels):
            shadow, back = _with_bound_sizes(region, self.group, binding)
            with writing(tuple(made.outcomes), list(self.texts.values())) as made:
                kernels = tuple([_moved(_with_arguments(source, made), back) for source in write(shadow)])
        self.remember(binding, kernels, tuple(made.outcomes))
        return kernels

    def near(self, values: tuple[int, ...]) -> Outcomes:
        """The tile choices of the nearest sizes, if these are near enough."""
        nearest = min(self.choices, key=lambda known: _ratio(values, known), default=None)
        return () if nearest is None or _ratio(values, nearest) > NEAR else self.choices[nearest]

    def remember(self, binding: Binding, kernels: Kernels, outcomes: Outcomes) -> None:
        """Keep what was written, if it is new."""
        if outcomes not in self.choices.values():
            self.choices[binding.values] = outcomes
        self.texts.setdefault(_texts(kernels), binding)
        if len(self.choices) > MOST:
            del self.choices[next(iter(self.choices))]
        if len(self.texts) > MOST:
            del self.texts[next(iter(self.texts))]


def _ratio(one: tuple[int, ...], other: tuple[int, ...]) -> float:
    """By what factor two sets of sizes differ at most."""
    return max([max(a, b) / max(min(a, b), 1) for a, b in zip(one, other, strict=True)], default=1.0)


def _texts(kernels: Kernels) -> tuple[str, ...]:
    return tuple([source.code for source in kernels])


def _multiplies(kernels: Kernels) -> bool:
    """Whether a kernel is of a product, whose loops would divide by arguments."""
    return any("product" in source.kind or "attention" in source.kind for source in kernels)


# -- equal groups ------------------------------------------------------------------------------------------------------


def values_of(nodes: Sequence[Node]) -> list[Value]:
    """What operators read and make, each once, in the order in which it comes up."""
    return list(dict.fromkeys([value for node in nodes for value in (*node.values_in, *node.outputs)]))


def _key(group: Region) -> Any:
    """Equal for groups of a symbolic graph of which equal kernels are written at all sizes."""
    inside = set(group.nodes)
    numbers = {value: number for number, value in enumerate(values_of(group.nodes))}
    outside = tuple([
        (label(value), value.is_input, shapes_key((value.shape,)), value.dtype, _constant_key(value))
        if value.node not in inside else None
        for value in numbers
    ])  # fmt: skip
    nodes = tuple([
        (node.op, node.draw, shapes_key(node.shapes or ()), node.dtypes,
         tuple([numbers[item] if isinstance(item, Value) else repr(item) for item in node.inputs]))
        for node in group.nodes
    ])  # fmt: skip
    return outside, nodes, tuple([numbers[value] for value in group.outputs])


def _constant_key(value: Value) -> Any:
    op = value.node.op
    if type(op) is SymbolicConstant:
        return op.key
    return repr(op.array.item()) if isinstance(op, Constant) and op.array.size == 1 else isinstance(op, Constant)


def _for_equal_region(kernels: Kernels, region: Region, other: Region) -> Kernels:
    """The kernels of a region for another one with an equal key."""
    values = dict(zip(values_of(region.nodes), values_of(other.nodes), strict=True))
    nodes = dict(zip(region.nodes, other.nodes, strict=True))
    return tuple([_moved(source, values, nodes) for source in kernels])


def _moved(source: KernelSource, values: dict[Value, Value], nodes: dict[Node, Node] | None = None) -> KernelSource:
    """A kernel for other values of equal types, and with comments about other nodes.

    values : grows by the temporaries that one kernel leaves for the next
    """
    for value in (*source.inputs, *source.outputs):
        if value not in values:
            values[value] = input_node(value.node.name, shape=tuple(map(int, value.shape)), dtype=value.dtype)
    written = source.written
    if isinstance(written, Text) and nodes is not None:
        written = written.about(functools.partial(_said, written.said, nodes))
    moved = replace(
        source,
        written=written,
        inputs=tuple([values[value] for value in source.inputs]),
        outputs=tuple([values[value] for value in source.outputs]),
        passes={values[value]: count for value, count in source.passes.items()},
    )
    moved.__dict__.update({name: getattr(source, name) for name in SAME})
    return moved


def _said(said: Callable[[], tuple[str, Sequence[Remark]]], nodes: dict[Node, Node]) -> tuple[str, list[Remark]]:
    summary, remarks = said()
    return summary, [Said(nodes[item.node]) if isinstance(item, Said) else item for item in remarks]


# -- sizes as arguments ------------------------------------------------------------------------------------------------


def _with_bound_sizes(region: Region, group: Region, binding: Binding) -> tuple[Region, dict[Value, Value]]:
    """A copy of a region whose sizes know their formulas, and its values -> those of the region.

    group : the region with symbolic sizes
    """
    new: dict[Value, Value] = {}
    pairs = list(zip(values_of(region.nodes), values_of(group.nodes), strict=True))
    inside = set(region.nodes)
    for value, symbolic in pairs:
        node = value.node
        if node not in inside:
            shapes = tuple([binding.bound_shape(shape) for shape in symbolic.node.shapes or ()])
            new[value] = Node(node.op, (), name=node.name, shapes=shapes, dtypes=node.dtypes).outputs[value.index]
    nodes = []
    for node, other in zip(region.nodes, group.nodes, strict=True):
        made = node.replace(
            inputs=[new[item] if isinstance(item, Value) else item for item in node.inputs],
            shapes=tuple([binding.bound_shape(shape) for shape in other.shapes or ()]),
        )
        nodes.append(made)
        new.update(zip(node.outputs, made.outputs, strict=True))
    inputs = tuple([new[value] for value in region.inputs if value in new])
    shadow = Region(tuple(nodes), inputs, tuple([new[value] for value in region.outputs]))
    return shadow, {made: value for value, made in new.items()}


def _with_arguments(source: KernelSource, made: Writing) -> KernelSource:
    """A kernel with the values of its arguments for sizes, and with plain numbers for its other sizes."""
    text = source.written
    assert isinstance(text, Text)
    varying = {name: item for name, item in made.arguments.items() if name in text.arguments}
    together = source.together
    if together is not None:
        together = {**together, **{name: many for name, (_, many) in varying.items()}}
    sizes = {name: int(size) for name, size in source.sizes.items()}
    values = {name: int(size) for name, (size, _) in varying.items()}
    if values:
        here = ", ".join([f"{name} = {size:,}" for name, size in values.items()])
        summary, remarks = text.said()
        text = text.about(lambda: (f"{summary} Here {here}.", remarks))
    tiled = {name: int(size) for name, size in source.tiled.items()}
    return replace(source, written=text, sizes={**sizes, **values}, tiled=tiled, together=together)
