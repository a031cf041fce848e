"""The shapes and dtypes of the Values of a trace in 2.x style, inferred node by node."""

from __future__ import annotations

from typing import Any

import numpy as np

from hybrid_lab.diagnostics.errors import DTypeError, ShapeError
from hybrid_lab.graph.loops.composed import ControlFlow
from hybrid_lab.graph.node import Input, Node, Value
from hybrid_lab.graph.partial import is_complete, is_open, located
from hybrid_lab.graph.passes.mixed_precision import inside
from hybrid_lab.ndarray import invoke as invoking
from hybrid_lab.ops.framework.run import infer
from hybrid_lab.symbol import tracing


def note_types(trace: tracing.Trace, node: Node) -> None:
    """Infer a new node's output types if its inputs are known, filling deferred parameter shapes on the way.

    Raises ShapeError or DTypeError with the source line.
    """
    if is_open(node):
        return
    pairs = [known_type(trace, item) if isinstance(item, Value) else ((), None) for item in node.inputs]
    dtypes = tuple(
        pair[1] if pair else item.dtype or np.dtype("float32") for item, pair in zip(node.inputs, pairs, strict=True)
    )
    try:
        if any(pair is None for pair in pairs):
            if any(pair is None and not _is_parameter(item) for item, pair in zip(node.inputs, pairs, strict=True)):
                return
            partial = [item.shape if pair is None else pair[0] for item, pair in zip(node.inputs, pairs, strict=True)]
            shapes: tuple[Any, ...] = tuple(node.op.complete(*partial))
            if not all(is_complete(shape) for shape in shapes):
                return
            for item, pair, shape, dtype in zip(node.inputs, pairs, shapes, dtypes, strict=True):
                if pair is None:
                    trace.types[item] = (tuple(shape), dtype)
        else:
            shapes = tuple(pair[0] for pair in pairs if pair)
        op, precision = node.op, invoking.precision
        if precision is not None:
            op = inside(op, dtypes, precision) if isinstance(op, ControlFlow) else op
            dtypes = precision.of(op, dtypes)
        out_shapes, out_dtypes = infer(op, shapes, dtypes)
    except (ShapeError, DTypeError) as error:
        raise located(error, node) from None
    for value, shape, dtype in zip(node.outputs, out_shapes, out_dtypes, strict=True):
        trace.types[value] = (shape, dtype)


def _is_parameter(value: Value) -> bool:
    """Whether its shape may be completed from other inputs; that would be a guess for intermediate tensors."""
    return isinstance(value.node.op, Input) and value.node.op.role in ("param", "aux")


def known_type(trace: tracing.Trace, value: Value) -> tuple[Any, Any] | None:
    """Shape and dtype of a Value, or None if they are not known yet."""
    known = trace.types.get(value)
    if known is None and is_complete(value.shape):
        return value.shape, value.dtype or np.dtype("float32")
    return known
