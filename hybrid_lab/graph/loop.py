"""What loops share while they run: their outputs and kept states, their backward, the seed of a call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hybrid_lab.diagnostics.errors import ShapeError
from hybrid_lab.graph.body import Body
from hybrid_lab.ops.framework.dtypes import is_floating
from hybrid_lab.ops.framework.memory import into
from hybrid_lab.ops.framework.run import infer
from hybrid_lab.ops.framework.types import Array, Outs
from hybrid_lab.ops.kernels import philox

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from hybrid_lab.ops.framework.types import Array

#: The dtype of a key, the hidden output that holds a call's seed: Philox' 64 bits as a signed number.
KEY = np.dtype("int64")


class Kept:
    """The outputs of a loop while it runs: the stacked ones, and for a backward what each step began with."""

    def __init__(self, op: Any, inputs: Sequence[Array], steps: int, out: Outs, need: Sequence[bool] | None):
        self.op = op
        shapes, types = infer(op, tuple([item.shape for item in inputs]), tuple([item.dtype for item in inputs]))
        outs = [None] * len(shapes) if out is None else list(out) if type(out) is tuple else [out]
        self.places = op.history
        self.need = need if need is not None else (True,) * len(shapes)
        start = op.signature.visible + len(op.carried)
        self.outs, self.start = outs, start
        self.stacked = [_place(*each) for each in zip(outs, shapes, types, self.need, strict=True)][: op.num_out]
        self.history = [
            _place(*each) if each[3] else None for each in zip(outs, shapes, types, self.need, strict=True)
        ][start : start + len(self.places)]

    def note(self, step: int, arrays: Sequence[Array]) -> None:
        """What the body's inputs are at the beginning of a step."""
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
        """All outputs, in `out` where it was given."""
        values = [*self.stacked, *states, *carried, *self.history, *extra]
        results: list[Array | None] = []
        for value, target, wanted in zip(values, self.outs, self.need, strict=True):
            if not wanted or value is None:
                results.append(None)
            elif target is None:
                # A state that no step changed is an input; nobody else's memory is handed on.
                results.append(np.array(value))
            else:
                results.append(value if value is target else into(value, target))
        return tuple(results)


def _place(out: Any, shape: Any, dtype: DTypeLike | None, need: bool) -> np.ndarray:
    return np.empty(shape, dtype) if out is None else out


def loop_backward(
    op: Any,
    inputs: Sequence[Array],
    history: Sequence[Array],
    key: Array,
    heads: dict[int, Array],
    wanted: Sequence[int],
    steps: int,
    num_data: int,
    body: Body,
    first_draw: int,
) -> dict[int, Array]:
    """Gradients of the inputs of a loop: each step's backward, from the last to the first."""
    num_states, places = op.num_states, op.history
    states = range(num_data, num_data + num_states)
    moving = [index for index in states if is_floating(inputs[index].dtype)]
    floats = [index for index, item in enumerate(inputs) if is_floating(item.dtype)]
    wrt = tuple(index for index in floats if index in moving or index in wanted)
    outs = [index for index in range(op.num_out) if index in heads and is_floating(heads[index].dtype)]
    # The gradients of the states behind a step. A state that gets none is not differentiated: not with zeros, either.
    dstates: dict[int, Array] = {}
    for index in moving:
        head = heads.get(op.num_out + index - num_data)
        if head is not None:
            dstates[index] = np.array(head, order="C")
    total: dict[int, Array] = {}
    data = [entries(item) for item in inputs[:num_data]]
    arrays = [*(entry_of(item) for item in data), *inputs[num_data:]]
    seed = from_key(key)
    runs: dict[tuple[int, ...], Callable[..., dict[int, Array]]] = {}
    for step in reversed(range(steps)):
        arrays[:num_data] = [item[step] for item in data]
        for index, item in zip(places, history, strict=True):
            arrays[index] = item[step]
        douts = [np.asarray(heads[index][step], order="C") for index in outs]
        heads_here = (*outs, *(op.num_out + index - num_data for index in dstates))
        if not heads_here:
            break
        if heads_here not in runs:
            runs[heads_here] = body.backward(arrays, heads_here, wrt)
        gradients = runs[heads_here]([*arrays, *douts, *dstates.values()], (seed, step * op.draws + first_draw))
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


def handed_on(op: Any, num_data: int) -> dict[int, int]:
    """Inputs of a loop that change from step to step, with the outputs of its body that are their next values."""
    states = {num_data + index: op.num_out + index for index in range(op.num_states)}
    return states | {index: op.num_visible + number for number, index in enumerate(op.carried)}


def loop_leading(op: Any, body: Body, num_data: int, heads: tuple[int, ...], differentiable: bool) -> set[int]:
    """The inputs of a loop that lead to one of these outputs through any number of steps.

    differentiable : those that a gradient may arrive at
    """
    leading: set[int] = set()
    behind, before = set(heads), set()  # type: ignore[var-annotated]
    while behind != before:
        before = set(behind)
        leading |= body.leading(tuple(sorted(behind)), differentiable)
        behind |= {op.num_out + index - num_data for index in leading if 0 <= index - num_data < op.num_states}
    return leading | {num_data + index - op.num_out for index in heads if index >= op.num_out}


def entries(data: np.ndarray) -> np.ndarray:
    """Data of a loop: an entry of numbers has the shape (1,), as `x[i]` has."""
    return data.reshape(-1, 1) if data.ndim == 1 else data


def entry_of(data: np.ndarray) -> np.ndarray:
    """One entry of an array along its first axis, or a stand-in of its shape where there is none."""
    return data[0] if len(data) else np.empty(data.shape[1:], data.dtype)


def check_equal(
    what: str,
    kind: str,
    wanted: Sequence[object],
    made: Sequence[object],
    error: type[Exception],
    before: str = "before a step",
    after: str = "after it",
) -> None:
    word = "shape" if error is ShapeError else "dtype"
    for index, (one, other) in enumerate(zip(wanted, made, strict=True)):
        if one != other:
            raise error(f"{what}: {kind} {index} has {word} {one} {before} and {other} {after}; they must be equal")


def seed_of(rng: tuple[int, int] | None) -> int:
    """The seed of the stream inside a call that has this draw."""
    return philox.substream(*(rng if rng is not None else (0, 0)))


def as_key(seed: int) -> np.ndarray:
    return np.array([seed], np.uint64).view(KEY)


def from_key(key: np.ndarray) -> int:
    return int(np.ascontiguousarray(key).view(np.uint64)[0])
