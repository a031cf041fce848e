"""Which sizes of a network's inputs are open in its file, and what they are called.

A size is open if calls differ in it, if the user gave it a name, or, tried out, if it is one of the first two of an
input (batch and time, in either layout). The network is inferred and written with SymbolicSizes in these places:

    a comparison that must hold, such as "5 channels, as the weights have"      the size is fixed
    two sizes that must be equal, as the batches of two inputs                  they are one open size
    a rule that needs the number, such as the indices of a diagonal             the size is fixed
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from hybrid_lab.diagnostics.errors import HybridLabError
from hybrid_lab.graph.graph import Graph
from hybrid_lab.ops.framework.sizes import Binding, Guards, NeedsNumber, Size, SymbolicSize

LEADING = 2
"""So many leading sizes of an input are tried out."""

#: (input, axis)
Place = tuple[int, int]
Result = TypeVar("Result")
#: The inferred graph for inputs of these shapes, which may be symbolic.
Infer = Callable[[list[tuple[Any, ...]]], Graph]


@dataclass
class Described:
    """An input of a network. sizes : numbers; names : axis -> what the user called it; varying : the axes in which
    calls differ; exact : whether all sizes without a name are meant as they are
    """

    name: str
    sizes: tuple[int, ...]
    dtype: np.dtype
    names: dict[int, str] = field(default_factory=dict)
    varying: frozenset[int] = frozenset()
    exact: bool = False


class OpenSizes:
    """The open sizes of a network's inputs.

    notes : which sizes could not be open though that was asked for, one line each
    """

    def __init__(self, inputs: Sequence[Described]):
        self.inputs = inputs
        self.notes: list[str] = []
        self._groups: list[list[Place]] = []
        self._asked: set[Place] = set()
        self._named: dict[Place, str] = {}
        by_name: dict[str, list[Place]] = {}
        self._batch_of_one_opens = all(item.sizes[:1] == (1,) for item in inputs if item.sizes)
        for number, item in enumerate(inputs):
            for axis in range(len(item.sizes)):
                place = number, axis
                if axis in item.names:
                    self._named[place] = item.names[axis]
                    by_name.setdefault(item.names[axis], []).append(place)
                elif not item.exact and (axis < LEADING or axis in item.varying):
                    self._groups.append([place])
                if axis in item.names or axis in item.varying:
                    self._asked.add(place)
        self._groups += by_name.values()

    def solve(self, infer: Infer, write: Callable[[Graph], Result]) -> Result:
        """What `write` makes of the inferred graph with as many open sizes as the rules let be open.

        infer : the graph for inputs of these shapes
        """
        # The loop ends: each repetition has fewer open sizes, or is the one that fixes batches of 1.
        while True:
            guards = Guards()
            try:
                graph = infer(self._shapes([guards.symbol(hint) for hint in self._hints()]))
                if self._settle(guards):
                    continue
                result = write(graph)
            except NeedsNumber as need:
                for number in need.symbols:
                    self._fix(number, str(need))
                self._drop(need.symbols)
                continue
            except HybridLabError:
                if not self._relax():
                    raise
                continue
            if self._settle(guards):
                continue
            if self._batch_of_one_opens and self._differs(infer, graph, guards, self._called()):
                self._batch_of_one_opens = False
                continue
            self._probe(infer, graph, guards)
            return result

    def _hints(self) -> list[int]:
        hints = []
        for group in self._groups:
            number, axis = group[0]
            size = self.inputs[number].sizes[axis]
            # The network inferred for 1 would hold for 1 alone: operators repeat a size of 1 along others. So a batch
            # of 1 is inferred as 2, and `solve` checks that the network of the call, with 1, is the same.
            hints.append(2 if size == 1 and axis == 0 and self._batch_of_one_opens else size)
        return hints

    def _called(self) -> list[int]:
        """The open sizes as they were in the call."""
        return [self.inputs[group[0][0]].sizes[group[0][1]] for group in self._groups]

    def _shapes(self, sizes: Sequence[Any]) -> list[tuple[Any, ...]]:
        """The shapes of the inputs for these open sizes."""
        shapes: list[list[Any]] = [list(item.sizes) for item in self.inputs]
        for group, size in zip(self._groups, sizes, strict=True):
            for number, axis in group:
                shapes[number][axis] = size
        return [tuple(shape) for shape in shapes]

    def _relax(self) -> bool:
        """After an error: without batches of 1 that stand for any, then without the sizes that are only tried out."""
        if self._batch_of_one_opens:
            self._batch_of_one_opens = False
            return True
        tried = [group for group in self._groups if self._asked.isdisjoint(group)]
        self._groups = [group for group in self._groups if group not in tried]
        return bool(tried)

    def _settle(self, guards: Guards) -> bool:
        """Fix and join what the guards say must be so; whether anything changed."""
        fixed: set[int] = set()
        for (relation, polynomial), holds in guards.recorded.items():
            if relation != "==" or not holds:
                continue
            symbols = sorted(guards.symbols_of(SymbolicSize(guards, polynomial, 0)))
            equal = _equal_pair(symbols, guards)
            if equal is not None:
                one, two = equal
                self._groups[one] += self._groups[two]
                self._groups[one].sort()
                del self._groups[two]
                return True
            fixed.update(symbols)
        for number in fixed:
            self._fix(number, "the network holds for this size alone")
        self._drop(fixed)
        return bool(fixed)

    def _fix(self, number: int, reason: str) -> None:
        group = self._groups[number]
        if (0, 0) in group or not self._asked.isdisjoint(group):
            place = min(group)
            item = self.inputs[place[0]]
            name = self._named.get(place) or f"axis {place[1]} of {item.name}"
            self.notes.append(f"{name} is fixed at {item.sizes[place[1]]}: {reason}")

    def _drop(self, numbers: Any) -> None:
        self._groups = [group for index, group in enumerate(self._groups) if index not in numbers]

    def _probe(self, infer: Infer, graph: Graph, guards: Guards) -> None:
        """Note the sizes for which the network is another one: most often 1, which `squeeze` drops."""
        hints = self._hints()
        for number, group in enumerate(self._groups):
            for size in (1, 2 * hints[number] + 1):
                if self._differs(infer, graph, guards, [*hints[:number], size, *hints[number + 1 :]]):
                    item = self.inputs[group[0][0]]
                    name = self._named.get(group[0]) or f"axis {group[0][1]} of {item.name}"
                    self.notes.append(f"{name}: for the size {size} the network is another one than the file's")

    def _differs(self, infer: Infer, graph: Graph, guards: Guards, values: Sequence[int]) -> bool:
        """Whether some operator has outputs of other shapes for these open sizes than the symbolic shapes say."""
        binding = Binding(guards, values)
        if binding.satisfies(guards.count):
            return False
        try:
            other = infer(self._shapes(values))
        except (HybridLabError, NeedsNumber):
            return True
        pairs = zip(graph.operators, other.operators, strict=True)
        return any(tuple(map(binding.shape, one.shapes or ())) != two.shapes for one, two in pairs)

    @property
    def places(self) -> list[Place]:
        """Where the open sizes are."""
        return [place for group in self._groups for place in group]

    def names(self, roles: Sequence[tuple[str, Any]]) -> list[str]:
        """A name for each open size. roles : (name, symbolic size) as the operators tell"""
        names: list[str] = []
        told = {
            size.terms[0][0][0]: role
            for role, size in roles
            if isinstance(size, SymbolicSize) and len(size.terms) == 1 and len(size.terms[0][0]) == 1
        }
        for number, group in enumerate(self._groups):
            given = next((self._named[place] for place in group if place in self._named), None)
            first = min(group)
            usual = (
                "batch"
                if first[1] == 0 and "batch" not in told.values()
                else f"{self.inputs[first[0]].name}_{first[1]}"
            )
            name = given or told.get(number) or usual
            while name in names:
                name = f"{name}_{number}"
            names.append(name)
        return names


def dimension_text(size: Size, names: Sequence[str]) -> int | str:
    """A size as files have it: a number, or a formula of the names of open sizes."""
    if not isinstance(size, SymbolicSize):
        return int(size)
    return re.sub(r"\bs(\d+)\b", lambda found: names[int(found[1])], repr(size))


def _equal_pair(symbols: Sequence[int], guards: Guards) -> tuple[int, int] | None:
    """Two symbols that may be one size: they have the same value in this call."""
    values = guards.hints.values
    for index, one in enumerate(symbols):
        for two in symbols[index + 1 :]:
            if values[one] == values[two]:
                return one, two
    return None
