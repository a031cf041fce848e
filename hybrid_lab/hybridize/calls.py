"""GraphCalls: the calls of one hybridized Block. It finds the program of a call, or makes one, and runs it."""

from __future__ import annotations

import contextlib
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hybrid_lab import engines
from hybrid_lab.diagnostics.errors import EngineUnavailable
from hybrid_lab.diagnostics.formatting import called
from hybrid_lab.diagnostics.frames import hide_own_frames
from hybrid_lab.diagnostics.hybridize_error import HybridizeError
from hybrid_lab.diagnostics.location import capture
from hybrid_lab.engines import registry
from hybrid_lab.hybridize import events
from hybrid_lab.hybridize import graphs as graphs_of_blocks
from hybrid_lab.hybridize.block import Part, tree_of
from hybrid_lab.hybridize.block_notes import note_block
from hybrid_lab.hybridize.compiled_call import CompiledCall
from hybrid_lab.hybridize.failures import Failures, failure_of
from hybrid_lab.hybridize.graphs import Graphs
from hybrid_lab.hybridize.known_calls import KnownCall
from hybrid_lab.hybridize.neutral import NeutralGraph, trace_block
from hybrid_lab.hybridize.program_cache import Call, Compilation, ProgramCache, Signature
from hybrid_lab.hybridize.stale.trace_warnings import undoing_changes
from hybrid_lab.hybridize.stale.watch import tell_of_unwatched, trace_guarded
from hybrid_lab.hybridize.structure import LEAF, ONE_TENSOR, Spec, flatten
from hybrid_lab.ndarray import changes, tape
from hybrid_lab.ndarray.ndarray import NDArray
from hybrid_lab.system import forks, progress
from hybrid_lab.system.logger import logger
from hybrid_lab.system.memory import without_collecting

if TYPE_CHECKING:
    from hybrid_lab.hybridize.block import Hybrid, Tree

_modes = tape.state
_link = tape.link
_ARRAYS = {NDArray}

#: Runs in place of a compiled call: takes the GraphCalls, the arguments, and a function that runs the call; returns the
#: result of the call.
Interceptor = Callable[["GraphCalls", tuple[Any, ...], Callable[[], Any]], Any]

#: Every GraphCalls that ever compiled a program and is alive.
_compiled: weakref.WeakSet[GraphCalls] = weakref.WeakSet()


def forget_all_programs() -> None:
    """Drop every compiled program, because a setting of the process changed (see `contrib.amp`).

    Traces stay, except traces of code that reads dtypes.
    """
    for calls in tuple(_compiled):
        calls.forget_programs()
        calls.compiled.announced = False
    for graphs in tuple(graphs_of_blocks.alive):
        graphs.drop_if_observed(("dtype", "layout"))


_of_the_parent: list[Any] = []
"""In a forked child: the parent's programs. They never run, and are never freed, which might wait for its threads."""


def _forked() -> None:
    if registry.left_behind:
        for calls in tuple(_compiled):
            _of_the_parent.append(calls.compiled)
            calls.forget_programs()


forks.in_child(_forked)


def drop_for_values(block: Tree, changed: str) -> None:
    """Drop the graphs of a Block, and the graphs of all Blocks above it, because of a changed value that the code
    reads.

    changed : what changed, in words: the reason of the compiles that follow
    """
    found: dict[int, GraphCalls] = {}
    pending = [block]
    for each in pending:
        calls: GraphCalls | None = getattr(each, "_graph_calls", None)
        if calls is not None and id(calls) not in found:
            found[id(calls)] = calls
            pending += [parent for reference in each._parents if (parent := reference()) is not None]
    before = [(calls, calls.compiled) for calls in found.values() if calls.compiled.compilations]
    block._structure_changed()
    for calls, compiled in before:
        if calls.compiled is not compiled:
            calls.compiled.follow(compiled, changed)


def program_for(
    name: str,
    flags: Mapping[str, Any],
    neutral: NeutralGraph,
    leaves: Sequence[NDArray],
    training: bool,
    recording: bool,
    cache: ProgramCache,
) -> CompiledCall:
    """A CompiledCall, on the device of the engine if it has one.

    Raises EngineUnavailable if the arrays are on a GPU that the engine does not run on.
    """
    engine = engines.for_flags(flags)
    device = None if engine is None else engine.device
    if leaves and leaves[0].buffer.lives_on_device:
        context = leaves[0].context
        if device is None:
            which = "its graphs run" if engine is None else f"the engine {engine.name!r} runs"
            raise EngineUnavailable(
                f"{name}: {which} on the CPU, and the input is on {context}. Leave engine= and device= out of "
                "hybridize(), or move input and parameters to mx.cpu()"
            )
        if context.device_id:
            raise EngineUnavailable(f"{name}: compiled graphs run on gpu(0) only, and the input is on {context}")
    kind: type[CompiledCall] = CompiledCall
    if device is not None:
        from hybrid_lab.hybridize.device_call import DeviceCall

        kind = DeviceCall
    return kind(name, flags, neutral, leaves, training, recording, cache, engine)


class GraphCalls:
    """The calls of one Block.

    graphs : the graphs of these calls; compiled : the graphs' programs
    failures : why there is no graph or program, and what the user was told
    interceptors : run in place of each call, the outermost last
    is_twin : whether a tool compiles into it for itself, see `twin`
    """

    def __init__(self, block: Hybrid, graphs: Graphs, is_twin: bool = False) -> None:
        self.block, self.graphs, self.is_twin = block, graphs, is_twin
        self.compiled = ProgramCache(graphs.lock)
        self.failures = Failures(block)
        self.interceptors: tuple[Interceptor, ...] = ()

    def twin(self, traces: bool) -> GraphCalls:
        """Calls of the same Block, to compile for while these stay as they are; the twin repeats no message, and the
        lab shows nothing of it: its traces leave no graphs in the Blocks below.

        traces : start with the graphs that are known
        """
        twin = GraphCalls(self.block, self.graphs.twin(traces), is_twin=True)
        twin.compiled.announced, twin.failures.told = True, self.failures.told
        return twin

    def add_interceptor(self, interceptor: Interceptor) -> None:
        """Run the interceptor in place of each call from now on, outside of the interceptors that were added before."""
        self.interceptors = (*self.interceptors, interceptor)

    def remove_interceptor(self, interceptor: Interceptor) -> None:
        """Remove an interceptor; nothing happens if it was not added."""
        self.interceptors = tuple(each for each in self.interceptors if each is not interceptor)

    @property
    def programs(self) -> Mapping[Signature, CompiledCall]:
        """The compiled programs by Signature, the one called last at the end."""
        return self.compiled.programs

    @property
    def compilations(self) -> list[Compilation]:
        """The first compile and the latest ones, in order."""
        return self.compiled.compilations

    def known_calls(self) -> list[KnownCall]:
        """The kinds of calls that the Block had, the latest one last; predictions count as later than training."""
        calls = dict.fromkeys(self.graphs.calls)
        for spec, types, training, recording, *_ in [signature[0] for signature in self.compiled.programs]:
            call = KnownCall(spec, tuple([(shape, dtype.name) for shape, dtype in types]), training, recording)
            calls.pop(call, None)
            calls[call] = None
        return sorted(calls, key=lambda call: not (call.training or call.recording))

    def predicting_first(self) -> list[NeutralGraph]:
        """All graphs, with the one that the latest call runs in prediction mode first: the order of files."""
        graphs, calls = self.graphs.graphs(), self.known_calls()
        first = self.graphs.graph_of(calls[-1].predicting) if calls else None
        return graphs if first is None else [first, *(each for each in graphs if each is not first)]

    # -- changes ---------------------------------------------------------------------------------------------

    def start_over(self) -> None:
        """Drop traces and programs, and try again whether calls have a graph."""
        self.failures.stateful = self.graphs.refused = None
        self.clear()

    def clear(self) -> None:
        """Drop traces and programs; graphs that came from a file stay until a child is replaced."""
        with self.graphs.lock:
            self.graphs.clear()
            self.failures.clear()
            self.forget_programs()
            self.compiled.announced = False

    def pin(self, graphs: Sequence[NeutralGraph]) -> None:
        """Use these graphs instead of the code, in eager and hybrid calls; with an empty sequence, the code again."""
        with self.graphs.lock:
            self.graphs.pinned = {}
            self.clear()
            self.graphs.pin(graphs)

    def forget_programs(self) -> None:
        """Drop compiled programs, keep the traces."""
        with self.graphs.lock:
            if self.compiled.used:
                announced = self.compiled.announced
                self.compiled = ProgramCache(self.graphs.lock)
                self.compiled.announced = announced
                for listener in events.changed:
                    listener(self.block)

    def follow_values(self) -> None:
        """Drop the graphs if a value that the code reads is not what it was at the trace."""
        with self.graphs.lock:
            if self.graphs.holds():
                return
            changed = self.graphs.differences()
            if not changed:
                return
            for block in tree_of(self.block)[1:]:
                if hasattr(block, "_graph_calls") and not block._graphs.holds():
                    block._graph_calls.clear()
            drop_for_values(self.block, ", ".join(changed[:3]))

    def _drop_stale(self) -> None:
        """Drop the graphs of this Block and of the Blocks below it whose code reads other values than at the trace,
        among them values that calls do not compare.
        """
        for block in tree_of(self.block):
            changed = block._graphs.unnoticed() if hasattr(block, "_graphs") else []
            if changed:
                logger.warning(
                    f"{called(block)}: {', '.join(changed)} changed since the trace. Calls used the earlier values "
                    "until now; the block is traced again. Call hybridize() after such a change"
                )
                block._structure_changed()

    def _fail(self, error: Exception) -> None:
        """Keep why the trace or compile failed, in the Blocks below too whose code was running."""
        failure = failure_of(error, self.block)
        below = [block._graph_calls for block in failure.blocks if block is not self.block]
        for calls in (self,) if self.is_twin else (self, *below):
            calls.failures.last = failure
            calls.compiled.latest = None  # the next call that has a program comes to `program`, which forgets this
            for listener in events.changed:
                listener(calls.block)
        for tell in events.failed:
            tell(self.block, failure)

    # -- the graph of a call ---------------------------------------------------------------------------------

    def neutral(self, spec: Spec, leaves: Sequence[NDArray]) -> NeutralGraph:
        """The graph for these inputs, traced now if there is none. Raises HybridizeError; then nothing is kept."""
        types = tuple([(leaf.shape, leaf.host_view.dtype.name) for leaf in leaves])
        if self.graphs.pinned:
            return self.graphs.pinned_for(spec, types, _modes.training)
        known = self.graphs.find(spec, types)
        if known is not None:
            return known
        try:
            seen = [(leaf.shape, leaf.host_view.dtype) for leaf in leaves]
            with events.tool_runs() if self.is_twin else contextlib.nullcontext():
                graph, guard = trace_guarded(self.block, spec, seen, keep=not self.is_twin)
        except Exception as error:
            self._fail(error)
            if isinstance(error, HybridizeError):
                self.graphs.calls.note(KnownCall(spec, types, _modes.training, bool(_modes.recording)))
                hide_own_frames(error)
            elif not isinstance(error, RecursionError):
                note_block(error, self.block)
            raise
        if self.failures.last is not None:
            self.failures.forget()
        self.graphs.note(graph, guard)
        if guard.unwatched:
            tell_of_unwatched(self.block, guard, self.failures.told)
        if graph.observation.places:
            self.failures.tell_of_observed(graph.observation)
        for listener in events.traced:
            listener(self.block, graph)
        return graph

    def for_shapes(self, spec: Spec, leaves: Sequence[NDArray], part: Part = "call") -> NeutralGraph:
        """A graph that tells the shapes of the parameters for these inputs: a call's graph, or, for a Block whose calls
        run eagerly, a graph for the shapes alone. Raises HybridizeError.

        part : what the inputs are for
        """
        if self.failures.stateful is None and part == "call":
            try:
                return self.neutral(spec, leaves)
            except HybridizeError as error:
                if not (self.failures.keeps(error) or error.runs_eagerly):
                    raise
                self.failures.forget()
        types = [(leaf.shape, leaf.host_view.dtype) for leaf in leaves]
        with undoing_changes(self.block):
            return trace_block(self.block, spec, types, _modes.training, keep=False, for_shapes=True, part=part)

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
            self.failures.tell_of_sparse(leaves)
        return self._run(spec, leaves, args)

    def call_one(self, leaf: NDArray) -> Any:
        """The call with one array: takes the program of the last call if its signature is the same."""
        program, view, guard = self.compiled.latest, leaf.host_view, self.graphs.guard
        if (
            program is not None
            and program.state.checked == changes.count
            and view.shape == program.shape
            and view.dtype is program.dtype
            and leaf.buffer.context is program.context
            and _modes.training is program.training
            and _modes.recording is program.recording
            and (not program.recording or (_link(leaf) is not None) is program.tracked)
            and (guard is None or guard.holds())
            and not self.interceptors
        ):
            return program.short(leaf) if program.short is not None else program((leaf,))
        return self._run(ONE_TENSOR, (leaf,), (leaf,))

    def _run(self, spec: Spec, leaves: Sequence[NDArray], args: tuple[Any, ...], inside: int | None = None) -> Any:
        """The call, compiled; eagerly if the code has sizes that depend on numbers, unless `strict` refuses that.

        inside : the number of interceptors that are still to run; None for all
        """
        if self.interceptors and inside != 0:
            left = inside or len(self.interceptors)
            return self.interceptors[left - 1](self, args, lambda: self._run(spec, leaves, args, left - 1))
        failures = self.failures
        if failures.refuses and failures.run_eagerly(spec):
            return self.block._call_eagerly(args)
        try:
            program = self.program(spec, leaves)
        except HybridizeError as error:
            if self.block._flags.get("strict") or not failures.take_refusal(spec, error):
                raise
            if failures.stateful is not None:
                self.clear()
            self.graphs.refuse()
            return self.block._call_eagerly(args)
        return program(leaves)

    def program(self, spec: Spec, leaves: Sequence[NDArray]) -> CompiledCall:
        """The program of a call with these arrays, in the mode of now, compiled if there is none; it does not run."""
        recording, training = bool(_modes.recording), bool(_modes.training)
        call = (
            spec,
            tuple([(leaf.host_view.shape, leaf.host_view.dtype) for leaf in leaves]),
            training,
            recording,
            tuple([recording and _link(leaf) is not None for leaf in leaves]),
            leaves[0].buffer.context if leaves else None,
        )
        guard = self.graphs.guard
        if guard is not None and not guard.holds():
            self.follow_values()
        program = self.compiled.find(call)
        if program is None:
            return self._new_program(call, leaves)
        if self.failures.last is not None:
            self.failures.forget()
        return program

    def _new_program(self, call: Call, leaves: Sequence[NDArray]) -> CompiledCall:
        location = capture()
        shown = progress.working(f"compiling {called(self.block)}") if progress.listeners else contextlib.nullcontext()
        with self.graphs.lock, without_collecting(), shown:
            known = self.compiled.find(call)  # another thread may have compiled it
            if known is not None:
                return known
            spec, types, training, recording, *_ = call
            start = time.perf_counter()
            guard = self.graphs.guard
            if guard is not None and (guard.unwatched or guard.is_partial):
                self._drop_stale()
            neutral = self.neutral(spec, leaves)
            block, compiled = self.block, self.compiled
            compiled.used = True
            hooked = [each for each in tree_of(block)[1:] if each._forward_hooks or each._forward_pre_hooks]
            if hooked:
                from hybrid_lab.hybridize.hooks import warn_of_hooks

                warn_of_hooks(hooked, block, self.failures.told)
            try:
                if any(parameter._array is None for parameter in neutral.parameters):
                    block._complete_from(neutral, leaves)
                program = program_for(block.name, block._flags, neutral, leaves, training, recording, compiled)
            except Exception as error:
                self._fail(error)
                raise
            if self.failures.last is not None:
                self.failures.forget()
            seconds = time.perf_counter() - start
            compiled.add(call, program, seconds, location)
            named_types = tuple([(shape, dtype.name) for shape, dtype in types])
            self.graphs.calls.note(KnownCall(spec, named_types, training, recording))
            _compiled.add(self)
            if not self.is_twin:
                block._note_output_types(program.output_types)
                for listener in events.changed:
                    listener(block)
            compiled.announce(program, seconds, self.block)
            for tell in events.compiled:
                tell(block, compiled.compilations[-1])
            return program
