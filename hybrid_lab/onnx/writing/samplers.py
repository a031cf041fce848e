"""Random operators in files. The numbers follow the same distribution, drawn by the generator of the program that runs
the file.

Dropout is not here: in prediction it is the identity.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hybrid_lab.diagnostics.errors import Unmappable
from hybrid_lab.ops.framework.onnx_emit import DATA_TYPES

if TYPE_CHECKING:
    from hybrid_lab.graph.node import Node

    from .emitter import FileEmitter


def emit(g: FileEmitter, node: Node, inputs: Sequence[Any]) -> tuple[str, ...]:
    """The nodes of a random operator. Raises Unmappable if ONNX has no such distribution."""
    form = _FORMS.get(node.op.name)
    if form is None:
        raise Unmappable(f"{node.op.name}: ONNX has no operator for these random numbers")
    result = form(g, node.op, node.outputs[0].shape, node.outputs[0].dtype, *inputs)
    return (g.declare(result, node.outputs[0].shape, node.outputs[0].dtype),)


def _uniform(g: FileEmitter, op: Any, shape: Any, dtype: np.dtype, *like: str) -> str:
    limits = {"low": float(op.low), "high": float(op.high)}
    if like:
        return str(g.RandomUniformLike(like[0], dtype=DATA_TYPES[dtype.name], **limits))
    return str(g.RandomUniform(shape=list(shape), dtype=DATA_TYPES[dtype.name], **limits))


def _normal(g: FileEmitter, op: Any, shape: Any, dtype: np.dtype, *like: str) -> str:
    moments = {"mean": float(op.loc), "scale": float(op.scale)}
    if like:
        return str(g.RandomNormalLike(like[0], dtype=DATA_TYPES[dtype.name], **moments))
    return str(g.RandomNormal(shape=list(shape), dtype=DATA_TYPES[dtype.name], **moments))


def _integers(g: FileEmitter, op: Any, shape: Any, dtype: np.dtype) -> str:
    double = DATA_TYPES["float64"]
    drawn = g.RandomUniform(shape=list(shape), dtype=double, low=float(op.low), high=float(op.high))
    return g.cast(g.Min(g.Floor(drawn), g.const(op.high - 1, "float64")), dtype)


_FORMS: dict[str, Callable[..., str]] = {
    "random_uniform": _uniform,
    "_random_uniform_like": _uniform,
    "random_normal": _normal,
    "_random_normal_like": _normal,
    "random_randint": _integers,
}
