"""Members of a record that follow from its `lower`: the NumPy kernel, the ONNX form, the gradient.

numpy, onnx, grad = run_lowering, emit_lowering, differentiate_lowering
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hybrid_lab.ops.framework.memory import all_into
from hybrid_lab.ops.framework.namespace import Arithmetic, Namespace
from hybrid_lab.ops.framework.namespace import F as raw
from hybrid_lab.ops.framework.operator import Operator, get
from hybrid_lab.ops.framework.protocols import Functions, Gradients, OnnxGraph, Tensor
from hybrid_lab.ops.framework.run import apply_numpy, run_gradient
from hybrid_lab.ops.framework.types import Array, Arrays, Operand, Outs


def run_lowering(op: Operator, *inputs: Operand, out: Array | Outs = None) -> Array | Arrays:
    """A record's `numpy`: the kernels of the operators that `lower` names."""
    return _lowered(raw, op, inputs, out)


def draw_lowering(
    op: Operator, *inputs: Operand, out: Array | Outs = None, rng: tuple[int, int] = (0, 0)
) -> Array | Arrays:
    """A record's `numpy` if an operator that `lower` names is random."""
    F = Namespace(lambda part, values: apply_numpy(part, values, rng)) if op.random else raw
    return _lowered(F, op, inputs, out)


def _lowered(F: Functions, op: Operator, inputs: Sequence[Operand], out: Array | Outs) -> Array | Arrays:
    rule: Callable[..., Any] = op.lower
    results = rule(F, *inputs)
    results = results if isinstance(results, tuple) else (results,)
    if out is not None:
        return all_into(results, out)
    # A lowering may be a mere reshape, but results are in memory that is no input's.
    owned = [
        item.copy() if any(item is one or (item.base is not None and np.may_share_memory(item, one)) for one in inputs)
        else item
        for item in results
    ]  # fmt: skip
    return owned[0] if len(owned) == 1 else tuple(owned)


# -- ONNX ------------------------------------------------------------------------------------------------------


def emit_lowering(op: Operator, g: OnnxGraph, *inputs: str) -> tuple[str, ...]:
    """A record's `onnx` if ONNX has no operator of its own for what `lower` says."""

    def name_of(operand: object) -> object:
        if isinstance(operand, np.ndarray):
            return g.const(operand, operand.dtype)
        return operand.name if isinstance(operand, _Emitted) else operand

    def apply(part: Operator, operands: Sequence[object]) -> _Emitted | tuple[_Emitted, ...]:
        names = g.emit(part, [name_of(item) for item in operands])
        values = tuple(_Emitted(F, g, name) for name in names[: part.signature.visible])
        return values if len(values) > 1 else values[0]

    F = Namespace(apply)
    rule: Callable[..., Any] = op.lower
    results = rule(F, *(_Emitted(F, g, name) for name in inputs))
    return tuple(item.name for item in (results if isinstance(results, tuple) else (results,)))


class _Emitted(Arithmetic):
    """A value of the ONNX graph in the hands of a lowering."""

    def __init__(self, F: Namespace, g: OnnxGraph, name: str):
        self.F, self.g, self.name = F, g, name

    @property
    def shape(self) -> tuple[int, ...]:
        return self.g.shape(self.name)

    @property
    def dtype(self) -> np.dtype:
        return self.g.dtype(self.name)


# -- gradients -------------------------------------------------------------------------------------------------


def differentiate_lowering(op: Operator, F: Functions, *values: Any) -> Gradients:
    """A record's `grad` for rarely differentiated operators: runs the lowering under `F` and goes back through its
    steps. The lowering may use operators with one output.
    """
    count = len(values) - op.signature.outputs - op.signature.visible
    inputs, douts = values[:count], values[count + op.signature.outputs :]
    recorder = _LoweringRecorder(F)
    leaves = [_LoweredValue(recorder, value) for value in inputs]
    rule: Callable[..., Any] = op.lower
    results = rule(recorder, *leaves)
    results = results if isinstance(results, tuple) else (results,)
    totals: dict[_LoweredValue, Any] = {}
    for step, dout in zip(results, douts, strict=True):
        if dout is not None:
            totals[step] = totals[step] + dout if step in totals else dout
    for step in reversed(recorder.steps):
        if step not in totals or not step.op.differentiable:
            continue
        operands = [item.value if isinstance(item, _LoweredValue) else item for item in step.inputs]
        gradients = run_gradient(step.op, F, operands, [step.value], [totals.pop(step)])
        for item, gradient in zip(step.inputs, gradients, strict=True):
            if isinstance(item, _LoweredValue) and gradient is not None:
                totals[item] = totals[item] + gradient if item in totals else gradient
    return tuple(totals.get(leaf) for leaf in leaves)


class _LoweringRecorder:
    """F for a lowering: computes with the given F and keeps the steps."""

    def __init__(self, F: Functions):
        self.F = F
        self.steps: list[Any] = []

    def __getattr__(self, name: str) -> Callable[..., _LoweredValue]:
        if name.startswith("__"):
            raise AttributeError(name)
        record, function = get(name), getattr(self.F, name)

        def call(*inputs: Any, **attributes: Any) -> _LoweredValue:
            values = [item.value if isinstance(item, _LoweredValue) else item for item in inputs]
            value = _LoweredValue(self, function(*values, **attributes), record.bind(**attributes), inputs)
            self.steps.append(value)
            return value

        return call


class _LoweredValue(Arithmetic):
    """A value of the lowering, with the call that made it."""

    def __init__(
        self, recorder: _LoweringRecorder, value: Tensor, op: Operator | None = None, inputs: tuple[Any, ...] = ()
    ):
        self.F, self.value, self.op, self.inputs = recorder, value, op, inputs

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape

    @property
    def dtype(self) -> np.dtype:
        return self.value.dtype
