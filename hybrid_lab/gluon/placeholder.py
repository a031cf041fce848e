"""Placeholder: an array that stands for the input of a model, as in SINGA, and is filled batch after batch."""

from __future__ import annotations

from collections.abc import Sequence

from numpy.typing import DTypeLike

from hybrid_lab.ndarray import NDArray, zeros
from hybrid_lab.ndarray.context import Context


def placeholder(
    shape: Sequence[int] | int, device: Context | None = None, dtype: DTypeLike | None = "float32"
) -> NDArray:
    """An NDArray of zeros for `compile`, whose values `copy_from` sets before each call:

        x, y = gluon.Placeholder((8, 3, 32, 32)), gluon.Placeholder((8,), dtype="int32")
        net.compile([x], is_train=True, use_graph=True)
        for images, labels in data:
            x.copy_from(images)
            y.copy_from(labels)
            net.train_one_batch(x, y)

    device : a context, by default the current one; dtype : None is float32
    Raises ShapeError, DTypeError.
    """
    array: NDArray = zeros(shape, ctx=device, dtype=dtype)
    return array


Placeholder = placeholder
"""SINGA's name, which reads as a class there."""
