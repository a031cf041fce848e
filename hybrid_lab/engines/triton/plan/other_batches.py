"""Fusion plans: the groups of the first batch are kept for every other batch of the same symbolic graph.

    fused(graph of a batch of 64)      fuses, and keeps the groups in `Graph.cache` of the symbolic graph
    fused(graph of a batch of 37)      takes these groups, and writes their kernels for 37

Fusing takes half a second for the training step of a ResNet; writing the kernels of its groups takes less than a tenth
of that. Any grouping whose kernels can be written gives correct results, so only speed depends on which sizes the
groups were chosen for. If a group cannot be written for the new sizes, the graph is fused again, and the new plan
replaces the old one.

A binary is found by the text of its kernel. `History` therefore keeps, for each group, the tile choices and the texts
of earlier batches, so that the text for the next batch is one of the earlier texts if possible (write/reuse.py).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hybrid_lab.engines.triton.plan.by_vendor import VendorRule
from hybrid_lab.engines.triton.plan.fusion import Fusion, fuse
from hybrid_lab.engines.triton.plan.groups import Kernels, Write, views_for_each_reader
from hybrid_lab.engines.triton.run import availability
from hybrid_lab.engines.triton.support import lowered, misfit_of_sizes, refusal
from hybrid_lab.engines.triton.write.body import Refused
from hybrid_lab.engines.triton.write.choose import write_kernels
from hybrid_lab.engines.triton.write.reuse import Outcomes, Writing
from hybrid_lab.engines.triton.write.source import Comments, KernelSource
from hybrid_lab.engines.triton.write.syntax import Remark, label
from hybrid_lab.graph.dump import dump
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Constant, Node, Value, input_node
from hybrid_lab.graph.passes.partition import Region
from hybrid_lab.graph.symbolic import SymbolicConstant, derived, ones
from hybrid_lab.ops.framework.sizes import Binding, shapes_key
from hybrid_lab.system.memory import without_collecting

#: Tile choices are repeated for sizes of which each symbol differs by at most this factor.
NEAR = 4
#: The number of texts of a group in which every size is a number. In later texts the sizes that have varied are
#: arguments.
LITERAL = 2
#: The cached properties of a KernelSource that stay the same when only its inputs and outputs are replaced.
SAME = ("code", "passed", "signature", "multiples", "fixed")
#: The number of sets of tile choices, and of texts, that are kept for a group.
MOST = 8


@without_collecting()
def kernels_of(
    graph: Graph, precision: str = "ieee", rule: VendorRule | None = None
) -> tuple[Graph, Fusion, list[KernelSource]]:
    """The lowered graph, its groups, and the sources of all our kernels in the order in which they run.

    precision : how float32 factors of products are multiplied, "ieee" or "tf32" (see tiles.precision)
    rule : which products the vendor's library computes; None : none
    """
    if rule is not None and rule.has_layers:
        graph = derived(graph, ("triton", rule), rule.before_lowering)
    else:
        graph = derived(graph, "triton", lowered)
    if rule is not None:
        graph = derived(graph, ("without biases", rule.family), rule.without_biases)
        graph = derived(graph, ("channels last", rule), rule.with_channels_last)
    fusion = fused(dump("decompose", graph), precision, rule)
    return fusion.graph, fusion, [source for group in fusion.groups for source in fusion.kernels[group]]


def fused(graph: Graph, precision: str, rule: VendorRule | None = None) -> Fusion:
    """The groups and kernels of a lowered graph. precision : how float32 is multiplied, see write_kernels"""
    write, vendors = functools.partial(write_kernels, precision=precision), None if rule is None else rule.products
    symbolic, binding = graph.symbolic, graph.binding
    if symbolic is None or binding is None:
        return fuse(graph, refusal, write, vendors)
    by_vendor = None if vendors is None else tuple(map(vendors(graph).__contains__, graph.operators))
    key = "plan", precision, availability.multiplies_float64(), ones(graph), by_vendor
    known: tuple[Fusion, list[History], tuple[int, int]] | None = symbolic.cache.get(key)
    fusion = _kernels_at(*known[:2], binding, write) if known is not None and binding.satisfies(known[2]) else None
    if fusion is None:
        fusion = fuse(graph, refusal, write, vendors)
        plan = fusion.on(views_for_each_reader(symbolic))
        equal: dict[Any, History] = {}
        histories = [equal.setdefault(_key(group), History()) for group in plan.groups]
        for group, history in zip(fusion.groups, histories, strict=True):
            history.remember(binding, fusion.kernels[group], fusion.choices[group])
        symbolic.cache[key] = plan, histories, binding.guards.count
    return fusion


def _kernels_at(plan: Fusion, histories: Sequence[History], binding: Binding, write: Write) -> Fusion | None:
    """The groups of a plan with their kernels, written for these sizes. None if a group cannot be written for them, or
    if an operator without a kernel has another reason for that at these sizes.

    plan : the groups of the symbolic graph, as fusion found them for an earlier batch; histories : one for each group
    """
    fusion = plan.on(plan.graph.bind_now(binding))
    if any(refusal(node) != why for node, why in fusion.refused.items()):
        return None

    @functools.cache
    def plan_with_formulas() -> Fusion:
        return plan.on(plan.graph.bind_now(binding, formulas=True))

    def with_formulas(index: int) -> Region:
        return plan_with_formulas().groups[index]

    if any(map(misfit_of_sizes, [node for group in fusion.by_vendor for node in group.nodes])):
        return None
    written: dict[int, Region] = {}  # equal groups share a history, and are written once
    for index, (group, history) in enumerate(zip(fusion.groups, histories, strict=True)):
        equal = written.setdefault(id(history), group)
        if equal is not group:
            fusion.kernels[group] = _for_equal_region(fusion.kernels[equal], equal, group)
            continue
        if any(map(misfit_of_sizes, group.nodes)):
            return None
        try:
            fusion.kernels[group] = history.write(group, binding, write, functools.partial(with_formulas, index))
        except Refused:
            return None
    return fusion


@dataclass
class History:
    """The tile choices and the texts of earlier batches, for groups equal at all sizes.

    choices : values of the symbols -> the tile choices that were made for them
    texts : texts of a group's kernels -> the sizes for which they were written first
    """

    choices: dict[tuple[int, ...], Outcomes] = field(default_factory=dict)
    texts: dict[tuple[str, ...], Binding] = field(default_factory=dict)

    def write(self, region: Region, binding: Binding, write: Write, with_formulas: Callable[[], Region]) -> Kernels:
        """The kernels of the group at these sizes. with_formulas : the group with BoundSizes. Raises Refused."""
        run = Writing(self.near(binding.values))
        try:
            kernels = write(region, run)
        except Refused:
            if not run.repeated:
                raise
            run = Writing()  # with tiles of its own
            kernels = write(region, run)
        if _texts(kernels) not in self.texts and len(self.texts) >= LITERAL and not _multiplies(kernels):
            # A third text: written again with an argument for each size that has varied.
            run, equal = Writing(tuple(run.outcomes), list(self.texts.values())), with_formulas()
            written = tuple([_with_arguments(source, run) for source in write(equal, run)])
            kernels = _for_equal_region(written, equal, region)
        self.remember(binding, kernels, tuple(run.outcomes))
        return kernels

    def near(self, values: tuple[int, ...]) -> Outcomes:
        """The tile choices of the nearest sizes; () if these differ by more than the factor NEAR."""
        nearest = min(self.choices, key=lambda known: _ratio(values, known), default=None)
        return () if nearest is None or _ratio(values, nearest) > NEAR else self.choices[nearest]

    def remember(self, binding: Binding, kernels: Kernels, outcomes: Outcomes) -> None:
        """Keep the tile choices and the texts, if they are new."""
        if outcomes not in self.choices.values():
            self.choices[binding.values] = outcomes
        self.texts.setdefault(_texts(kernels), binding)
        if len(self.choices) > MOST:
            del self.choices[next(iter(self.choices))]
        if len(self.texts) > MOST:
            del self.texts[next(iter(self.texts))]


def _ratio(one: tuple[int, ...], other: tuple[int, ...]) -> float:
    """The largest factor between a size of one set and its counterpart in the second set."""
    return max([max(a, b) / max(min(a, b), 1) for a, b in zip(one, other, strict=True)], default=1.0)


def _texts(kernels: Kernels) -> tuple[str, ...]:
    return tuple([source.code for source in kernels])


def _multiplies(kernels: Kernels) -> bool:
    """Whether a kernel computes a product. With arguments for sizes, the kernel's loops would divide by the arguments,
    which is slow.
    """
    return any("product" in source.kind or "attention" in source.kind for source in kernels)


# -- equal groups ------------------------------------------------------------------------------------------------------


def values_of(nodes: Sequence[Node]) -> list[Value]:
    """The inputs and outputs of operators, each value once, in the order of the operators."""
    return list(dict.fromkeys([value for node in nodes for value in (*node.values_in, *node.outputs)]))


def _key(group: Region) -> Any:
    """A hashable key. Groups of one symbolic graph with equal keys have equal kernels at all sizes."""
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
    """The kernels of a region for another one with an equal key, or the same one with other types of sizes."""
    values = dict(zip(values_of(region.nodes), values_of(other.nodes), strict=True))
    nodes = dict(zip(region.nodes, other.nodes, strict=True))

    def comments(comments: Comments) -> tuple[str, list[Remark]]:
        summary, remarks = comments()
        return summary, [nodes[item] if isinstance(item, Node) else item for item in remarks]

    moved = []
    for source in kernels:
        for value in (*source.inputs, *source.outputs):
            if value not in values:  # a value that one kernel of the group stores for the next
                values[value] = input_node(value.node.name, shape=tuple(map(int, value.shape)), dtype=value.dtype)
        moved.append(replace(
            source,
            comments=functools.partial(comments, source.comments),
            inputs=tuple([values[value] for value in source.inputs]),
            outputs=tuple([values[value] for value in source.outputs]),
            passes={values[value]: count for value, count in source.passes.items()},
        ))  # fmt: skip
        moved[-1].__dict__.update({name: getattr(source, name) for name in SAME})
    return tuple(moved)


def _with_arguments(source: KernelSource, run: Writing) -> KernelSource:
    """A kernel that was written for BoundSizes, ready to launch: plain numbers as its sizes, and as the values of the
    arguments that `run` added.
    """
    varying = {name: item for name, item in run.arguments.items() if name in source.arguments}
    together = source.together
    if together is not None:
        together = {**together, **{name: many for name, (_, many) in varying.items()}}
    sizes = {name: int(size) for name, size in source.sizes.items()}
    values = {name: int(size) for name, (size, _) in varying.items()}
    summary, remarks = source.comments()
    if values:
        summary += f" Here {', '.join([f'{name} = {size:,}' for name, size in values.items()])}."
    tiled = {name: int(size) for name, size in source.tiled.items()}
    return replace(
        source, comments=lambda: (summary, remarks), sizes={**sizes, **values}, tiled=tiled, together=together
    )
