"""Indexing arrays, to read and to write, with its steps on the tape.

Basic keys (ints, slices, None, ...) give a view if the result is contiguous in memory, else a copy, as in MXNet; lists
and arrays of ints gather, boolean arrays mask. A key of ints alone gives an array of shape (1,).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hybrid_lab.diagnostics.errors import ArrayIndexError, AutogradError, DTypeError, ShapeError
from hybrid_lab.ndarray import calls, tape
from hybrid_lab.ndarray.buffer import Buffer
from hybrid_lab.ndarray.gradients import stand_in
from hybrid_lab.ndarray.invoke import N
from hybrid_lab.ndarray.ndarray import NDArray
from hybrid_lab.ops.framework.dtypes import FLOATING, is_floating
from hybrid_lab.ops.framework.namespace import F, Namespace


def getitem(array: NDArray, key: Any) -> NDArray:
    """`array[key]`. Raises ArrayIndexError."""
    if type(key) is slice and key == _ALL or type(key) is tuple and not key:
        return array
    key, advanced = _normalized(array, key)
    result = array.alike(_take(array, key, advanced))
    if tape.state.recording and tape.link(array) is not None:
        tape.note(IndexEntry(key, advanced, array), (array,), (result,))
    return result


def setitem(array: NDArray, key: Any, value: Any) -> None:
    """`array[key] = value`, converting the dtype. Raises ArrayIndexError, ShapeError, AutogradError."""
    if not array.host_view.ndim and type(key) is slice and key == _ALL:
        key = ()  # as in MXNet, x[:] is all of an array without axes, too
    if type(value) is not np.ndarray or type(key) is not slice or key != _ALL:
        tape.refuse_write(array)  # MXNet lets a NumPy array replace all numbers of an array while it records
    key, advanced = _normalized(array, key)
    raw = _raw_value(value)
    if isinstance(raw, np.ndarray) and raw.size == 1:
        raw = raw.reshape(())  # NumPy writes no array of shape (1,) where ints alone are the key
    recorded = tape.state.recording and tape.link(value) is not None
    if recorded and array.size != array.buffer.host.size:
        raise AutogradError(
            f"writing a recorded value into a part of an array (shape {array.shape} of {array.buffer.host.shape}) "
            "would lose its gradient. Write through the whole array: y[i, j] = value instead of y[i][j] = value"
        )
    target = array._data
    try:
        target[key] = raw
        array.buffer.written()
    except (IndexError, TypeError) as error:
        raise _index_error(array, error) from None
    except ValueError:
        wanted = np.shape(_found(array, target, key))
        raise ShapeError(f"cannot write a value of shape {np.shape(raw)} where the array has shape {wanted}") from None
    except BaseException:  # an interrupt may leave it half written
        array.buffer.written()
        raise
    if recorded:
        tape.note(AssignEntry(key, advanced, value), (value,), (array,))


_ALL = slice(None)


def _raw_value(value: object) -> Any:
    if isinstance(value, NDArray):
        return value._data
    if getattr(value, "_is_symbol", False):
        raise DTypeError("a traced value cannot be written into an array; keep it as a value of its own")
    if isinstance(value, (list, tuple)):
        return np.asarray([_raw_value(item) for item in value])
    if isinstance(value, (bool, int, float, np.generic, np.ndarray)):
        return value
    raise DTypeError(f"an array takes numbers and arrays, not {type(value).__name__}")


def _normalized(array: NDArray, key: Any) -> tuple[Any, bool]:
    """The key as NumPy takes it, and whether it is an advanced one."""
    kind = type(key)
    if kind is int or kind is slice:
        return key, False
    if kind is not tuple:
        key = (key,)
    items: list[Any] = []
    advanced = False
    for item in key:
        if item is None or item is Ellipsis or type(item) is int:
            items.append(item)
        elif isinstance(item, slice):
            items.append(item)
        elif isinstance(item, (bool, np.bool_)):
            if array.is_np:
                items.append(bool(item))
                advanced = True
                continue
            raise ArrayIndexError(f"{item} is not an index; to mask, use a boolean array")
        elif isinstance(item, (int, np.integer)):
            items.append(int(item))
        else:
            items.append(index_array(item))
            advanced = True
    return tuple(items), advanced


def index_array(item: object) -> np.ndarray:
    """Indices as an integer or boolean NumPy array of their own; MXNet's default dtype makes float indices usual.

    Raises ArrayIndexError.
    """
    if isinstance(item, NDArray):
        item = item._data
    elif isinstance(item, (list, tuple, range)):
        item = np.array([int(each) if isinstance(each, NDArray) else each for each in item])
        if item.size == 0:
            item = item.astype(np.int64)
    if not isinstance(item, np.ndarray) or item.dtype.kind not in f"biu{FLOATING}":
        raise ArrayIndexError(f"NDArray does not support slicing with key {item!r} of type {type(item).__name__}")
    return _whole(item) if is_floating(item.dtype) else item.copy()


def _whole(indices: np.ndarray) -> np.ndarray:
    """Floating indices as int64, without their fractions. Raises ArrayIndexError for NaN and numbers beyond int64."""
    outside = ~(np.abs(indices.astype(np.float64)) < 2.0**63)
    if outside.any():
        raise ArrayIndexError(f"{indices[outside][0]} cannot be an index: indices are whole numbers below 2**63")
    return indices.astype(np.int64)


def _index_error(array: NDArray, error: Exception) -> ArrayIndexError:
    return ArrayIndexError(f"{error} (the array has shape {array.shape})")


def _found(array: NDArray, values: np.ndarray, key: Any) -> Any:
    """`values[key]` for the values of an array. Raises ArrayIndexError."""
    try:
        return values[key]
    except (IndexError, TypeError, ValueError) as error:  # a bound that is no whole number, a step of 0
        raise _index_error(array, error) from None


def _take(array: NDArray, key: Any, advanced: bool) -> NDArray:
    if advanced:
        values = np.array(_found(array, array._data, key), order="C")
        if values.ndim == 0 and not array.is_np:
            values = values.reshape(1)
        return NDArray.from_host(values, array.context)
    view = _found(array, array.host_view, key)
    if type(view) is not np.ndarray:  # ints alone: NumPy gives a scalar, this an array on the same memory
        view = array.host_view[(key, ...) if type(key) is not tuple else (*key, ...)]
    if view.ndim == 0 and not array.is_np:
        view = view.reshape(1)
    if view.flags.c_contiguous:
        return NDArray.view_of(array.buffer, view)
    array._data  # noqa: B018  (brings the memory behind `view` up to date)
    return NDArray.from_host(view.copy(), array.context)


def _scatter(shape: tuple[int, ...], key: Any, advanced: bool, values: np.ndarray) -> np.ndarray:
    """Zeros of `shape` with `values` added at `key`, repeated indices adding up."""
    scattered = np.zeros(shape, values.dtype)
    if advanced:
        if values.size == 1:  # an element of an NDArray has the shape (1,), where NumPy's has none
            values = values.reshape(np.shape(scattered[key]))
        np.add.at(scattered, key, values)
    else:
        part = scattered[key]
        scattered[key] = values.reshape(np.shape(part))
    return scattered


class IndexEntry(tape.Entry):
    """y = x[key]. advanced : whether the key holds arrays; shape, is_np : of x"""

    __slots__ = ("advanced", "is_np", "key", "name", "shape")

    def __init__(self, key: Any, advanced: bool, array: NDArray):
        self.name = "an index with arrays" if advanced else "an index"
        self.key, self.advanced, self.shape, self.is_np = key, advanced, array.shape, array.is_np

    def buffers_read(self) -> Sequence[Buffer]:
        return ()

    def backward(self, douts: list[Any], needed: tuple[bool, ...]) -> Sequence[Any]:
        return (_scatter(self.shape, self.key, self.advanced, douts[0]),)

    def backward_recorded(self, douts: list[Any], needed: tuple[bool, ...]) -> Sequence[Any]:
        values = douts[0]
        gradient = NDArray.from_host(_scatter(self.shape, self.key, self.advanced, values._data), values.context)
        tape.note(ScatterEntry(self.key, self.advanced, values.shape), (values,), (gradient,))
        return (gradient,)


class ScatterEntry(tape.Entry):
    """The gradient of an index: y = zeros, y[key] += x."""

    __slots__ = ("_advanced", "_key", "_shape", "name")

    def __init__(self, key: Any, advanced: bool, shape: tuple[int, ...]):
        self.name = "the gradient of an index"
        self._key, self._advanced, self._shape = key, advanced, shape

    def backward(self, douts: list[Any], needed: tuple[bool, ...]) -> Sequence[Any]:
        return (np.array(douts[0][self._key], order="C").reshape(self._shape),)

    def backward_recorded(self, douts: list[Any], needed: tuple[bool, ...]) -> Sequence[Any]:
        values = getitem(douts[0], self._key)
        return (values if values.shape == self._shape else values.reshape(self._shape),)


class AssignEntry(tape.Entry):
    """y[key] = x. y had no history, so its old values get no gradient."""

    __slots__ = ("_advanced", "_key", "_like", "name")

    def __init__(self, key: Any, advanced: bool, value: NDArray):
        self.name = "an assignment"
        self._key, self._advanced = key, advanced
        self._like = stand_in(value.shape, value.host_view.dtype)

    def buffers_read(self) -> Sequence[Buffer]:
        return ()

    def backward(self, douts: list[Any], needed: tuple[bool, ...]) -> Sequence[Any]:
        return (self._summed(F, np.asarray(douts[0][self._key]), self._like),)

    def backward_recorded(self, douts: list[Any], needed: tuple[bool, ...]) -> Sequence[Any]:
        return (self._summed(N, getitem(douts[0], self._key), NDArray.wrap(self._like)),)

    @staticmethod
    def _summed(F: Namespace, part: Any, like: Any) -> Any:
        """The gradient of x from the gradient of y[key], to whose shape x was broadcast."""
        if part.ndim < like.ndim:  # NumPy drops leading axes of size 1
            part = part.reshape((1,) * (like.ndim - part.ndim) + part.shape)
        part = part if part.shape == like.shape else F._sum_like(part, like)
        return part.astype(like.dtype, copy=False)


calls.provide(getitem=getitem, setitem=setitem)
