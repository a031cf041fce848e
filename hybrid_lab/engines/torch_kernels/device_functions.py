"""NumPy's functions for `DeviceArray`s, by torch: new arrays, shapes, reductions, places, linear algebra.

An implementation has the parameters of NumPy's function, in the same order. A parameter without influence on a result
is named in `_implements`, with the values that it may have. Any other argument is a TypeError.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.lib.array_utils import normalize_axis_index, normalize_axis_tuple

from hybrid_lab.engines.memory import numpy_dtype, torch_dtype
from hybrid_lab.engines.torch_kernels.device_array import (
    CREATORS,
    FUNCTIONS,
    REDUCTIONS,
    SCALARS,
    Casting,
    DeviceArray,
    Operand,
    add_by_index,
    as_tensor,
    device_of,
    kind_of,
    within,
    write,
    written,
)
from hybrid_lab.ops.kernels import philox
from hybrid_lab.ops.random import distributions

#: Orders of memory that need nothing from an array whose elements lie in C order.
_C_ORDER = ("C", "K", "A", None)
_ONE_CASTING = ("same_kind",)


def _implements(
    *functions: Any, **allowed: tuple[Any, ...]
) -> Callable[[Callable[..., Operand]], Callable[..., Operand]]:
    """Register an implementation. allowed : further keywords of NumPy's functions -> the values that change nothing"""

    def enter(implementation: Callable[..., Operand]) -> Callable[..., Operand]:
        FUNCTIONS.update(dict.fromkeys(functions, _without(allowed, implementation) if allowed else implementation))
        return implementation

    return enter


def _without(allowed: dict[str, tuple[Any, ...]], implementation: Callable[..., Operand]) -> Callable[..., Operand]:
    @functools.wraps(implementation)
    def call(*arguments: Any, **keywords: Any) -> Operand:
        for name in allowed.keys() & keywords.keys():
            value = keywords.pop(name)
            if not isinstance(value, str | int | None) or value not in allowed[name]:
                raise TypeError(f"{name}={value!r} has no function of torch for a DeviceArray")
        return implementation(*arguments, **keywords)

    # The signature that `checked_call` binds to has the allowed keywords, too.
    known = inspect.signature(implementation)
    further = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=allowed[name][0]) for name in allowed]
    setattr(call, "__signature__", known.replace(parameters=[*known.parameters.values(), *further]))  # noqa: B010
    return call


def _tensors(*items: Any) -> list[torch.Tensor]:
    """Operands as tensors of their common dtype."""
    device = device_of(*items)
    kinds = [item if type(item) in SCALARS else kind_of(item) for item in items]
    weak = [
        np.array(item) if type(item) in SCALARS else np.empty(0, kind) for item, kind in zip(items, kinds, strict=True)
    ]
    dtype = torch_dtype(
        np.result_type(*(item if type(item) in SCALARS else array for item, array in zip(items, weak, strict=True)))
    )
    return [as_tensor(item, device, dtype) for item in items]


#: torch exports it without saying so to type checkers.
_LinAlgError: type[Exception] = getattr(torch.linalg, "LinAlgError")  # noqa: B009


def _into(out: Operand, made: torch.Tensor) -> DeviceArray:
    """A result as an array; if the caller gave `out`, in its memory."""
    return DeviceArray(made) if out is None else written(out, made)


def _line_of(tensor: torch.Tensor, axis: int | None) -> tuple[torch.Tensor, int]:
    """The tensor and the axis in it, from the front; for axis None and for a number, one line of all elements.

    Raises AxisError for an axis outside.
    """
    if axis is None:
        return tensor.reshape(-1), 0
    tensor = tensor if tensor.ndim else tensor.reshape(1)
    return tensor, normalize_axis_index(axis, tensor.ndim)


@_implements(np.where)
def _where(condition: Operand, *choices: Any) -> Operand:
    if not choices:
        return np.nonzero(condition)
    first, second = _tensors_beside(condition, *choices)
    return DeviceArray(torch.where(as_tensor(condition, first.device, torch.bool), first, second))


def _tensors_beside(other: Operand, *items: Any) -> list[torch.Tensor]:
    """Operands as tensors of their common dtype, where only `other` may be on the device."""
    dtype = torch_dtype(
        np.result_type(*(item if type(item) in SCALARS else np.empty(0, kind_of(item)) for item in items))
    )
    return [as_tensor(item, device_of(other, *items), dtype) for item in items]


@_implements(np.copyto)
def _copyto(target: Operand, source: Operand, casting: Casting = "same_kind", where: Operand = True) -> None:
    if not isinstance(target, DeviceArray):
        raise TypeError("numbers of a device are not written to an array of the host")
    device = target.tensor.device
    if isinstance(source, DeviceArray | np.ndarray) and not target.ndim and source.size == 1:
        source = source.reshape(())  # a number takes the only element
    if type(source) in SCALARS:
        np.copyto(np.empty(0, target.dtype), source, casting=casting)  # NumPy's rule for Python's numbers
        write(target, as_tensor(source, device, target.tensor.dtype), where)
    else:
        write(target, as_tensor(source, device), where, casting)


@_implements(np.shape)
def _shape(array: Operand) -> tuple[int, ...]:
    return array.shape


@_implements(np.ndim)
def _ndim(array: Operand) -> int:
    return array.ndim


@_implements(np.may_share_memory, max_work=(0,))
def _may_share(first: Operand, second: Operand) -> bool:
    tensors = [item.tensor for item in (first, second) if isinstance(item, DeviceArray)]
    return len(tensors) == 2 and tensors[0].untyped_storage().data_ptr() == tensors[1].untyped_storage().data_ptr()


@_implements(np.clip)
def _clip(array: Operand, low: Operand = None, high: Operand = None, out: Operand = None) -> Operand:
    made = array if low is None else np.maximum(array, low)
    made = made if high is None else np.minimum(made, high)
    if out is not None:
        write(out, made.tensor)
        return out
    return made.copy() if made is array else made


_LIKE: dict[str, tuple[Any, ...]] = {"order": _C_ORDER, "subok": (True, False), "shape": (None,), "device": (None,)}


@_implements(np.zeros_like, np.empty_like, **_LIKE)
def _zeros_like(array: Operand, dtype: Operand = None) -> DeviceArray:
    return _full_like(array, 0, dtype)


@_implements(np.ones_like, **_LIKE)
def _ones_like(array: Operand, dtype: Operand = None) -> DeviceArray:
    return _full_like(array, 1, dtype)


@_implements(np.full_like, **_LIKE)
def _full_like(array: Operand, value: Operand, dtype: Operand = None) -> DeviceArray:
    device = device_of(array, value)
    made = torch.empty(array.shape, dtype=torch_dtype(np.dtype(dtype or array.dtype)), device=device)
    source = as_tensor(value, device, made.dtype)
    return DeviceArray(made.copy_(source if made.ndim or source.numel() != 1 else source.reshape(())))


@_implements(np.reshape, order=("C",), copy=(None,))
def _reshape(array: Operand, shape: Operand) -> DeviceArray:
    return array.reshape(shape)


@_implements(np.transpose)
def _transpose(array: Operand, axes: Operand = None) -> DeviceArray:
    return array.T if axes is None else array.transpose((axes,) if isinstance(axes, int) else tuple(axes))


@_implements(np.swapaxes)
def _swapaxes(array: Operand, first: int, second: int) -> DeviceArray:
    return array.swapaxes(first, second)


@_implements(np.moveaxis)
def _moveaxis(array: Operand, source: Operand, target: Operand) -> DeviceArray:
    return DeviceArray(torch.movedim(array.tensor, source, target))


@_implements(np.broadcast_to, subok=(False,))
def _broadcast_to(array: Operand, shape: Operand) -> DeviceArray:
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    if min(sizes, default=0) < 0:
        raise ValueError("all elements of broadcast shape must be non-negative")
    return DeviceArray(array.tensor.expand(sizes))


def _joined(tensors: list[torch.Tensor], dtype: Operand) -> list[torch.Tensor]:
    """Tensors in the dtype that a caller asks for. Raises TypeError if they are of another kind."""
    if dtype is None:
        return tensors
    np.empty(0, numpy_dtype(tensors[0].dtype)).astype(dtype, casting="same_kind")
    return [item.to(torch_dtype(np.dtype(dtype))) for item in tensors]


@_implements(np.stack, casting=_ONE_CASTING)
def _stack(arrays: Operand, axis: int = 0, out: Operand = None, dtype: Operand = None) -> DeviceArray:
    return _into(out, torch.stack(_joined(_tensors(*arrays), dtype), axis))


@_implements(np.concatenate, casting=_ONE_CASTING)
def _concatenate(arrays: Operand, axis: int | None = 0, out: Operand = None, dtype: Operand = None) -> DeviceArray:
    tensors = _joined(_tensors(*arrays), dtype)
    if axis is None:
        return _into(out, torch.cat([item.reshape(-1) for item in tensors]))
    if len({item.ndim for item in tensors}) > 1:  # torch leaves out empty lines
        raise ValueError("all the input arrays must have same number of dimensions")
    return _into(out, torch.cat(tensors, normalize_axis_index(axis, tensors[0].ndim)))


@_implements(np.column_stack)
def _column_stack(arrays: Operand) -> DeviceArray:
    return DeviceArray(torch.cat([item if item.ndim > 1 else item.reshape(-1, 1) for item in _tensors(*arrays)], 1))


@_implements(np.pad)
def _pad(array: Operand, widths: Operand, mode: str = "constant", constant_values: Operand = 0) -> DeviceArray:
    if mode != "constant":
        raise TypeError(f"np.pad with mode={mode!r} has no function of torch for a DeviceArray")
    given = np.asarray(widths)
    if given.dtype.kind not in "iu":
        raise TypeError("`pad_width` must be of integral type.")
    pairs = np.broadcast_to(given, (array.ndim, 2)).tolist()
    if given.min(initial=0) < 0:
        raise ValueError("index can't contain negative values")
    flat = [int(number) for pair in reversed(pairs) for number in pair]
    return DeviceArray(torch.nn.functional.pad(array.tensor, flat, value=constant_values))


@_implements(np.flip)
def _flip(array: Operand, axis: Operand = None) -> DeviceArray:
    axes = tuple(range(array.ndim)) if axis is None else normalize_axis_tuple(axis, array.ndim)
    return DeviceArray(array.tensor.flip(axes))


@_implements(np.repeat)
def _repeat(array: Operand, count: int, axis: int | None = None) -> DeviceArray:
    tensor, line = _line_of(array.tensor, axis)
    if axis is None and isinstance(count, int) and not tensor.numel():
        return DeviceArray(tensor.clone())
    return DeviceArray(torch.repeat_interleave(tensor, count, line))


@_implements(np.resize)
def _resize(array: Operand, shape: Operand) -> DeviceArray:
    if not array.size:
        return _new_full(array.tensor.device, shape, 0, array.dtype)
    places = torch.arange(math.prod(np.atleast_1d(shape).tolist()), device=array.tensor.device) % array.size
    return DeviceArray(array.tensor.reshape(-1)[places].reshape(shape))


# -- reductions


def _axes(array: Operand, axis: Operand) -> tuple[int, ...]:
    """The axes as non-negative numbers; () for axis 0 or -1 of a scalar. Raises AxisError, and ValueError for repeated
    axes.
    """
    if axis is None or (not isinstance(axis, tuple) and not array.ndim and axis in (0, -1)):
        return tuple(range(array.ndim))
    return (
        normalize_axis_tuple(axis, array.ndim) if isinstance(axis, tuple) else (normalize_axis_index(axis, array.ndim),)
    )


def _selected(tensor: torch.Tensor, where: Operand, neutral: Operand) -> torch.Tensor:
    """The elements, with a neutral one for those that `where` leaves out of a reduction."""
    if where is True:
        return tensor
    mask = as_tensor(where, tensor.device, torch.bool).expand(tensor.shape)
    return torch.where(mask, tensor, torch.full((), neutral, dtype=tensor.dtype, device=tensor.device))


def _sum_kind(kind: np.dtype, dtype: Operand) -> torch.dtype:
    """The dtype of a sum. NumPy's sums of unsigned numbers are uint64, which torch lacks."""
    wanted = np.dtype("int64") if dtype is None and kind.kind in "iub" else np.dtype(dtype or kind)
    return torch_dtype(wanted)


@_implements(np.sum)
def _sum(
    array: Operand, axis: Operand = None, dtype: Operand = None, out: Operand = None, keepdims: bool = False,
    initial: Operand = None, where: Operand = True,
) -> DeviceArray:  # fmt: skip
    axes = _axes(array, axis)
    tensor = _selected(array.tensor.to(_sum_kind(array.dtype, dtype)), where, 0)
    total = tensor.sum(axes, keepdim=keepdims) if axes else tensor.clone()
    if initial is not None:
        total = total + as_tensor(initial, total.device, total.dtype)
    return _into(out, total)


@_implements(np.mean)
def _mean(
    array: Operand, axis: Operand = None, dtype: Operand = None, out: Operand = None, keepdims: bool = False,
    where: Operand = True,
) -> DeviceArray:  # fmt: skip
    if dtype is None:
        dtype = array.dtype if array.dtype.kind == "f" else np.dtype("float64")
    if np.dtype(dtype).kind not in "fc":
        raise TypeError("np.mean in whole numbers has no function of torch for a DeviceArray")
    if axis is not None:
        normalize_axis_tuple(axis, array.ndim)  # a number has no axis here
    axes, tensor = _axes(array, axis), array.tensor.to(torch_dtype(np.dtype(dtype)))
    if where is True:
        return _into(out, tensor.mean(axes, keepdim=keepdims) if axes else tensor.clone())
    total = _sum(DeviceArray(tensor), axis, keepdims=keepdims, where=where).tensor
    counted = DeviceArray(as_tensor(where, tensor.device, torch.bool).expand(tensor.shape))
    return _into(out, total / _sum(counted, axis, keepdims=keepdims).tensor)


def _extreme(
    name: str, array: Operand, axis: Operand, out: Operand, keepdims: bool, initial: Operand, where: Operand
) -> DeviceArray:
    """name : "max" or "min" """
    tensor, axes = array.tensor, _axes(array, axis)
    if initial is None:
        if where is not True:
            raise ValueError(f"np.{name} with where= needs initial=")
        if any(not tensor.shape[each] for each in axes):
            raise ValueError(f"zero-size array to reduction operation {name}imum which has no identity")
    else:
        tensor = _selected(tensor, where, initial)
    if not tensor.numel():
        made = torch.full_like(tensor.sum(axes, keepdim=keepdims) if axes else tensor, initial or 0, dtype=tensor.dtype)
    else:
        made = getattr(torch, f"a{name}")(tensor, axes, keepdim=keepdims) if axes else tensor.clone()
    if initial is not None:
        made = getattr(torch, f"{name}imum")(made, as_tensor(initial, made.device, made.dtype))
    return _into(out, made)


@_implements(np.max, np.amax)
def _max(
    array: Operand, axis: Operand = None, out: Operand = None, keepdims: bool = False, initial: Operand = None,
    where: Operand = True,
) -> DeviceArray:  # fmt: skip
    return _extreme("max", array, axis, out, keepdims, initial, where)


@_implements(np.min, np.amin)
def _min(
    array: Operand, axis: Operand = None, out: Operand = None, keepdims: bool = False, initial: Operand = None,
    where: Operand = True,
) -> DeviceArray:  # fmt: skip
    return _extreme("min", array, axis, out, keepdims, initial, where)


@_implements(np.argmax)
def _argmax(array: Operand, axis: int | None = None, out: Operand = None, keepdims: bool = False) -> DeviceArray:
    """The first of equal elements, and the first NaN; torch returns any index among equals."""
    tensor, line = _line_of(array.tensor, axis)
    if not tensor.shape[line]:
        raise ValueError("attempt to get argmax of an empty sequence")
    largest = tensor.amax(line, keepdim=True)
    hit = (tensor == largest) | (tensor != tensor)
    size = tensor.shape[line]
    shape = [1] * tensor.ndim
    shape[line] = size
    places = torch.arange(size, device=tensor.device).reshape(shape)
    first = torch.where(hit, places, size).amin(line)
    if keepdims:
        first = first.reshape((1,) * array.ndim) if axis is None or not array.ndim else first.unsqueeze(line)
    return _into(out, first)


def _truth(
    reduce: Callable[..., torch.Tensor], array: Operand, axis: Operand, out: Operand, keepdims: bool, where: Operand
) -> DeviceArray:
    tensor = _selected(array.tensor != 0, where, reduce is torch.all)
    axes = _axes(array, axis)
    return _into(out, reduce(tensor, axes, keepdim=keepdims) if axes else tensor)


@_implements(np.all)
def _all(
    array: Operand, axis: Operand = None, out: Operand = None, keepdims: bool = False, where: Operand = True
) -> DeviceArray:
    return _truth(torch.all, array, axis, out, keepdims, where)


@_implements(np.any)
def _any(
    array: Operand, axis: Operand = None, out: Operand = None, keepdims: bool = False, where: Operand = True
) -> DeviceArray:
    return _truth(torch.any, array, axis, out, keepdims, where)


@_implements(np.cumsum)
def _cumsum(array: Operand, axis: int | None = None, dtype: Operand = None, out: Operand = None) -> DeviceArray:
    tensor, line = _line_of(array.tensor, axis)
    return _into(out, torch.cumsum(tensor, line, dtype=_sum_kind(array.dtype, dtype)))


@_implements(np.trace)
def _trace(
    array: Operand, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Operand = None, out: Operand = None
) -> DeviceArray:
    return _sum(_diagonal(array, offset, axis1, axis2), -1, dtype, out)


#: The ufuncs that reduce, and the functions that do so.
REDUCTIONS.update({np.add: _sum, np.maximum: _max, np.minimum: _min, np.logical_or: _any, np.logical_and: _all})

# -- places


@_implements(np.nonzero)
def _nonzero(array: Operand) -> tuple[DeviceArray, ...]:
    if not array.ndim:
        raise ValueError("Calling nonzero on 0d arrays is not allowed. Use np.atleast_1d(scalar).nonzero() instead.")
    return tuple(map(DeviceArray, torch.nonzero(array.tensor, as_tuple=True)))


@_implements(np.flatnonzero)
def _flatnonzero(array: Operand) -> DeviceArray:
    return DeviceArray(torch.nonzero(array.tensor.reshape(-1))[:, 0])


@_implements(np.take)
def _take(
    array: Operand, indices: Operand, axis: int | None = None, out: Operand = None, mode: str = "raise"
) -> DeviceArray:
    if mode not in ("clip", "raise", "wrap"):
        raise TypeError(f"np.take with mode={mode!r} has no function of torch for a DeviceArray")
    device = device_of(array, indices)
    (tensor, axis), places = _line_of(as_tensor(array, device), axis), as_tensor(indices, device)
    if places.is_floating_point():
        raise TypeError("np.take takes whole numbers as indices")
    places, size = places.long(), tensor.shape[axis]
    if not size and places.numel():
        raise IndexError("cannot do a non-empty take from an empty axes.")
    if 0 in tensor.shape[:axis]:  # NumPy looks at no index then
        places = torch.zeros_like(places)
    elif mode == "clip":
        places = places.clamp(0, max(size - 1, 0))
    else:
        places = (places if mode == "wrap" else within(places, tensor.shape, axis)) % max(size, 1)
    made = tensor.index_select(axis, places.reshape(-1))
    return _into(out, made.reshape(*tensor.shape[:axis], *places.shape, *tensor.shape[axis + 1 :]))


@_implements(np.take_along_axis)
def _take_along(array: Operand, indices: Operand, axis: int | None = -1) -> DeviceArray:
    device = device_of(array, indices)
    tensor = as_tensor(array, device)
    tensor, axis = (tensor.reshape(-1), 0) if axis is None else (tensor, normalize_axis_index(axis, tensor.ndim))
    return DeviceArray(torch.take_along_dim(tensor, _places_along(tensor, as_tensor(indices, device), axis), axis))


def _places_along(tensor: torch.Tensor, places: torch.Tensor, axis: int) -> torch.Tensor:
    """Places along an axis, from the front. Raises IndexError and ValueError as NumPy's functions along an axis."""
    if places.is_floating_point() or places.dtype == torch.bool:
        raise IndexError("`indices` must be an integer array")
    if places.ndim != tensor.ndim:
        raise ValueError("`indices` and `arr` must have the same number of dimensions")
    for other, (given, size) in enumerate(zip(places.shape, tensor.shape, strict=True)):
        if other != axis and given != size and 1 not in (given, size):
            raise IndexError(
                f"shape mismatch: indices of {tuple(places.shape)} along axis {axis} of {tuple(tensor.shape)}"
            )
    if 0 in (*tensor.shape[:axis], *tensor.shape[axis + 1 :]):  # NumPy looks at no index then
        return torch.zeros_like(places, dtype=torch.int64)
    return within(places, tensor.shape, axis) % max(tensor.shape[axis], 1)


@_implements(np.put_along_axis)
def _put_along(array: Operand, indices: Operand, values: Operand, axis: int) -> None:
    if not isinstance(array, DeviceArray):
        raise TypeError("numbers of a device are not written to an array of the host")
    tensor = array.tensor
    axis = normalize_axis_index(axis, tensor.ndim)
    key = [
        torch.arange(size, device=tensor.device).reshape(-1, *(1,) * (tensor.ndim - 1 - other))
        for other, size in enumerate(tensor.shape)
    ]
    key[axis] = _places_along(tensor, as_tensor(indices, tensor.device), axis)
    tensor[tuple(key)] = as_tensor(values, tensor.device, tensor.dtype)


_SORTS: dict[str, tuple[Any, ...]] = {
    "kind": ("quicksort", "heapsort", "mergesort", "stable", None), "order": (None,), "stable": (None, False, True)
}  # fmt: skip


@_implements(np.argsort, **_SORTS)
def _argsort(array: Operand, axis: int | None = -1) -> DeviceArray:
    tensor, axis = _line_of(array.tensor, axis)
    return DeviceArray(torch.sort(_alike(tensor), dim=axis, stable=True)[1])


@_implements(np.sort, **_SORTS)
def _sort(array: Operand, axis: int | None = -1) -> DeviceArray:
    if axis is not None:
        normalize_axis_index(axis, array.ndim)  # a number has no axis here
    tensor, axis = _line_of(array.tensor, axis)
    return DeviceArray(tensor.gather(axis, torch.sort(_alike(tensor), dim=axis, stable=True)[1]))


def _alike(tensor: torch.Tensor) -> torch.Tensor:
    """Zeros and NaN without their signs, which a sort by digits would take for a difference."""
    return torch.where(tensor == tensor, tensor + 0.0, math.nan) if tensor.is_floating_point() else tensor


@_implements(np.searchsorted, sorter=(None,))
def _searchsorted(edges: Operand, values: Operand, side: str = "left") -> DeviceArray:
    if side not in ("left", "right"):
        raise ValueError(f"side must be 'left' or 'right', not {side!r}")
    first, second = _tensors(edges, values)
    if first.ndim != 1:
        raise ValueError("np.searchsorted looks in an array of one axis")
    return DeviceArray(torch.searchsorted(first.contiguous(), second.contiguous(), right=side == "right"))


@_implements(np.unique, return_counts=(False,), axis=(None,), sorted=(True, False))
def _unique(
    array: Operand, return_index: bool = False, return_inverse: bool = False, *, equal_nan: bool = True
) -> Operand:
    if return_index or (equal_nan and array.dtype.kind in "fc"):
        raise TypeError("np.unique with return_index, or equal_nan for floating numbers, has no function of torch")
    made = torch.unique(array.tensor, return_inverse=return_inverse)
    return tuple(map(DeviceArray, made)) if return_inverse else DeviceArray(made)


@_implements(np.unravel_index, order=("C",))
def _unravel(places: Operand, shape: Operand) -> tuple[DeviceArray, ...]:
    if places.dtype.kind not in "iu":
        raise TypeError("np.unravel_index takes whole numbers as indices")
    left, sizes = places.tensor.long(), (shape,) if isinstance(shape, int) else tuple(shape)
    if min(sizes, default=0) < 0:
        raise ValueError("dimensions of an array are not negative")
    if left.numel():
        size, (low, high) = math.prod(sizes), torch.stack(torch.aminmax(left)).tolist()
        if low < 0 or high >= size:
            raise ValueError(f"index {low if low < 0 else high} is out of bounds for array with size {size}")
    if left.ndim and not sizes:
        raise ValueError("multiple indices are not supported for 0d arrays")
    found = []
    for size in reversed(sizes):
        found.append(DeviceArray(left % size if left.numel() else left.clone()))
        left = left // size if left.numel() else left
    return tuple(reversed(found))


@_implements(np.bincount)
def _bincount(places: Operand, weights: Operand = None, minlength: int = 0) -> DeviceArray:
    device = device_of(places, weights)
    tensor = as_tensor(places, device)
    if tensor.ndim != 1:
        raise ValueError(f"np.bincount counts numbers along one axis, not {tensor.ndim}")
    if tensor.is_floating_point():
        raise TypeError("np.bincount counts whole numbers")
    if minlength < 0:
        raise ValueError("'minlength' must not be negative")
    tensor = tensor.long()
    low, high = torch.stack(torch.aminmax(tensor)).tolist() if tensor.numel() else (0, -1)
    if low < 0:
        raise ValueError("'list' argument must have no negative elements")
    size = max(minlength, high + 1)
    values = torch.ones_like(tensor) if weights is None else as_tensor(weights, tensor.device, torch.float64)
    if values.shape != tensor.shape:
        raise ValueError("The weights and list don't have the same length.")
    total = torch.zeros(size, dtype=values.dtype, device=tensor.device)
    add_by_index(total, (tensor,), values)
    return DeviceArray(total)


@_implements(np.diagonal)
def _diagonal(array: Operand, offset: int = 0, axis1: int = 0, axis2: int = 1) -> DeviceArray:
    return DeviceArray(torch.diagonal(array.tensor, offset, axis1, axis2))


def _rows(tensor: torch.Tensor) -> torch.Tensor:
    """A matrix, or a line as each row of one."""
    return tensor.expand(len(tensor), -1) if tensor.ndim == 1 else tensor


@_implements(np.tril)
def _tril(array: Operand, k: int = 0) -> DeviceArray:
    return DeviceArray(torch.tril(_rows(array.tensor), k))


@_implements(np.triu)
def _triu(array: Operand, k: int = 0) -> DeviceArray:
    return DeviceArray(torch.triu(_rows(array.tensor), k))


# -- random numbers


@_implements(philox.words_at)
def _words_at(seed: int, draw: int, blocks: Operand) -> DeviceArray:
    """Counters 0 and 2 of a block are the rows of `even`, 1 and 3 those of `odd`. Products of two words wrap around in
    int64, whose bits are those of uint64.
    """
    numbers, mask = blocks.tensor, 0xFFFFFFFF
    keys = torch.from_numpy(np.array(philox.round_keys(seed), np.int64)).to(numbers.device)
    multipliers = torch.from_numpy(philox.MULTIPLIERS.astype(np.int64)).to(numbers.device)
    even = torch.stack([numbers & mask, torch.full_like(numbers, draw & mask)])
    odd = torch.stack([numbers >> 32, torch.full_like(numbers, draw >> 32 & mask)])
    for key in keys:
        products = even * multipliers
        even = (products >> 32 & mask).flip(0) ^ odd ^ key
        odd = (products & mask).flip(0)
    return DeviceArray(torch.stack([even, odd], dim=1).reshape(4, -1).T)


@_implements(distributions.searched)
def _searched(edges: Operand, numbers: Operand) -> DeviceArray:
    first, second = _tensors(edges, numbers)
    return DeviceArray(torch.searchsorted(first.contiguous(), second.contiguous(), right=True))


# -- formulas


@_implements(np.polyval)
def _polyval(coefficients: Operand, x: Operand) -> DeviceArray:
    total = np.zeros_like(x)
    for coefficient in coefficients if isinstance(coefficients, DeviceArray) else np.asarray(coefficients):
        total = total * x + coefficient
    return total


@_implements(np.nan_to_num)
def _nan_to_num(
    array: Operand, copy: bool = True, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None
) -> DeviceArray:
    if not copy:
        raise TypeError("np.nan_to_num with copy=False has no function of torch for a DeviceArray")
    return DeviceArray(torch.nan_to_num(array.tensor, nan, posinf, neginf))


@_implements(np.isclose)
def _isclose(a: Operand, b: Operand, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> DeviceArray:
    first, second = _tensors(a, b)
    if not first.is_floating_point():
        first, second = first.double(), second.double()
    return DeviceArray(torch.isclose(first, second, rtol, atol, equal_nan))


@_implements(np.allclose)
def _allclose(a: Operand, b: Operand, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> bool:
    return bool(torch.all(_isclose(a, b, rtol, atol, equal_nan).tensor))


@_implements(np.einsum, optimize=(True, False, "greedy", "optimal"))
def _einsum(text: str, *operands: Any) -> DeviceArray:
    return DeviceArray(torch.einsum(text, *_tensors(*operands)))


@_implements(np.dot)
def _dot(a: Operand, b: Operand, out: Operand = None) -> DeviceArray:
    first, second = _tensors(a, b)
    if not first.ndim or not 0 < second.ndim < 3:
        raise TypeError("np.dot by a number or by more than a matrix has no function of torch for a DeviceArray")
    return _into(out, torch.matmul(first, second))


@_implements(np.linalg.norm)
def _norm(array: Operand, ord: Operand = None, axis: Operand = None, keepdims: bool = False) -> DeviceArray:
    axis = axis if axis is None else normalize_axis_tuple(axis, array.ndim)
    if axis is not None and not 0 < len(axis) < 3:
        raise ValueError("Improper number of dimensions to norm.")
    vectors = array.ndim == 1 if axis is None else len(axis) == 1
    if ord is not None and not vectors:
        raise TypeError("norms of matrices have no function of torch for a DeviceArray")
    tensor = array.tensor if array.dtype.kind in "fc" else array.tensor.double()
    return DeviceArray(torch.linalg.vector_norm(tensor, 2 if ord is None else ord, axis, keepdim=keepdims))


@_implements(np.histogram, density=(None, False), weights=(None,))
def _histogram(data: Operand, bins: Operand = 10, range: Operand = None) -> tuple[DeviceArray, Any]:
    """Counts between edges, the last one included, as NumPy's, which compares with the edges in the end."""
    values = data.tensor.reshape(-1)
    if isinstance(bins, int):
        if bins < 1:
            raise ValueError("`bins` must be positive, when an integer")
        first, last = range
        if not (np.isfinite(first) and np.isfinite(last) and first <= last):
            raise ValueError(f"np.histogram takes a finite range that rises, not {range}")
        if first == last:
            first, last = first - 0.5, last + 0.5
        edges: Operand = np.linspace(first, last, bins + 1)
        kind = np.result_type(np.float64, data.dtype) if data.dtype.kind != "f" else data.dtype
        sorted_edges = as_tensor(edges.astype(kind), values.device)
    else:
        edges = bins if isinstance(bins, DeviceArray) else np.asarray(bins)
        sorted_edges = as_tensor(edges, values.device)
        if sorted_edges.ndim != 1:
            raise ValueError("`bins` must be 1d, when an array")
        if bool((sorted_edges[1:] < sorted_edges[:-1]).any()):
            raise ValueError("`bins` must increase monotonically, when an array")
        if not len(sorted_edges):
            return _bincount(DeviceArray(torch.zeros(0, dtype=torch.int64, device=values.device))), edges
    both = torch.promote_types(values.dtype, sorted_edges.dtype)
    values, sorted_edges = values.to(both), sorted_edges.to(both).contiguous()
    count = len(sorted_edges) - 1
    place = torch.searchsorted(sorted_edges, values, right=True) - 1
    place = torch.where(values == sorted_edges[-1], count - 1, place)
    inside = (place >= 0) & (place < count) & (values == values)
    return _bincount(DeviceArray(place[inside]), minlength=count), edges


# -- linear algebra, whose errors are NumPy's


def _linear(
    function: Callable[..., Operand],
    arrays: int = 1,
    *,
    matrix: bool = True,
    square: bool = False,
    **parameters: Operand,
) -> Callable[..., Operand]:
    """An implementation by a function of torch. matrix, square : what the first array has to be.
    parameters : further ones that both have -> their defaults
    """

    def call(*arguments: Any, **keywords: Any) -> Operand:
        if len(arguments) != arrays or keywords.keys() - parameters.keys():
            raise TypeError(f"{function.__name__} for a DeviceArray takes {arrays} array(s) and {list(parameters)}")
        tensors = [
            item if item.is_floating_point() or item.is_complex() else item.double() for item in _tensors(*arguments)
        ]
        if matrix and tensors[0].ndim < 2:
            raise np.linalg.LinAlgError(
                f"{tensors[0].ndim}-dimensional array given. Array must be at least two-dimensional"
            )
        if square and tensors[0].shape[-2] != tensors[0].shape[-1]:
            raise np.linalg.LinAlgError("Last 2 dimensions of the array must be square")
        try:
            made = function(*tensors, **parameters | keywords)
        except _LinAlgError as error:
            singular = "singular" in str(error)
            message = "Singular matrix" if singular else "Matrix is not positive definite"
            raise np.linalg.LinAlgError(message) from error
        return tuple(map(DeviceArray, made)) if isinstance(made, tuple) else DeviceArray(made)

    return call


def _solve(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Of arrays b, only those of one axis are vectors; torch takes others for stacks of vectors, too."""
    return torch.linalg.solve(a, b.reshape(*(1,) * (a.ndim - b.ndim), *b.shape) if b.ndim > 1 else b)


def _transform(function: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[torch.Tensor], torch.Tensor]:
    """A transform along the last axis, of no lines too."""

    def transform(x: torch.Tensor) -> torch.Tensor:
        if not x.numel() and x.ndim and x.shape[-1]:
            return torch.zeros_like(x, dtype=x.dtype.to_complex())
        return function(x)

    return transform


FUNCTIONS.update(
    {
        np.linalg.inv: _linear(torch.linalg.inv, square=True),
        np.linalg.cholesky: _linear(torch.linalg.cholesky, square=True, upper=False),
        np.linalg.solve: _linear(_solve, arrays=2, square=True),
        np.linalg.det: _linear(torch.linalg.det, square=True),
        np.linalg.slogdet: _linear(torch.linalg.slogdet, square=True),
        np.linalg.eigh: _linear(torch.linalg.eigh, square=True, UPLO="L"),
        np.linalg.svd: _linear(torch.linalg.svd, full_matrices=True),
        np.linalg.qr: _linear(torch.linalg.qr),
        np.fft.fft: _linear(_transform(torch.fft.fft), matrix=False),
        np.fft.ifft: _linear(_transform(torch.fft.ifft), matrix=False),
    }
)

# -- new arrays `like` one of a device

_MEMORY: dict[str, tuple[Any, ...]] = {"order": _C_ORDER, "device": (None,)}


def _filled(value: float) -> Callable[..., DeviceArray]:
    def create(on: torch.device, shape: Operand, dtype: Operand = None) -> DeviceArray:
        return _new_full(on, shape, value, float if dtype is None else dtype)

    return create


def _new_full(on: torch.device, shape: Operand, value: Operand, dtype: Operand = None) -> DeviceArray:
    kind = np.asarray(value).dtype if dtype is None else np.dtype(dtype)
    sizes = (int(shape),) if isinstance(shape, int | np.integer) else tuple(map(int, shape))
    return DeviceArray(torch.full(sizes, value, dtype=torch_dtype(kind), device=on))


def _new_arange(on: torch.device, *ends: Any, dtype: Operand = None) -> DeviceArray:
    kind = np.arange(*(type(end)(0) for end in ends[:2]), *ends[2:]).dtype if dtype is None else np.dtype(dtype)
    start, stop, step = (0, *ends, 1) if len(ends) == 1 else (*ends, 1)[:3]
    stop = start if (stop - start) * step < 0 else stop  # empty for NumPy
    return DeviceArray(torch.arange(start, stop, step, dtype=torch_dtype(kind), device=on))


def _new_array(on: torch.device, value: Operand, dtype: Operand = None, *, copy: bool | None = True) -> DeviceArray:
    made = as_tensor(value, on, None if dtype is None else torch_dtype(np.dtype(dtype)))
    if copy is False and not (isinstance(value, DeviceArray) and made is value.tensor):
        raise ValueError("Unable to avoid copy while creating an array as requested.")
    return DeviceArray(made.clone() if copy and isinstance(value, DeviceArray) and made is value.tensor else made)


def _same_array(
    on: torch.device, value: Operand, dtype: Operand = None, order: str | None = None, *, copy: bool | None = None
) -> DeviceArray:
    if order not in _C_ORDER:
        raise TypeError(f"order={order!r} has no function of torch for a DeviceArray")
    return _new_array(on, value, dtype, copy=copy)


def _new_contiguous(on: torch.device, value: Operand, dtype: Operand = None) -> DeviceArray:
    made = _new_array(on, value, dtype, copy=None).tensor.contiguous()
    return DeviceArray(made if made.ndim else made.reshape(1))


_CREATE: dict[Any, Callable[..., Operand]] = {
    np.zeros: _without(_MEMORY, _filled(0)), np.empty: _without(_MEMORY, _filled(0)),
    np.ones: _without(_MEMORY, _filled(1)), np.full: _without(_MEMORY, _new_full),
    np.arange: _without({"device": (None,)}, _new_arange), np.asarray: _without({"device": (None,)}, _same_array),
    np.array: _without({"order": _C_ORDER, "subok": (False,), "ndmin": (0,), "ndmax": (0, 64)}, _new_array),
    np.ascontiguousarray: _new_contiguous,
}  # fmt: skip
CREATORS.update(_CREATE)
