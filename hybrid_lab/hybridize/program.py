"""Program: one compiled call of a HybridBlock: its executables, and the parameters they read."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from hybrid_lab import engines
from hybrid_lab.graph.differentiate import leading_to, led_to
from hybrid_lab.graph.graph import values_read
from hybrid_lab.graph.specialize import specialize, specialize_call
from hybrid_lab.graph.specialized import Specialized
from hybrid_lab.hybridize.compiled_entry import CompiledEntry
from hybrid_lab.hybridize.head_sets import Heads, HeadSets
from hybrid_lab.hybridize.higher_order import one_step
from hybrid_lab.hybridize.interrupts import interrupts
from hybrid_lab.hybridize.program_cache import ProgramCache, Prologue
from hybrid_lab.hybridize.structure import LEAF, ONE_TENSOR, unflatten
from hybrid_lab.ndarray import changes, tape
from hybrid_lab.ndarray import invoke as invoking
from hybrid_lab.ndarray.backward import FEW
from hybrid_lab.ndarray.buffer import Buffer
from hybrid_lab.ndarray.context import CPU
from hybrid_lab.ndarray.ndarray import NDArray
from hybrid_lab.ndarray.random_state import state as random_state
from hybrid_lab.ops.framework.types import Shape

if TYPE_CHECKING:
    from hybrid_lab.engines.engine import Engine, Executable, ForwardState, Training
    from hybrid_lab.graph.graph import Graph
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
    """The engine that the policy chooses, and why. The policy loads the engines that it chooses among."""
    from hybrid_lab.engines.policy import engine_for

    return engine_for(graphs, strict)


class Program:
    """One compiled call: the forward executable, and the backward one where the call is recorded.

    device : torch's, on whose memory the executables work; None for the host

    cache : the programs of the same Block
    asked : the engine that the Block's flags ask for; None: the policy chooses one
    precision : the mixed precision it computes in, or None
    together : forward and backward of a recorded call, if the forward saves values for the backward
    shape, dtype, context, tracked : of a single input array; the next call compares them before any look-up
    short : a function for the call with a single array, where nothing but the forward is to be done
    checked : `changes.count` when `still_valid` last looked
    differentiated : numbers of the outputs that the backward differentiates; head_sets : the programs for other ones
    given : per output, whether the backward differentiates it
    gradients : the programs of gradients of gradients, see `higher_order.gradient_program`
    """

    device: Any = None
    _entry_class: ClassVar[type[CompiledEntry]] = CompiledEntry

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
        self.checked = changes.count
        self.cache = cache
        self._parameters = neutral.parameters
        self._arrays = [parameter._on(parameter._data, self.context) for parameter in neutral.parameters]
        self.requests = self.requests_now()
        self.gradients: dict[Any, tuple[Program | None, tuple[int, ...]]] = {}
        self._one_step: bool | None = None
        inputs: list[Any] = [*leaves, *self._arrays]
        wrt: list[int] = []
        if recording:
            wrt += [index for index, leaf in enumerate(leaves) if tape.link(leaf) is not None]
            wrt += [len(leaves) + index for index, (_, wanted) in enumerate(self.requests) if wanted]
        graph = neutral.graph
        sources = [graph.inputs[index] for index in wrt]
        # Outputs that depend on recorded inputs; and those that do so through differentiable operators only.
        reached, leading = led_to(graph, sources), led_to(graph, sources, differentiable=True)
        self._recorded = [index for index, value in enumerate(graph.outputs) if value in reached]
        self._leading = frozenset(index for index, value in enumerate(graph.outputs) if value in leading)
        self.differentiated = self.cache.heads.get(neutral, self._leading) & self._leading or self._leading
        self._compile(
            flags, self._specialize([array.shape for array in inputs], [array.host_view.dtype for array in inputs], wrt)
        )
        self._bind(len(leaves))
        self.head_sets = HeadSets(self) if self.backward is not None else None

    def _specialize(self, shapes: Sequence[Shape], dtypes: Sequence[np.dtype], wrt: Sequence[int]) -> Specialized:
        neutral = self.neutral
        options: dict[str, Any] = {"precision": self.precision, "heads": self.differentiated}
        arguments = (neutral.with_unused, shapes, dtypes, self.training, wrt, len(shapes) - len(self._arrays))
        if neutral.bound:  # gradients, of which all inputs are data: each is made once
            return specialize(*arguments, bound=True, **options)
        return specialize_call(self.cache.specializations, *arguments, **options)

    def _compile(self, flags: Mapping[str, Any], special: Specialized) -> None:
        split = special.split
        graphs = [special.forward] if split is None else [split.forward, split.backward]
        engine, choice = (self.asked, "") if self.asked else _chosen_engine(graphs, bool(flags.get("strict")))
        options = {name: bool(flags.get(name)) for name in ("static_alloc", "static_shape")}
        if flags.get("strict"):
            options["strict"] = True
        options |= {name: flags[name] for name in engine.own_options if flags.get(name)}
        if split is not None:
            split = engine.training_graphs(split, **options)
            special = replace(special, forward=split.forward, backward=split.backward, sources=split.sources)
        self.special = special
        self.together: Training | None = None
        self.large_gradients = False
        self.backward: Executable | None = None
        if split is None:
            self.forward = engine.compile(special.forward, **options)
        else:
            compiled = engine.compile_training(split, **options)
            self.forward, self.backward = compiled.forward, compiled.backward
            # Small graphs that keep nothing in between are faster apart.
            self.large_gradients = sum(value.nbytes for value in self.backward.graph.outputs) >= LARGE
            if self.large_gradients or split.saves:
                self.together = compiled
            self.backward.report.choice = choice
        self.forward.report.choice = choice
        self.engine = self.forward.report.engine
        self.prologue: Prologue | None = None
        if special.prologue is not None:
            first = len(self.neutral.graph.inputs) - len(self._arrays)
            arrays = [self._arrays[index - first] for index in special.prologue_sources]
            self.prologue = self.cache.prologue(special.prologue, arrays, engine, options)

    def _bind(self, num_data: int) -> None:
        """Prepare once what every call needs."""
        special, graph = self.special, self.neutral.graph
        self._num_data, self._num_outputs = num_data, len(graph.outputs)
        self._draws = graph.draws
        self._plain = self.neutral.out_spec == LEAF
        self._run = self.forward.run
        self._begin = None if self.together is None else self.together.begin
        pattern = special.forward.pattern
        places = {value: index for index, value in enumerate(pattern.inputs)}
        self._effects = [special.forward_sources[places[target]][1] for target, _ in pattern.effects]

        sources = special.forward_sources
        assert sources[:num_data] == tuple(("input", index) for index in range(num_data))
        self._steady = [(kind, index - num_data if kind == "input" else index) for kind, index in sources[num_data:]]
        self._buffers = [array.buffer for array in self._arrays]
        # Whether a call reads anything but its data: a Block without parameters may still have hoisted constants.
        self._reads_parts = bool(self._buffers or self._steady)
        for buffer in self._buffers:
            buffer.watched = True
        # Versions of the parameters (None: to be read anew in any case), and what the forward reads of them.
        self._held: tuple[list[int] | None, list[np.ndarray]] = (None, [])
        # `changes.count` when it was last looked up what the parameters have on the tape (None: in any case), and that.
        self._links: tuple[int | None, tuple[tape.Link, ...]] = (None, ())
        self._packs = not self.training and self.backward is None and not self._effects
        self._packed, self._quiet, self._patience = False, 0, 1

        # What the backward reads, in the order of `split`: inputs (data, parameters), outputs, saved values, heads.
        self._kept_inputs = [index for kind, index in special.sources if kind == "input"]
        self._kept_leaves = [index for index in self._kept_inputs if index < num_data]
        self._kept_buffers = [self._buffers[index - num_data] for index in self._kept_inputs if index >= num_data]
        self._kept_outputs = [index for kind, index in special.sources if kind == "output"]
        self._kept_saved = [index for kind, index in special.sources if kind == "saved"]
        self.heads = [index for kind, index in special.sources if kind == "head"]
        self.num_inputs = num_data + len(self._arrays)
        self.wrt_all = special.wrt == tuple(range(self.num_inputs)) and not special.absent
        self.run_backward: Any = None if self.backward is None else self.backward.run
        self._apart: dict[tuple[bool, ...], frozenset[int]] = {}
        self.given = tuple([index in self.differentiated for index in range(self._num_outputs)])
        used = leading_to(graph.outputs)
        self._idle = [index for index, value in enumerate(graph.inputs) if value not in used]
        # The output gradients that a backward from this call's only output reads. Nobody writes to them.
        self.ones: list[np.ndarray] | None = None
        if self._num_outputs == 1 and self.backward is not None and not self.large_gradients:
            shape, dtype = self.output_types[0]
            if math.prod(shape) <= FEW:
                self.ones = [np.ones(shape, dtype) for _ in self.heads]
        self.short = self._shortest()

    def _shortest(self) -> Any:
        """A function for calls with a single array that only run the forward; None if a call has more to do."""
        run, context = self._run, self.context
        if self._reads_parts or self._effects or self._draws or not self._plain or self._num_outputs != 1:
            return None
        if self.backward is not None:
            return self._record_one if self._num_data == 1 and self._begin is None and self._recorded else None

        def call(leaf: NDArray) -> NDArray:
            if leaf.buffer.host_stale:
                leaf.buffer.pull()
            return _wrap(run((leaf.host_view,), _NO_DRAWS)[0], context)

        return call

    # -- calls -----------------------------------------------------------------------------------------------

    def still_valid(self) -> bool:
        """Whether the parameters have the arrays, and ask for the gradients, that this program was compiled for."""
        now = changes.count
        if self.checked == now:
            return True
        if not self.holds_current():
            return False
        if self.requests_now() != self.requests:
            return False
        if any(buffer.exported for buffer in self._buffers):
            self._held = (None, [])
        self.checked = now
        return True

    def holds_current(self) -> bool:
        """Whether its arrays are those of the parameters."""
        return all(
            parameter._array is array or any(array is other for other in parameter._data or ())
            for parameter, array in zip(self._parameters, self._arrays, strict=True)
        )

    def retire(self) -> None:
        """Unpack its parameters: the cache has dropped this program, and nobody calls it again."""
        self._unpack()

    def requests_now(self) -> tuple[tuple[str, bool], ...]:
        """(name, whether its gradient is wanted) of each parameter, where calls are recorded."""
        if not self.recording:
            return ()
        pairs = []
        for parameter in self._parameters:
            arrays = parameter._data
            pairs.append(
                (parameter.name, arrays is not None and _link(parameter._on(arrays, self.context)) is not None)
            )
        return tuple(pairs)

    def __call__(self, leaves: Sequence[NDArray], rng: tuple[int, int] | None = None) -> Any:
        """The call on these arrays. rng : (seed, base) of an earlier call whose random numbers are to come again."""
        raw = []
        versions: list[int] = []
        for leaf in leaves:
            if leaf.buffer.host_stale:
                leaf.buffer.pull()
            raw.append(leaf.host_view)
        if self._reads_parts:
            versions = list(map(_version, self._buffers))
            held = self._held
            if held[0] != versions:
                held = self._refresh(versions)
            elif self._packs and not self._packed:
                self._pack(versions, [*raw, *held[1]])
            raw += held[1]
        return self._run_on(leaves, raw, versions, rng)

    def _run_on(
        self, leaves: Sequence[NDArray], raw: list[Any], versions: list[int], rng: tuple[int, int] | None
    ) -> Any:
        """The results of a call. raw : what the forward reads; versions : of the parameters, as they are in `raw`"""
        if rng is None:
            rng = random_state.next_draws(self._draws) if self._draws else _NO_DRAWS
        begin, kept = self._begin, None
        if begin is None:
            results = self._run(raw, rng)
        else:
            results, kept = begin(raw, rng)
        # As the forward read them: an effect may write to some.
        before = [*map(_buffer_version, leaves), *versions] if self.backward is not None else versions
        if self._effects:
            # A state may be an input of the call as well as a parameter.
            first = self._num_data
            states = [leaves[index] if index < first else self._arrays[index - first] for index in self._effects]
            with interrupts:  # the statistics of all layers or of none
                self._update(states, results[self._num_outputs :])
        outputs = self._wrapped(results)
        if self.backward is not None:
            self._record(leaves, raw, outputs, kept, rng, before)
        if self._plain:
            return outputs[0]
        return unflatten(self.neutral.out_spec, iter(outputs))

    def _record(
        self,
        leaves: Sequence[NDArray],
        raw: Sequence[Any],
        outputs: list[NDArray],
        kept: ForwardState | None,
        rng: tuple[int, int],
        before: list[int],
    ) -> None:
        """Put the call on the tape, with everything that its backward reads; outputs without a history stay off it.

        raw : the inputs and parameters as the forward read them; before : their versions
        """
        links = self._links_of(leaves)
        if not any(links):
            return
        values, buffers = self._for_backward(leaves, raw, outputs, kept)
        entry = self._entry_class(self, leaves, values, buffers, kept, rng, before, outputs)
        node = tape.Node(entry, links, len(outputs))
        for index in self._recorded:
            outputs[index].tape_link = tape.Output(node, index)

    def _links_of(self, leaves: Sequence[NDArray]) -> tuple[tape.Link, ...]:
        """What a call links to: nothing for what no output depends on, whose gradient stays as it is."""
        if not self._recorded:
            return ()
        links = (*map(_link, leaves), *self._parameter_links())
        if not self._idle:
            return links
        return tuple([None if index in self._idle else link for index, link in enumerate(links)])

    def _for_backward(
        self, leaves: Sequence[NDArray], raw: Sequence[Any], outputs: Sequence[NDArray], kept: ForwardState | None
    ) -> tuple[list[Any], list[Buffer]]:
        """The values that the backward reads, but for output gradients: inputs and parameters, outputs, saved values;
        and the buffers of all but the saved ones.
        """
        values = [raw[index] for index in self._kept_inputs]
        buffers = [leaves[index].buffer for index in self._kept_leaves]
        buffers += self._kept_buffers
        for index in self._kept_outputs:
            # Not the output itself: it refers to this entry, and a cycle would keep both alive until a collection.
            output = outputs[index]
            values.append(output.raw(self.device))
            buffers.append(output.buffer)
        if kept is not None:
            values += [kept.saved[index] for index in self._kept_saved]
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
        """The forward of an earlier call, for what the backward reads of it: nothing is updated."""
        raw = [array.raw(self.device) for array in (*leaves, *self._arrays)]
        results, kept = (self._run(raw, rng), None) if self._begin is None else self._begin(raw, rng)
        return *self._for_backward(leaves, raw, self._wrapped(results), kept), kept

    def heads_among(self, given: tuple[bool, ...]) -> Heads:
        """The outputs among the given ones whose gradients lead anywhere."""
        return frozenset([index for index in self._leading if given[index]])

    def differentiating(self, heads: Heads) -> Program:
        """This program with a backward for other outputs."""
        program = copy.copy(self)
        program.differentiated = heads
        program._compile(self.flags, program._specialize(*self.types, self.special.wrt))
        program._bind(self._num_data)
        return program

    def apart_from(self, given: tuple[bool, ...]) -> frozenset[int]:
        """The numbers of the inputs and parameters that lead to none of these outputs, by whatever operators."""
        if given not in self._apart:
            graph = self.neutral.graph
            chosen = [value for value, here in zip(graph.outputs, given, strict=True) if here]
            leading = leading_to(chosen)
            self._apart[given] = frozenset([i for i, value in enumerate(graph.inputs) if value not in leading])
        return self._apart[given]

    def _record_one(self, leaf: NDArray) -> NDArray:
        """`__call__` with a single array that is on the tape, where it is all that the one output is computed from."""
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
        if self._kept_outputs:
            values.append(output.host_view)
            buffers.append(output.buffer)
        entry = CompiledEntry(self, (leaf,), values, buffers, None, _NO_DRAWS, [before])
        output.tape_link = tape.Output(tape.Node(entry, (leaf.tape_link,), 1), 0)
        return output

    def _parameter_links(self) -> Sequence[tape.Link]:
        """What a call links to for each parameter: looked up again after a change that `changes` tells of."""
        known, now = self._links, changes.count
        if known[0] != now:
            links = tuple(map(_link, self._arrays))
            # The history of a result may be used up, of which `changes` does not tell.
            self._links = known = None if tape.Output in map(type, links) else now, links
        return known[1]

    @property
    def types(self) -> tuple[list[Shape], list[np.dtype]]:
        """Shapes and dtypes of all inputs and parameters."""
        return [value.shape for value in self.special.inputs], [value.dtype for value in self.special.inputs]

    @property
    def one_step(self) -> bool:
        """Whether a call stays one step of the history where its gradients are differentiated."""
        if self._one_step is None:
            self._one_step = one_step(self)
        return self._one_step

    # -- what the forward reads of the parameters --------------------------------------------------------------

    def _refresh(self, versions: list[int]) -> tuple[list[int] | None, list[np.ndarray]]:
        """Read the parameters and the prologue's values: at the first call, and when parameters were written to."""
        self._quiet = 0
        if self._packed:
            self._unpack()
        hoisted = self.prologue.values() if self.prologue is not None else []
        for buffer in self._buffers:
            if buffer.host_stale:
                buffer.pull()
        raw = [self._arrays[index].host_view if kind == "input" else hoisted[index] for kind, index in self._steady]
        # Memory that others may write to without our knowing counts as written to before every call.
        known = None if any(buffer.exported for buffer in self._buffers) else versions
        self._held = held = known, raw
        return held

    def _pack(self, versions: list[int], inputs: list[np.ndarray]) -> None:
        """Count a call with unchanged parameters; after enough of them, let the engine pack the parameters."""
        self._quiet += 1
        if self._quiet < self._patience:
            return
        cache, serial = self.cache, self.prologue.serial if self.prologue is not None else None
        with cache.lock:
            if self._held[0] != versions or self._packed:
                return
            while len(cache.packed) >= MAX_PACKED:
                cache.packed[0]._unpack()
            self._packed = True  # before it is: where an interrupt ends this, the next write to a parameter unpacks
            cache.packed.append(self)
            self.forward.pack(inputs, (cache.serial, serial, self.special.forward_sources, tuple(versions)))

    def _unpack(self) -> None:
        with self.cache.lock:
            if self._packed:
                self.forward.unpack()
                if self in self.cache.packed:
                    self.cache.packed.remove(self)
                self._quiet, self._patience = 0, min(2 * self._patience, MAX_PATIENCE)
                self._packed = False  # after it is: where an interrupt ends this, the next call unpacks

    def reads(self) -> list[int]:
        """The inputs (data first, then parameters) whose values the forward computes its outputs with: not those of
        which it reads the mere shape, nor states that are only taken to update them.
        """
        graph = self.special.forward
        read = values_read(graph.outputs)
        sources = zip(graph.inputs, self.special.forward_sources, strict=True)
        return [index for value, (kind, index) in sources if kind == "input" and value in read]

    # -- for people ----------------------------------------------------------------------------------------------

    @property
    def where(self) -> str:
        """Engine and device of the forward: what really runs, which is NumPy if nothing was worth the chosen engine."""
        return engines.find(self.forward.report.runs_on).where()

    def role(self, index: int) -> str:
        """An input or parameter, for messages."""
        if index >= self._num_data:
            return f"the parameter {self._parameters[index - self._num_data].name}"
        return "the input" if self._num_data == 1 else f"input {index}"

    @property
    def output_types(self) -> tuple[tuple[Any, Any], ...]:
        """(shape, dtype) of each output."""
        return tuple((value.shape, value.dtype) for value in self.forward.graph.outputs[: self._num_outputs])

    def headline(self, seconds: float) -> str:
        """The one line that the first hybrid call says."""
        count = len(self.neutral.graph.operators)
        operators = f"{count} operator{'s' if count != 1 else ''}"
        mixed = "" if self.precision is None else f" in {self.precision.target.name} and float32"
        return f"{self.block_name}: 1 graph, {operators}{mixed}, {self.where}, compiled in {seconds:.1f} s"
