"""The ONNX form of an operator as that of its lowering, whose operators are emitted one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hybrid_lab.ops.framework.namespace import Arithmetic, Namespace
from hybrid_lab.ops.framework.operator import Operator
from hybrid_lab.ops.framework.protocols import OnnxGraph


def emit_lowering(op: Operator, g: OnnxGraph, *inputs: str) -> tuple[str, ...]:
    """A record's `onnx` where ONNX has no operator of its own for what `lower` says."""

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
