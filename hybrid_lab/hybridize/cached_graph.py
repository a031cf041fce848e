"""GraphCache: the neutral graphs of one HybridBlock, the programs compiled from them, and the call that runs one."""

from __future__ import annotations

import contextlib
import copy
import inspect
import itertools
import time
import weakref
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hybrid_lab.diagnostics.errors import HybridLabError, MissingGraphError
from hybrid_lab.diagnostics.frames import hide_own_frames
from hybrid_lab.diagnostics.hybridize_error import HybridizeError
from hybrid_lab.diagnostics.location import capture
from hybrid_lab.engines import registry
from hybrid_lab.hybridize import events, looks
from hybrid_lab.hybridize.block import Part
from hybrid_lab.hybridize.block_notes import note_block
from hybrid_lab.hybridize.device_program import program_for
from hybrid_lab.hybridize.failure import Failure, failure_of
from hybrid_lab.hybridize.hooks import has_hooks, warn_of_hooks
from hybrid_lab.hybridize.known_calls import KnownCall, KnownCalls, Types, cast_types
from hybrid_lab.hybridize.neutral import NeutralGraph, Observation, trace_block
from hybrid_lab.hybridize.passed import same_objects
from hybrid_lab.hybridize.program import Program
from hybrid_lab.hybridize.program_cache import Call, Compilation, ProgramCache, Signature
from hybrid_lab.hybridize.stale.code import Reads, of_user, reads_of
from hybrid_lab.hybridize.stale.frozen import keeps_tensors, seen_to_keep, undoing_changes
from hybrid_lab.hybridize.stale.guarded_trace import tell_of_unwatched, trace_guarded
from hybrid_lab.hybridize.stale.read_values import ClassSource, changed_values, class_source, is_plain, own_values
from hybrid_lab.hybridize.stale.value_guard import ValueGuard
from hybrid_lab.hybridize.stale.watched_values import guard_of
from hybrid_lab.hybridize.structure import (
    LEAF,
    NUMPY_LEAF,
    ONE_TENSOR,
    Spec,
    describe,
    flatten,
    of_class,
    plain,
    without_defaults,
)
from hybrid_lab.ndarray import changes, tape
from hybrid_lab.ndarray.ndarray import NDArray
from hybrid_lab.ops.framework.dtypes import dtype_of
from hybrid_lab.system import forks
from hybrid_lab.system.collector import without_collecting
from hybrid_lab.system.logger import logger
from hybrid_lab.system.progress import working

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from hybrid_lab.hybridize.block import Hybrid, Tree

_modes = tape.state
_link = tape.link
_ARRAYS = {NDArray}

#: How many graphs of one Block's code are kept. The first to go is the least recently compiled one of the form that has
#: the most.
MAX_GRAPHS = 64
_uses = itertools.count(1)

#: Every cache that ever got a graph and is alive.
traced: weakref.WeakSet[GraphCache] = weakref.WeakSet()
#: What graphs of Blocks of one class were traced from -> the caches with such graphs, where the code, or what it reads,
#: may change unnoticed: the lab looks here for stale graphs. The package's own layers do not change, and an assignment
#: to an attribute is noticed; what an attribute holds may change.
watched: weakref.WeakKeyDictionary[ClassSource, weakref.WeakSet[GraphCache]] = weakref.WeakKeyDictionary()
#: Every cache that ever compiled a program and is alive.
_compiled: weakref.WeakSet[GraphCache] = weakref.WeakSet()


def forget_all_programs() -> None:
    """Drop every compiled program, because a setting of the process changed (see `contrib.amp`).

    Traces stay, except those of code that read dtypes.
    """
    for cache in (*_compiled, *traced):
        cache.forget_programs(and_dtypes=True)


_of_the_parent: list[Any] = []
"""In a forked child: the parent's programs. They never run, and are never freed, which might wait for its threads."""


def _forked() -> None:
    if registry.left_behind:
        for cache in (*_compiled, *traced):
            _of_the_parent.append(cache.compiled)
            cache.forget_programs()


forks.in_child(_forked)


def _inputs_of(neutral: NeutralGraph) -> str:
    """What a graph takes: `(tensor, tensor), named data0, data1`."""
    names = [value.node.name for value in neutral.graph.inputs[: neutral.num_data]]
    return f"{describe(neutral.in_spec)}{', named ' + ', '.join(names) if len(names) > 1 else ''}"


def _below(block: Tree) -> Iterator[Tree]:
    """All blocks below `block`, in order; a shared one as often as it occurs."""
    for child in block._children.values():
        yield child
        yield from _below(child)


def drop_for_values(block: Tree, changed: str) -> None:
    """Drop the graphs of a Block, and those of all Blocks above it, because of a changed value that the code reads.

    changed : what changed, in words: the reason of the compiles that follow
    """
    caches: dict[int, GraphCache] = {}
    pending = [block]
    for each in pending:
        cache: GraphCache | None = getattr(each, "_graphs", None)
        if cache is not None and id(cache) not in caches:
            caches[id(cache)] = cache
            pending += [parent for reference in each._parents if (parent := reference()) is not None]
    before = [(cache, cache.compiled, cache._reported) for cache in caches.values() if cache.compiled.compilations]
    block._structure_changed()
    for cache, compiled, reported in before:
        if cache.compiled is not compiled:
            cache.compiled.follow(compiled, changed)
            cache._reported = reported


class GraphCache:
    """The neutral graphs of one block, and the programs compiled from them.

    variants : traced graphs by input structure; pinned : graphs from a file, which are used instead of the code
    _used : per variant a number that grows with each use
    compiled : the programs
    """

    def __init__(self, block: Hybrid):
        self.block = block
        self._lock = forks.rlock()
        self.variants: dict[Spec, list[NeutralGraph]] = {}
        self._used: dict[NeutralGraph, int] = {}
        self.pinned: dict[Any, NeutralGraph] = {}
        self._for_numpy: dict[int, NeutralGraph] = {}  # graphs of files, by id, for calls with `mx.np` arrays
        self._pinned_tree: list[weakref.ref[Tree]] = []
        self.compiled = ProgramCache(self._lock)
        self.calls = KnownCalls()
        self.source: ClassSource | None = None  # what the graphs were traced from, and with which values of the Block
        self.values: dict[str, Any] = {}
        self.holds_values = False  # whether there are containers or objects among them, which may change unnoticed
        self.attributes = 0  # how many the Block had then
        self.guard: ValueGuard | None = None  # of the values that calls compare with those at the trace
        self.failure: Failure | None = None
        #: (arguments, training, recording) of calls that run eagerly -> why
        self._eager: dict[tuple[Spec, bool, bool], HybridizeError] = {}
        #: why all calls run eagerly: the code keeps tensors from one call to the next
        self.stateful: HybridizeError | None = None
        self._reported = False
        self._warned: set[Any] = set()

    def __deepcopy__(self, memo: Any) -> GraphCache:
        """A copied block starts without traces: they name the parameters of the original. Its known calls and loaded
        graphs come along.
        """
        twin = memo[id(self)] = GraphCache(memo.get(id(self.block), self.block))
        twin.calls = copy.copy(self.calls)
        for key, neutral in self.pinned.items():
            twin.pinned[key] = replace(neutral, parameters=copy.deepcopy(neutral.parameters, memo))
        twin._pinned_tree = [weakref.ref(copy.deepcopy(block, memo)) for block in self._live_pinned_tree()]
        return twin

    def __reduce__(self) -> tuple[object, ...]:
        """A pickled block keeps its known calls and starts without traces, too; graphs from a file are not pickled."""
        if self.pinned:
            name = self.block.name or type(self.block).__name__
            raise HybridLabError(f"{name} runs a graph from a file, which is not pickled; save it with net.save(path)")
        return GraphCache, (self.block,), self.calls.for_pickle()

    def __setstate__(self, calls: KnownCalls) -> None:
        self.calls = calls

    # -- graphs ----------------------------------------------------------------------------------------------

    def start_over(self) -> None:
        """Drop traces and programs, and try again whether calls have a graph."""
        self.stateful = None
        self.clear()

    def clear(self) -> None:
        """Drop traces and programs; graphs that came from a file stay until a child is replaced."""
        with self._lock:
            if self.pinned and not same_objects(self._live_pinned_tree(), list(_below(self.block))):
                logger.warning(f"{self.block.name}: a child was replaced, so the code runs instead of the loaded graph")
                self.pinned = {}
                looks.changed(self.block)
            if self.variants or self.failure:
                looks.changed(self.block)
            self.variants.clear()
            self._eager.clear()
            self._used.clear()
            if self.source is not None and (caches := watched.get(self.source)):
                caches.discard(self)
            self.source = self.guard = None
            self.values = {}
            if self.stateful is None:
                self._forget_failure()
            self._reported = False
            self.forget_programs()

    def forget_programs(self, and_dtypes: bool = False) -> None:
        """Drop compiled programs, keep the traces. and_dtypes : drop the traces of code that read a dtype, too"""
        with self._lock:
            if and_dtypes:
                self._reported = False
                for spec, graphs in list(self.variants.items()):
                    self.variants[spec] = [
                        item
                        for item in graphs
                        if not (item.observation.includes("dtype") or item.observation.includes("layout"))
                    ]
            used = self.compiled.used
            if used:
                self.compiled = ProgramCache(self._lock)
            if used or and_dtypes:
                looks.changed(self.block)

    @property
    def programs(self) -> Mapping[Signature, Program]:
        """The compiled programs by Signature, the one called last at the end."""
        return self.compiled.programs

    @property
    def compilations(self) -> list[Compilation]:
        """The first compile and the latest ones, in order."""
        return self.compiled.compilations

    def note_cast(self, dtype: DTypeLike | None) -> None:
        """Assume that the block, and a graph from a file, is called with floating inputs of this dtype, until a call
        shows otherwise.
        """
        self.calls.cast(dtype)
        name = dtype_of(dtype).name
        for key, neutral in self.pinned.items():
            self.pinned[key] = replace(neutral, types=neutral.types and cast_types(neutral.types, name))

    def known_calls(self) -> list[KnownCall]:
        """The kinds of calls that the Block had, the latest one last; predictions count as later than training."""
        calls = dict.fromkeys(self.calls)
        for spec, types, training, recording, *_ in [signature[0] for signature in self.compiled.programs]:
            call = KnownCall(spec, tuple([(shape, dtype.name) for shape, dtype in types]), training, recording)
            calls.pop(call, None)
            calls[call] = None
        return sorted(calls, key=lambda call: not (call.training or call.recording))

    def note_loaded(self, spec: Spec, types: Types | None, observation: Observation) -> None:
        """Keep the call of a graph that a file brought as one that the Block had."""
        types = observation.types or types
        self.calls.note(KnownCall(spec, types, bool(observation.training), bool(observation.recording)))

    def graph_of(self, call: KnownCall) -> NeutralGraph | None:
        """The graph that holds for such a call, if there is one; a graph from a file before those of the code."""
        runs = [neutral for neutral in self.graphs() if call.is_run_by(neutral)]
        return min(runs, key=lambda neutral: len(neutral.in_spec[1]) != len(call.spec[1]), default=None)

    def has(self, spec: Spec) -> bool:
        """Whether there is a graph for this input structure."""
        return spec in self.variants or any(neutral.in_spec == plain(spec) for neutral in self.pinned.values())

    def note(self, neutral: NeutralGraph, guard: ValueGuard | None = None, is_guarded: bool = False) -> None:
        """Keep a graph that was traced from this block's code.

        guard : of the values that the code read, if `is_guarded`; else it is made now
        """
        with self._lock:
            if self.source is None:
                kind = type(self.block)
                self.source = class_source(kind)
                self.values = own_values(self.block, reads_of(kind))
                self.holds_values = not all(map(is_plain, self.values.values()))
                self.attributes = len(vars(self.block))
                traced.add(self)
                if of_user(kind.__module__) or self.holds_values:
                    watched.setdefault(self.source, weakref.WeakSet()).add(self)
            self.guard = guard if is_guarded else guard_of(self.block)
            self.variants.setdefault(neutral.in_spec, []).append(neutral)
            looks.changed(self.block)
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
        """Use these graphs instead of the code, in eager and hybrid calls; with an empty sequence, the code again."""
        with self._lock:
            self.pinned = {}
            self.clear()
            self.pinned = {(item.in_spec, item.observation): item for item in graphs}
            for item in reversed(graphs):  # a file's first graph is of its latest call
                self.note_loaded(item.in_spec, item.types, item.observation)
            self._pinned_tree = [weakref.ref(block) for block in _below(self.block)]
            traced.add(self)
            looks.changed(self.block)

    def changed(self, now: ClassSource, reads: Reads) -> list[str]:
        """What the code reads and has another value than at the trace: `self.name`, or the name of a global.

        now : `class_source` of the Block's class; reads : `reads_of` it
        """
        if self.source is None:
            return []
        self.attributes = len(vars(self.block))
        own = own_values(self.block, reads)
        if now is self.source and own == self.values:
            return []
        return changed_values({**self.source.values, **self.values}, {**now.values, **own})

    def _drop_stale(self) -> None:
        """Before a compile: drop the graphs of this Block and of those below whose values changed since the trace."""
        if self.source is None:
            return
        now: dict[type, tuple[ClassSource, Reads]] = {}
        for block in dict.fromkeys((self.block, *_below(self.block))):
            kind = type(block)
            if kind not in now:
                now[kind] = class_source(kind), reads_of(kind)
            changed = block._graphs.changed(*now[kind]) if hasattr(block, "_graphs") else []
            if changed:
                logger.warning(
                    f"{block.name}: {', '.join(changed)} changed since the trace. Calls used the earlier values until "
                    "now; the block is traced again. Call hybridize() after such a change"
                )
                block._structure_changed()

    def follow_values(self) -> None:
        """Drop the graphs if a value that the code reads is not what it was at the trace."""
        with self._lock:
            before = self.guard
            if before is None or before.holds():
                return
            now = guard_of(self.block)
            changed = [] if now is None else now.without(before.excluded).differences(before)
            if now is not None and not changed:  # other containers and objects that hold the same
                self.guard = now
                return
            for block in _below(self.block):
                if hasattr(block, "_graphs") and (guard := block._graphs.guard) is not None and not guard.holds():
                    block._graphs.clear()
            drop_for_values(self.block, ", ".join(changed[:3]) or "what the code reads")

    @property
    def is_twin(self) -> bool:
        """Whether a tool compiles into it for itself, see `twin`."""
        return self.block._graphs is not self

    def twin(self, traces: bool) -> GraphCache:
        """A cache for the same Block, to compile into while this one stays as it is; it repeats no message, and the
        lab shows nothing of it: its traces leave no graphs in the Blocks below.

        traces : start with the graphs that are known
        """
        cache = GraphCache(self.block)
        cache._reported, cache._warned = True, self._warned
        if traces:
            with self._lock:
                cache.variants = {spec: list(graphs) for spec, graphs in self.variants.items()}
                cache.pinned, cache._pinned_tree = dict(self.pinned), list(self._pinned_tree)
        return cache

    def _live_pinned_tree(self) -> list[Tree]:
        return [block for block in (reference() for reference in self._pinned_tree) if block is not None]

    def pinned_for(self, spec: Spec, types: tuple[object, ...] | None, training: bool) -> NeutralGraph:
        """The loaded graph for these inputs. Raises MissingGraphError, which lists what there is.

        types : (shape, dtype name) of the input tensors, or None where they are not known
        """
        recording = bool(_modes.recording)
        wanted = plain(spec)
        for form in (plain, without_defaults):  # an argument that is None may be left out
            for neutral in self.pinned.values():
                own, holds = neutral.in_spec, neutral.observation.holds(types or (), training, recording)
                if holds and form(own) == form(wanted) and self._differ_in_defaults(own, wanted):
                    return neutral
        if wanted == of_class(wanted, NUMPY_LEAF):  # MXNet's files do not say for which class of arrays a graph is
            for neutral in list(self.pinned.values()):
                if of_class(neutral.in_spec, NUMPY_LEAF) == wanted and neutral.source == "file":
                    out_spec = of_class(neutral.out_spec, NUMPY_LEAF)
                    if neutral.observation.holds(types or (), training, recording):
                        again = replace(neutral, in_spec=wanted, out_spec=out_spec)
                        return self._for_numpy.setdefault(id(neutral), again)
        known = ", ".join(f"{_inputs_of(item)}{item.observation.describe()}" for item in self.pinned.values())
        observations = [neutral.observation for neutral in self.pinned.values()]
        asked = Observation(
            types if any(each.types is not None for each in observations) else None,
            training if any(each.training is not None for each in observations) else None,
            recording=recording if any(each.recording is not None for each in observations) else None,
        )
        raise MissingGraphError(
            f"{self.block.name}: the loaded graph takes {known}, not {describe(spec)}{asked.describe()}. A file "
            "holds graphs of the calls before it was saved; where there is code, graphs='code' traces it anew"
        )

    def _differ_in_defaults(self, one: Spec, other: Spec) -> bool:
        """Whether the arguments that only one of two calls has are None by default, as far as the code is known."""
        function, own = self.block._entry_of_calls
        first, end = sorted((len(one[1]), len(other[1])))
        if first == end or not of_user(function.__module__):
            return True
        parameters = list(inspect.signature(function).parameters.values())[own:]
        return len(parameters) >= end and all(item.default is None for item in parameters[first:end])

    def first(self) -> NeutralGraph | None:
        """The first of `graphs()`, if any."""
        return next(iter(self.graphs()), None)

    @property
    def count(self) -> int:
        """The number of `graphs()`."""
        return len(self.pinned) + sum(map(len, self.variants.values()))

    def graphs(self) -> list[NeutralGraph]:
        """All neutral graphs, loaded ones first."""
        return [*self.pinned.values(), *(item for variants in self.variants.values() for item in variants)]

    def types_of(self, neutral: NeutralGraph) -> Types | None:
        """The types of the inputs at the graph's trace, else of the latest known call that it holds for."""
        calls = [call.types for call in self.calls if call.types is not None and call.is_run_by(neutral)]
        return neutral.types or next(reversed(calls), None)

    def predicting_first(self) -> list[NeutralGraph]:
        """`graphs()`, with the one that the latest call runs in prediction mode first: the order of files."""
        graphs = self.graphs()
        calls = self.known_calls()
        first = self.graph_of(calls[-1].predicting) if calls else None
        return graphs if first is None else [first, *(each for each in graphs if each is not first)]

    def neutral(self, spec: Spec, leaves: Sequence[NDArray]) -> NeutralGraph:
        """The graph for these inputs, traced now if there is none. Raises HybridizeError; then nothing is kept."""
        training = _modes.training
        types = tuple((leaf.shape, leaf.host_view.dtype.name) for leaf in leaves)
        if self.pinned:
            return self.pinned_for(spec, types, training)
        for candidate in self.variants.get(spec, ()):
            if candidate.observation.holds(types, training, bool(_modes.recording)):
                self._used[candidate] = next(_uses)
                return candidate
        try:
            seen = [(leaf.shape, leaf.host_view.dtype) for leaf in leaves]
            with looks.tool_runs() if self.is_twin else contextlib.nullcontext():
                graph, guard = trace_guarded(self.block, spec, seen, keep=not self.is_twin)
        except Exception as error:
            self._note_failure(failure_of(error, self.block))
            if isinstance(error, HybridizeError):
                self.calls.note(KnownCall(spec, types, training, bool(_modes.recording)))
                hide_own_frames(error)
            elif not isinstance(error, RecursionError):
                note_block(error, self.block)
            raise
        self._forget_failure()
        self.note(graph, guard, is_guarded=True)
        tell_of_unwatched(self.block, guard, self._warned)
        for what, location in graph.observation.places:
            if (what, location) in self._warned or what == "layout":
                continue
            self._warned.add((what, location))
            where = f" ({location.describe()})" if location is not None else ""
            code = {"mode": "HL174", "recording": "HL174", "shape": "HL101", "dtype": "HL103"}[what]
            said = f"the {what} is read{where}; the graph is valid only for this {what}"
            if what == "recording":
                said = f"the code asks whether calls are recorded{where}; the graph is valid only for this answer"
            logger.warning(f"{self.block.name}: {code}: {said}")
        return graph

    def for_shapes(self, spec: Spec, leaves: Sequence[NDArray], part: Part = "call") -> NeutralGraph:
        """A graph that tells the shapes of the parameters for these inputs: that of a call; of a Block whose calls run
        eagerly, one that is used for this alone. Raises HybridizeError.

        part : what the inputs are for
        """
        if self.stateful is None and part == "call":
            try:
                return self.neutral(spec, leaves)
            except HybridizeError as error:
                if not (self.keeps(error) or error.runs_eagerly):
                    raise
                self._forget_failure()
        types = [(leaf.shape, leaf.host_view.dtype) for leaf in leaves]
        with undoing_changes(self.block):
            return trace_block(self.block, spec, types, _modes.training, keep=False, for_shapes=True, part=part)

    def keeps(self, error: HybridizeError) -> bool:
        """Whether the Block has no graph because its code keeps tensors on it."""
        return error.keeps_tensors or (error.code == "HL164" and keeps_tensors(self.block))

    def _note_failure(self, failure: Failure) -> None:
        """Keep why the trace or compile failed, in the Blocks below too whose code was running."""
        below = [block._graphs for block in failure.blocks if block is not self.block]
        for cache in (self, *below) if self.block._graphs is self else (self,):
            cache.failure = failure
            cache.compiled.latest = None  # the next call that has a program comes to `program`, which forgets this
            looks.changed(cache.block)

    def _forget_failure(self) -> None:
        """Forget why the last trace or compile failed; where it began here, in the Blocks below too."""
        failure, self.failure = self.failure, None
        if failure is None:
            return
        looks.changed(self.block)
        if failure.top is self.block:
            for block in failure.blocks:
                if block._graphs.failure is failure:
                    block._graphs._forget_failure()

    # -- calls -----------------------------------------------------------------------------------------------

    def __call__(self, args: tuple[Any, ...]) -> Any:
        """Run the compiled graph for these arguments, compiling it on the first call of its kind."""
        if len(args) == 1 and type(args[0]) is NDArray:
            return self.call_one(args[0])
        leaves: Sequence[NDArray]
        if set(map(type, args)) == _ARRAYS:
            leaves, spec = args, ("tuple", (LEAF,) * len(args))
        else:
            leaves, spec = flatten(args, f"the input of {self.block.name}")
            if "sparse" not in self._warned:
                self._tell_of_sparse(leaves)
        return self._run(spec, leaves, args)

    def _tell_of_sparse(self, leaves: Sequence[NDArray]) -> None:
        """Warn once where an argument is a sparse array."""
        stypes = [leaf.stype for leaf in leaves if isinstance(leaf, NDArray) and leaf.buffer.stored]
        if stypes:
            self._warned.add("sparse")
            logger.warning(
                f"{self.block.name}: it is hybridized, and its graph reads a dense copy of a {stypes[0]} array"
            )

    def _run(self, spec: Spec, leaves: Sequence[NDArray], args: tuple[Any, ...]) -> Any:
        """The call, compiled; eagerly where the code has sizes that depend on numbers, unless `strict` refuses that."""
        kind = spec, bool(_modes.training), bool(_modes.recording)
        if self.stateful is not None or kind in self._eager:
            return self.block._call_eagerly(args)
        try:
            program = self.program(spec, leaves)
        except HybridizeError as error:
            keeps = self.keeps(error)
            if not (keeps or error.runs_eagerly) or self.block._flags.get("strict"):
                raise
            if keeps:
                self.stateful = error.with_traceback(None)
                seen_to_keep.add(type(self.block))
                self.clear()
            else:
                self._eager[kind] = error.with_traceback(None)
                if len(self._eager) > MAX_GRAPHS:  # as of a list that grows with every call
                    del self._eager[next(iter(self._eager))]
            if (error.code, error.location) not in self._warned:
                self._warned.add((error.code, error.location))
                logger.warning(
                    f"{self.block.name}: {error.code}: {error.message} Its calls run eagerly; Blocks below it are "
                    "compiled"
                )
            return self.block._call_eagerly(args)
        return program(leaves)

    @property
    def refusal(self) -> HybridizeError | None:
        """Why the last kind of call that has no graph runs eagerly; None where there is no such call."""
        return self.stateful or next(reversed(self._eager.values()), None)

    def refusal_of(self, call: KnownCall) -> HybridizeError | None:
        """Why such a call runs eagerly, if that is known."""
        return self.stateful or self._eager.get((call.spec, call.training, call.recording))

    def call_one(self, leaf: NDArray) -> Any:
        """The call with one array: takes the program of the last call if its signature is the same."""
        program, view = self.compiled.latest, leaf.host_view
        if (
            program is not None
            and program.checked == changes.count
            and view.shape == program.shape
            and view.dtype is program.dtype
            and leaf.buffer.context is program.context
            and _modes.training is program.training
            and _modes.recording is program.recording
            and (not program.recording or (_link(leaf) is not None) is program.tracked)
            and (self.guard is None or self.guard.holds())
        ):
            return program.short(leaf) if program.short is not None else program((leaf,))
        return self._run(ONE_TENSOR, (leaf,), (leaf,))

    def program(self, spec: Spec, leaves: Sequence[NDArray]) -> Program:
        """The program of a call with these arrays, in the mode of now, compiled if there is none; it does not run."""
        recording, training = bool(_modes.recording), bool(_modes.training)
        call = (
            spec,
            tuple([(leaf.host_view.shape, leaf.host_view.dtype) for leaf in leaves]),
            training,
            recording,
            tuple([recording and tape.link(leaf) is not None for leaf in leaves]),
            leaves[0].buffer.context if leaves else None,
        )
        if self.guard is not None and not self.guard.holds():
            self.follow_values()
        program = self.compiled.find(call)
        if program is None:
            return self._compile(call, leaves)
        if self.failure is not None:
            self._forget_failure()
        return program

    def _tell_of_hooks(self, block: Any) -> None:
        """Warn once of hooks of a Block whose calls are part of this one's graphs."""
        hooks = block._forward_pre_hooks or block._forward_hooks
        if hooks and block._graphs.variants and ("hooks", block.name) not in self._warned and has_hooks(block):
            self._warned.add(("hooks", block.name))
            warn_of_hooks(block, self.block)

    def tell_of_hooks(self) -> None:
        """The Block got a hook: warn where the graph of a Block above it is what runs."""
        pending: list[Any] = [self.block]
        for block in pending:
            parents = [parent for reference in block._parents if (parent := reference()) is not None]
            above = [parent for parent in parents if getattr(parent, "_active", False) and parent._graphs.variants]
            above = [parent for parent in above if any(child is block for child in parent._children.values())]
            pending += [parent for parent in above if all(parent is not each for each in pending)]
            if not above and block is not self.block:
                block._graphs._tell_of_hooks(self.block)

    def _compile(self, call: Call, leaves: Sequence[NDArray]) -> Program:
        location = capture()
        for listener in events.called:
            listener(self.block)
        with self._lock, without_collecting(), working(f"compiling {self.block.name}"):
            known = self.compiled.find(call)  # another thread may have compiled it
            if known is not None:
                return known
            spec, types, training, recording, *_ = call
            start = time.perf_counter()
            self._drop_stale()
            neutral = self.neutral(spec, leaves)
            block, compiled = self.block, self.compiled
            compiled.used = True
            for each in _below(block):
                self._tell_of_hooks(each)
            try:
                if any(parameter._array is None for parameter in neutral.parameters):
                    block._complete_from(neutral, leaves)
                program = program_for(block.name, block._flags, neutral, leaves, training, recording, compiled)
            except Exception as error:
                self._note_failure(failure_of(error, block))
                raise
            if self.failure is not None:
                self._forget_failure()
            seconds = time.perf_counter() - start
            compiled.add(call, program, seconds, location)
            named_types = tuple([(shape, dtype.name) for shape, dtype in types])
            self.calls.note(KnownCall(spec, named_types, training, recording))
            _compiled.add(self)
            if not self.is_twin:
                block._note_output_types(program.output_types)
                looks.changed(block)
            if not self._reported:
                self._reported = True
                logger.info(program.headline(seconds))
            else:
                logger.debug(f"{block.name}: recompiled in {seconds:.2f} s: {compiled.compilations[-1]}")
            return program
