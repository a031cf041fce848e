"""Memory of kernels: results delivered into `out`, and a workspace per thread for temporaries of eager calls."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from hybrid_lab.ops.framework.types import Array, Arrays, Outs

_Function = TypeVar("_Function", bound="Callable[..., Any]")
_ALIGNMENT = 64
#: A thread keeps at most this much; memory that a kernel needs beyond it is allocated for that call.
KEEP_BYTES = 1 << 26


def into(result: np.ndarray, out: np.ndarray | None, dtype: DTypeLike | None = None) -> np.ndarray:
    """`result` itself, or copied into `out`. dtype : to convert to, whatever is lost; None: nothing"""
    if out is None or result is out:
        return result if dtype is None else result.astype(dtype, copy=False)
    np.copyto(out, result, casting="same_kind" if dtype is None else "unsafe")
    return out


def all_into(results: Sequence[np.ndarray], out: np.ndarray | Outs) -> Array | Arrays:
    """The results of a kernel, in `out` if it is given: an array for one result, a tuple of arrays for several."""
    if len(results) == 1:
        return into(results[0], out)  # type: ignore[arg-type]
    return tuple(results) if out is None else tuple(map(into, results, out))


def like_of(value: Array) -> Array | None:
    """`value` as the argument `like=` of NumPy's functions, which refuse scalars; None stands for the host."""
    return value if hasattr(type(value), "__array_function__") else None


def overridable(function: _Function) -> _Function:
    """Let an array of a device among the positional arguments compute the function its own way, as it does with NumPy's
    functions (NEP 18).
    """

    @functools.wraps(function)
    def call(*arguments: Any) -> object:
        for item in arguments:
            if type(item) is not np.ndarray and hasattr(type(item), "__array_function__"):
                return item.__array_function__(call, (type(item),), arguments, {})
        return function(*arguments)

    return call  # type: ignore[return-value]


def in_c_order(array: np.ndarray) -> np.ndarray:
    """The array with its elements in C order, and on the device where it is."""
    return np.ascontiguousarray(array, like=like_of(array))


def contiguous(
    out: np.ndarray | None, shape: tuple[int, ...], dtype: DTypeLike, like: np.ndarray | None = None
) -> np.ndarray:
    """Contiguous memory for a result, which `into` delivers: `out` where it is. like : an array of the same device"""
    return out if out is not None and out.flags.c_contiguous else np.empty(shape, dtype, like=like)


class Workspace(threading.local):
    """`workspace(shape, dtype)` gives uninitialized memory until the enclosing `release(mark)`.

    The next kernel uses the same memory: the system hands fresh memory out page by page, which costs more than many
    kernels do.
    """

    def __init__(self) -> None:
        self.memory = np.empty(0, np.uint8)
        self.used = self.wanted = 0

    def mark(self) -> int:
        """The place to release to; the memory grows here, while nothing is lent."""
        if self.used == 0 and self.wanted > self.memory.nbytes:
            self.memory = np.empty(min(self.wanted, KEEP_BYTES), np.uint8)
        return self.used

    def release(self, mark: int) -> None:
        """Take back the arrays lent since `mark`."""
        self.used = mark
        if mark == 0:
            self.wanted = min(self.wanted, KEEP_BYTES)

    def __call__(self, shape: tuple[int, ...], dtype: DTypeLike) -> np.ndarray:
        kind = np.dtype(dtype)
        nbytes = prod(shape) * kind.itemsize
        start, stop = self.used, self.used + -(-nbytes // _ALIGNMENT) * _ALIGNMENT
        if stop > self.memory.nbytes:
            self.wanted = max(self.wanted, stop)
            self.used = stop if stop <= KEEP_BYTES else start
            return np.empty(shape, kind)
        self.used = stop
        return self.memory[start : start + nbytes].view(kind).reshape(shape)


WORKSPACE = Workspace()
"""The workspace of the calling thread."""
