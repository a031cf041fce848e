"""Where a view's elements lie in what it looks at: the strides of the record's own NumPy view of an empty array.

NumPy gives plain numbers. Where sizes know their formulas (see reuse.py), strides should, too: for views that keep the
order of elements, exchange axes or cut whole ranges they are computed from the sizes, and taken if NumPy's are equal.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hybrid_lab.engines.triton.write.index import strides_of
from hybrid_lab.graph.node import Node, Value
from hybrid_lab.ops.run import run_kernel
from hybrid_lab.ops.sizes import BoundSize

#: Views that keep the elements in their order.
IN_ORDER = ("Reshape", "Flatten", "expand_dims", "squeeze", "reshape_like", "_channel_like", "_restore_axes")
#: (strides along the axes of the view, its first element), in elements
Strides = tuple[tuple[int, ...], int]


def strides_in(node: Node, output: int) -> Strides | None:
    """Of a view's output in its first input, which lies in C order; None where it is a copy."""
    known = _of_numpy(node, output)
    if known is None or not any(type(size) is BoundSize for value in node.values_in for size in value.shape):
        return known
    computed = _computed(node, output)
    if computed is None:
        return known
    pairs = zip(computed[0], known[0], node.outputs[output].shape, strict=True)
    equal = computed[1] == known[1] and all(a == b or size == 1 for a, b, size in pairs)
    return computed if equal else known


def _of_numpy(node: Node, output: int) -> Strides | None:
    templates = [np.empty(item.shape, item.dtype) if isinstance(item, Value) else item for item in node.inputs]
    result = run_kernel(node.op, templates)[output]
    if not np.may_share_memory(result, templates[0]):
        return None
    size = templates[0].dtype.itemsize
    start = (result.__array_interface__["data"][0] - templates[0].__array_interface__["data"][0]) // size
    return tuple([stride // size for stride in result.strides]), start


def _computed(node: Node, output: int) -> Strides | None:
    """What follows from the kind of view, or None."""
    op: Any = node.op
    source, shape = node.values_in[0].shape, node.outputs[output].shape
    if op.name in ("transpose", "SwapAxis"):
        strides = strides_of(source)
        return tuple([strides[axis] for axis in op.order(len(source))]), 0
    if op.name in ("slice", "slice_axis"):
        found, start = [], 0
        for part, size, stride in zip(op.cut(source), source, strides_of(source), strict=True):
            first, _, step = part.indices(size) if part != slice(None) else (0, 0, 1)
            found.append(stride * step)
            start += first * stride
        return tuple(found), start
    return (strides_of(shape), 0) if op.name in IN_ORDER else None
