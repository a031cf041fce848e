"""Where a view's elements lie in what it looks at: the strides of the record's own NumPy view of an empty array.

NumPy reads sizes as ints, so numbers that note what is looked at (symbolic.py) would all be fixed. For the views that
keep the order of elements, exchange axes or cut whole ranges, strides follow from the sizes by formulas; for the values
at hand they are compared with NumPy's, and where they differ, or for other views, NumPy is asked.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hybrid_lab.engines.triton.writing.index import strides_of
from hybrid_lab.engines.triton.writing.symbolic import Number
from hybrid_lab.graph.node import Node, Value
from hybrid_lab.ops.run import run_kernel

#: Views that keep the elements in their order.
IN_ORDER = ("Reshape", "Flatten", "expand_dims", "squeeze", "reshape_like", "_channel_like", "_restore_axes")
#: (strides along the axes of the view, its first element), in elements
Strides = tuple[tuple[Any, ...], Any]


def strides_in(node: Node, output: int) -> Strides | None:
    """Of a view's output in its first input, which lies in C order; None where it is a copy."""
    shapes = [item.shape if isinstance(item, Value) else item for item in node.inputs]
    if not any(type(size) is Number for value in node.values_in for size in value.shape):
        return _asked(node, output, shapes)
    now = [_now(shape) if isinstance(item, Value) else item for item, shape in zip(node.inputs, shapes, strict=True)]
    known = _asked(node, output, now)
    guess = _followed(node, output, shapes) if known is not None else None
    if guess is not None and known is not None and _equal(guess, known, _now(node.outputs[output].shape)):
        return guess
    for value in node.values_in:
        tuple(map(int, value.shape))  # from here on no other will do
    return known


def _asked(node: Node, output: int, shapes: list[Any]) -> Strides | None:
    """What NumPy says."""
    templates = [
        np.empty(shape, item.dtype) if isinstance(item, Value) else item
        for item, shape in zip(node.inputs, shapes, strict=True)
    ]
    result = run_kernel(node.op, templates)[output]
    if not np.may_share_memory(result, templates[0]):
        return None
    size = templates[0].dtype.itemsize
    start = (result.__array_interface__["data"][0] - templates[0].__array_interface__["data"][0]) // size
    return tuple([stride // size for stride in result.strides]), start


def _followed(node: Node, output: int, shapes: list[Any]) -> Strides | None:
    """What follows from the kind of view, or None."""
    op: Any = node.op
    source, made = shapes[0], node.outputs[output].shape
    if op.name in ("transpose", "SwapAxis"):
        strides = strides_of(source)
        return tuple([strides[axis] for axis in op.order(len(source))]), 0
    if op.name in ("slice", "slice_axis"):
        if any(type(part.start) is Number or type(part.step) is Number for part in op.cut(source)):
            return None
        found, start = [], 0
        for part, size, stride in zip(op.cut(source), source, strides_of(source), strict=True):
            first, _, step = part.indices(int(size)) if part != slice(None) else (0, 0, 1)
            found.append(stride * step)
            start += first * stride
        return tuple(found), start
    return (strides_of(made), 0) if op.name in IN_ORDER else None


def _now(shape: Any) -> tuple[int, ...]:
    return tuple([size.value if type(size) is Number else size for size in shape])


def _equal(one: Strides, other: Strides, shape: tuple[int, ...]) -> bool:
    """Whether strides are the same for the values at hand; those of axes of size 1 do not matter."""
    pairs = zip(_now(one[0]), _now(other[0]), shape, strict=True)
    return _now([one[1]]) == _now([other[1]]) and all(a == b or size == 1 for a, b, size in pairs)
