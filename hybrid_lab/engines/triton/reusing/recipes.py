"""Recipes of graphs: what fusing and writing found out about one, for the next graph of the same structure.

A recipe says which operators - by their numbers - share a kernel, which several kernels compute, why others stayed
outside, and has each group's kernels (recipe.py). It is kept by the structure of the lowered graph: operators with
their attributes, wiring, dtypes, draws, labels, and which axes have size 1; not by sizes, nor by numbers such as a
mean's count. So the next batch of a model, and the next process, neither fuse nor write.

Groups are those that fusion chose for the sizes at first. Its choices among sizes - what is cheaper to compute twice,
which rows are long enough to be split - are about speed: every group that can be written is right. What must not be
taken over is looked at: each group's kernels hold for the new sizes or are written anew, that group alone, and kept
beside the others; an operator that had no kernel must have none for the same reason, and the other way round (`_fits`);
where a group cannot be written at all any more, the graph is fused as if there had been no recipe.

On disk a recipe is an entry of the store, whose version is a digest of all code that a kernel's text depends on.
"""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hybrid_lab import forks
from hybrid_lab.engines.store import Store
from hybrid_lab.engines.triton import support
from hybrid_lab.engines.triton.fusing.fusion import Fusion, Plan, fuse
from hybrid_lab.engines.triton.fusing.groups import views_for_each_reader
from hybrid_lab.engines.triton.reusing.contraction import Contraction, Steps
from hybrid_lab.engines.triton.reusing.layout import Layout
from hybrid_lab.engines.triton.reusing.recipe import Write, Written, numbers_of, values_of
from hybrid_lab.engines.triton.reusing.recipe_key import code_digest, in_order, kept_key, kind_of, place_of
from hybrid_lab.engines.triton.support import refusal
from hybrid_lab.engines.triton.writing import write
from hybrid_lab.engines.triton.writing.body import Refused
from hybrid_lab.engines.triton.writing.source import KernelSource
from hybrid_lab.engines.triton.writing.symbolic import Formula
from hybrid_lab.engines.triton.writing.words import label
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Constant, Node, Value
from hybrid_lab.graph.partition import Region
from hybrid_lab.graph.symbolic import SymbolicGraph
from hybrid_lab.ops.sizes import Binding

#: So many recipes are kept in memory, and ways to write one group.
MOST, MOST_WAYS = 64, 6
#: A group's kernels for the first so many sizes have numbers in their text, later ones arguments.
LITERAL = 2


@dataclass
class GroupRecipe:
    """nodes : numbers of its operators; inputs : (operator, which of its inputs); outputs : (operator, which output)
    ways : to write it, the last one first; those with arguments for what varies come after the others
    """

    nodes: list[int]
    inputs: list[list[int]]
    outputs: list[list[int]]
    ways: list[Written]

    def region(self, nodes: Sequence[Node]) -> Region:
        """The group's, of a graph with these operators."""
        return Region(
            tuple([nodes[number] for number in self.nodes]),
            tuple([nodes[number].inputs[place] for number, place in self.inputs]),
            tuple([nodes[number].outputs[place] for number, place in self.outputs]),
        )

    def kernels(self, region: Region, seen: dict[Any, Any]) -> tuple[KernelSource, ...] | None:
        """What is known to be right for these sizes; tiles chosen for just them, if there are some.

        seen : what ways gave for numbers of other groups of the graph
        """
        fit = self.fit(numbers_of(region.nodes), seen)
        return None if fit is None else fit[0].made(region.nodes, fit[0].values(region, fit[1]), fit[1])

    def fit(self, numbers: Sequence[Any], seen: dict[Any, Any]) -> tuple[Written, list[Any]] | None:
        """The way that is right for the numbers of a region, and the values of its steps."""
        # Equal zeros may have two signs.
        known: Any = str(numbers) if 0.0 in numbers else tuple(numbers)
        second = None
        for way in self.ways:
            key = id(way), known
            fit = seen[key] if key in seen else seen.setdefault(key, way.evaluated(numbers))
            if fit is not None and fit[1]:
                # The next call is more likely to be like this one.
                if way is not self.ways[0] and not way.has_arguments:
                    self.ways = [way, *(other for other in self.ways if other is not way)]
                return way, fit[0]
            if fit is not None and second is None:
                second = way, fit[0]
        return second

    def varying(self, numbers: Sequence[Any]) -> frozenset[Formula]:
        """What the text for these numbers has as arguments: nothing for the first and the second sizes, whose kernels
        are the faster for it; then what is another number in one of the texts that there are. Of products nothing:
        their loops divide by sizes.
        """
        if sum(not way.has_arguments for way in self.ways) < LITERAL or any(way.multiplies for way in self.ways):
            return frozenset()
        return frozenset().union(*[way.varying(numbers) for way in self.ways])

    def add(self, way: Written) -> None:
        """Another way to write it."""
        ways = [way, *self.ways]
        self.ways = sorted(ways, key=lambda way: way.has_arguments)[:MOST_WAYS]


@dataclass
class Recipe:
    """of : for each operator the numbers of its groups, those with kernels first
    refused, apart : operators with reasons
    """

    of: list[list[int]]
    groups: list[GroupRecipe]
    refused: list[tuple[int, str]]
    apart: list[tuple[int, str]]
    lock: Any = field(default_factory=threading.Lock, repr=False, compare=False)

    @staticmethod
    def of_plan(plan: Plan, recorder: _Recorder) -> Recipe:
        """What there is to keep of a fused graph."""
        nodes = in_order(plan.graph)
        place = {node: number for number, node in enumerate(nodes)}
        numbers: dict[Any, int] = {group: number for number, group in enumerate(plan.regions)}
        of = [[numbers.setdefault(group, len(numbers)) for group in plan.of[node]] for node in nodes]
        groups = []
        for group, region in plan.regions.items():
            inputs = []
            for value in region.inputs:
                node = next(node for node in region.nodes if value in node.values_in)
                inputs.append([place[node], next(at for at, item in enumerate(node.inputs) if item is value)])
            groups.append(
                GroupRecipe(
                    [place[node] for node in region.nodes],
                    inputs,
                    [[place[value.node], value.index] for value in region.outputs],
                    [recorder.way(plan.kernels[group])],
                )
            )
        return Recipe(
            of,
            groups,
            [(place[node], why) for node, why in plan.refused.items()],
            [(place[node], why) for node, why in plan.apart.items() if node in place],
        )

    def laid_out(self, graph: Graph) -> Fusion | None:
        """The lowered graph as this recipe divides it, without kernels; None where it does not fit."""
        views = views_for_each_reader(graph)
        nodes = in_order(views)
        if len(nodes) != len(self.of):
            return None
        regions = {number: group.region(nodes) for number, group in enumerate(self.groups)}
        of = dict(zip(nodes, self.of, strict=True))
        refused = {nodes[number]: why for number, why in self.refused}
        apart = {nodes[number]: why for number, why in self.apart}
        return Plan(views, nodes, of, regions, dict.fromkeys(regions, ()), refused, apart).fusion()

    def applied(self, laid: Fusion, recorder: _Recorder) -> tuple[Fusion | None, bool]:
        """What was laid out, with kernels, and whether the recipe has grown; None where it does not fit."""
        if any(refusal(node) != why for node, why in laid.refused.items()):
            return None, False
        kernels, grown, seen = {}, False, dict[Any, Any]()
        for region, group in zip(laid.groups, self.groups, strict=True):
            found = group.kernels(region, seen)
            if found is None:
                try:
                    found = recorder.write(region, group.varying(numbers_of(region.nodes)))
                except Refused:
                    return None, False
                with self.lock:
                    group.add(recorder.way(found))
                grown = True
            kernels[region] = found
        laid.kernels = kernels
        return laid, grown

    def data(self) -> list[Any]:
        """As lists, strings and numbers."""
        ways: dict[int, tuple[int, Written]] = {}  # equal groups share theirs

        def numbers(group: GroupRecipe) -> list[int]:
            return [ways.setdefault(id(way), (len(ways), way))[0] for way in group.ways]

        with self.lock:
            groups = [[group.nodes, group.inputs, group.outputs, numbers(group)] for group in self.groups]
        return [self.of, groups, [way.data() for _, way in ways.values()], self.refused, self.apart]

    @staticmethod
    def from_data(data: Sequence[Any]) -> Recipe:
        of, groups, written, refused, apart = data
        known = [Written.from_data(way) for way in written]
        made = [
            GroupRecipe(nodes, inputs, outputs, [known[number] for number in ways])
            for nodes, inputs, outputs, ways in groups
        ]
        return Recipe(of, made, refused, apart)


class _Recorder:
    """Writes groups and keeps how. precision : as write_kernels takes it"""

    def __init__(self, precision: str):
        self._write: Write = functools.partial(_checked, precision=precision)
        self._ways: dict[int, tuple[Any, Written]] = {}
        self._known: dict[Any, Written] = {}

    def write(self, region: Region, varying: frozenset[Formula] = frozenset()) -> tuple[KernelSource, ...]:
        """The kernels of a region; for equal ones the writer runs once. Raises Refused.

        varying : as Written.of takes it
        """
        form = _form(region), varying
        sources = None
        try:
            way = self._known[form] = self._known.get(form) or Written.of(region, self._write, varying)
            sources = way.at(region)
        except Refused:
            raise
        except Exception:  # something asks sizes for what they cannot note
            sources = None
        if sources is None:
            sources = self._write(region)
            way = Written.exactly(region, sources)
        self._ways[id(sources)] = sources, way
        return sources

    def way(self, sources: tuple[KernelSource, ...]) -> Written:
        return self._ways[id(sources)][1]


def _form(region: Region) -> Any:
    """What tells regions apart for which kernels are written."""
    numbers = {value: number for number, value in enumerate(values_of(region.nodes))}
    given = tuple([
        (label(value), value.is_input, value.shape, value.dtype, isinstance(value.node.op, Constant), kind_of(value))
        if value.node not in inside else None
        for inside in [set(region.nodes)] for value in numbers
    ])  # fmt: skip
    nodes = tuple([
        (node.op, node.draw, node.shapes, node.dtypes,
         tuple([numbers[item] if isinstance(item, Value) else None for item in node.inputs]),
         tuple([repr(item) for item in node.inputs if not isinstance(item, Value)]))
        for node in region.nodes
    ])  # fmt: skip
    return given, nodes, repr(numbers_of(region.nodes)), tuple([numbers[value] for value in region.outputs])


def _checked(region: Region, precision: str) -> tuple[KernelSource, ...]:
    """As write_kernels, with what `refusal` asks of sizes."""
    for node in region.nodes:
        if why := support.unfit(node):
            raise Refused(why)
    return write.write_kernels(region, precision)


def fused(graph: Graph, precision: str) -> Fusion:
    """The groups and kernels of a lowered graph, by a recipe if there is one."""
    key = kept_key(graph, precision)
    if key is None:
        return fuse(graph, refusal, functools.partial(write.write_kernels, precision=precision))
    recipe = RECIPES.find(key)
    if recipe is not None:
        found = _applied(key, recipe, functools.partial(recipe.laid_out, graph), precision)
        if found is not None:
            return found
    recorder = _Recorder(precision)
    found = fuse(graph, refusal, functools.partial(write.write_kernels, precision=precision), recorder.write)
    assert found.plan is not None
    RECIPES.keep(key, Recipe.of_plan(found.plan, recorder))
    if graph.symbolic is not None and graph.binding is not None:
        _known(
            graph.symbolic, graph.binding, precision
        )  # beside fusing it costs nothing, before another batch it would
    return found


def fused_at(form: SymbolicGraph, at: Binding, precision: str) -> Fusion | None:
    """The same for a lowered graph at other sizes, which is not made; None where `fused` has not seen it yet, or where
    something differs.
    """
    known = _known(form, at, precision)
    if known is None or known.layout is None:
        return None
    return _applied(known.key, known.recipe, functools.partial(known.layout.at, at), precision)


def steps_at(form: SymbolicGraph, at: Binding, precision: str) -> Steps | None:
    """Its steps; None also where some group is to be written, or an operator has no kernel."""
    known = _known(form, at, precision)
    if known is None or known.contraction is None:
        return None
    seen: dict[Any, Any] = {}
    groups = known.recipe.groups
    try:
        return known.contraction.at(at, lambda place, numbers: groups[place].fit(numbers, seen))
    except _WRONG:
        return None


@dataclass
class _Known:
    """What is known of a form: the recipe and its key; its layout and its steps, where Sizes can have them."""

    key: str
    recipe: Recipe
    layout: Layout | None = None
    contraction: Contraction | None = None

    @staticmethod
    def of(key: str, recipe: Recipe, form: SymbolicGraph, at: Binding) -> _Known:
        known = _Known(key, recipe)
        try:
            laid = recipe.laid_out(form.graph)
            if laid is not None:
                known.layout = Layout(laid, form.guards)
                if all(node.op.view for node in laid.refused):
                    known.contraction = Contraction(laid, known.layout, form.guards, at)
        except (*_WRONG, NotImplementedError):
            pass  # something does not know Sizes
        return known


def _known(form: SymbolicGraph, at: Binding, precision: str) -> _Known | None:
    """None where `fused` has not seen the form yet."""
    place = place_of(form, at, precision)
    key = form.cache.get(place)
    recipe = None if key is None else RECIPES.find(key)
    if key is None or recipe is None:
        return None
    known: _Known | None = form.cache.get(("known", *place))
    if known is None or known.recipe is not recipe:
        known = form.cache["known", *place] = _Known.of(key, recipe, form, at)
    return known


#: What a file that was made to be wrong leads to.
_WRONG = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError)


def _applied(key: str, recipe: Recipe, lay: Callable[[], Fusion | None], precision: str) -> Fusion | None:
    """What the recipe makes of what `lay` lays out; kept where it has grown."""
    try:
        laid = lay()
        found, grown = (None, False) if laid is None else recipe.applied(laid, _Recorder(precision))
    except _WRONG:
        return None
    if grown:
        RECIPES.keep(key, recipe)
    return found


# -- memory and disk ---------------------------------------------------------------------------------------------------


class Recipes:
    """Those of this process, and those on disk."""

    def __init__(self) -> None:
        self._disk = Store("recipes", lambda: code_digest(), 256 << 20)
        self._known: OrderedDict[str, Recipe] = OrderedDict()
        self._lock = forks.lock()

    def find(self, key: str) -> Recipe | None:
        with self._lock:
            known = self._known.get(key)
            if known is not None:
                self._known.move_to_end(key)
                return known
        data = self._disk.get_json(key)
        if data is None:
            return None
        found = Recipe.from_data(data)
        self._remember(key, found)
        return found

    def keep(self, key: str, recipe: Recipe) -> None:
        """In memory and, if that can be done, on disk."""
        self._remember(key, recipe)
        if self._disk.folder() is not None:
            self._disk.put_json(key, recipe.data())

    def clear(self) -> None:
        """Forget those in memory."""
        with self._lock:
            self._known.clear()

    def _remember(self, key: str, recipe: Recipe) -> None:
        with self._lock:
            self._known[key] = recipe
            self._known.move_to_end(key)
            while len(self._known) > MOST:
                self._known.popitem(last=False)


RECIPES = Recipes()
