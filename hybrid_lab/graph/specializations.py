"""Specializations of a graph for its calls; another batch reuses the graphs of an earlier one, without the passes.

    specializations.specialize(graph, shapes with a batch of 64, ...)      runs the passes, on symbolic sizes
    specializations.specialize(graph, shapes with a batch of 37, ...)      the same graphs, with 37 in the shapes

The first two sizes of each data input (batch and time, in either layout) are symbols. While the passes run, every
comparison of symbols is recorded as a guard (ops/framework/sizes.py). A later call whose sizes satisfy the guards gets
the same graphs, bound to its sizes; only the minimum cut of `split` is computed again, because it weighs bytes. If a
guard fails, the passes run again, and their graphs are kept beside the earlier ones. If a rule of an operator or a pass
needs a size as a number (`NeedsNumber`), that size is no symbol in further calls of this kind, and each of its values
has graphs of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hybrid_lab.diagnostics.errors import HybridLabError
from hybrid_lab.graph.dump import is_dumping
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Value
from hybrid_lab.graph.specialize import specialize, until_split
from hybrid_lab.graph.specialized import Specialized
from hybrid_lab.graph.split import Cutter
from hybrid_lab.graph.symbolic import SymbolicGraph
from hybrid_lab.ops.framework.precision import Precision
from hybrid_lab.ops.framework.sizes import Binding, Guards, NeedsNumber
from hybrid_lab.ops.framework.types import Shape

#: How many symbolic specializations are kept for one kind of call; the latest is tried first.
MAX_SPECIALIZATIONS = 8
#: How many kinds of call are kept.
MAX_KINDS = 64
#: The leading sizes of a data input that may differ from call to call.
LEADING = 2
#: (data input, axis)
Axis = tuple[int, int]


class Specializations:
    """The specializations of a Block's calls, by kind of call.

    The kind of a call is its graph, mode, dtypes, wanted gradients, and the shapes of its parameters.
    """

    def __init__(self) -> None:
        #: By the kind of call: the graphs, of which those used last come first, and, for each leading size that a rule
        #: needs as a number, (data input, axis) -> the reason.
        self._kinds: dict[Hashable, tuple[list[SymbolicSpecialization], dict[Axis, str]]] = {}

    def specialize(
        self,
        graph: Graph,
        shapes: Sequence[Shape],
        dtypes: Sequence[np.dtype],
        train: bool,
        wrt: Sequence[int] = (),
        num_data: int = 0,
        precision: Precision | None = None,
        heads: Collection[int] | None = None,
    ) -> Specialized:
        """As `specialize.specialize`, with known graphs where their guards hold.

        num_data : the number of data inputs, which come first; the other inputs are parameters
        """
        ranks = tuple(map(len, shapes[:num_data]))
        wanted = None if heads is None else frozenset(heads)
        key = graph, ranks, tuple(shapes[num_data:]), tuple(dtypes), train, tuple(wrt), num_data, precision, wanted
        known, numbers = self._kinds.setdefault(key, ([], {}))
        if len(self._kinds) > MAX_KINDS:
            del self._kinds[next(iter(self._kinds))]
        for each in known:
            bound = None if is_dumping() else each.bind(shapes)
            if bound is not None:
                known.remove(each)
                known.insert(0, each)
                return bound
        axes = [(index, axis) for index in range(num_data) for axis in range(len(shapes[index][:LEADING]))]
        # Printed passes show the sizes of each call.
        while symbols := [axis for axis in axes if axis not in numbers and not is_dumping()]:
            try:
                latest = SymbolicSpecialization(
                    graph, shapes, dtypes, train, wrt, num_data, precision, heads, symbols, numbers
                )
            except NeedsNumber as need:
                numbers.update({symbols[number]: _reason(need, *symbols[number]) for number in need.symbols})
            except HybridLabError:  # the call is wrong: without symbols below, the error names the sizes
                break
            else:
                known.insert(0, latest)
                del known[MAX_SPECIALIZATIONS:]
                bound = latest.bind(shapes)
                assert bound is not None
                return bound
        special = specialize(graph, shapes, dtypes, train, wrt, num_data, precision=precision, heads=heads)
        return replace(special, needs_numbers=tuple(dict.fromkeys(numbers.values())))


def _reason(need: NeedsNumber, index: int, axis: int) -> str:
    return f"{need} (axis {axis} of input {index}); each value of it compiles anew"


class SymbolicSpecialization:
    """The graphs of one kind of call, for all sizes that satisfy the guards.

    symbols : (data input, axis) of each size that is a symbol
    numbers : (data input, axis) of each leading size that some rule needs as a number -> the reason
    """

    def __init__(
        self,
        graph: Graph,
        shapes: Sequence[Shape],
        dtypes: Sequence[np.dtype],
        train: bool,
        wrt: Sequence[int],
        num_data: int,
        precision: Precision | None,
        heads: Collection[int] | None,
        symbols: Sequence[Axis],
        numbers: dict[Axis, str],
    ):
        self.guards = Guards()
        self._symbols, self._needs_numbers = tuple(symbols), tuple(dict.fromkeys(numbers.values()))
        marked: list[list[Any]] = [list(shape) for shape in shapes]
        for index, axis in symbols:
            marked[index][axis] = self.guards.symbol(shapes[index][axis])
        self._num_data, self._fixed_sizes = num_data, self._without_symbols(shapes, num_data)
        symbolic_shapes = [tuple(shape) for shape in marked]
        self._cutter: Cutter | None = None
        if wrt:
            absent: set[int] = set()
            options: dict[str, Any] = {"precision": precision, "heads": heads, "absent": absent}
            joint, start = until_split(graph, symbolic_shapes, dtypes, train, wrt, num_data, **options)
            self._absent = frozenset(absent)
            self._cutter = Cutter(joint, len(start.inputs), len(start.outputs))
            self._parts: dict[tuple[Value, ...], tuple[SymbolicGraph, SymbolicGraph, Specialized]] = {}
            self._wrt = tuple(wrt)
            self._heads = None if heads is None else tuple(sorted(heads))
            self._straight = tuple(("input", index) for index in range(len(start.inputs)))
        else:
            self._whole = specialize(graph, symbolic_shapes, dtypes, train, (), num_data, precision=precision)
            self._forward = SymbolicGraph(self._whole.forward, self.guards)
            self._given = SymbolicGraph(self._whole.given, self.guards)
            prologue = self._whole.prologue
            self._prologue = None if prologue is None else SymbolicGraph(prologue, self.guards)
        self._count = self.guards.count

    def bind(self, shapes: Sequence[Shape]) -> Specialized | None:
        """The graphs for these shapes; None if a guard fails or a size that is no symbol differs."""
        if self._without_symbols(shapes, self._num_data) != self._fixed_sizes:
            return None
        binding = Binding(self.guards, [shapes[index][axis] for index, axis in self._symbols])
        if not binding.satisfies(self._count):
            return None
        return self._unrecorded(binding) if self._cutter is None else self._recorded(binding, self._cutter)

    def _without_symbols(self, shapes: Sequence[Shape], num_data: int) -> list[list[int | None]]:
        """The shapes of the data inputs, with None in place of each symbol."""
        fixed: list[list[int | None]] = [list(shape) for shape in shapes[:num_data]]
        for index, axis in self._symbols:
            fixed[index][axis] = None
        return fixed

    def _recorded(self, binding: Binding, cutter: Cutter) -> Specialized:
        saved = tuple(cutter.kept(binding.nbytes))
        if saved not in self._parts:
            parts = cutter.parts(saved)
            special = Specialized(
                parts.forward,
                parts.backward,
                parts.sources,
                self._wrt,
                forward_sources=self._straight,
                heads=self._heads,
                absent=self._absent,
                needs_numbers=self._needs_numbers,
            )
            graphs = SymbolicGraph(parts.forward, self.guards), SymbolicGraph(parts.backward, self.guards)
            self._parts[saved] = *graphs, special
        first, second, special = self._parts[saved]
        forward = first.bind(binding)
        return replace(special, forward=forward, backward=second.bind(binding), given=forward)

    def _unrecorded(self, binding: Binding) -> Specialized:
        return replace(
            self._whole,
            forward=self._forward.bind(binding),
            prologue=None if self._prologue is None else self._prologue.bind(binding),
            given=self._given.bind(binding),
            needs_numbers=self._needs_numbers,
        )
