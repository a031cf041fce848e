"""Whether NumPy semantics are on: then parameters, data loaders and files give `mx.np` arrays in place of NDArrays.

`mx.npx.set_np()` switches them on; the public functions are in `mx.util`.
"""

from __future__ import annotations

import threading
from typing import Any, TypeVar

Array = TypeVar("Array")


class _ModeState(threading.local):
    """Per thread. None: as `defaults` says, which `set_np()` changes for every thread."""

    array: bool | None = None
    shape: bool | None = None


state = _ModeState()
defaults = {"array": False, "shape": False}
"""The settings of threads that are in no scope of their own."""


def is_np_array() -> bool:
    """Whether parameters, data loaders and the like give `mx.np` arrays."""
    return defaults["array"] if state.array is None else state.array


def is_np_shape() -> bool:
    """Whether shapes have NumPy's meaning. Only reported: sizes of 0 and the shape () always have it here."""
    return defaults["shape"] if state.shape is None else state.shape


def in_mode(array: Any) -> Any:
    """A new array as the mode asks for it: an `mx.np` array with NumPy semantics, else the NDArray itself."""
    return array.as_np_ndarray() if is_np_array() else array
