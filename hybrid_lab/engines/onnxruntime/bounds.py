"""Bounds: how large the numbers before a pooling can get for given weights. What stays finite holds no NaN to be lost.

|Convolution(x)| <= max |x| * (the largest sum of one filter's |weights|) + max |bias|, and so on from operator to
operator. So one look at the inputs of a region replaces a check by ONNX Runtime after each layer.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from hybrid_lab.graph.node import Constant, Node, Value
from hybrid_lab.graph.passes.partition import Region

#: Numbers up to this size are far enough from float32's largest (3.4e38) for the order of a sum not to matter.
SAFE = 1e36
#: The largest inputs for which a bound is tried; the first magnitude that serves as many values as the last one does is
#: taken.
MAGNITUDES = (1e18, 1e12, 1e6)
#: Inputs up to this many elements are looked at by one product, which OpenBLAS computes without waking its threads.
_FEW = 8192


class Bounded:
    """Known bounds of a region's values.

    values : Values without NaN and infinity as long as the elements of the inputs are at most `magnitude` in size
    inputs : the positions of these inputs
    """

    def __init__(self, values: frozenset[Value], inputs: tuple[int, ...], magnitude: float):
        self.values, self.inputs, self.magnitude = values, inputs, magnitude

    def holds(self, inputs: Sequence[np.ndarray]) -> bool:
        """Whether no element of the region's inputs is too large, or NaN."""
        limit = self.magnitude
        for position in self.inputs:
            array = inputs[position]
            if array.size <= _FEW and array.dtype.kind == "f":
                # No element is larger than the root of the sum of all squares; NaN compares with nothing.
                if not np.vdot(array, array) <= limit * limit:
                    return False
            elif not (np.maximum.reduce(array, axis=None) <= limit and np.minimum.reduce(array, axis=None) >= -limit):
                return False
        return True


def bounded(region: Region, weights: Mapping[int, np.ndarray], wanted: Collection[Value]) -> Bounded:
    """Which of the wanted values are bounded.

    weights : inputs of the region that keep these values, by position
    """
    positions = {value: index for index, value in enumerate(region.inputs)}
    arrays = {region.inputs[index]: array for index, array in weights.items()}
    nodes, read = _behind(region, wanted)
    sizes = _Sizes(arrays)
    found: dict[float, frozenset[Value]] = {}
    for magnitude in MAGNITUDES:
        given = {value: magnitude for value in read if value in positions and value not in arrays}
        reached = sizes.through(nodes, given)
        found[magnitude] = frozenset(value for value in wanted if reached.get(value, math.inf) <= SAFE)
    best = max(found, key=lambda magnitude: (len(found[magnitude]), magnitude))
    _, read = _behind(region, found[best])
    inputs = tuple(index for value, index in positions.items() if value in read and value not in arrays)
    return Bounded(found[best], inputs, best)


def _behind(region: Region, wanted: Collection[Value]) -> tuple[list[Node], set[Value]]:
    """The region's nodes that the values are computed by, in order, and all values on the way."""
    read, nodes = set(wanted), []
    for node in reversed(region.nodes):
        if not read.isdisjoint(node.outputs):
            nodes.append(node)
            read.update(node.values_in)
    return nodes[::-1], read


class _Sizes:
    """The largest element of values, by size; infinite if it is not known. NaN in weights counts as not known."""

    def __init__(self, arrays: Mapping[Value, np.ndarray]):
        self.arrays = arrays
        self._largest: dict[Value, float] = {}
        self._filters: dict[Value, float] = {}

    def through(self, nodes: Sequence[Node], given: Mapping[Value, float]) -> dict[Value, float]:
        """The bounds of all values, from the bounds of the inputs."""
        known = dict(given)
        for node in nodes:
            sizes = [self._size(item, known) for item in node.inputs]
            shapes = [item.shape if isinstance(item, Value) else () for item in node.inputs]
            # Behind something that may be infinite there may be NaN, whatever the operator makes of it.
            fine = all(size <= SAFE for size in sizes)
            known[node.outputs[0]] = node.op.bound(sizes, shapes, partial(self._filter, node)) if fine else math.inf
        return known

    def _size(self, item: Any, known: Mapping[Value, float]) -> float:
        if not isinstance(item, Value):
            return abs(item)
        if item in known:
            return known[item]
        array = self.array(item)
        if array is None:
            return math.inf
        if item not in self._largest:
            self._largest[item] = float(np.max(np.abs(array), initial=0))
        return self._largest[item]

    def array(self, value: Value) -> np.ndarray | None:
        """The numbers of a weight or a constant."""
        op = value.node.op
        return op.array if isinstance(op, Constant) else self.arrays.get(value)

    def _filter(self, node: Node, index: int) -> float:
        """The largest sum of |weights| over all but the first axis of an input."""
        value = node.inputs[index]
        array = self.array(value) if isinstance(value, Value) else None
        if array is None:
            return math.inf
        if value not in self._filters:
            sums = np.abs(array).reshape(len(array), -1).sum(axis=1, dtype=np.float64)
            self._filters[value] = float(sums.max())
        return self._filters[value]
