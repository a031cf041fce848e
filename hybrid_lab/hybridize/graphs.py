"""Graphs: the neutral graphs of one HybridBlock by input structure - traced from its code, or loaded from a file - and
whether the code and the values that they were traced from have changed since.
"""

from __future__ import annotations

import copy
import inspect
import itertools
import weakref
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from types import CodeType
from typing import TYPE_CHECKING, Any

from hybrid_lab.diagnostics.errors import HybridLabError, MissingGraphError
from hybrid_lab.diagnostics.formatting import called
from hybrid_lab.hybridize import events
from hybrid_lab.hybridize.block import tree_of
from hybrid_lab.hybridize.known_calls import KnownCall, KnownCalls, Types, cast_types
from hybrid_lab.hybridize.neutral import NeutralGraph, Observation
from hybrid_lab.hybridize.stale.code import code_of, of_user
from hybrid_lab.hybridize.stale.watched_values import guard_of
from hybrid_lab.hybridize.structure import NUMPY_LEAF, Spec, describe, of_class, plain, same_objects, without_defaults
from hybrid_lab.ndarray.tape import state as _modes
from hybrid_lab.ops.framework.dtypes import dtype_of
from hybrid_lab.system import forks
from hybrid_lab.system.logger import logger

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from hybrid_lab.hybridize.block import Hybrid, Tree
    from hybrid_lab.hybridize.stale.value_guard import ValueGuard

#: Number of graphs kept of one Block's code. Of the form with the most graphs, the least recently compiled graph is
#: dropped first.
MAX_GRAPHS = 64
_uses = itertools.count(1)

#: The Graphs of every living Block that ever had graphs, or whose trace was refused.
alive: weakref.WeakSet[Graphs] = weakref.WeakSet()


class Graphs:
    """The neutral graphs of one Block, and the kinds of its calls so far.

    variants : traced graphs by input structure; pinned : graphs from a file, used instead of the code
    calls : the kinds of the Block's calls so far
    guard : of the values that each call compares with those at the trace; None while there is no traced graph
    code : `code_of` the Block's class at the first trace; None while there is no traced graph
    refused : `code_of` the Block's class when a trace was refused, so that calls run eagerly; None if none was. It
        stays when the graphs are dropped, for example because a call assigns an attribute
    lock : held while graphs change, and while a program is compiled from a graph
    """

    def __init__(self, block: Hybrid):
        self.block = block
        self.lock = forks.rlock()
        self.variants: dict[Spec, list[NeutralGraph]] = {}
        self.pinned: dict[Any, NeutralGraph] = {}
        self.calls = KnownCalls()
        self.guard: ValueGuard | None = None
        self.code: tuple[CodeType, ...] | None = None
        self.refused: tuple[CodeType, ...] | None = None
        self._values: dict[str, Any] | None = None  # `read_values` of the Block, if calls cannot compare them all
        self._used: dict[NeutralGraph, int] = {}  # a number that grows with each use
        self._for_numpy: dict[int, NeutralGraph] = {}  # graphs from files, by id, for calls with `mx.np` arrays
        self._pinned_tree: list[weakref.ref[Tree]] = []

    def __deepcopy__(self, memo: Any) -> Graphs:
        """A copied Block starts without traces: these name the parameters of the original. Its known calls and loaded
        graphs are copied.
        """
        twin = memo[id(self)] = Graphs(memo.get(id(self.block), self.block))
        twin.calls = copy.copy(self.calls)
        for key, neutral in self.pinned.items():
            twin.pinned[key] = replace(neutral, parameters=copy.deepcopy(neutral.parameters, memo))
        twin._pinned_tree = [weakref.ref(copy.deepcopy(block, memo)) for block in self._live_pinned_tree()]
        return twin

    def __reduce__(self) -> tuple[object, ...]:
        """A pickled Block keeps its known calls and starts without traces, too; graphs from a file are not pickled."""
        if self.pinned:
            name = self.block.name or type(self.block).__name__
            raise HybridLabError(f"{name} runs a graph from a file, which is not pickled; save it with net.save(path)")
        return Graphs, (self.block,), self.calls.for_pickle()

    def __setstate__(self, calls: KnownCalls) -> None:
        self.calls = calls

    def twin(self, traces: bool) -> Graphs:
        """Graphs of the same Block for a tool, which adds to them without changing these.

        traces : start with the known graphs
        """
        twin = Graphs(self.block)
        if traces:
            with self.lock:
                twin.variants = {spec: list(graphs) for spec, graphs in self.variants.items()}
                twin.pinned, twin._pinned_tree = dict(self.pinned), list(self._pinned_tree)
        return twin

    # -- access ----------------------------------------------------------------------------------------------

    def graphs(self) -> list[NeutralGraph]:
        """All neutral graphs, loaded graphs first."""
        return [*self.pinned.values(), *(item for variants in self.variants.values() for item in variants)]

    def first(self) -> NeutralGraph | None:
        """The first of `graphs()`, if any."""
        return next(iter(self.graphs()), None)

    @property
    def count(self) -> int:
        """The number of `graphs()`."""
        return len(self.pinned) + sum(map(len, self.variants.values()))

    def has(self, spec: Spec) -> bool:
        """Whether there is a graph for this input structure."""
        return spec in self.variants or any(neutral.in_spec == plain(spec) for neutral in self.pinned.values())

    def graph_of(self, call: KnownCall) -> NeutralGraph | None:
        """The graph that such a call runs, if there is one; graphs from a file come before traced graphs."""
        runs = [neutral for neutral in self.graphs() if neutral.runs(call)]
        return min(runs, key=lambda neutral: len(neutral.in_spec[1]) != len(call.spec[1]), default=None)

    def types_of(self, neutral: NeutralGraph) -> Types | None:
        """The types of the inputs at the graph's trace, else at the latest known call that the graph holds for."""
        calls = [call.types for call in self.calls if call.types is not None and neutral.runs(call)]
        return neutral.types or next(reversed(calls), None)

    def find(self, spec: Spec, types: Types) -> NeutralGraph | None:
        """The graph of the code that holds for a call in the current mode; None if there is none.

        types : (shape, dtype name) of the input tensors
        """
        training, recording = _modes.training, bool(_modes.recording)
        for candidate in self.variants.get(spec, ()):
            if candidate.observation.holds(types, training, recording):
                self._used[candidate] = next(_uses)
                return candidate
        return None

    def pinned_for(self, spec: Spec, types: tuple[object, ...] | None, training: bool) -> NeutralGraph:
        """The loaded graph for these inputs. Raises MissingGraphError, which lists the existing graphs.

        types : (shape, dtype name) of the input tensors, or None if they are not known
        """
        recording = bool(_modes.recording)
        wanted_spec = plain(spec)
        for form in (plain, without_defaults):  # an argument None may be left out
            for neutral in self.pinned.values():
                own, holds = neutral.in_spec, neutral.observation.holds(types or (), training, recording)
                if holds and form(own) == form(wanted_spec) and self._differ_in_defaults(own, wanted_spec):
                    return neutral
        if wanted_spec == of_class(wanted_spec, NUMPY_LEAF):  # MXNet's files do not tell the class of arrays of a graph
            for neutral in list(self.pinned.values()):
                if of_class(neutral.in_spec, NUMPY_LEAF) == wanted_spec and neutral.source == "file":
                    out_spec = of_class(neutral.out_spec, NUMPY_LEAF)
                    if neutral.observation.holds(types or (), training, recording):
                        for_numpy = replace(neutral, in_spec=wanted_spec, out_spec=out_spec)
                        return self._for_numpy.setdefault(id(neutral), for_numpy)
        existing = ", ".join(f"{_inputs_of(item)}{item.observation.describe()}" for item in self.pinned.values())
        observations = [neutral.observation for neutral in self.pinned.values()]
        asked = Observation(
            types if any(each.types is not None for each in observations) else None,
            training if any(each.training is not None for each in observations) else None,
            recording=recording if any(each.recording is not None for each in observations) else None,
        )
        raise MissingGraphError(
            f"{self.block.name}: the loaded graph takes {existing}, not {describe(spec)}{asked.describe()}. A file "
            "holds graphs of the calls before it was saved; where there is code, graphs='code' traces it anew"
        )

    def _differ_in_defaults(self, one: Spec, other: Spec) -> bool:
        """Whether the arguments present in only one of two calls are None by default, as far as the code is known."""
        function, own = self.block._entry_of_calls
        first, end = sorted((len(one[1]), len(other[1])))
        if first == end or not of_user(function.__module__):
            return True
        parameters = list(inspect.signature(function).parameters.values())[own:]
        return len(parameters) >= end and all(item.default is None for item in parameters[first:end])

    # -- changes of what they were traced from ----------------------------------------------------------------

    def holds(self) -> bool:
        """Whether the values that calls compare are the trace's values."""
        return self.guard is None or self.guard.holds()

    def differences(self) -> list[str]:
        """What changed among the values that calls compare: `CONFIG['rate']: 0.2 instead of 0.1`.

        Empty if other containers and objects hold the same: they are what later calls compare with.
        """
        before, now = self.guard, guard_of(self.block)
        assert before is not None
        changed = now.without(before.excluded).differences(before)
        if not changed:
            self.guard = now
        return changed

    def unnoticed(self) -> list[str]:
        """Names of changed values (`self.name`, or the name of a global) since the trace. Empty if calls compare every
        value that the code reads.
        """
        if self._values is None:
            return []
        from hybrid_lab.hybridize.stale.read_values import changed_values, read_values

        return changed_values(self._values, read_values(self.block))

    def refuse(self) -> None:
        """A trace was refused, and calls run eagerly until the code changes. The values are not compared: code that
        runs eagerly may change them in every call.
        """
        if self.refused is None:
            self.refused = code_of(type(self.block))
            alive.add(self)

    # -- changes ---------------------------------------------------------------------------------------------

    def note(self, neutral: NeutralGraph, guard: ValueGuard | None = None) -> None:
        """Keep a graph traced from the Block's code. guard : of the values that the code read; None: it is made now"""
        with self.lock:
            self.guard = guard_of(self.block) if guard is None else guard
            if self.code is None:
                self.code = code_of(type(self.block))
            if self._values is None and (self.guard.unwatched or self.guard.is_partial):
                from hybrid_lab.hybridize.stale.read_values import read_values

                self._values = read_values(self.block)
            alive.add(self)
            self.variants.setdefault(neutral.in_spec, []).append(neutral)
            for listener in events.changed:
                listener(self.block)
            self._used[neutral] = next(_uses)
            graphs = [item for variants in self.variants.values() for item in variants]
            if len(graphs) > MAX_GRAPHS:
                forms = Counter(item.form for item in graphs)
                gone = min(graphs, key=lambda item: (-forms[item.form], self._used.get(item, 0)))
                self.variants[gone.in_spec].remove(gone)
                self._used.pop(gone, None)
                if not self.variants[gone.in_spec]:
                    del self.variants[gone.in_spec]

    def pin(self, graphs: Sequence[NeutralGraph]) -> None:
        """Use these graphs instead of the code; with an empty sequence, the code again."""
        with self.lock:
            self.pinned = {(item.in_spec, item.observation): item for item in graphs}
            for item in reversed(graphs):  # a file's first graph is of its latest call
                self.note_loaded(item.in_spec, item.types, item.observation)
            self._pinned_tree = [weakref.ref(block) for block in tree_of(self.block)[1:]]
            alive.add(self)
            for listener in events.changed:
                listener(self.block)

    def clear(self) -> None:
        """Drop traces; graphs from a file stay until a child is replaced."""
        with self.lock:
            if self.pinned and not same_objects(self._live_pinned_tree(), tree_of(self.block)[1:]):
                logger.warning(
                    f"{called(self.block)}: a child was replaced, so the code runs instead of the loaded graph"
                )
                self.pinned = {}
                for listener in events.changed:
                    listener(self.block)
            if self.variants:
                for listener in events.changed:
                    listener(self.block)
            self.variants.clear()
            self._used.clear()
            self.code = self.guard = self._values = None

    def drop_if_observed(self, whats: Collection[str]) -> None:
        """Drop the traces of code that asked for something in `whats`, see `Observation.includes`."""
        with self.lock:
            for spec, graphs in list(self.variants.items()):
                self.variants[spec] = [
                    item for item in graphs if not any(item.observation.includes(what) for what in whats)
                ]
            for listener in events.changed:
                listener(self.block)

    def note_loaded(self, spec: Spec, types: Types | None, observation: Observation) -> None:
        """Keep the call of a graph from a file as a call of the Block."""
        types = observation.types or types
        self.calls.note(KnownCall(spec, types, bool(observation.training), bool(observation.recording)))

    def note_cast(self, dtype: DTypeLike | None) -> None:
        """Assume that the Block, and a graph from a file, is called with floating inputs of this dtype, until a call
        shows otherwise.
        """
        self.calls.cast(dtype)
        name = dtype_of(dtype).name
        for key, neutral in self.pinned.items():
            self.pinned[key] = replace(neutral, types=neutral.types and cast_types(neutral.types, name))

    def _live_pinned_tree(self) -> list[Tree]:
        return [block for block in (reference() for reference in self._pinned_tree) if block is not None]


GraphCache = Graphs
"""The name in pickles of earlier versions."""


def _inputs_of(neutral: NeutralGraph) -> str:
    """The inputs of a graph: `(tensor, tensor), named data0, data1`."""
    names = [value.node.name for value in neutral.graph.inputs[: neutral.num_data]]
    return f"{describe(neutral.in_spec)}{', named ' + ', '.join(names) if len(names) > 1 else ''}"
