"""The gradient of an operator from its lowering: for operators that are differentiated rarely, such as gradients, and
whose own rule would be long.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hybrid_lab.ops.framework.namespace import Arithmetic
from hybrid_lab.ops.framework.operator import Operator, get
from hybrid_lab.ops.framework.protocols import Functions, Gradients, Tensor
from hybrid_lab.ops.framework.run import run_gradient


def differentiate_lowering(op: Operator, F: Functions, *values: Any) -> Gradients:
    """A record's `grad` that runs its lowering under `F` and goes back through the steps.

    The lowering may use operators with one output.
    """
    count = len(values) - op.signature.outputs - op.signature.visible
    inputs, douts = values[:count], values[count + op.signature.outputs :]
    recorder = _Recorder(F)
    leaves = [_Step(recorder, value) for value in inputs]
    rule: Callable[..., Any] = op.lower
    results = rule(recorder, *leaves)
    results = results if isinstance(results, tuple) else (results,)
    totals: dict[_Step, Any] = {}
    for step, dout in zip(results, douts, strict=True):
        if dout is not None:
            totals[step] = totals[step] + dout if step in totals else dout
    for step in reversed(recorder.steps):
        if step not in totals or not step.op.differentiable:
            continue
        operands = [item.value if isinstance(item, _Step) else item for item in step.inputs]
        gradients = run_gradient(step.op, F, operands, [step.value], [totals.pop(step)])
        for item, gradient in zip(step.inputs, gradients, strict=True):
            if isinstance(item, _Step) and gradient is not None:
                totals[item] = totals[item] + gradient if item in totals else gradient
    return tuple(totals.get(leaf) for leaf in leaves)


class _Recorder:
    """F for a lowering: computes with the given F and keeps the steps."""

    def __init__(self, F: Functions):
        self.F = F
        self.steps: list[Any] = []

    def __getattr__(self, name: str) -> Callable[..., _Step]:
        if name.startswith("__"):
            raise AttributeError(name)
        record, function = get(name), getattr(self.F, name)

        def call(*inputs: Any, **attributes: Any) -> _Step:
            values = [item.value if isinstance(item, _Step) else item for item in inputs]
            step = _Step(self, function(*values, **attributes), record.bind(**attributes), inputs)
            self.steps.append(step)
            return step

        return call


class _Step(Arithmetic):
    """A value of the lowering, with the call that made it."""

    def __init__(self, recorder: _Recorder, value: Tensor, op: Operator | None = None, inputs: tuple[Any, ...] = ()):
        self.F, self.value, self.op, self.inputs = recorder, value, op, inputs

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape

    @property
    def dtype(self) -> np.dtype:
        return self.value.dtype
