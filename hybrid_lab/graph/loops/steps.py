"""Loop: base of the operators that run a body step by step, and how they run forward and backward.

The backward goes through the steps in reverse, and computes each step's forward a second time from the states it began
with, which the forward keeps. It keeps those auxiliary states too that the body's outputs are computed from; what a
body only updates, as BatchNorm does with its running statistics, no gradient reads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from hybrid_lab.diagnostics.errors import DTypeError, ShapeError
from hybrid_lab.graph.loops.composed import KEY, ControlFlow, as_key, check_equal, from_key, seed_of
from hybrid_lab.ops.framework.memory import into
from hybrid_lab.ops.framework.run import infer

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from hybrid_lab.ops.framework.types import Array, Outs, PartialShape, Shape


class Loop(ControlFlow):
    """Runs its last body once per step; each step hands its states on to the next one.

    inputs : num_data arrays, of which each step gets one entry, num_states states, captures
    returns : num_out outputs, stacked over the steps, and the last states
    title, state : what errors call the loop and a state
    counts_steps : whether the number of steps shows only as the loop runs; it is a hidden output then
    """

    title: ClassVar[str]
    state: ClassVar[str]
    counts_steps: ClassVar[bool]
    num_data: int = 0
    num_states: int
    num_out: int

    def unrolled(self, shapes: Sequence[Any]) -> tuple[int, list[Any]]:
        """The largest number of steps, and the shapes of the body's inputs."""
        raise NotImplementedError

    @property
    def num_visible(self) -> int:  # type: ignore[override]
        return self.num_out + self.num_states

    @property
    def num_hidden(self) -> int:  # type: ignore[override]
        return len(self.history) + self.counts_steps + 1

    @property
    def handed_on(self) -> dict[int, int]:
        states = {self.num_data + index: self.num_out + index for index in range(self.num_states)}
        return states | {index: self.num_visible + number for number, index in enumerate(self.carried)}

    def inside(self, shapes: Sequence[PartialShape]) -> list[PartialShape]:
        return self.unrolled(shapes)[1]

    def infer_shape(self, *shapes: Shape) -> list[Shape]:
        steps, inside = self.unrolled(shapes)
        outputs = self.bodies[-1].shapes(inside)
        states, new_states = inside[self._states], outputs[self.num_out : self.num_visible]
        check_equal(self.title, self.state, states, new_states, ShapeError)
        carried = [shapes[index] for index in self.carried]
        stacked = [(steps, *shape) for shape in (*outputs[: self.num_out], *(inside[index] for index in self.history))]
        hidden = [*stacked[self.num_out :], *[(1,)] * (self.counts_steps + 1)]
        return [*stacked[: self.num_out], *new_states, *carried, *hidden]

    def infer_type(self, *dtypes: np.dtype | None) -> list[np.dtype | None]:
        outputs = self.bodies[-1].types(dtypes)
        new_states = outputs[self.num_out : self.num_visible]
        check_equal(self.title, self.state, dtypes[self._states], new_states, DTypeError)
        kept = [dtypes[index] for index in (*self.carried, *self.history)]
        return [*outputs[: self.num_visible], *kept, *[KEY] * (self.counts_steps + 1)]

    @property
    def _states(self) -> slice:
        """The states among the body's inputs."""
        return slice(self.num_data, self.num_data + self.num_states)

    def numpy(
        self, *inputs: Array, out: Outs = None, rng: tuple[int, int] = (0, 0), need: Sequence[bool] | None = None
    ) -> tuple[Array | None, ...]:
        data = [entries(item) for item in inputs[: self.num_data]]
        arrays = [*(entry_of(item) for item in data), *inputs[self.num_data :]]
        steps, _ = self.unrolled([item.shape for item in inputs])
        results, seed, states = LoopOutputs(self, inputs, steps, out, need), seed_of(rng), self._states
        condition, body = [each.program(arrays) for each in self.bodies[:-1]], self.bodies[-1].program(arrays)
        first_draw = self.draws - self.bodies[-1].graph.draws
        for step in range(steps):
            arrays[: self.num_data] = [item[step] for item in data]
            if not all(check(arrays, (seed, step * self.draws))[0].item() for check in condition):
                steps = step
                break
            results.note(step, arrays)
            outputs = body(arrays, (seed, step * self.draws + first_draw))
            results.write(step, outputs[: self.num_out])
            arrays[states] = outputs[self.num_out : self.num_visible]
            for index, new in zip(self.carried, outputs[self.num_visible :], strict=True):
                arrays[index] = new
        results.clear(steps)
        count = [np.array([steps], KEY)] * self.counts_steps
        return results.finish(arrays[states], [arrays[index] for index in self.carried], (*count, as_key(seed)))

    def run_backward(
        self, inputs: Sequence[Array], hidden: Sequence[Array], heads: dict[int, Array], wanted: Sequence[int]
    ) -> dict[int, Array]:
        num_data, num_out, body = self.num_data, self.num_out, self.bodies[-1]
        *history, key = hidden
        steps = int(history.pop()[0]) if self.counts_steps else len(inputs[0])
        first_draw = self.draws - body.graph.draws
        moving = range(num_data, num_data + self.num_states)
        wrt = tuple(index for index in range(len(inputs)) if index in moving or index in wanted)
        outs = [index for index in range(num_out) if index in heads]
        # The gradients of the states behind a step. A state without one is not differentiated, not with zeros either.
        dstates: dict[int, Array] = {}
        for index in moving:
            head = heads.get(num_out + index - num_data)
            if head is not None:
                dstates[index] = np.array(head, order="C")
        total: dict[int, Array] = {}
        data = [entries(item) for item in inputs[:num_data]]
        arrays = [*(entry_of(item) for item in data), *inputs[num_data:]]
        seed = from_key(key)
        runs: dict[tuple[int, ...], Callable[..., dict[int, Array]]] = {}
        for step in reversed(range(steps)):
            arrays[:num_data] = [item[step] for item in data]
            for index, item in zip(self.history, history, strict=True):
                arrays[index] = item[step]
            douts = [np.asarray(heads[index][step], order="C") for index in outs]
            heads_here = (*outs, *(num_out + index - num_data for index in dstates))
            if not heads_here:
                break
            if heads_here not in runs:
                runs[heads_here] = body.backward(arrays, heads_here, wrt)
            gradients = runs[heads_here]([*arrays, *douts, *dstates.values()], (seed, step * self.draws + first_draw))
            dstates = {index: gradients[index] for index in moving if index in gradients}
            for index, gradient in gradients.items():
                if index < num_data:
                    if index not in total:
                        total[index] = np.zeros_like(inputs[index])
                    entries(total[index])[step] = gradient
                elif index in total:
                    total[index] += gradient
                elif index not in moving:
                    total[index] = gradient
        return {**total, **dstates}

    def leading(self, heads: tuple[int, ...], differentiable: bool = True) -> set[int]:
        """As of ControlFlow, through any number of steps."""
        shift = self.num_data - self.num_out  # from the number of a new state to the number of the state
        leading: set[int] = set()
        behind, before = set(heads), set[int]()
        while behind != before:
            before = set(behind)
            leading |= self.bodies[-1].leading(tuple(sorted(behind)), differentiable)
            behind |= {index - shift for index in leading if 0 <= index - self.num_data < self.num_states}
        return leading | {index + shift for index in heads if index >= self.num_out}


class LoopOutputs:
    """The outputs of a running loop: the stacked outputs, and for a backward the values at the start of each step."""

    def __init__(self, op: Any, inputs: Sequence[Array], steps: int, out: Outs, need: Sequence[bool] | None):
        shapes, types = infer(op, tuple([item.shape for item in inputs]), tuple([item.dtype for item in inputs]))
        self.outs = [None] * len(shapes) if out is None else list(out) if type(out) is tuple else [out]
        self.need, self.places = need if need is not None else (True,) * len(shapes), op.history
        outputs = list(zip(self.outs, shapes, types, self.need, strict=True))
        start = op.signature.visible + len(op.carried)
        self.stacked = [_place(*each[:3]) for each in outputs[: op.num_out]]
        self.history = [
            _place(target, shape, dtype) if needed else None
            for target, shape, dtype, needed in outputs[start : start + len(self.places)]
        ]

    def note(self, step: int, arrays: Sequence[Array]) -> None:
        """Keep the body's inputs at the beginning of a step that its backward reads."""
        for target, index in zip(self.history, self.places, strict=True):
            if target is not None:
                target[step] = arrays[index]

    def write(self, step: int, outputs: Sequence[object]) -> None:
        """The outputs of a step."""
        for target, value in zip(self.stacked, outputs, strict=True):
            target[step] = value

    def clear(self, step: int) -> None:
        """Zeros behind the last step: what nothing was written to differs from run to run and from engine to engine."""
        for target in (*self.stacked, *self.history):
            if target is not None:
                target[step:] = 0

    def finish(
        self, states: Sequence[Array], carried: Sequence[Array], extra: Sequence[Array]
    ) -> tuple[Array | None, ...]:
        """All outputs, in `out` if it was given."""
        values = [*self.stacked, *states, *carried, *self.history, *extra]
        results: list[Array | None] = []
        for value, target, wanted in zip(values, self.outs, self.need, strict=True):
            if not wanted or value is None:
                results.append(None)
            elif target is None:
                # A state that no step changed is an input; it is copied, because the input's memory is not the loop's.
                results.append(np.array(value))
            else:
                results.append(value if value is target else into(value, target))
        return tuple(results)


def _place(out: Any, shape: Any, dtype: DTypeLike | None) -> np.ndarray:
    return np.empty(shape, dtype) if out is None else out


def entries(data: np.ndarray) -> np.ndarray:
    """Data of a loop: an entry of numbers has the shape (1,), as `x[i]` has."""
    return data.reshape(-1, 1) if data.ndim == 1 else data


def entry_of(data: np.ndarray) -> np.ndarray:
    """One entry of an array along its first axis, or a stand-in of its shape if there is none."""
    return data[0] if len(data) else np.empty(data.shape[1:], data.dtype)
