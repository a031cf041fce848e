"""Shapes with unknown parts, as MXNet writes them: 0 and (), or with NumPy's shapes -1 and None. Inside it is None."""

from __future__ import annotations

from collections.abc import Sequence

from hybrid_lab.ndarray.numpy_mode import is_np_shape
from hybrid_lab.ops.framework.types import PartialShape


def read_shape(shape: int | Sequence[int | None] | None) -> PartialShape:
    """A shape that the user gave."""
    if shape is None:
        return None
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    if is_np_shape():
        return tuple([None if size is None or size < 0 else size for size in sizes])
    return tuple([size or None for size in sizes]) or None


def shown_shape(shape: PartialShape) -> PartialShape:
    """A shape for the user."""
    if is_np_shape():
        return shape if shape is None else tuple([-1 if size is None else size for size in shape])
    return tuple([size or 0 for size in shape or ()])
