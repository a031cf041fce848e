"""CompiledEntry: a whole compiled call on the tape - what its backward reads, and how it is run."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from hybrid_lab.graph.passes.mixed_precision import mixed_precision
from hybrid_lab.ndarray import tape
from hybrid_lab.ndarray.buffer import Buffer
from hybrid_lab.ndarray.ndarray import NDArray
from hybrid_lab.ndarray.replay import replay, unfold

if TYPE_CHECKING:
    from hybrid_lab.engines.engine import ForwardState, Ready
    from hybrid_lab.graph.graph import Graph
    from hybrid_lab.hybridize.compiled_call import CompiledCall
    from hybrid_lab.hybridize.head_sets import Heads

_version = attrgetter("version")


def _stores(leaves: Sequence[tape.Leaf | None], places: Sequence[Any]) -> Ready:
    """Stores gradients while the backward runs.

    leaves : per gradient its leaf; places : the memory of its `grad`, which nothing reads meanwhile, or None
    """

    def ready(number: int, gradient: object) -> None:
        leaf = leaves[number]
        if leaf is not None and places[number] is not None:
            leaf.store(gradient)

    return ready


class CompiledEntry(tape.Entry):
    """The tape's entry for a whole compiled call.

    values : the arrays that the backward reads, without output gradients, in its order
    buffers : those behind the first of them - inputs, parameters and outputs, which others may write to
    forward_state : what the forward holds for the backward, used up by the last one; None if there is nothing
    versions : of these buffers, when they were recorded
    before : of the buffers of all inputs and parameters, as the forward read them: gradients of gradients start there
    outputs : weak references to the buffers of the outputs, if there are several
    """

    __slots__ = ("before", "buffers", "forward_state", "leaves", "outputs", "program", "rng", "values", "versions")

    def __init__(
        self,
        program: CompiledCall,
        leaves: Sequence[NDArray],
        values: list[np.ndarray],
        buffers: list[Buffer],
        forward_state: ForwardState | None,
        rng: tuple[int, int],
        before: list[int],
        outputs: Sequence[NDArray] = (),
    ):
        self.program, self.leaves, self.values, self.buffers, self.rng = program, leaves, values, buffers, rng
        self.forward_state, self.before = forward_state, before
        self.versions = list(map(_version, buffers))
        self.outputs = [weakref.ref(output.buffer) for output in outputs] if len(outputs) > 1 else ()

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.program.entry_name

    @property
    def recorded_graph(self) -> Graph:
        """The graph that the call ran; it has an input for each input of the recorded step."""
        return self.program.neutral.graph

    @property
    def takes_leaves(self) -> bool:  # type: ignore[override]
        return self.program.large_gradients

    def backward(self, douts: list[Any], needed: tuple[bool, ...]) -> Sequence[Any]:
        """Run the compiled backward of the outputs that have a gradient."""
        return self._run(douts, False)

    def finish(
        self, douts: list[Any], needed: tuple[bool, ...], leaves: Sequence[tape.Leaf | None] | None = None
    ) -> Sequence[Any]:
        return self._run(douts, True, leaves)

    def buffers_read(self) -> Sequence[Buffer]:
        return self.buffers

    def _places(self, leaves: Sequence[tape.Leaf | None], douts: list[Any]) -> list[Any]:
        """Per gradient, the leaf's memory that may take it (of the same type, and not read by this backward), or
        None.
        """
        assert self.program.backward is not None
        read = {id(buffer) for buffer in self.buffers}
        heads = [dout for dout in douts if dout is not None]
        places: list[Any] = []
        for index, value in zip(self.program.special.wrt, self.program.backward.graph.outputs, strict=True):
            grad = None if leaves[index] is None else leaves[index].grad  # type: ignore[union-attr]
            if grad is None or id(grad.buffer) in read:
                places.append(None)
            else:
                alike = grad.host_view.shape == value.shape and grad.host_view.dtype == value.dtype
                places.append(self._place(grad, heads) if alike else None)
        return places

    def _place(self, grad: NDArray, heads: list[Any]) -> np.ndarray | None:
        """The array that may take a gradient in place of `grad`, or None. heads : the gradients of the outputs"""
        view = grad.host_view
        if grad.buffer.device is not None or not view.flags.c_contiguous:
            return None
        # A user's Function may have returned the very array as a gradient.
        return None if any(np.may_share_memory(view, head) for head in heads) else view

    def _run(
        self,
        douts: list[object],
        last: bool,
        leaves: Sequence[tape.Leaf | None] | None = None,
    ) -> Sequence[object]:
        program = self.program
        with_gradient = tuple([dout is not None for dout in douts])
        if with_gradient != program.head_mask:
            wanted = program.heads_among(with_gradient)
            if not wanted:
                return [None] * program.num_inputs
            if wanted != program.differentiated:
                program = self._compute_again(wanted)
        heads: list[Any] = []
        for index in program.heads:
            heads.append(self._head(douts[index]))
        out = None if leaves is None else self._places(leaves, douts)
        apart = self.apart(with_gradient)
        # What leads to none of the outputs that have a gradient keeps the one it had, as in eager mode.
        if out is not None and apart:
            out = [None if index in apart else target for index, target in zip(program.special.wrt, out, strict=True)]
        ready = None
        if leaves is not None and out is not None and tape.state.stored is not None:
            ready = _stores([leaves[index] for index in program.special.wrt], out)
        gradients = self._with_heads(heads, last, out, ready)
        if not apart:
            return gradients
        return [None if index in apart else gradient for index, gradient in enumerate(gradients)]

    def _compute_again(self, heads: Heads) -> CompiledCall:
        """Let the program for a backward from these outputs take this call over: its forward runs once more, on the
        same inputs, with the same random numbers.
        """
        assert self.program.state.head_sets is not None
        program = self.program.state.head_sets.program_for(self.program, heads)
        for index in program.kept_outputs:
            buffer = self.outputs[index]() if self.outputs else None
            if buffer is not None and buffer.version:
                raise tape.written_since(self.name, f"output {index}", *program.output_types[index])
        inputs = [*self.leaves, *program.state.arrays]
        self._check_inputs(program.reads(), inputs)
        self.values, self.buffers, self.forward_state = program.run_again(self.leaves, self.rng)
        self.versions = list(map(_version, self.buffers))
        self.program = program
        return program

    def _head(self, dout: object) -> object:
        """An output gradient as the backward takes it."""
        return np.asarray(dout, order="C")

    def apart(self, given: tuple[bool, ...]) -> frozenset[int]:
        return frozenset() if all(given) else self.program.apart_from(given)

    def finish_alone(self) -> Sequence[Any] | None:
        heads = self.program.ones
        return None if heads is None else self._with_heads(heads, True, None)

    def _with_heads(
        self, heads: list[Any], last: bool, out: Sequence[np.ndarray | None] | None, ready: Ready | None = None
    ) -> Sequence[Any]:
        """The gradients of all inputs and parameters. heads : those output gradients that are read"""
        program = self.program
        if list(map(_version, self.buffers)) != self.versions:
            self.check()
        if program.together is None or self.forward_state is None:
            results = program.run_backward(self.values + heads, self.rng)
        else:
            results = program.together.finish(self.forward_state, self.values + heads, self.rng, last, out, ready)
        if program.wrt_all:
            return results
        gradients: list[Any] = [None] * program.num_inputs
        absent = program.special.absent
        for index, gradient in zip(program.special.wrt, results, strict=True):
            if index not in absent:
                gradients[index] = gradient
        return gradients

    def check(self) -> None:
        """Raise AutogradError for the first value that was written to."""
        for index, (buffer, version) in enumerate(zip(self.buffers, self.versions, strict=True)):
            if buffer.version != version:
                kind, number = self.program.special.sources[index]
                role = self.program.role(number) if kind == "input" else f"{kind} {number}"
                view = self.values[index]
                raise tape.written_since(self.name, role, view.shape, np.dtype(str(view.dtype).removeprefix("torch.")))

    def _check_inputs(self, read: Iterable[int], inputs: Sequence[NDArray]) -> None:
        """Raise AutogradError for the first of the inputs and parameters numbered in `read` that was written to."""
        for index in read:
            if inputs[index].buffer.version != self.before[index]:
                view = inputs[index].host_view
                raise tape.written_since(self.name, self.program.role(index), view.shape, view.dtype)

    def _check_before_replay(self, inputs: Sequence[NDArray]) -> None:
        """Raise AutogradError for the first input or parameter that was written to, except for states that the call
        itself only updated.
        """
        updated = set(self.program.effects) - set(self.program.reads())
        self._check_inputs([index for index in range(len(inputs)) if index not in updated], inputs)

    def backward_recorded(self, douts: list[Any], needed: tuple[bool, ...]) -> Sequence[Any]:
        """Run the program of the gradients, recorded; the forward's draws give the same masks."""
        self.check()
        program = self.program
        inputs = [*self.leaves, *program.state.arrays]
        with_gradient = tuple([dout is not None for dout in douts])
        wanted = program.heads_among(with_gradient)
        if not wanted:
            return [None] * len(needed)
        apart = self.apart(with_gradient)
        wrt = tuple([index for index in program.special.wrt if needed[index] and index not in apart])
        if not wrt:
            return [None] * len(needed)
        heads = [douts[index] for index in sorted(wanted)]
        from hybrid_lab.hybridize.higher_order import gradient_program

        compiled, wrt = gradient_program(program, [*inputs, *heads], wanted, wrt)
        if not wrt:
            return [None] * len(needed)
        if compiled is None:
            self._check_before_replay(inputs)
            # The eager run of the graph knows operators that have no compiled second gradient.
            return replay(self._run_eagerly, inputs, douts, needed)
        self._check_inputs([index for index in compiled.reads() if index < len(inputs)], inputs)
        gradients: list[Any] = [None] * len(needed)
        results = compiled([*inputs, *heads], self.rng)
        for index, gradient in zip(wrt, results, strict=True):
            gradients[index] = gradient
        return gradients

    def unfold(self, node: tape.Node) -> bool:
        if self.program.one_step:
            return False
        inputs = [*self.leaves, *self.program.state.arrays]
        self._check_before_replay(inputs)
        unfold(node, self._run_eagerly, inputs)
        return True

    def _run_eagerly(self, inputs: list[Any]) -> Sequence[NDArray]:
        """The call once more, operator by operator, with the same random numbers; no states are updated."""
        from hybrid_lab.ndarray.interpret import interpret

        program = self.program
        graph, precision = program.neutral.graph, program.precision
        if precision is not None and not program.neutral.bound:
            dtypes = [value.dtype for value in program.special.inputs]
            graph = mixed_precision(graph, dict(zip(graph.inputs, dtypes, strict=True)), precision)
        with tape.Mode(True, program.training):
            return interpret(graph, inputs, self.rng, update=False, cast=False)

    def release(self) -> None:
        self.leaves, self.values, self.buffers, self.versions, self.before, self.forward_state = (
            (),
            [],
            [],
            [],
            [],
            None,
        )
