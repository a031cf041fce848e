"""CompiledCall: one compiled call of a HybridBlock: its graphs, engine and executables, and the use of each array."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from hybrid_lab import engines
from hybrid_lab.graph.call_graphs import Specialized
from hybrid_lab.graph.graph import values_read
from hybrid_lab.graph.passes.differentiate import leading_to, led_to
from hybrid_lab.graph.specialize import specialize, specialize_call
from hybrid_lab.hybridize.call_state import CallState
from hybrid_lab.hybridize.compiled_entry import CompiledEntry
from hybrid_lab.hybridize.interrupts import interrupts
from hybrid_lab.hybridize.program_cache import ProgramCache, Prologue
from hybrid_lab.hybridize.structure import LEAF, ONE_TENSOR, unflatten
from hybrid_lab.ndarray import invoke as invoking
from hybrid_lab.ndarray import tape
from hybrid_lab.ndarray.backward import FEW
from hybrid_lab.ndarray.buffer import Buffer
from hybrid_lab.ndarray.context import CPU
from hybrid_lab.ndarray.ndarray import NDArray
from hybrid_lab.ndarray.random_state import state as random_state
from hybrid_lab.ops.framework.types import Shape

if TYPE_CHECKING:
    from hybrid_lab.engines.engine import Engine, Executable, ForwardState, Training
    from hybrid_lab.graph.graph import Graph
    from hybrid_lab.graph.node import Value
    from hybrid_lab.hybridize.head_sets import Heads
    from hybrid_lab.hybridize.neutral import NeutralGraph

MAX_PACKED = 4
"""How many programs of one Block may have packed parameters; the one packed first gives its copies up."""
LARGE = 1 << 18
"""From this many bytes on, a backward writes gradients directly into the parameters' `grad`, without a copy."""
MAX_PATIENCE = 64
"""Calls with unchanged parameters before the engine packs them: one at first; doubled when they change afterwards."""

_wrap = NDArray.wrap
_link = tape.link
_version, _buffer_version = attrgetter("version"), attrgetter("buffer.version")
_NO_DRAWS = (0, 0)


def _chosen_engine(graphs: Sequence[Graph], strict: bool) -> tuple[Engine, str]:
    """The engine chosen by the policy, and the reason. The policy loads the engines that it chooses among."""
    from hybrid_lab.engines.policy import engine_for

    return engine_for(graphs, strict)


class CompiledCall:
    """One compiled call: the forward executable and, for a recorded call, the backward executable.

    It is immutable: a call with other arrays, another mode or other outputs to differentiate is another CompiledCall.
    `state` has the parameters' data for calls.

    device : torch's device whose memory the executables use; None for the host

    cache : the programs of the same Block
    asked : the engine that the Block's flags name; None: the policy chooses an engine
    precision : the mixed precision of the call, or None
    together : forward and backward of a recorded call in one, if the forward saves values for the backward
    shape, dtype, context, tracked : of a single input array; the next call compares them before any look-up
    short : a function for calls with a single array, if the forward is the only work
    differentiated : indices of the outputs that the backward differentiates
    head_mask : per output, whether the backward differentiates it
    """

    __slots__ = (
        "__weakref__", "_begin", "_draws", "_idle", "_kept_buffers", "_kept_inputs", "_kept_leaves", "_kept_saved",
        "_leading", "_num_outputs", "_packs", "_plain", "_reads_parts", "_recorded", "_run", "_steady", "asked",
        "backward", "block_name", "cache", "context", "differentiated", "dtype", "effects", "engine", "entry_name",
        "flags", "forward", "head_mask", "heads", "kept_outputs", "large_gradients", "neutral", "num_data",
        "num_inputs", "ones", "precision", "prologue", "recording", "run_backward", "shape", "short", "special",
        "state", "together", "tracked", "training", "wrt_all",
    )  # fmt: skip

    device: Any = None
    _entry_class: ClassVar[type[CompiledEntry]] = CompiledEntry
    _state_class: ClassVar[type[CallState]] = CallState

    def __init__(
        self,
        name: str,
        flags: Mapping[str, Any],
        neutral: NeutralGraph,
        leaves: Sequence[NDArray],
        training: bool,
        recording: bool,
        cache: ProgramCache,
        asked: Engine | None,
    ):
        self.neutral, self.asked = neutral, asked
        self.block_name, self.flags = name, flags
        self.entry_name = f"the hybridized block {name}"
        self.training, self.recording = training, recording
        self.precision = invoking.precision
        self.context = leaves[0].context if leaves else CPU
        self.tracked = recording and bool(leaves) and tape.link(leaves[0]) is not None
        one = leaves[0].host_view if neutral.in_spec == ONE_TENSOR else None
        self.shape: Any = None if one is None else one.shape
        self.dtype: Any = None if one is None else one.dtype
        self.cache = cache
        state = self._state_class(neutral.parameters, self.context, recording)
        inputs: list[Any] = [*leaves, *state.arrays]
        wrt: list[int] = []
        graph = neutral.graph
        reached: Collection[Value] = ()
        leading: Collection[Value] = ()
        if recording:
            wrt += [index for index, leaf in enumerate(leaves) if tape.link(leaf) is not None]
            wrt += [len(leaves) + index for index, (_, wanted) in enumerate(state.requests) if wanted]
            sources = [graph.inputs[index] for index in wrt]
            # Outputs that depend on recorded inputs; and outputs that depend on them through differentiable operators
            # alone.
            reached, leading = led_to(graph, sources), led_to(graph, sources, differentiable=True)
        self._recorded = [index for index, value in enumerate(graph.outputs) if value in reached]
        self._leading = frozenset([index for index, value in enumerate(graph.outputs) if value in leading])
        self.differentiated = self.cache.heads.get(neutral, self._leading) & self._leading or self._leading
        self.num_data = len(leaves)
        shapes, dtypes = [array.shape for array in inputs], [array.host_view.dtype for array in inputs]
        self._make_executables(self._specialize(shapes, dtypes, wrt), state)
        self._bind(state)
        self.state = state
        if self.backward is not None:
            from hybrid_lab.hybridize.head_sets import HeadSets

            state.head_sets = HeadSets(self)

    def __setattr__(self, name: str, value: object) -> None:
        if hasattr(self, "state"):
            raise AttributeError(f"a compiled call never changes: its {name} cannot be set")
        object.__setattr__(self, name, value)

    def _specialize(self, shapes: Sequence[Shape], dtypes: Sequence[np.dtype], wrt: Sequence[int]) -> Specialized:
        neutral = self.neutral
        options: dict[str, Any] = {"precision": self.precision, "heads": self.differentiated}
        arguments = (neutral.with_unused, shapes, dtypes, self.training, wrt, self.num_data)
        if neutral.bound:  # gradients, of which all inputs are data: each is made once
            return specialize(*arguments, bound=True, **options)
        return specialize_call(self.cache.specializations, *arguments, **options)

    def _make_executables(self, special: Specialized, state: CallState) -> None:
        flags = self.flags
        graphs = [special.forward] if special.backward is None else [special.forward, special.backward]
        engine, choice = (self.asked, "") if self.asked else _chosen_engine(graphs, bool(flags.get("strict")))
        options = {name: bool(flags.get(name)) for name in ("static_alloc", "static_shape")}
        if flags.get("strict"):
            options["strict"] = True
        options |= {name: flags[name] for name in engine.own_options if flags.get(name)}
        self.together: Training | None = None
        self.large_gradients = False
        self.backward: Executable | None = None
        if special.backward is None:
            self.forward = engine.compile(special.forward, **options)
        else:
            parts = special.split
            assert parts is not None
            split = engine.training_graphs(parts, **options)
            special = replace(special, forward=split.forward, backward=split.backward, sources=split.sources)
            compiled = engine.compile_training(split, **options)
            self.forward, self.backward = compiled.forward, compiled.backward
            # Small graphs without saved values are faster apart.
            self.large_gradients = sum(value.nbytes for value in self.backward.graph.outputs) >= LARGE
            if self.large_gradients or split.saves:
                self.together = compiled
            self.backward.report.choice = choice
        self.special = special
        self.forward.report.choice = choice
        self.engine = self.forward.report.engine
        self.prologue: Prologue | None = None
        if special.prologue is not None:
            arrays = [state.arrays[index - self.num_data] for index in special.prologue_sources]
            self.prologue = self.cache.prologue(special.prologue, arrays, engine, options)

    def _bind(self, state: CallState) -> None:
        """Determine once, for all calls, which arrays the executables read and which outputs have gradients."""
        special, graph, num_data = self.special, self.neutral.graph, self.num_data
        self._num_outputs = len(graph.outputs)
        self._draws = graph.draws
        self._plain = self.neutral.out_spec == LEAF
        self._run = self.forward.run
        self._begin = None if self.together is None else self.together.begin
        pattern = special.forward.pattern
        places = {value: index for index, value in enumerate(pattern.inputs)}
        self.effects = [special.forward_sources[places[target]][1] for target, _ in pattern.effects]

        sources = special.forward_sources
        assert sources[:num_data] == tuple(("input", index) for index in range(num_data))
        self._steady = [(kind, index - num_data if kind == "input" else index) for kind, index in sources[num_data:]]
        # Whether a call reads anything but its data: even a Block without parameters may have hoisted constants.
        self._reads_parts = bool(state.buffers or self._steady)
        # Whether the engine may pack the parameters: they are constant from call to call.
        self._packs = not self.training and self.backward is None and not self.effects

        # The backward's inputs, in the order of `split`: inputs (data, parameters), outputs, saved values, heads.
        self._kept_inputs = [index for kind, index in special.sources if kind == "input"]
        self._kept_leaves = [index for index in self._kept_inputs if index < num_data]
        self._kept_buffers = [state.buffers[index - num_data] for index in self._kept_inputs if index >= num_data]
        self.kept_outputs = [index for kind, index in special.sources if kind == "output"]
        self._kept_saved = [index for kind, index in special.sources if kind == "saved"]
        self.heads = [index for kind, index in special.sources if kind == "head"]
        self.num_inputs = num_data + len(state.arrays)
        self.wrt_all = special.wrt == tuple(range(self.num_inputs)) and not special.absent
        self.run_backward: Any = None if self.backward is None else self.backward.run
        self.head_mask = tuple([index in self.differentiated for index in range(self._num_outputs)])
        self._idle: list[int] = []
        if self.recording:
            used = leading_to(graph.outputs)
            self._idle = [index for index, value in enumerate(graph.inputs) if value not in used]
        self.ones = None if self.backward is None else self._heads_of_ones()
        self.short = self._shortest()

    def _heads_of_ones(self) -> list[np.ndarray] | None:
        """The output gradients for a backward from this call's only output. They are read-only."""
        if self._num_outputs != 1 or self.large_gradients:
            return None
        shape, dtype = self.output_types[0]
        return [np.ones(shape, dtype) for _ in self.heads] if math.prod(shape) <= FEW else None

    def _shortest(self) -> Any:
        """A function for calls with a single array that only run the forward; None if a call has more to do."""
        run, context = self._run, self.context
        if self._reads_parts or self.effects or self._draws or not self._plain or self._num_outputs != 1:
            return None
        if self.backward is not None:
            return self._record_one if self.num_data == 1 and self._begin is None and self._recorded else None

        def call(leaf: NDArray) -> NDArray:
            if leaf.buffer.host_stale:
                leaf.buffer.pull()
            return _wrap(run((leaf.host_view,), _NO_DRAWS)[0], context)

        return call

    # -- calls -----------------------------------------------------------------------------------------------

    def retire(self) -> None:
        """Unpack the parameters: the cache has dropped this program, which is not called again."""
        self._unpack()

    def __call__(self, leaves: Sequence[NDArray], rng: tuple[int, int] | None = None) -> Any:
        """The call on these arrays. rng : (seed, base) of an earlier call whose random numbers are repeated."""
        raw = []
        versions: list[int] = []
        for leaf in leaves:
            if leaf.buffer.host_stale:
                leaf.buffer.pull()
            raw.append(leaf.host_view)
        if self._reads_parts:
            state = self.state
            versions = list(map(_version, state.buffers))
            cached = state.cached_inputs
            if cached[0] != versions:
                cached = self._refresh(versions)
            elif self._packs and not state.packed:
                self._pack(versions, [*raw, *cached[1]])
            raw += cached[1]
        return self._run_on(leaves, raw, versions, rng)

    def _run_on(
        self, leaves: Sequence[NDArray], raw: list[Any], versions: list[int], rng: tuple[int, int] | None
    ) -> Any:
        """The results of a call. raw : the forward's inputs; versions : of the parameters in `raw`"""
        if rng is None:
            rng = random_state.next_draws(self._draws) if self._draws else _NO_DRAWS
        begin, forward_state = self._begin, None
        if begin is None:
            results = self._run(raw, rng)
        else:
            results, forward_state = begin(raw, rng)
        # Taken before the effects, which may write to some arrays.
        before = [*map(_buffer_version, leaves), *versions] if self.backward is not None else versions
        if self.effects:
            # A state may be both an input of the call and a parameter.
            first = self.num_data
            states = [leaves[index] if index < first else self.state.arrays[index - first] for index in self.effects]
            with interrupts:  # the statistics of all layers or of no layer
                self._update(states, results[self._num_outputs :])
        outputs = self._wrapped(results)
        if self.backward is not None:
            self._record(leaves, raw, outputs, forward_state, rng, before)
        if self._plain:
            return outputs[0]
        return unflatten(self.neutral.out_spec, iter(outputs))

    def _record(
        self,
        leaves: Sequence[NDArray],
        raw: Sequence[Any],
        outputs: list[NDArray],
        forward_state: ForwardState | None,
        rng: tuple[int, int],
        before: list[int],
    ) -> None:
        """Put the call on the tape, with all values for its backward; outputs without a history stay off the tape.

        raw : the inputs and parameters read by the forward; before : their versions
        """
        links = self._links_of(leaves)
        if not any(links):
            return
        values, buffers = self._for_backward(leaves, raw, outputs, forward_state)
        entry = self._entry_class(self, leaves, values, buffers, forward_state, rng, before, outputs)
        node = tape.Node(entry, links, len(outputs))
        for index in self._recorded:
            outputs[index].tape_link = tape.Output(node, index)

    def _links_of(self, leaves: Sequence[NDArray]) -> tuple[tape.Link, ...]:
        """The links of a call; None for inputs without effect on the outputs, whose gradients are not changed."""
        if not self._recorded:
            return ()
        links = (*map(_link, leaves), *self.state.links())
        if not self._idle:
            return links
        return tuple([None if index in self._idle else link for index, link in enumerate(links)])

    def _for_backward(
        self,
        leaves: Sequence[NDArray],
        raw: Sequence[Any],
        outputs: Sequence[NDArray],
        forward_state: ForwardState | None,
    ) -> tuple[list[Any], list[Buffer]]:
        """The values that the backward reads, without output gradients: inputs and parameters, outputs, saved values;
        and the buffers of all but the saved values.
        """
        values = [raw[index] for index in self._kept_inputs]
        buffers = [leaves[index].buffer for index in self._kept_leaves]
        buffers += self._kept_buffers
        for index in self.kept_outputs:
            # Not the output itself: it refers to this entry, and a cycle would keep both alive until a collection.
            output = outputs[index]
            values.append(output.raw(self.device))
            buffers.append(output.buffer)
        if forward_state is not None:
            values += [forward_state.saved[index] for index in self._kept_saved]
        return values, buffers

    def _update(self, states: Sequence[NDArray], values: Sequence[Any]) -> None:
        for state, value in zip(states, values, strict=True):
            state.assign(value)

    def _wrapped(self, results: Sequence[Any]) -> list[NDArray]:
        """The outputs among an executable's results."""
        if self._num_outputs == 1:
            return [_wrap(results[0], self.context)]
        return [_wrap(result, self.context) for result in results[: self._num_outputs]]

    def run_again(
        self, leaves: Sequence[NDArray], rng: tuple[int, int]
    ) -> tuple[list[Any], list[Buffer], ForwardState | None]:
        """The forward of an earlier call, for the values that the backward reads: nothing is updated."""
        raw = [array.raw(self.device) for array in (*leaves, *self.state.arrays)]
        results, forward_state = (self._run(raw, rng), None) if self._begin is None else self._begin(raw, rng)
        return *self._for_backward(leaves, raw, self._wrapped(results), forward_state), forward_state

    def heads_among(self, head_mask: tuple[bool, ...]) -> Heads:
        """The given outputs whose gradients reach an input."""
        return frozenset([index for index in self._leading if head_mask[index]])

    def differentiating(self, heads: Heads) -> CompiledCall:
        """This call with a backward for other outputs."""
        program = object.__new__(type(self))
        for name in CompiledCall.__slots__[1:]:
            if name != "state":
                setattr(program, name, getattr(self, name))
        state = self.state.for_other_heads()
        program.differentiated = heads
        program._make_executables(program._specialize(*self.types, self.special.wrt), state)
        program._bind(state)
        program.state = state
        return program

    def apart_from(self, head_mask: tuple[bool, ...]) -> frozenset[int]:
        """The indices of the inputs and parameters that lead to none of the given outputs, through any operator."""
        graph = self.neutral.graph
        leading = leading_to([value for value, here in zip(graph.outputs, head_mask, strict=True) if here])
        return frozenset([index for index, value in enumerate(graph.inputs) if value not in leading])

    def _record_one(self, leaf: NDArray) -> NDArray:
        """`__call__` with a single array on the tape, if the one output is computed from this array alone."""
        buffer, view = leaf.buffer, leaf.host_view
        if buffer.host_stale:
            buffer.pull()
        before = buffer.version
        output = _wrap(self._run((view,), _NO_DRAWS)[0], self.context)
        values: list[np.ndarray] = []
        buffers: list[Buffer] = []
        if self._kept_leaves:
            values.append(view)
            buffers.append(buffer)
        if self.kept_outputs:
            values.append(output.host_view)
            buffers.append(output.buffer)
        entry = CompiledEntry(self, (leaf,), values, buffers, None, _NO_DRAWS, [before])
        output.tape_link = tape.Output(tape.Node(entry, (leaf.tape_link,), 1), 0)
        return output

    @property
    def types(self) -> tuple[list[Shape], list[np.dtype]]:
        """Shapes and dtypes of all inputs and parameters."""
        return [value.shape for value in self.special.inputs], [value.dtype for value in self.special.inputs]

    @property
    def one_step(self) -> bool:
        """Whether a call stays one step of the history when its gradients are differentiated."""
        state = self.state
        if state.one_step is None:
            from hybrid_lab.hybridize.higher_order import one_step

            state.one_step = one_step(self)
        return state.one_step

    # -- reading the parameters --------------------------------------------------------------------------------

    def _refresh(self, versions: list[int]) -> tuple[list[int] | None, list[np.ndarray]]:
        """Read the parameters and the prologue's values: at the first call, and after writes to parameters."""
        state = self.state
        state.quiet = 0
        if state.packed:
            self._unpack()
        hoisted = self.prologue.values() if self.prologue is not None else []
        for buffer in state.buffers:
            if buffer.host_stale:
                buffer.pull()
        raw = [state.arrays[index].host_view if kind == "input" else hoisted[index] for kind, index in self._steady]
        # Memory that other libraries may write to unnoticed counts as written to before every call.
        known_versions = None if any(buffer.exported for buffer in state.buffers) else versions
        state.cached_inputs = cached = known_versions, raw
        return cached

    def _pack(self, versions: list[int], inputs: list[np.ndarray]) -> None:
        """Count a call with unchanged parameters; after enough of them, let the engine pack the parameters."""
        state = self.state
        state.quiet += 1
        if state.quiet < state.patience:
            return
        cache, serial = self.cache, self.prologue.serial if self.prologue is not None else None
        with cache.lock:
            if state.cached_inputs[0] != versions or state.packed:
                return
            while len(cache.packed) >= MAX_PACKED:
                cache.packed[0]._unpack()
            state.packed = True  # before packing: if an interrupt ends it, the next write to a parameter unpacks
            cache.packed.append(self)
            self.forward.pack(inputs, (cache.serial, serial, self.special.forward_sources, tuple(versions)))

    def _unpack(self) -> None:
        state = self.state
        with self.cache.lock:
            if state.packed:
                self.forward.unpack()
                if self in self.cache.packed:
                    self.cache.packed.remove(self)
                state.quiet, state.patience = 0, min(2 * state.patience, MAX_PATIENCE)
                state.packed = False  # after unpacking: if an interrupt ends it, the next call unpacks

    def reads(self) -> list[int]:
        """The inputs (data first, then parameters) whose values affect the forward's outputs: without inputs read for
        their shape only, and without states read only to update them.
        """
        graph = self.special.forward
        read = values_read(graph.outputs)
        sources = zip(graph.inputs, self.special.forward_sources, strict=True)
        return [index for value, (kind, index) in sources if kind == "input" and value in read]

    # -- for people ----------------------------------------------------------------------------------------------

    @property
    def where(self) -> str:
        """Engine and device that run the forward; NumPy if no operator was worth the chosen engine."""
        return engines.find(self.forward.report.runs_on).where()

    def role(self, index: int) -> str:
        """The description of an input or parameter, for messages."""
        if index >= self.num_data:
            return f"the parameter {self.state.parameters[index - self.num_data].name}"
        return "the input" if self.num_data == 1 else f"input {index}"

    @property
    def output_types(self) -> tuple[tuple[Any, Any], ...]:
        """(shape, dtype) of each output."""
        return tuple((value.shape, value.dtype) for value in self.forward.graph.outputs[: self._num_outputs])

    def headline(self, seconds: float, name: str = "") -> str:
        """The line logged at the first hybrid call. name : of the Block, "" for its own"""
        count = len(self.neutral.graph.operators)
        operators = f"{count} operator{'s' if count != 1 else ''}"
        mixed = "" if self.precision is None else f" in {self.precision.target.name} and float32"
        return f"{name or self.block_name}: 1 graph, {operators}{mixed}, {self.where}, compiled in {seconds:.1f} s"
