"""Whole numbers made from shapes: operators on them are computed at the import, even if sizes are open."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

from hybrid_lab.ops.framework.sizes import Size, SymbolicSize

Array = np.ndarray[Any, Any]


def shape_of(shape: tuple[Size, ...]) -> Array:
    """A shape as an array: of int64, or of objects if some sizes are open."""
    return packed(np.array(shape, object) if shape else np.zeros(0, object))


def packed(array: Any) -> Array:
    """The array as int64, if no number is open."""
    array = np.asarray(array)
    if array.dtype == object and not any(isinstance(item, SymbolicSize) for item in array.reshape(-1)):
        return array.astype(np.int64)
    return array


def _divided(a: Array, b: Array) -> Array:
    return np.asarray(a // b)


def _slice(data: Array, starts: Array, ends: Array, axes: Array | None = None, steps: Array | None = None) -> Array:
    cut = [slice(None)] * data.ndim
    chosen = range(len(starts)) if axes is None else axes.tolist()
    for number, axis in enumerate(chosen):
        step = 1 if steps is None else int(steps[number])
        stop = int(ends[number])
        cut[axis] = slice(int(starts[number]), None if step < 0 and stop < -data.shape[axis] else stop, step)
    return data[tuple(cut)]


def _unsqueeze(data: Array, axes: Array) -> Array:
    rank = data.ndim + axes.size
    return np.expand_dims(data, tuple(int(axis) % rank for axis in axes.reshape(-1)))


def _squeeze(data: Array, axes: Array | None = None) -> Array:
    return np.squeeze(data, None if axes is None else tuple(map(int, axes.reshape(-1))))


def _product(data: Array, axes: Array | None = None, *, keepdims: int = 1, **_: Any) -> Array:
    total = reduce(lambda one, two: one * two, data.reshape(-1), 1)
    return np.array(total, object).reshape((1,) * data.ndim if keepdims else ())


def _relation(relation: Callable[[Any, Any], Any]) -> Callable[..., Array]:
    def compare(a: Array, b: Array) -> Array:
        a, b = np.broadcast_arrays(a, b)
        found = [relation(x, y) for x, y in zip(a.reshape(-1), b.reshape(-1), strict=True)]
        return np.array(found, bool).reshape(a.shape)

    return compare


def _extreme(smallest: bool) -> Callable[..., Array]:
    def choose(*arrays: Array) -> Array:
        return np.asarray(reduce(lambda a, b: np.where((a < b) == smallest, a, b), arrays))

    return choose


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "Add": lambda a, b: np.asarray(a + b),
    "Sub": lambda a, b: np.asarray(a - b),
    "Mul": lambda a, b: np.asarray(a * b),
    "Div": _divided,
    "Mod": lambda a, b, *, fmod=0: np.asarray(a % b),
    "Neg": lambda a: np.asarray(-a),
    "Identity": lambda a: a,
    "Gather": lambda a, i, *, axis=0: np.take(a, i.astype(np.int64), axis),
    "Concat": lambda *arrays, axis: np.concatenate([item.astype(object) for item in arrays], axis),
    "Slice": _slice,
    "Unsqueeze": _unsqueeze,
    "Squeeze": _squeeze,
    "Reshape": lambda a, shape, **_: a.reshape([int(size) for size in shape]),
    "ReduceProd": _product,
    "Equal": _relation(lambda a, b: bool(a == b)),
    "Less": _relation(lambda a, b: bool(a < b)),
    "Greater": _relation(lambda a, b: bool(a > b)),
    "LessOrEqual": _relation(lambda a, b: bool(a <= b)),
    "GreaterOrEqual": _relation(lambda a, b: bool(a >= b)),
    "Where": lambda c, a, b: np.where(c, a, b),
    "Min": _extreme(True),
    "Max": _extreme(False),
    "Transpose": lambda a, *, perm=None: np.transpose(a, perm),
    "Expand": lambda a, shape: np.broadcast_to(a, np.broadcast_shapes(a.shape, tuple(map(int, shape)))),
}
"""ONNX operator -> the same on arrays of numbers and SymbolicSizes; keywords are its attributes."""
