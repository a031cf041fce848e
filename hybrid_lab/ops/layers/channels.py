"""Layouts of images, signals and volumes: channels first, which the kernels know, and channels last.

An operator with channels last is the one with channels first between transposes, eagerly and in graphs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

from hybrid_lab.diagnostics.errors import AttributeSpecError
from hybrid_lab.ops.framework.memory import into
from hybrid_lab.ops.framework.operator import Operator
from hybrid_lab.ops.framework.protocols import Functions, Scratch, Tensor
from hybrid_lab.ops.framework.types import Array, PartialShape

#: The layout of data with this many spatial axes.
LAYOUTS = {1: "NCW", 2: "NCHW", 3: "NCDHW"}
CHANNELS_LAST = {1: "NWC", 2: "NHWC", 3: "NDHWC"}


class WithLayout(Operator):
    """Base of the operators with an attribute `layout`.

    turned : indices of the inputs that have the layout, as the output has; negative indices count from the end
    """

    layout: str | None
    kernel: tuple[int, ...]
    turned: ClassVar[tuple[int, ...]] = (0,)

    def check_layout(self, title: str) -> None:
        """Raises AttributeSpecError for a layout that data with this number of spatial axes does not have."""
        known = [names[rank] for rank in LAYOUTS for names in (LAYOUTS, CHANNELS_LAST) if rank == len(self.kernel)]
        known = known or [*LAYOUTS.values(), *CHANNELS_LAST.values()]
        if self.layout not in (None, "None", *known):
            raise AttributeSpecError(
                f"{title}: layout {self.layout!r} is not supported with kernel={self.kernel}; use {' or '.join(known)}"
            )

    @cached_property
    def channels_last(self) -> bool:
        return self.layout in CHANNELS_LAST.values()

    @cached_property
    def with_channels_first(self) -> Self:
        """The operator with the same attributes, for data with channels first."""
        return self.bind(**{key: value for key, value in self.attributes.items() if key != "layout"})  # type: ignore[return-value]

    def turned_shapes(
        self, shapes: Sequence[PartialShape], order: Callable[[PartialShape], PartialShape]
    ) -> list[PartialShape]:
        """Shapes of the inputs, with `order` applied to the inputs that have the layout."""
        places = {place % len(shapes) for place in self.turned}
        return [order(shape) if index in places and shape is not None else shape for index, shape in enumerate(shapes)]

    def run_with_channels_first(self, inputs: Sequence[Array | None], out: Array | None, scratch: Scratch) -> Array:
        """The kernel for channels first on transposed arrays."""
        given = [each for each in inputs if each is not None]
        places = {place % len(given) for place in self.turned}
        arrays = [
            np.ascontiguousarray(np.moveaxis(each, -1, 1)) if index in places else each
            for index, each in enumerate(given)
        ]
        kernel: Callable[..., Array] = self.with_channels_first.numpy
        result = kernel(*arrays, scratch=scratch)
        return into(np.ascontiguousarray(np.moveaxis(result, 1, -1)), out)

    def channels_first(self, F: Functions, *inputs: Tensor) -> Tensor:
        """The operator, written with the one for channels first."""
        places = {place % len(inputs) for place in self.turned}
        turned = [self.first(F, each) if index in places else each for index, each in enumerate(inputs)]
        call: Any = getattr(F, self.name)
        return self.last(F, call(*turned, **self.with_channels_first.attributes))

    def first(self, F: Functions, x: Tensor) -> Tensor:
        """x with the last axis second."""
        rank = self._rank()
        return F.transpose(x, axes=(0, rank - 1, *range(1, rank - 1)))

    def last(self, F: Functions, x: Tensor) -> Tensor:
        """x with the second axis last."""
        rank = self._rank()
        return F.transpose(x, axes=(0, *range(2, rank), 1))

    def _rank(self) -> int:
        assert self.layout is not None
        return len(self.layout)


def first_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape with the last size second."""
    return (shape[0], shape[-1], *shape[1:-1]) if len(shape) > 1 else shape


def last_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape with the second size last."""
    return (shape[0], *shape[2:], shape[1]) if len(shape) > 1 else shape


def partial_first(shape: PartialShape) -> PartialShape:
    """`first_shape` of a shape that may not be known."""
    return None if shape is None or len(shape) < 2 else (shape[0], shape[-1], *shape[1:-1])


def partial_last(shape: PartialShape) -> PartialShape:
    """`last_shape` of a shape that may not be known."""
    return None if shape is None or len(shape) < 2 else (shape[0], *shape[2:], shape[1])
