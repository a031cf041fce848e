"""The recipe of one group's kernels: what was written for some sizes, and when it holds for others.

    Written.of(region, write)   runs a writer on numbers that note what it looks at (see symbolic.py)
    written.at(region)          the same kernels for a region of the same form, or None where they would be others

Two regions have one form if their operators, wiring, dtypes, draws and labels are equal, one by one, and the same axes
have size 1; the caller knows that, by the key of the whole graph (recipes.py). What may differ are all other sizes and
the numbers that stand in the graph, and these are the symbols of the trace. Axes that are one axis of an element-wise
operator share a symbol; that they still do is looked at. So `at` has to do four things, none of which guesses:

- the numbers of the region go to the symbols, and numbers of one symbol are equal;
- every note has its outcome: the writer would have gone the same way, and its text would be the same, letter by letter;
- sizes, temporaries and grids are the writer's own formulas, computed for these numbers;
- arrays are those that stand at the same places of the region.

Notes made within `symbolic.choice` are preferences: they decide how large tiles are and what is split, of which every
outcome is right. Where sizes are within a factor of NEAR of those that the kernels were written for, preferences that
would be others now are let be: another tile is worth less than the seconds that it takes to compile.

All of it is data: numbers, strings and lists, so that it can lie in a file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from hybrid_lab.engines.triton.writing.source import KernelSource, Text
from hybrid_lab.engines.triton.writing.symbolic import (
    Conditions,
    Formula,
    Formulas,
    Number,
    Step,
    Trace,
    filled,
    formula_of,
    marks,
    renumbered,
)
from hybrid_lab.engines.triton.writing.words import Remark, Said
from hybrid_lab.graph.node import Constant, Node, Value, input_node
from hybrid_lab.graph.partition import Region
from hybrid_lab.ops.dtypes import dtype_of
from hybrid_lab.ops.operator import Operator

_ARGUMENT = re.compile(r"size\d+")
#: By what factor sizes may differ for kernels whose tiles would now be chosen otherwise.
NEAR = 4
#: What a KernelSource computes of itself that is the same for all sizes.
_LASTING = ("code", "passed", "signature", "multiples", "fixed")
#: For so many sets of sizes that change it is kept what depends on them.
MOST_CHANGES = 32

Write = Callable[[Region], "tuple[KernelSource, ...]"]
#: (comparison, step, step, outcome)
Note = tuple[str, int, int, bool]


@dataclass
class WrittenKernel:
    """A KernelSource with numbers for what it is of: of values as in `values_of`, temporaries after them; of steps.

    remarks : for the last lines, a text with marks or the number of an operator
    """

    name: str
    kind: str
    arguments: list[str]
    head: list[str]
    lines: list[str]
    summary: str
    remarks: list[str | int]
    inputs: list[int]
    outputs: list[int]
    draws: list[int]
    sizes: dict[str, int]
    blocks: dict[str, int]
    tiled: dict[str, int]
    grid: list[list[str]]
    warps: int
    stages: int | None
    passes: list[list[int]]
    together: dict[str, int] | None

    @cached_property
    def code(self) -> str:
        return str(Text.of(self.arguments, self.head, self.lines, lambda: ("", [])))

    def at(self, nodes: Sequence[Node], values: Sequence[Value], numbers: Sequence[Any]) -> KernelSource:
        """The source for these operators, values and numbers of the steps."""

        def said() -> tuple[str, list[Remark]]:
            remarks = [filled(item, numbers) if isinstance(item, str) else Said(nodes[item]) for item in self.remarks]
            varying = [f"{name} = {numbers[step]:,}" for name, step in self.sizes.items() if _ARGUMENT.fullmatch(name)]
            summary = filled(self.summary, numbers)
            return f"{summary} Here {', '.join(varying)}." if varying else summary, remarks

        made = KernelSource(
            self.name,
            Text.of(self.arguments, self.head, self.lines, said, self.code),
            self.kind,
            tuple([values[number] for number in self.inputs]),
            tuple([values[number] for number in self.outputs]),
            tuple(self.draws),
            {name: numbers[step] for name, step in self.sizes.items()},
            dict(self.blocks),
            {name: numbers[step] for name, step in self.tiled.items()},
            tuple([(size, block) for size, block in self.grid]),
            self.warps,
            self.stages,
            {values[number]: count for number, count in self.passes},
            self.together,
        )
        lasting = self._lasting
        if not lasting:
            lasting.update({name: getattr(made, name) for name in _LASTING})
        made.__dict__.update(lasting)
        return made

    @cached_property
    def _lasting(self) -> dict[str, Any]:
        """What is the same for all sizes, and computed when it is asked for."""
        return {}


@dataclass
class Written:
    """The kernels of a group, as data.

    symbols : for each of the group's numbers, as `numbers_of` has them, its symbol; given : what they were
    steps, notes, preferences : of the trace
    parts : temporaries, each a name, the steps of its sizes, and a dtype
    """

    symbols: list[int]
    given: list[Any]
    steps: list[Step]
    notes: list[Note]
    preferences: list[Note]
    parts: list[tuple[str, list[int], str]]
    kernels: list[WrittenKernel]

    @staticmethod
    def of(region: Region, write: Write, varying: Collection[Formula] = ()) -> Written:
        """Run a writer and keep what it did. Raises what it raises, Refused among it; TypeError and the like where it
        asks numbers for what they cannot note.

        varying : numbers that are arguments rather than parts of the text
        """
        values, numbers = values_of(region.nodes), numbers_of(region.nodes)
        symbols = _symbols(region.nodes, values, len(numbers))
        trace = Trace(varying)
        known: dict[int, Number] = {}
        for symbol, number in zip(symbols, numbers, strict=True):
            if symbol not in known:
                known[symbol] = trace.symbol(number)
        shadow, back = _shadow(region, values, [known[symbol] for symbol in symbols])
        with trace.running():
            return _kept(trace, shadow, back, symbols, numbers, write(shadow))

    @staticmethod
    def exactly(region: Region, sources: Sequence[KernelSource]) -> Written:
        """Kernels that were written without a trace: they hold for the same numbers alone."""
        values, numbers = values_of(region.nodes), numbers_of(region.nodes)
        trace = Trace()
        with trace.running():
            for number in numbers:
                trace.symbol(number).known()
            back = {value: number for number, value in enumerate(values)}
            return _kept(trace, region, back, list(range(len(numbers))), numbers, sources)

    @cached_property
    def _formulas(self) -> Formulas:
        return Formulas(self.steps)

    def evaluated(self, numbers: Sequence[Any]) -> tuple[list[Any], bool] | None:
        """The value of every step for the numbers of a region of the same form, and whether a writer would choose the
        same tiles; None where it would write other kernels, or for sizes too far from those that these are for.
        """
        if len(numbers) != len(self.symbols):
            return None
        given: dict[int, Any] = {}
        for symbol, number in zip(self.symbols, numbers, strict=True):
            known = given.setdefault(symbol, number)
            if known != number and (known == known or number == number):  # NaN is NaN here
                return None
        before, values = self._before
        changed = tuple([symbol for symbol, old in before.items() if not _is_same(old, given[symbol])])
        formulas, conditions, choices = self._after(changed)
        try:
            found = formulas.values(given, values)
            if not conditions.hold(found):
                return None
            chosen = choices.hold(found)
        except (ZeroDivisionError, OverflowError):
            return None
        return (found, chosen) if chosen or self._is_near(numbers) else None

    @cached_property
    def _before(self) -> tuple[dict[int, Any], list[Any]]:
        """The symbols that the kernels were written for, and the values of all steps."""
        given = dict(zip(self.symbols, self.given, strict=True))
        return given, self._formulas.values(given)

    def _after(self, changed: tuple[int, ...]) -> tuple[Formulas, Conditions, Conditions]:
        """What other values of some symbols have a say in; the rest is as when the kernels were written."""
        found = self._changes.get(changed)
        if found is None:
            formulas, moving = self._formulas.after(changed)
            found = formulas, Conditions(self.notes).after(moving), Conditions(self.preferences).after(moving)
            if len(self._changes) < MOST_CHANGES:
                self._changes[changed] = found
        return found

    @cached_property
    def _changes(self) -> dict[tuple[int, ...], tuple[Formulas, Conditions, Conditions]]:
        return {}

    def made(self, nodes: Sequence[Node], values: Sequence[Value], found: Sequence[Any]) -> tuple[KernelSource, ...]:
        """The kernels for the operators of a region.

        values : those of the region, and what one kernel leaves for the next; found : what `evaluated` gave
        """
        return tuple([kernel.at(nodes, values, found) for kernel in self.kernels])

    def left(self, found: Sequence[Any]) -> list[tuple[tuple[int, ...], Any]]:
        """Shapes and dtypes of what one kernel leaves for the next. found : what `evaluated` gave"""
        return [(tuple([found[step] for step in sizes]), dtype_of(dtype)) for _, sizes, dtype in self.parts]

    def values(self, region: Region, found: Sequence[Any]) -> list[Value]:
        """For `made`: the values of a region, and new ones for what one kernel leaves for the next."""
        parts = zip(self.parts, self.left(found), strict=True)
        left = [input_node(name, shape=shape, dtype=dtype) for (name, _, _), (shape, dtype) in parts]
        return [*values_of(region.nodes), *left]

    def at(self, region: Region) -> tuple[KernelSource, ...] | None:
        """The kernels for a region of the same form; None where a writer would write other ones."""
        fit = self.evaluated(numbers_of(region.nodes))
        return None if fit is None else self.made(region.nodes, self.values(region, fit[0]), fit[0])

    def varying(self, numbers: Sequence[Any]) -> set[Formula]:
        """The whole numbers in the text that are others for a region with these numbers."""
        given = [dict(zip(self.symbols, each, strict=True)) for each in (self.given, numbers)]
        try:
            old, new = map(self._formulas.values, given)
        except (ZeroDivisionError, OverflowError):
            return set()
        printed = {a for name, a, _, _ in self.notes if name == "is" and type(old[a]) is type(new[a]) is int}
        return {formula_of(self.steps, a) for a in printed if old[a] != new[a]}

    @cached_property
    def has_arguments(self) -> bool:
        """Whether numbers that vary are no part of the text."""
        return any(_ARGUMENT.fullmatch(name) for kernel in self.kernels for name in kernel.sizes)

    @cached_property
    def multiplies(self) -> bool:
        """Whether a kernel is of a product."""
        return any("product" in kernel.kind or "attention" in kernel.kind for kernel in self.kernels)

    def _is_near(self, numbers: Sequence[Any]) -> bool:
        pairs = zip(self.given, numbers, strict=True)
        return all(type(old) is not int or new <= old * NEAR and old <= new * NEAR for old, new in pairs)

    # -- as data -------------------------------------------------------------------------------------------------------

    def data(self) -> list[Any]:
        """Lists, strings and numbers."""
        kernels = [[getattr(kernel, name) for name in WrittenKernel.__dataclass_fields__] for kernel in self.kernels]
        return [self.symbols, self.given, self.steps, self.notes, self.preferences, self.parts, kernels]

    @staticmethod
    def from_data(data: Sequence[Any]) -> Written:
        symbols, given, steps, notes, preferences, parts, kernels = data
        made = [WrittenKernel(*kernel) for kernel in kernels]
        return Written(symbols, given, steps, notes, preferences, parts, made)


def _is_same(one: Any, other: Any) -> bool:
    """Whether nothing tells two numbers apart; zeros have signs."""
    return one is other or (type(one) is type(other) is int and one == other)


# -- a region as numbers -----------------------------------------------------------------------------------------------


def values_of(nodes: Sequence[Node]) -> list[Value]:
    """What operators read and make, each once, in the order in which it comes up."""
    return list(dict.fromkeys([value for node in nodes for value in (*node.values_in, *node.outputs)]))


def numbers_of(nodes: Sequence[Node]) -> list[Any]:
    """Their sizes but those that are 1, and the numbers that stand in the graph."""
    found: list[Any] = []
    for value in values_of(nodes):
        found += [size for size in value.shape if size != 1]
        if _is_number(value):
            found.append(value.node.op.array.item())  # type: ignore[attr-defined]
    for node in nodes:
        found += [item for item in node.inputs if type(item) in (int, float)]
    return found


def _is_number(value: Value) -> bool:
    op = value.node.op
    return isinstance(op, Constant) and op.array.size == 1 and type(op.array.item()) in (int, float)


def _symbols(nodes: Sequence[Node], values: Sequence[Value], count: int) -> list[int]:
    """Which numbers are one: the axes of operands and result of an element-wise operator."""
    first: dict[Value, int] = {}
    at = 0
    for value in values:
        first[value] = at
        at += sum(size != 1 for size in value.shape) + _is_number(value)
    of = list(range(count))

    def root(number: int) -> int:
        while of[number] != number:
            number = of[number]
        return number

    for node in nodes:
        if node.op.triton is None or node.op.combine is not None:
            continue
        axes = _axes(node.outputs[0], first)
        for value in node.values_in:
            for (size, place), (other, its) in zip(axes, _axes(value, first), strict=False):
                if size == other != 1:
                    one, two = root(place), root(its)
                    of[max(one, two)] = min(one, two)
    numbers: dict[int, int] = {}
    return [numbers.setdefault(root(index), len(numbers)) for index in range(count)]


def _axes(value: Value, first: dict[Value, int]) -> list[tuple[int, int]]:
    """The sizes of the axes from the last one on, each with its place among the numbers."""
    found, at = [], first[value]
    for size in value.shape:
        found.append((size, at))
        at += size != 1
    return found[::-1]


# -- the region that a writer is run on --------------------------------------------------------------------------------


class _Outside(Operator):
    """What stands outside of a group: a name. num_outputs : as many as are read of it"""

    def __init__(self, name: str, num_outputs: int):
        for key, item in (("name", name), ("num_outputs", num_outputs), ("attributes", {}), ("inferred", {})):
            object.__setattr__(self, key, item)

    def infer_shape(self, *_: Any) -> Any:
        raise AssertionError("never inferred")


class _Number:
    """The array of a constant: whether it has one element, and which number that is."""

    def __init__(self, array: Any, number: Any):
        self.size, self._number = min(array.size, 2), number

    def item(self) -> Any:
        if self._number is None:
            raise TypeError("an array that writers do not read")
        return self._number


def _shadow(region: Region, values: Sequence[Value], numbers: Sequence[Number]) -> tuple[Region, dict[Value, int]]:
    """A copy of the region with numbers for its sizes, and the places of its values among `values_of`."""
    left = iter(numbers)
    shapes: dict[Value, Any] = {}
    items: dict[Value, Any] = {}
    for value in values:
        shapes[value] = tuple([1 if size == 1 else next(left) for size in value.shape])
        if _is_number(value):
            items[value] = next(left)
    inside, new = set(region.nodes), dict[Value, Value]()
    for value in values:
        if value.node not in inside:
            node, op = value.node, value.node.op
            if isinstance(op, Constant):
                op = Constant(_Number(op.array, items.get(value)), op.sized)  # type: ignore[arg-type]
            elif not value.is_input:
                op = _Outside(op.name, 1)
            made = Node(op, (), name=node.name, shapes=(shapes[value],), dtypes=(value.dtype,))
            new[value] = made.outputs[0]
    nodes = []
    for node in region.nodes:
        given: list[Any] = [
            new[item] if isinstance(item, Value) else next(left) if type(item) in (int, float) else item
            for item in node.inputs
        ]
        made = Node(
            node.op, given, name=node.name, scope=node.scope, location=node.location, draw=node.draw,
            shapes=tuple([shapes[value] for value in node.outputs]), dtypes=node.dtypes, composite=node.composite,
        )  # fmt: skip
        nodes.append(made)
        new.update(zip(node.outputs, made.outputs, strict=True))
    back = {new[value]: number for number, value in enumerate(values)}
    inputs = tuple([new[value] for value in region.inputs if value in new])
    return Region(tuple(nodes), inputs, tuple([new[value] for value in region.outputs])), back


def _kept(
    trace: Trace, region: Region, back: dict[Value, int], symbols: list[int], numbers: list[Any],
    sources: Sequence[KernelSource],
) -> Written:  # fmt: skip
    """What a writer has made, as data; steps that nobody needs are left out."""
    nodes = {node: number for number, node in enumerate(region.nodes)}
    known = len(back)
    parts = list(
        dict.fromkeys(value for source in sources for value in (*source.inputs, *source.outputs) if value not in back)
    )
    back = back | {value: known + number for number, value in enumerate(parts)}
    written = [_kernel(trace, source, back, nodes) for source in sources]
    shapes = [(part.node.name, [trace.of(size).at for size in part.shape], part.dtype.name) for part in parts]
    wanted = {step for name, a, b in (*trace.notes, *trace.preferences) for step in (a, b)}
    wanted |= {step for _, sizes, _ in shapes for step in sizes}
    for kernel in written:
        wanted |= {*kernel.sizes.values(), *kernel.tiled.values(), *marks(kernel.summary)}
        wanted |= {step for text in kernel.remarks if isinstance(text, str) for step in marks(text)}
    kept: set[int] = {at for at, step in enumerate(trace.steps) if step[0] == "symbol"}
    waiting = list(wanted)
    while waiting:
        at = waiting.pop()
        if at not in kept:
            kept.add(at)
            name, a, b = trace.steps[at]
            waiting += [] if name == "constant" else [a, b]
    new = {at: number for number, at in enumerate(sorted(kept))}
    steps: list[Step] = []
    for at in sorted(kept):
        name, a, b = trace.steps[at]
        steps.append((name, a, b) if name in ("symbol", "constant") else (name, new[a], new[b]))
    for kernel in written:
        kernel.sizes = {name: new[step] for name, step in kernel.sizes.items()}
        kernel.tiled = {name: new[step] for name, step in kernel.tiled.items()}
        kernel.summary = renumbered(kernel.summary, new)
        kernel.remarks = [renumbered(item, new) if isinstance(item, str) else item for item in kernel.remarks]
    return Written(
        symbols, numbers, steps,
        [(name, new[a], new[b], outcome) for (name, a, b), outcome in trace.notes.items()],
        [(name, new[a], new[b], outcome) for (name, a, b), outcome in trace.preferences.items()
         if (name, a, b) not in trace.notes],
        [(name, [new[step] for step in sizes], dtype) for name, sizes, dtype in shapes],
        written,
    )  # fmt: skip


def _kernel(trace: Trace, source: KernelSource, back: dict[Value, int], nodes: dict[Node, int]) -> WrittenKernel:
    text = source.written
    if not isinstance(text, Text):
        raise TypeError("a text without its parts")
    summary, remarks = text.said()

    def plain(item: Any) -> Any:
        return item.known() if type(item) is Number else item

    varying = {name: item for name, item in trace.arguments.items() if name in text.arguments}
    sizes = {**source.sizes, **{name: number for name, (number, _) in varying.items()}}
    together = source.together
    if together is not None:
        together = {name: plain(count) for name, count in together.items()}
        together |= {name: many for name, (_, many) in varying.items()}
    return WrittenKernel(
        source.name, source.kind, list(text.arguments), list(text.head), list(text.lines), summary,
        [nodes[item.node] if isinstance(item, Said) else item for item in remarks],
        [back[value] for value in source.inputs], [back[value] for value in source.outputs], list(source.draws),
        {name: trace.of(size).at for name, size in sizes.items()},
        {name: plain(size) for name, size in source.blocks.items()},
        {name: trace.of(size).at for name, size in source.tiled.items()},
        [list(pair) for pair in source.grid], plain(source.warps), plain(source.stages),
        [[back[value], count] for value, count in source.passes.items()],
        together,
    )  # fmt: skip
