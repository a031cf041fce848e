"""Comparison and logic with broadcasting: 1 or 0 in the dtype of the inputs; no gradient."""

from __future__ import annotations

import numpy as np

from hybrid_lab.ops.framework import (
    Comparison,
    Operator,
    Pointwise,
    Sample,
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
    """A relation of what is 0 and what is not; an immediate is 0 where the tensor's dtype has no number so small."""

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


def _relation(
    name: str, numpy: np.ufunc, symbol: str, onnx: str, doc: str, aliases: tuple[str, ...],
    samples: list[Sample] = _LEVELS,
) -> type[Operator]:  # fmt: skip
    # ONNX: the relation gives bool, its operands may need to be bool too (logic).
    logic = name.startswith("broadcast_logical")

    def emit(op: str, g: OnnxGraph, a: str, b: str) -> str:
        dtype = g.dtype(a)
        if logic:
            a, b = (g.Not(g.Equal(x, g.const(0, dtype))) for x in (a, b))
        negate = onnx == "NotEqual"
        holds = g.Equal(a, b) if negate else getattr(g, onnx)(a, b)
        return g.cast(g.Not(holds) if negate else holds, dtype)

    holds = f"(({{0}} != 0) {symbol} ({{1}} != 0))" if logic else f"({{0}} {symbol} {{1}})"
    record = binary(
        name, numpy, None, f"{holds}.to(tl.float32)", emit, doc, aliases, samples, jumps=True,
        base=_Logic if logic else Comparison, __module__=__name__,
    )  # fmt: skip
    return record


equal = _relation(
    "broadcast_equal", np.equal, "==", "Equal", "1 where lhs == rhs, else 0.", ("_equal", "_Equal", "equal")
)
not_equal = _relation(
    "broadcast_not_equal", np.not_equal, "!=", "NotEqual", "1 where lhs != rhs, else 0.",
    ("_not_equal", "_Not_Equal", "not_equal"),
)  # fmt: skip
greater = _relation(
    "broadcast_greater", np.greater, ">", "Greater", "1 where lhs > rhs, else 0.", ("_greater", "_Greater", "greater")
)
greater_equal = _relation(
    "broadcast_greater_equal", np.greater_equal, ">=", "GreaterOrEqual", "1 where lhs >= rhs, else 0.",
    ("_greater_equal", "_Greater_Equal", "greater_equal"),
)  # fmt: skip
lesser = _relation(
    "broadcast_lesser", np.less, "<", "Less", "1 where lhs < rhs, else 0.", ("_lesser", "_Lesser", "lesser")
)
lesser_equal = _relation(
    "broadcast_lesser_equal", np.less_equal, "<=", "LessOrEqual", "1 where lhs <= rhs, else 0.",
    ("_lesser_equal", "_Lesser_Equal", "lesser_equal"),
)  # fmt: skip
logical_and = _relation(
    "broadcast_logical_and", np.logical_and, "&", "And", "1 where both are not 0, else 0.",
    ("_logical_and", "logical_and"), _TRUTH,
)  # fmt: skip
logical_or = _relation(
    "broadcast_logical_or", np.logical_or, "|", "Or", "1 where one of both is not 0, else 0.",
    ("_logical_or", "logical_or"), _TRUTH,
)  # fmt: skip
logical_xor = _relation(
    "broadcast_logical_xor", np.logical_xor, "^", "Xor", "1 where exactly one is not 0, else 0.",
    ("_logical_xor", "logical_xor"), _TRUTH,
)  # fmt: skip


class LogicalNot(Unary, name="logical_not"):
    """1 where data is 0, else 0. data : any shape and dtype; returns : as data."""

    integers = True
    kinds = "fiub"
    triton = Pointwise("({0} == 0).to(tl.float32)", jumps=True)
    samples = [sample(ints((3, 4), 0, 2), gradient=False), sample(ints((3,), 0, 2, "int32"), gradient=False)]

    def numpy(self, data: Array, out: Array | None = None, scratch: Scratch = np.empty) -> Array:
        return into(
            np.equal(data, 0, out=scratch(data.shape, np.bool_) if data.dtype != bool else out), out, data.dtype
        )

    def onnx(self, g: OnnxGraph, x: str) -> str:
        return g.cast(g.Equal(x, g.const(0, g.dtype(x))), g.dtype(x))
