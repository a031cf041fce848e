"""Contractions: the steps of a graph at other sizes, without its operators.

What a device program is written from are steps - kernels, and what has none - and of a kernel's operators only its text
and its sizes. So for another batch of a graph whose recipe is known nothing is made but the steps: each group's numbers
are computed, its kernels taken from the recipe, and the contracted graph made with them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from hybrid_lab.engines.triton.fusing.fusion import Fusion
from hybrid_lab.engines.triton.reusing.layout import Layout
from hybrid_lab.engines.triton.reusing.recipe import Written, values_of
from hybrid_lab.engines.triton.running.steps import KernelOperator
from hybrid_lab.engines.triton.running.vendor import VendorSource
from hybrid_lab.engines.triton.writing.source import KernelSource
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Constant, Node, Value, constant_node
from hybrid_lab.graph.partition import Region, contract
from hybrid_lab.graph.symbolic import SymbolicConstant, SymbolicGraph
from hybrid_lab.ops.operator import Operator
from hybrid_lab.ops.sizes import Binding, Guards, SymbolicSize

#: (which group, its numbers) -> the way to write it and the values of its steps, or None.
Fit = Callable[[int, Sequence[Any]], "tuple[Written, Sequence[Any]] | None"]


@dataclass
class Steps:
    """What a device program is written from.

    graph : with one operator in the place of each group
    groups : with the names of their operators, and their kernels
    refused : operators without a kernel, with reasons; operators : how many there are, those in kernels included
    """

    graph: Graph
    groups: list[tuple[Region, list[str], tuple[KernelSource | VendorSource, ...]]]
    refused: dict[Node, str]
    operators: int

    @staticmethod
    def of(fusion: Fusion, forms: dict[Region, tuple[KernelSource | VendorSource, ...]]) -> Steps:
        """Of a graph with its groups. forms : the kernels of each"""
        graph = contract(fusion.graph, fusion.groups, lambda group: KernelOperator(group, forms[group]))
        groups = [(group, _names(group), forms[group]) for group in fusion.groups]
        return Steps(graph, groups, fusion.refused, len(fusion.graph.operators))


def _names(group: Region) -> list[str]:
    """Views have no part in it, unless there is nothing else."""
    return [node.op.name for node in group.nodes if not node.op.view] or [node.op.name for node in group.nodes]


class _Slot(Operator):
    """A group in the contracted graph of a form."""

    name: ClassVar[str] = "group"

    def __init__(self, number: int, num_outputs: int):
        for key, value in (("number", number), ("num_outputs", num_outputs), ("attributes", {}), ("inferred", {})):
            object.__setattr__(self, key, value)

    number: int


class _Later(Region):
    """A region whose nodes are made when somebody looks at them. whole : gives it with nodes, over other inputs"""

    def __init__(self, inputs: tuple[Value, ...], outputs: tuple[Value, ...], whole: Callable[[], Region]):
        for key, value in (("inputs", inputs), ("outputs", outputs), ("_whole", whole)):
            object.__setattr__(self, key, value)

    _whole: Callable[[], Region]

    @cached_property
    def nodes(self) -> tuple[Node, ...]:  # type: ignore[override]
        whole, found = self._whole(), []
        new = dict(zip(whole.inputs, self.inputs, strict=True))
        for node in whole.nodes:
            made = node.replace(inputs=[new.get(item, item) if type(item) is Value else item for item in node.inputs])
            new.update(zip(node.outputs, made.outputs, strict=True))
            found.append(made)
        return tuple(found)


class _Group:
    """A group of a form: where its numbers are, and which of its values are seen from outside."""

    def __init__(self, region: Region, numbers: Sequence[int]):
        self.region, self.numbers = region, numbers
        self.names, self.values = _names(region), values_of(region.nodes)
        place = {value: number for number, value in enumerate(self.values)}
        self.inputs = [place[value] for value in region.inputs]
        self.outputs = [place[value] for value in region.outputs]
        self.sized = [number for value, number in place.items() if type(value.node.op) is SymbolicConstant]


def _places(group: Region, at: Binding, known: dict[Any, Callable[[Binding], Any]]) -> list[int]:
    """Where the group's numbers, as `recipe.numbers_of` has them, are among those of all groups.

    known : what gives each of these
    """
    found: list[Any] = []
    for value in values_of(group.nodes):
        found += [size for size in value.shape if at.size(size) != 1]
        op = value.node.op
        if isinstance(op, Constant):
            array = op.at(at) if type(op) is SymbolicConstant else op.array
            if array.size == 1 and type(array.item()) in (int, float):
                found.append(op if type(op) is SymbolicConstant else array.item())
    for node in group.nodes:
        found += [item for item in node.inputs if type(item) in (int, float, SymbolicSize)]
    places = {key: place for place, key in enumerate(known)}
    for item in found:
        key, number = _number(item)
        places.setdefault(key, len(known))
        known.setdefault(key, number)
    return [places[_number(item)[0]] for item in found]


def _number(item: Any) -> tuple[Any, Callable[[Binding], Any]]:
    """What tells a number from others, and what gives it."""
    if type(item) is SymbolicSize:
        return item.terms, lambda at: at.size(item)
    if type(item) is SymbolicConstant:
        return item, lambda at: item.at(at).item()
    return (type(item), repr(item)), lambda at: item


class Contraction:
    """The steps of a graph for all sizes of its form that answer alike.

    fusion : of a graph with Sizes, in which every operator has a kernel; layout : of the same; at : some sizes, with
    the same axes of size 1
    """

    def __init__(self, fusion: Fusion, layout: Layout, guards: Guards, at: Binding):
        self._layout = layout
        known: dict[Any, Callable[[Binding], Any]] = {}
        self._groups = [_Group(group, _places(group, at, known)) for group in fusion.groups]
        self._numbers = list(known.values())
        number = {group: number for number, group in enumerate(fusion.groups)}
        graph = contract(fusion.graph, fusion.groups, lambda group: _Slot(number[group], len(group.outputs)))
        self._form = SymbolicGraph(graph, guards)
        self._operators, self._count = len(fusion.graph.operators), guards.count

    def at(self, at: Binding, fit: Fit) -> Steps | None:
        """The steps at these sizes. None where some answer differs or a group has no kernels for them."""
        if not at.satisfies(self._count):
            return None
        numbers = [number(at) for number in self._numbers]
        fits = [fit(place, [numbers[each] for each in group.numbers]) for place, group in enumerate(self._groups)]
        if not all(fits):
            return None
        regions = functools.cache(functools.partial(self._regions, at))
        groups: dict[int, Any] = {}

        def make(node: Node, inputs: Sequence[Any]) -> Node | None:
            if type(node.op) is not _Slot:
                return None
            place = node.op.number
            group, (way, found) = self._groups[place], fits[place]  # type: ignore[misc]
            count = len(group.outputs)

            def fill(outputs: tuple[Value, ...]) -> tuple[Region, tuple[KernelSource, ...]]:
                values = list(group.values)
                for number, value in (*zip(group.inputs, inputs), *zip(group.outputs, outputs)):
                    values[number] = value
                for number in group.sized:
                    values[number] = constant_node(values[number].node.op.at(at), True)  # type: ignore[attr-defined]
                sources = way.made(group.region.nodes, [*values, *outputs[count:]], found)
                region = _Later(tuple(inputs), outputs[:count], lambda: regions()[place])
                groups[place] = region, group.names, sources
                return region, sources

            types = [(at.shape(value.shape), value.dtype) for value in group.region.outputs]
            return KernelOperator.at(node, inputs, [*types, *way.left(found)], count, fill)

        graph = self._form.bound(at, make, shared=True)
        return Steps(graph, [groups[place] for place in range(len(self._groups))], {}, self._operators)

    def _regions(self, at: Binding) -> list[Region]:
        """The groups with their operators."""
        fusion = self._layout.at(at)
        assert fusion is not None
        return fusion.groups
