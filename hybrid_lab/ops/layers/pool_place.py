"""The gradient of max pooling in two parts, for kernels: which place of a window has its maximum, and the gradient it
takes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from hybrid_lab.diagnostics.errors import DTypeError
from hybrid_lab.ops.framework import Derived, Element, gradient_samples
from hybrid_lab.ops.framework.protocols import Elements, Place, Scratch
from hybrid_lab.ops.framework.types import Array, Shape
from hybrid_lab.ops.kernels import windows as in_kernels
from hybrid_lab.ops.kernels.windows import everywhere, lowest
from hybrid_lab.ops.layers.pool import Pooled, Pooling, is_max


class MaxPoolPlace(Pooled, name="_max_pool_place"):
    """The number of the first maximum's place in each window, row by row; -1 if the maximum is NaN.

    data : (n, c, *spatial); returns : (n, c, *output), int32
    """

    mxnet = None
    samples = [replace(item, gradient=False) for item in gradient_samples(Pooling, "data", chosen=is_max)]

    def infer_shape(self, data: Shape) -> Shape:
        return (*data[:2], *self.windows(data[2:]).output)

    def infer_type(self, *dtypes: np.dtype) -> np.dtype:
        if dtypes[0].kind not in "fiuV":
            raise DTypeError(f"{self.name}: numbers are needed, not {dtypes[0].name}")
        return np.dtype("int32")

    def numpy(self, data: Array, out: Array | None = None, scratch: Scratch = np.empty) -> Array:
        windows = self.windows(data.shape[2:])
        padded = windows.padding(data, lowest(data.dtype), scratch)
        shape = (*data.shape[:2], *windows.output)
        maximum = windows.sweep(padded, np.maximum, scratch(shape, data.dtype), scratch)
        out = np.empty(shape, np.int32) if out is None else out
        out.fill(-1)
        for number, where in reversed(list(enumerate(windows.places()))):
            np.copyto(out, number, where=padded[everywhere(where)] == maximum)
        return out

    @Element
    def triton(self, elements: Elements, place: Place) -> str:
        padding = elements.literal(lowest(elements.dtype(0)), of=0)
        found = in_kernels.covered(elements, self.windows(elements.shape(0)[2:]), place)
        names = [
            elements.named(elements.where(guard, name, padding), "inside") if guard else name for name, guard in found
        ]
        maximum = elements.named(in_kernels.largest(elements, names), "maximum")
        first = "-1"
        for number, name in reversed(list(enumerate(names))):
            first = f"tl.where({name} == {maximum}, {number}, {first})"
            first = elements.named(first, "first") if number else first
        return first


def _places(attributes: dict[str, Any]) -> Derived:
    """The places of the maxima of a sample's data, its third input."""
    return Derived(lambda arrays: MaxPoolPlace.bind(**attributes).numpy(arrays[2]))


class MaxPoolSpread(Pooled, name="_max_pool_spread"):
    """dy at the pixels that `place` names in the windows, added up.

    dy, place : the pooling's output shape; data : its input, read for its shape; returns : as data
    """

    refuses_gradient = True
    shaped_like = 2
    typed_like = 0
    mxnet = None
    shape_only = ("data",)

    def first_shape(self, dy: Shape, place: Shape, data: Shape) -> Shape:
        return self.checked_output(data, place)

    samples = [
        replace(item, inputs=(item.inputs[0], _places(item.attributes), item.inputs[1]), gradient=False)
        for item in gradient_samples(Pooling, "dy", "data", chosen=is_max)
    ]

    def numpy(
        self, dy: Array, place: Array, data: Array, out: Array | None = None, scratch: Scratch = np.empty
    ) -> Array:
        windows = self.windows(data.shape[2:])
        total = scratch((*data.shape[:2], *windows.reach), dy.dtype)
        total.fill(0)
        for number, where in enumerate(windows.places()):
            np.add(total[everywhere(where)], dy, out=total[everywhere(where)], where=place == number)
        out = np.empty(data.shape, dy.dtype) if out is None else out
        source, target = windows.inside()
        out.fill(0)
        np.copyto(out[everywhere(target)], total[everywhere(source)])
        return out

    @Element
    def triton(self, elements: Elements, place: Place) -> str:
        parts = []
        for window, number, guard in in_kernels.covering(elements, self.windows(elements.shape(2)[2:]), place):
            hit = f"({elements.read(1, window, guard)} == ({number}))"
            parts.append(
                elements.where(
                    " & ".join(filter(None, (guard, hit))), elements.read(0, window, guard), elements.literal(0)
                )
            )
        return in_kernels.added(elements, parts)
