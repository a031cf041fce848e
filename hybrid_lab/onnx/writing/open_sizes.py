"""Which sizes of a network's inputs are open in its file, and their names.

A size is open if calls differ in it, if the user gave it a name, or, tried out, if it is one of the first two of an
input (batch and time, in either layout). The network is inferred and written with SymbolicSizes in these places:

    a comparison that must hold, such as "5 channels, as the weights have"      the size is fixed
    two sizes that must be equal, as the batches of two inputs                  they are one open size
    an equality of products, of a reshape to numbers (equalities.py)            as few of its sizes as will do are fixed
    a rule that needs the number, such as the indices of a diagonal             the size is fixed

If one of several sizes may stay open, a size that the user asked for stays open; else the size of the first axis of an
input.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from hybrid_lab.diagnostics.errors import HybridLabError
from hybrid_lab.graph.graph import Graph
from hybrid_lab.ops.framework.sizes import Binding, Guards, NeedsNumber, Size, SymbolicSize

from .equalities import needed

LEADING = 2
"""So many leading sizes of an input are tried out."""

#: (input, axis)
Place = tuple[int, int]
Result = TypeVar("Result")
#: The inferred graph for inputs of these shapes, which may be symbolic.
Infer = Callable[[list[tuple[Any, ...]]], Graph]


@dataclass
class Described:
    """An input of a network. sizes : numbers; names : axis -> the user's name for it; varying : the axes in which calls
    differ; exact : whether all unnamed sizes are meant literally
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
        """The result of `write` for the inferred graph, with as many open sizes as the rules allow.

        infer : the graph for inputs of these shapes
        """
        # The loop ends: each repetition has fewer open sizes, or fixes batches of 1.
        while True:
            guards = Guards()
            try:
                graph = infer(self._shapes([guards.symbol(hint) for hint in self._hints()]))
                if self._settle(guards):
                    continue
                result = write(graph)
            except NeedsNumber as need:
                # A formula of several symbols, such as (s0*s1) // 64, may become a plain one: s0, if s1 is 64.
                wanted = [number for number in self._order() if number in need.symbols]
                later = [number for number in wanted if not self._is_first(number)]
                self._fix(dict.fromkeys(later or wanted, str(need)))
                continue
            except HybridLabError as error:
                if not self._relax(error):
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
            # The network inferred for 1 would hold for 1 alone: operators repeat a size of 1 along other sizes. So a
            # batch of 1 is inferred as 2, and `solve` checks that the network for a batch of 1 is the same.
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

    def _relax(self, error: HybridLabError) -> bool:
        """After an error: without batches of 1 that stand for any, then without the sizes that are only tried out,
        first axes last.
        """
        if self._batch_of_one_opens:
            self._batch_of_one_opens = False
            return True
        tried = [number for number, group in enumerate(self._groups) if self._asked.isdisjoint(group)]
        later = [number for number in tried if not self._is_first(number)]
        reason = f"with an open size there is an error: {str(error).partition(chr(10))[0]}"
        self._fix(dict.fromkeys(later or tried, reason))
        return bool(tried)

    def _settle(self, guards: Guards) -> bool:
        """Fix and join sizes as the guards demand; whether anything changed."""
        need = needed(guards, self._order())
        if need.one:
            first, *others = sorted(need.one)
            self._groups[first] = sorted(place for number in need.one for place in self._groups[number])
            self._groups = [group for number, group in enumerate(self._groups) if number not in others]
            return True
        self._fix({number: self._reason(number, instead) for number, instead in need.numbers.items()})
        return bool(need.numbers)

    def _order(self) -> list[int]:
        """The open sizes, those first that should stay open if there is a choice."""

        def rank(number: int) -> tuple[bool, int, int]:
            group = self._groups[number]
            return self._asked.isdisjoint(group), min(axis for _, axis in group), number

        return sorted(range(len(self._groups)), key=rank)

    def _is_first(self, number: int) -> bool:
        """Whether an open size is the first axis of an input."""
        return any(axis == 0 for _, axis in self._groups[number])

    def _reason(self, number: int, instead: Sequence[int]) -> str:
        """Why a size is fixed, and how the user gets it open. instead : the sizes that are open in its place"""
        if not instead:
            return "the network holds for this size alone"
        others = " and ".join(self._called_by(min(self._groups[each])) for each in instead)
        asked = [
            [self._name(number) if (index, axis) in self._groups[number] else size for axis, size in enumerate(sizes)]
            for index, sizes in enumerate(item.sizes for item in self.inputs)
        ]
        shown = repr(tuple(asked[0]) if len(asked) == 1 else list(map(tuple, asked)))
        this = self._called_by(min(self._groups[number]))
        return f"this leaves {others} open; inputs={shown} leaves {this} open instead"

    def _name(self, number: int) -> str:
        """The name of an open size, in `inputs=`."""
        group = self._groups[number]
        given = next((self._named[place] for place in group if place in self._named), None)
        index, axis = min(group)
        return given or ("batch" if axis == 0 else f"{self.inputs[index].name}_{axis}")

    def _called_by(self, place: Place) -> str:
        """The name of a size in messages."""
        return self._named.get(place) or f"axis {place[1]} of {self.inputs[place[0]].name}"

    def _fix(self, reasons: Mapping[int, str]) -> None:
        """Give open sizes their numbers; notes it of the first input's first axis, and of sizes that were asked for.

        reasons : why, by number of the open size
        """
        for number, reason in sorted(reasons.items()):
            group = self._groups[number]
            if (0, 0) in group or not self._asked.isdisjoint(group):
                index, axis = place = min(group)
                self.notes.append(f"{self._called_by(place)} is fixed at {self.inputs[index].sizes[axis]}: {reason}")
        self._groups = [group for number, group in enumerate(self._groups) if number not in reasons]

    def _probe(self, infer: Infer, graph: Graph, guards: Guards) -> None:
        """Note the sizes for which the network is another one: most often 1, which `squeeze` drops."""
        hints = self._hints()
        for number, group in enumerate(self._groups):
            for size in (1, 2 * hints[number] + 1):
                if self._differs(infer, graph, guards, [*hints[:number], size, *hints[number + 1 :]]):
                    name = self._called_by(group[0])
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
