"""GraphCache: the neutral graphs of one HybridBlock, the programs compiled from them, and the call that runs one."""

from __future__ import annotations

import copy
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from hybrid_lab import engines
from hybrid_lab.diagnostics.errors import HybridLabError
from hybrid_lab.diagnostics.hybridize_error import HybridizeError
from hybrid_lab.gluon.code import code_of
from hybrid_lab.gluon.frozen import warn_of_frozen_code
from hybrid_lab.gluon.neutral import NeutralGraph, trace_block
from hybrid_lab.gluon.structure import LEAF, ONE_TENSOR, Spec, describe, flatten, unflatten
from hybrid_lab.graph.specialize import specialize
from hybrid_lab.log import logger
from hybrid_lab.ndarray import tape
from hybrid_lab.ndarray.context import CPU, Context
from hybrid_lab.ndarray.ndarray import NDArray
from hybrid_lab.ndarray.random_state import state

if TYPE_CHECKING:
    from hybrid_lab.gluon.block import Block
    from hybrid_lab.gluon.hybrid import HybridBlock

_modes = tape.state

#: How many programs of one graph are kept before the oldest goes.
MAX_PROGRAMS = 64

#: Every cache that ever got a graph and is alive: the lab looks here for graphs of code that has changed.
traced: weakref.WeakSet[GraphCache] = weakref.WeakSet()


def _below(block: Block) -> Iterator[Block]:
    """Every place of a block below `block`, in order."""
    for child in block._children.values():
        yield child
        yield from _below(child)


def _same(one: list[Block], two: list[Block]) -> bool:
    return len(one) == len(two) and all(a is b for a, b in zip(one, two, strict=True))


@dataclass
class Compilation:
    """What one compile did, for explain and the lab. seconds is wall time; reason says why it was needed."""

    key: tuple[Any, ...]
    reason: str
    seconds: float
    program: Program


class GraphCache:
    """Everything that hybridization made of one block."""

    def __init__(self, block: HybridBlock):
        self._block = block
        self._lock = threading.RLock()
        self.variants: dict[Spec, list[NeutralGraph]] = {}
        self.pinned: dict[Any, NeutralGraph] = {}
        self._pinned_tree: list[weakref.ref[Block]] = []
        self.programs: dict[Any, Program] = {}
        self.compilations: list[Compilation] = []
        self.called: tuple[Spec, tuple[Any, ...]] | None = None
        self.code: tuple[Any, ...] | None = None  # what the graphs were traced from; the lab compares it
        self.failure: HybridizeError | None = None
        self._reported = False
        self._warned: set[Any] = set()

    def __deepcopy__(self, memo: Any) -> GraphCache:
        """A copied block starts without traces: they name the parameters of the original. Loaded graphs come along."""
        twin = memo[id(self)] = GraphCache(memo.get(id(self._block), self._block))
        for key, neutral in self.pinned.items():
            twin.pinned[key] = replace(neutral, parameters=copy.deepcopy(neutral.parameters, memo))
        twin._pinned_tree = [weakref.ref(copy.deepcopy(block, memo)) for block in self._live_pinned_tree()]
        return twin

    def __reduce__(self) -> Any:
        raise HybridLabError("cached graphs cannot be pickled; save the model with net.save(path)")

    # -- graphs ----------------------------------------------------------------------------------------------

    def clear(self) -> None:
        """Drop traces and programs; graphs that came from a file stay until a child is replaced."""
        with self._lock:
            if self.pinned and not _same(self._live_pinned_tree(), list(_below(self._block))):
                logger.warning(f"{self._block.name}: a child was replaced; the code runs again, not the loaded graph")
                self.pinned = {}
            self.variants.clear()
            self.code = None
            self.failure = None
            self._reported = False
            self.forget_programs()

    def forget_programs(self) -> None:
        """Drop compiled programs, keep the traces."""
        with self._lock:
            self.programs.clear()
            self.compilations.clear()

    def note_call(self, args: tuple[Any, ...]) -> None:
        """Remember structure and types of the first eager call: a block that was never hybridized is traced when
        saved.
        """
        leaves, spec = flatten(args, f"the input of {self._block.name}")
        if leaves and all(isinstance(leaf, NDArray) for leaf in leaves):
            self.called = spec, tuple((leaf.shape, leaf._data.dtype.name) for leaf in leaves)

    def has(self, spec: Spec) -> bool:
        """Whether there is a graph for this input structure."""
        return spec in self.variants or any(neutral.in_spec == spec for neutral in self.pinned.values())

    def note(self, neutral: NeutralGraph) -> None:
        """Keep a graph that was traced from this block's code."""
        with self._lock:
            if self.code is None:
                self.code = code_of(type(self._block))
                traced.add(self)
            self.variants.setdefault(neutral.in_spec, []).append(neutral)

    def pin(self, graphs: Sequence[NeutralGraph]) -> None:
        """Let these graphs win over the code, in eager and hybrid calls. An empty sequence gives the code back its
        say.
        """
        with self._lock:
            self.pinned = {}
            self.clear()
            self.pinned = {(item.in_spec, item.guard.types, item.guard.training): item for item in graphs}
            self._pinned_tree = [weakref.ref(block) for block in _below(self._block)]

    def snapshot(self) -> dict[str, Any]:
        """What is cached now, to be put back by `restore`."""
        with self._lock:
            held = {name: getattr(self, name) for name in ("code", "failure", "_reported", "_pinned_tree")}
            held |= {name: getattr(self, name).copy() for name in ("pinned", "programs", "compilations")}
            return held | {"variants": {spec: list(found) for spec, found in self.variants.items()}}

    def restore(self, held: dict[str, Any]) -> None:
        """Put back what `snapshot` gave, where neither code, structure nor flags of the block changed since."""
        with self._lock:
            for name, value in held.items():
                setattr(self, name, value)

    def _live_pinned_tree(self) -> list[Block]:
        return [block for block in (reference() for reference in self._pinned_tree) if block is not None]

    def pinned_for(self, spec: Spec, types: tuple[Any, ...] | None, training: bool) -> NeutralGraph:
        """The loaded graph for these inputs. Raises HybridLabError listing what there is.

        types : (shape, dtype name) of the input tensors, or None where they are not known
        """
        for neutral in self.pinned.values():
            if neutral.in_spec == spec and neutral.guard.holds(types or (), training):
                return neutral
        known = ", ".join(f"{describe(item.in_spec)}{item.guard.describe()}" for item in self.pinned.values())
        raise HybridLabError(f"{self._block.name}: the loaded graph takes {known}, not {describe(spec)}")

    def first(self) -> NeutralGraph | None:
        """The first graph, if any: what export() writes."""
        return next(iter(self.graphs()), None)

    def graphs(self) -> list[NeutralGraph]:
        """All neutral graphs, loaded ones first."""
        return [*self.pinned.values(), *(item for variants in self.variants.values() for item in variants)]

    def neutral(self, spec: Spec, leaves: Sequence[NDArray]) -> NeutralGraph:
        """The graph for these inputs, traced now if there is none. Raises HybridizeError; then nothing is kept."""
        training = _modes.training
        types = tuple((leaf.shape, leaf._data.dtype.name) for leaf in leaves)
        if self.pinned:
            return self.pinned_for(spec, types, training)
        for candidate in self.variants.get(spec, ()):
            if candidate.guard.holds(types, training):
                return candidate
        try:
            found = trace_block(self._block, spec, [(leaf.shape, leaf._data.dtype) for leaf in leaves], training)
        except HybridizeError as error:
            self.failure = error
            raise
        self.failure = None
        warn_of_frozen_code(self._block)
        self.note(found)
        for what, place in found.guard.places:
            if (what, place) in self._warned:
                continue
            self._warned.add((what, place))
            where = f" ({place.describe()})" if place is not None else ""
            code = {"mode": "HL174", "shape": "HL101", "dtype": "HL103"}[what]
            logger.warning(
                f"{self._block.name}: {code}: the {what} is read{where}; the graph holds for this {what} only"
            )
        return found

    # -- calls -----------------------------------------------------------------------------------------------

    def __call__(self, args: tuple[Any, ...]) -> Any:
        """Run the compiled graph for these arguments, compiling it on the first call of its kind."""
        if len(args) == 1 and type(args[0]) is NDArray:
            return self.call_one(args[0])
        leaves, spec = flatten(args, f"the input of {self._block.name}")
        recording, training = _modes.recording, _modes.training
        tracked = recording and tuple(tape.link(leaf) is not None for leaf in leaves)
        context = leaves[0].context if leaves else None
        key = (spec, tuple((leaf.shape, leaf.dtype) for leaf in leaves), training, tracked, context)
        program = self.programs.get(key)
        if program is None or not program.still_valid():
            program = self._compile(key, spec, leaves, training, recording)
        return program(leaves)

    def call_one(self, leaf: NDArray) -> Any:
        """The call with one array: the same as above without the detours."""
        view, modes = leaf._view, _modes
        recording = modes.recording
        key = (
            view.shape,
            view.dtype,
            modes.training,
            recording and leaf._tape is not None and tape.link(leaf) is not None,
            recording,
            leaf._buffer.context,
        )
        program = self.programs.get(key)
        if program is None or (program.guarded and not program.still_valid()):
            program = self._compile(key, ONE_TENSOR, (leaf,), modes.training, recording)
        return program.run_one(leaf)

    def _compile(self, key: Any, spec: Spec, leaves: Sequence[NDArray], training: bool, recording: bool) -> Program:
        with self._lock:
            stale = self.programs.get(key)
            start = time.perf_counter()
            neutral = self.neutral(spec, leaves)
            if any(parameter._array is None for parameter in neutral.parameters):
                self._block._complete_from(neutral, leaves)
            program = Program(self._block, neutral, leaves, training, recording)
            seconds = time.perf_counter() - start
            if len(self.programs) >= MAX_PROGRAMS:
                self.programs.pop(next(iter(self.programs)))
            self.programs[key] = program
            self._block.__dict__["_last_outputs"] = program.output_types
            reason = self._reason(key, stale)
            self.compilations.append(Compilation(key, reason, seconds, program))
            if len(self.compilations) > MAX_PROGRAMS:
                del self.compilations[1]  # the first and the latest tell most; each holds its program
            if not self._reported:
                self._reported = True
                logger.info(program.headline(seconds))
            else:
                logger.debug(f"{self._block.name}: recompiled in {seconds:.2f} s: {reason}")
            return program

    def _reason(self, key: Any, stale: Program | None) -> str:
        """Why a compile was needed, in words."""
        if stale is not None:
            return "a parameter changed its shape, dtype or grad_req"
        if not self.compilations:
            return "first call"
        last = self.compilations[-1].key
        parts = []
        if len(last) == len(key) == 6:
            if last[0] != key[0]:
                parts.append(f"input shape {key[0]} instead of {last[0]}")
            if last[1] != key[1]:
                parts.append(f"input dtype {key[1].name} instead of {last[1].name}")
            if last[2] != key[2]:
                parts.append("training mode" if key[2] else "prediction mode")
            if last[4] != key[4]:
                parts.append("recording for the backward" if key[4] else "no recording")
            elif last[3] != key[3]:
                parts.append("the input needs a gradient" if key[3] else "the input needs no gradient")
            if last[5] != key[5]:
                parts.append(f"input on {key[5]} instead of {last[5]}")
        return ", ".join(parts) or "another input structure"


class Program:
    """One compiled call: the forward executable, and the backward one where the call is recorded."""

    def __init__(
        self, block: HybridBlock, neutral: NeutralGraph, leaves: Sequence[NDArray], training: bool, recording: bool
    ):
        self.neutral = neutral
        self.block_name = block.name
        self.training, self.recording = training, recording
        self._parameters = neutral.parameters
        self._context = leaves[0].context if leaves else CPU
        self._arrays = [parameter._on(parameter._data, self._context) for parameter in neutral.parameters]
        self._requests = [parameter.grad_req != "null" for parameter in neutral.parameters]
        inputs: list[Any] = [*leaves, *self._arrays]
        wrt: list[int] = []
        if recording:
            wrt += [index for index, leaf in enumerate(leaves) if tape.link(leaf) is not None]
            wrt += [len(leaves) + index for index, wanted in enumerate(self._requests) if wanted]
        shapes, dtypes = [array.shape for array in inputs], [array._data.dtype for array in inputs]
        self.special = specialize(neutral.graph, shapes, dtypes, training, wrt, neutral.num_data)
        flags = block._flags
        engine = engines.get(flags.get("engine"))
        self.engine, self.where = engine.name, engine.where()
        options = {"static_alloc": bool(flags.get("static_alloc")), "static_shape": bool(flags.get("static_shape"))}
        if flags.get("strict"):
            options["strict"] = True
        self.forward = engine.compile(self.special.forward, **options)
        self.backward = engine.compile(self.special.backward, **options) if self.special.backward is not None else None
        self.prologue = engine.compile(self.special.prologue, **options) if self.special.prologue is not None else None
        self._steady = [self._arrays[index - len(leaves)] for index in self.special.prologue_sources]
        self._hoisted: tuple[list[Any], list[np.ndarray]] | None = None
        self._num_outputs = len(neutral.graph.outputs)
        self._num_kept = len(self.special.forward.outputs)
        self._draws = neutral.graph.draws
        places = {value: index for index, value in enumerate(self.special.forward.inputs)}
        self._effects = [
            self.special.forward_sources[places[target]][1] for target, _ in self.special.forward.effects
        ]
        self._num_data = len(leaves)
        self._plain = neutral.out_spec is LEAF or neutral.out_spec == LEAF
        self._run = self.forward.run
        self.guarded = bool(self._arrays)
        simple = (
            not (self._arrays or self._effects or self._draws or self.backward)
            and self._plain
            and self._num_outputs == 1
        )
        self.run_one = _simple_call(self._run, self._context) if simple else lambda leaf: self((leaf,))
        # What the backward reads of outputs and inputs, so that later writes to them are noticed.
        self.kept_inputs = tuple(index for kind, index in self.special.sources if kind == "input")
        self.kept_outputs = tuple(index for kind, index in self.special.sources if kind == "output")

    def still_valid(self) -> bool:
        """Whether the parameters are the arrays this program was made for."""
        for parameter, array in zip(self._parameters, self._arrays, strict=True):
            if parameter._array is not array and not any(array is other for other in parameter._data or ()):
                return False
        if self.recording:
            return all(
                (p.grad_req != "null") == wanted for p, wanted in zip(self._parameters, self._requests, strict=True)
            )
        return True

    def __call__(self, leaves: Sequence[NDArray]) -> Any:
        raw = [leaf._data for leaf in leaves]
        for array in self._arrays:
            raw.append(array._data)
        if self.prologue is not None:
            held = self._held()
            raw = [(raw if kind == "input" else held)[index] for kind, index in self.special.forward_sources]
        rng = state.next_draws(self._draws) if self._draws else (0, 0)
        results = self._run(raw, rng)
        for index, new in zip(self._effects, results[self._num_kept :], strict=False):
            # A state may be an input of the call as well as a parameter.
            (leaves[index] if index < self._num_data else self._arrays[index - self._num_data])._assign(new)
        wrap, context = NDArray._wrap, self._context
        outputs = [wrap(result, context) for result in results[: self._num_outputs]]
        if self.backward is not None:
            inputs = [*leaves, *self._arrays]
            saved = results[self._num_outputs : self._num_kept]
            tape.note(CompiledEntry(self, inputs, outputs, saved, rng), inputs, outputs)
        if self._plain:
            return outputs[0]
        return unflatten(self.neutral.out_spec, iter(outputs))

    def _held(self) -> list[np.ndarray]:
        """What the prologue computes from the parameters; anew after one that it reads was written to."""
        assert self.prologue is not None
        state = [(array._buffer, array._buffer.version) for array in self._steady]
        if self._hoisted is None or self._hoisted[0] != state:
            self._hoisted = state, self.prologue.run([array._data for array in self._steady], (0, 0))
        return self._hoisted[1]

    @property
    def output_types(self) -> tuple[tuple[Any, Any], ...]:
        """(shape, dtype) of each output."""
        return tuple((value.shape, value.dtype) for value in self.special.forward.outputs[: self._num_outputs])

    @property
    def num_operators(self) -> int:
        return len(self.neutral.graph.operators)

    def headline(self, seconds: float) -> str:
        """The one line that the first hybrid call says."""
        count = self.num_operators
        return f"{self.block_name}: 1 graph, {count} operator{'s' if count != 1 else ''}, {self.where}, {seconds:.1f} s"


def _simple_call(run: Any, context: Context) -> Any:
    """One array in, one out, nothing else to do: the shortest way through a program."""
    wrap, nothing = NDArray._wrap, (0, 0)

    def call(leaf: NDArray) -> NDArray:
        return wrap(run((leaf._data,), nothing)[0], context)

    return call


class CompiledEntry(tape.Entry):
    """The tape's entry for a whole compiled call."""

    def __init__(
        self,
        program: Program,
        inputs: Sequence[Any],
        outputs: Sequence[NDArray],
        saved: Sequence[Any],
        rng: tuple[int, int],
    ):
        self.program, self.rng, self.saved = program, rng, saved
        self.name = f"the hybridized block {program.block_name}"
        self.inputs = {index: tape.Saved(inputs[index], f"input {index}", self.name) for index in program.kept_inputs}
        self.outputs = {
            index: tape.Saved(outputs[index], f"output {index}", self.name) for index in program.kept_outputs
        }
        self.shapes = [(output.shape, output._data.dtype) for output in outputs]
        self.all_inputs = list(inputs)

    def backward(self, douts: list[Any], needed: tuple[bool, ...]) -> Sequence[Any]:
        """Run the compiled backward; an output without a gradient gets zeros."""
        program = self.program
        assert program.backward is not None
        operands = []
        for kind, index in program.special.sources:
            if kind == "saved":
                operands.append(self.saved[index])
            elif kind == "head":
                dout = douts[index]
                operands.append(np.zeros(*self.shapes[index]) if dout is None else np.asarray(dout, order="C"))
            else:
                operands.append((self.inputs if kind == "input" else self.outputs)[index].value())
        results = program.backward.run(operands, self.rng)
        gradients: list[Any] = [None] * len(needed)
        for index, gradient in zip(program.special.wrt, results, strict=False):
            gradients[index] = gradient
        return gradients

    def backward_recorded(self, douts: list[Any], needed: tuple[bool, ...]) -> Sequence[Any]:
        """Differentiate the graph's eager replay, so that gradients of gradients work; the same draws give the same
        masks.
        """
        from hybrid_lab.ndarray.interpret import interpret

        program = self.program

        def run(inputs: list[Any]) -> Sequence[NDArray]:
            with tape.Mode(True, program.training):
                return interpret(program.neutral.graph, inputs, self.rng, update=False)

        return tape.replay(run, self.all_inputs, douts, needed)

    def release(self) -> None:
        self.saved, self.inputs, self.outputs, self.all_inputs = (), {}, {}, []
