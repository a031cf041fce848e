"""Steps: the kernel calls of a lowering for arrays of given shapes and dtypes, recorded once and then repeated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hybrid_lab.ops.framework.memory import WORKSPACE
from hybrid_lab.ops.framework.namespace import Arithmetic, Namespace
from hybrid_lab.ops.framework.operator import Operator
from hybrid_lab.ops.framework.run import computes_in_float32, run_kernel

_LARGE = 1 << 15
"""Bytes from which on a temporary lies in the workspace; for a smaller one, asking would cost more than it saves."""
_KEPT = 256
"""Recordings kept per operator, one for each set of shapes and dtypes."""


class _Value(Arithmetic):
    """An array in the hands of the lowering, and its place in the memory of the recording."""

    __slots__ = ("F", "array", "place")

    def __init__(self, F: Namespace, array: np.ndarray, place: int):
        self.F, self.array, self.place = F, array, place

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def dtype(self) -> np.dtype:
        return self.array.dtype


class _Step:
    """A call of an operator's kernel.

    places, first : of the inputs and of the first output; dead : places that no later step reads
    plain : whether the kernel gets no keyword but `out`
    target : None; the place of the input that the output replaces; or the shape and dtype of workspace memory
    """

    __slots__ = ("dead", "first", "op", "places", "plain", "target")

    def __init__(self, op: Operator, places: tuple[int, ...], first: int, plain: bool):
        self.op, self.places, self.first, self.plain = op, places, first, plain
        self.dead: tuple[int, ...] = ()
        self.target: Any = None


class Steps:
    """A recording of `op.lower`. Its elementwise steps write over temporaries, or into the workspace if large.

    constants : per place, the array or Python number that is there before the first step, or None
    """

    def __init__(self, inputs: int):
        self.constants: list[Any] = [None] * inputs
        self.steps: list[_Step] = []
        self.results: list[int] = []

    def run(self, inputs: Sequence[np.ndarray], rng: tuple[int, int] | None) -> list[np.ndarray]:
        """The results for arrays of the recorded shapes and dtypes. rng : (seed, draw)"""
        memory = self.constants.copy()
        memory[: len(inputs)] = inputs
        mark = WORKSPACE.mark()
        try:
            for step in self.steps:
                arguments = [memory[place] for place in step.places]
                target, first = step.target, step.first
                if not step.plain:
                    outputs = run_kernel(step.op, arguments, rng=rng)
                    memory[first : first + len(outputs)] = outputs
                elif target is None:
                    memory[first] = step.op.numpy(*arguments)
                else:
                    out = memory[target] if type(target) is int else WORKSPACE(*target)
                    memory[first] = step.op.numpy(*arguments, out=out)
                for place in step.dead:
                    memory[place] = None
            return [memory[place] for place in self.results]
        finally:
            WORKSPACE.release(mark)


class _Recorder:
    """Runs a lowering once on arrays, and writes the steps down."""

    def __init__(self, inputs: int, rng: tuple[int, int] | None):
        self.rng, self.written = rng, Steps(inputs)
        self.F = Namespace(self.apply)
        self.outputs: list[np.ndarray | None] = []  # of each step that can fill memory given to it
        self.shared: set[int] = set(range(inputs))  # places whose memory may be that of another place as well

    def record(self, op: Operator, inputs: Sequence[Any]) -> list[np.ndarray]:
        """The results of this call."""
        values = [
            _Value(self.F, item, place) if isinstance(item, np.ndarray) else item for place, item in enumerate(inputs)
        ]
        given = [item for item in values if isinstance(item, _Value)]
        results = op.lower(self.F, *values)
        results = results if isinstance(results, tuple) else (results,)
        # A lowering may be a mere reshape, but results are in memory that is no input's.
        owned = [
            self.F.identity(item) if any(np.may_share_memory(item.array, one.array) for one in given) else item
            for item in results
        ]
        self.written.results = [item.place for item in owned]
        self.find_targets()
        return [item.array for item in owned]

    def apply(self, op: Operator, inputs: Sequence[Any]) -> _Value | tuple[_Value, ...]:
        arguments = [item.array if isinstance(item, _Value) else item for item in inputs]
        outputs = run_kernel(op, arguments, rng=self.rng)
        arrays = [item for item in arguments if isinstance(item, np.ndarray)]
        alike = op.identity_if_alike and (outputs[0].shape, outputs[0].dtype) == (arrays[0].shape, arrays[0].dtype)
        if alike and isinstance(inputs[0], _Value):
            return inputs[0]
        places, constants = [], self.written.constants
        for item in inputs:
            places.append(item.place if isinstance(item, _Value) else len(constants))
            constants += [] if isinstance(item, _Value) else [item]
        first = len(constants)
        constants += [None] * len(outputs)
        if op.view or any(np.may_share_memory(item, output) for item in arrays for output in outputs):
            self.shared |= {*places, *range(first, len(constants))}
        plain = (
            len(outputs) == 1
            and op.run_keywords <= {"out", "scratch"}
            and ("scratch" not in op.run_keywords or outputs[0].nbytes < _LARGE)
            and not computes_in_float32(op, [getattr(item, "dtype", None) for item in arguments])
        )
        self.written.steps.append(_Step(op, tuple(places), first, plain))
        fills = plain and op.alias_safe and "out" in op.run_keywords and outputs[0].ndim > 0
        self.outputs.append(outputs[0] if fills else None)
        visible = [_Value(self.F, item, first + k) for k, item in enumerate(outputs[: op.signature.visible])]
        return tuple(visible) if len(visible) > 1 else visible[0]

    def find_targets(self) -> None:
        """Find where each place is read for the last time, and which memory the elementwise steps may fill."""
        steps, results = self.written.steps, self.written.results
        last = {place: number for number, step in enumerate(steps) for place in step.places}
        temporaries: dict[int, np.ndarray] = {}
        lent: set[int] = set()  # places in the workspace, which is given back at the end
        for number, (step, output) in enumerate(zip(steps, self.outputs, strict=True)):
            step.dead = tuple(
                {place for place in step.places if last[place] == number and self.written.constants[place] is None}
                - set(results)
            )
            if output is None:
                continue
            temporary = step.first not in self.shared and step.first not in results
            for place in step.dead:
                old = temporaries.get(place)
                fits = old is not None and (old.shape, old.dtype) == (output.shape, output.dtype)
                if fits and (temporary or place not in lent):
                    step.target = place
            if temporary:
                temporaries[step.first] = output
                if step.target is None and output.nbytes >= _LARGE:
                    step.target = output.shape, output.dtype
            if step.target is not None and (step.target in lent or isinstance(step.target, tuple)):
                lent.add(step.first)


def run_steps(op: Operator, inputs: Sequence[Any], rng: tuple[int, int] | None) -> list[np.ndarray]:
    """The results of `op.lower` on arrays: recorded on first use for their shapes and dtypes."""
    key = None
    if all(type(item) is np.ndarray for item in inputs):  # a number may decide what the lowering does
        key = (tuple([item.shape for item in inputs]), tuple([item.dtype for item in inputs]))
        known = op.recordings.get(key)
        if known is not None:
            return known.run(inputs, rng)
    recorder = _Recorder(len(inputs), rng)
    results = recorder.record(op, inputs)
    # Only of contiguous arrays every kernel that may give a view gives one.
    if key is not None and all(item.flags.c_contiguous for item in inputs):
        if len(op.recordings) >= _KEPT:
            op.recordings.clear()
        op.recordings[key] = recorder.written
    return results
