"""Run one operator on NumPy arrays: the kernel's calling convention and the cached inference rules, in one place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hybrid_lab.diagnostics.errors import DTypeError
from hybrid_lab.ops.contract import read_dtypes, read_gradients, read_outputs, read_shapes
from hybrid_lab.ops.memory import WORKSPACE
from hybrid_lab.ops.operator import Operator

Scratch = Callable[[tuple[int, ...], Any], np.ndarray]


def run_kernel(
    op: Operator,
    inputs: Sequence[Any],
    out: Any = None,
    rng: tuple[int, int] | None = None,
    need: tuple[bool, ...] | None = None,
    scratch: Scratch | None = None,
) -> tuple[Any, ...]:
    """All outputs of `op` as a tuple (None for a hidden output that `need` leaves out).

    out : None, or one array (or None) per output, to be filled
    rng : (seed, draw) for random operators
    scratch : where kernels take temporary memory from; None means the thread's workspace
    """
    keywords: dict[str, Any] = {}
    wanted = op.run_keywords
    if wanted:
        if out is not None and "out" in wanted:
            keywords["out"] = out[0] if op.num_outputs == 1 else tuple(out)
        if "rng" in wanted:
            keywords["rng"] = rng
        if "need" in wanted:
            keywords["need"] = need if need is not None else (True,) * op.num_outputs
        if "scratch" in wanted:
            if scratch is None:
                mark = WORKSPACE.mark()
                try:
                    return read_outputs(op, op.numpy(*inputs, **{**keywords, "scratch": WORKSPACE}))
                finally:
                    WORKSPACE.release(mark)
            keywords["scratch"] = scratch
    return read_outputs(op, op.numpy(*inputs, **keywords))


def infer(
    op: Operator, shapes: tuple[Any, ...], dtypes: tuple[Any, ...]
) -> tuple[tuple[Any, ...], tuple[np.dtype, ...]]:
    """Output shapes and dtypes for complete input shapes and dtypes (None for an immediate), cached on the instance.

    Raises ShapeError or DTypeError.
    """
    key = (shapes, dtypes)
    found = op.inferred.get(key)
    if found is None:
        out_shapes = read_shapes(op, op.infer_shape(*shapes))
        out_types = read_dtypes(op, op.infer_type(*dtypes))
        if out_types[0].kind not in op.kinds:
            wanted = "floating numbers are needed" if op.kinds == "f" else "numbers are needed"
            raise DTypeError(f"{op.name}: {wanted}, not {out_types[0].name}; use F.cast(x, dtype='float32')")
        found = (out_shapes, out_types)
        if len(op.inferred) > 512:
            op.inferred.clear()
        op.inferred[key] = found
    return found


def apply_numpy(op: Operator, inputs: Sequence[Any], rng: tuple[int, int] | None = None) -> Any:
    """The visible outputs on raw arrays: one array, or a tuple of them."""
    outputs = run_kernel(op, inputs, rng=rng)
    visible = op.num_visible
    return outputs[0] if visible == 1 else outputs[:visible]


def run_gradient(
    op: Operator,
    F: Any,
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    douts: Sequence[Any],
    wanted: Sequence[bool] | None = None,
) -> tuple[Any, ...]:
    """The gradient of every input as a tuple, None where there is none or none is wanted.

    outputs : all of them, hidden ones too; douts : one per visible output, None where no gradient arrives
    wanted : one bool per input, None meaning all; saves eager work, a graph builder may leave it out
    """
    rule: Any = op.grad
    if op.grad_wants:
        result = rule(F, *inputs, *outputs, *douts, wanted=wanted)
    else:
        result = rule(F, *inputs, *outputs, *douts)
    return read_gradients(op, result, inputs)
