"""Comparison and logic with broadcasting: 1 or 0 in the dtype of the inputs; no gradient."""

from __future__ import annotations

import numpy as np

from hybrid_lab.ops.framework import (
    Comparison,
    Pointwise,
    Unary,
    binary,
    into,
    ints,
    is_scalar,
    sample,
)
from hybrid_lab.ops.framework.protocols import OnnxGraph, Scratch
from hybrid_lab.ops.framework.types import Array


class _Logic(Comparison):
    """A relation of truth values (not 0). An immediate counts as 0 if it rounds to 0 in the tensor's dtype."""

    def numpy(self, lhs: Array, rhs: Array, out: np.ndarray | None = None, scratch: Scratch = np.empty) -> Array:
        if is_scalar(lhs) and rhs.dtype.kind == "f":
            lhs = rhs.dtype.type(lhs)
        elif is_scalar(rhs) and lhs.dtype.kind == "f":
            rhs = lhs.dtype.type(rhs)
        return super().numpy(lhs, rhs, out, scratch)


_LEVELS = [
    sample(ints((3, 4), 0, 3), ints((3, 4), 0, 3), gradient=False),
    sample(ints((2, 3, 4), 0, 3), ints((3, 1), 0, 3), gradient=False),
    sample(ints((3, 4), 0, 3), 1, gradient=False),
    sample(ints((3, 4), 0, 3, "int32"), 0.5, gradient=False),
    sample(ints((3, 4), 0, 3, "int32"), ints((3, 4), 0, 3, "int32"), gradient=False),
]
_TRUTH = [
    sample(ints((3, 4), 0, 2), ints((3, 4), 0, 2), gradient=False),
    sample(ints((2, 3, 4), -1, 2), ints((3, 1), -1, 2), gradient=False),
    sample(ints((3, 4), 0, 2), 1, gradient=False),
]


def _relation(short: str, ufunc: np.ufunc, symbol: str, onnx: str, doc: str) -> None:
    """Declare broadcast_X. symbol : Triton's; onnx : an operator that gives bool; "" negates Equal"""
    logic = short.startswith("logical")  # of operands that are made bool

    def emit(op: str, g: OnnxGraph, a: str, b: str) -> str:
        dtype = g.dtype(a)
        if logic:
            a, b = (g.Not(g.Equal(x, g.const(0, dtype))) for x in (a, b))
        return g.cast(getattr(g, onnx)(a, b) if onnx else g.Not(g.Equal(a, b)), dtype)

    holds = f"(({{0}} != 0) {symbol} ({{1}} != 0))" if logic else f"({{0}} {symbol} {{1}})"
    aliases = (f"_{short}", short) if logic else (f"_{short}", f"_{short.title()}", short)
    binary(
        f"broadcast_{short}", ufunc, None, f"{holds}.to(tl.float32)", emit, f"1 where {doc}, else 0.", aliases,
        _TRUTH if logic else _LEVELS, jumps=True, base=_Logic if logic else Comparison, __module__=__name__,
    )  # fmt: skip


_relation("equal", np.equal, "==", "Equal", "lhs == rhs")
_relation("not_equal", np.not_equal, "!=", "", "lhs != rhs")
_relation("greater", np.greater, ">", "Greater", "lhs > rhs")
_relation("greater_equal", np.greater_equal, ">=", "GreaterOrEqual", "lhs >= rhs")
_relation("lesser", np.less, "<", "Less", "lhs < rhs")
_relation("lesser_equal", np.less_equal, "<=", "LessOrEqual", "lhs <= rhs")
_relation("logical_and", np.logical_and, "&", "And", "both are not 0")
_relation("logical_or", np.logical_or, "|", "Or", "one of both is not 0")
_relation("logical_xor", np.logical_xor, "^", "Xor", "exactly one is not 0")


class LogicalNot(Unary, name="logical_not"):
    """1 if data is 0, else 0. data : any shape and dtype; returns : as data."""

    integers = True
    dtype_kinds = "fiub"
    triton = Pointwise("({0} == 0).to(tl.float32)", jumps=True)
    samples = [sample(ints((3, 4), 0, 2), gradient=False), sample(ints((3,), 0, 2, "int32"), gradient=False)]

    def numpy(self, data: Array, out: Array | None = None, scratch: Scratch = np.empty) -> Array:
        return into(
            np.equal(data, 0, out=scratch(data.shape, np.bool_) if data.dtype != bool else out), out, data.dtype
        )

    def onnx(self, g: OnnxGraph, x: str) -> str:
        return g.cast(g.Equal(x, g.const(0, g.dtype(x))), g.dtype(x))
