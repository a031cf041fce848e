"""NumPy's functions for `DeviceArray`s, by torch: new arrays, shapes, reductions, places, linear algebra."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from hybrid_lab.engines.memory import torch_dtype
from hybrid_lab.engines.torch_kernels.device_array import (
    CREATORS,
    FUNCTIONS,
    REDUCTIONS,
    SCALARS,
    DeviceArray,
    Operand,
    add_by_index,
    as_tensor,
    device_of,
    kind_of,
    write,
)


def _implements(*functions: Any) -> Callable[[Callable[..., Operand]], Callable[..., Operand]]:
    def enter(implementation: Callable[..., Operand]) -> Callable[..., Operand]:
        FUNCTIONS.update(dict.fromkeys(functions, implementation))
        return implementation

    return enter


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
    return DeviceArray(made if out is None else write(out, made))


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
def _copyto(target: Operand, source: Operand, casting: str = "same_kind", where: Operand = True) -> None:
    if not isinstance(target, DeviceArray):
        raise TypeError("numbers of a device are not written to an array of the host")
    result = as_tensor(source, target.tensor.device, target.tensor.dtype)
    write(target, result, where)


@_implements(np.shape)
def _shape(array: Operand) -> tuple[int, ...]:
    return array.shape


@_implements(np.ndim)
def _ndim(array: Operand) -> int:
    return array.ndim


@_implements(np.may_share_memory, np.shares_memory)
def _may_share(first: Operand, second: Operand) -> bool:
    return False


@_implements(np.clip)
def _clip(array: Operand, low: Operand = None, high: Operand = None, out: Operand = None) -> Operand:
    made = array if low is None else np.maximum(array, low)
    made = made if high is None else np.minimum(made, high)
    if out is not None:
        write(out, made.tensor)
        return out
    return made


@_implements(np.zeros_like, np.empty_like)
def _zeros_like(array: Operand, dtype: Operand = None, **keywords: Any) -> DeviceArray:
    return DeviceArray(torch.zeros(array.shape, dtype=torch_dtype(dtype or array.dtype), device=array.tensor.device))


@_implements(np.ones_like)
def _ones_like(array: Operand, dtype: Operand = None, **keywords: Any) -> DeviceArray:
    return DeviceArray(torch.ones(array.shape, dtype=torch_dtype(dtype or array.dtype), device=array.tensor.device))


@_implements(np.full_like)
def _full_like(array: Operand, value: Operand, dtype: Operand = None, **keywords: Any) -> DeviceArray:
    made = torch.empty(array.shape, dtype=torch_dtype(dtype or array.dtype), device=array.tensor.device)
    made.copy_(as_tensor(value, made.device, made.dtype))
    return DeviceArray(made)


@_implements(np.reshape)
def _reshape(array: Operand, shape: Operand, **keywords: Any) -> DeviceArray:
    return array.reshape(shape)


@_implements(np.transpose)
def _transpose(array: Operand, axes: Operand = None) -> DeviceArray:
    return array.transpose(*(axes or ()))


@_implements(np.swapaxes)
def _swapaxes(array: Operand, first: int, second: int) -> DeviceArray:
    return array.swapaxes(first, second)


@_implements(np.moveaxis)
def _moveaxis(array: Operand, source: Operand, target: Operand) -> DeviceArray:
    return DeviceArray(torch.movedim(array.tensor, source, target))


@_implements(np.broadcast_to)
def _broadcast_to(array: Operand, shape: Operand) -> DeviceArray:
    return DeviceArray(array.tensor.expand(tuple(shape)))


@_implements(np.stack)
def _stack(arrays: Operand, axis: int = 0, **keywords: Any) -> DeviceArray:
    return DeviceArray(torch.stack(_tensors(*arrays), axis))


@_implements(np.concatenate)
def _concatenate(arrays: Operand, axis: int = 0, **keywords: Any) -> DeviceArray:
    return DeviceArray(torch.cat(_tensors(*arrays), axis))


@_implements(np.column_stack)
def _column_stack(arrays: Operand) -> DeviceArray:
    return DeviceArray(torch.cat([item if item.ndim > 1 else item[:, None] for item in _tensors(*arrays)], 1))


@_implements(np.pad)
def _pad(array: Operand, widths: Operand, mode: str = "constant", constant_values: Operand = 0) -> DeviceArray:
    if mode != "constant":
        raise TypeError(f"np.pad with mode={mode!r} has no function of torch for a DeviceArray")
    pairs = np.broadcast_to(np.asarray(widths), (array.ndim, 2)).tolist()
    flat = [int(number) for pair in reversed(pairs) for number in pair]
    return DeviceArray(torch.nn.functional.pad(array.tensor, flat, value=constant_values))


@_implements(np.flip)
def _flip(array: Operand, axis: Operand = None) -> DeviceArray:
    axes = tuple(range(array.ndim)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    return DeviceArray(array.tensor.flip(axes))


@_implements(np.repeat)
def _repeat(array: Operand, count: int, axis: int | None = None) -> DeviceArray:
    return DeviceArray(torch.repeat_interleave(array.tensor, count, axis))


@_implements(np.resize)
def _resize(array: Operand, shape: Operand) -> DeviceArray:
    places = torch.arange(math.prod(np.atleast_1d(shape).tolist()), device=array.tensor.device) % max(array.size, 1)
    return DeviceArray(array.tensor.reshape(-1)[places].reshape(shape))


# -- reductions


def _axes(array: Operand, axis: Operand) -> tuple[int, ...]:
    if axis is None:
        return tuple(range(array.ndim))
    return axis if isinstance(axis, tuple) else (axis,)


@_implements(np.sum)
def _sum(
    array: Operand, axis: Operand = None, dtype: Operand = None, out: Operand = None, keepdims: bool = False, **_: Any
) -> DeviceArray:
    kind = array.dtype
    if dtype is None:
        dtype = np.dtype("int64") if kind.kind in "ib" else np.dtype("int64") if kind.kind == "u" else kind
    axes = _axes(array, axis)
    tensor = array.tensor.to(torch_dtype(np.dtype(dtype)))
    return _into(out, tensor.sum(axes, keepdim=keepdims) if axes else tensor.clone())


@_implements(np.mean)
def _mean(
    array: Operand, axis: Operand = None, dtype: Operand = None, out: Operand = None, keepdims: bool = False, **_: Any
) -> DeviceArray:
    if dtype is None:
        dtype = array.dtype if array.dtype.kind == "f" else np.dtype("float64")
    return _into(out, array.tensor.to(torch_dtype(np.dtype(dtype))).mean(_axes(array, axis), keepdim=keepdims))


def _extreme(array: Operand, axis: Operand, keepdims: bool, name: str) -> DeviceArray:
    tensor = array.tensor
    if not tensor.numel():
        raise ValueError(f"zero-size array to reduction operation {name}imum which has no identity")
    axes = _axes(array, axis)
    return DeviceArray(getattr(torch, f"a{name}")(tensor, axes, keepdim=keepdims) if axes else tensor.clone())


@_implements(np.max, np.amax)
def _max(
    array: Operand, axis: Operand = None, out: Operand = None, keepdims: bool = False, initial: Operand = None,
    **keywords: Any,
) -> DeviceArray:  # fmt: skip
    given = isinstance(initial, (int, float, np.number))
    if given and not array.size and axis is None:
        return DeviceArray(as_tensor(initial, array.tensor.device, array.tensor.dtype).reshape(()))
    made = _extreme(array, axis, keepdims, "max")
    made = np.maximum(made, np.asarray(initial, made.dtype)) if given else made
    return _into(out, made.tensor)


@_implements(np.min, np.amin)
def _min(array: Operand, axis: Operand = None, out: Operand = None, keepdims: bool = False, **_: Any) -> DeviceArray:
    return _into(out, _extreme(array, axis, keepdims, "min").tensor)


@_implements(np.argmax)
def _argmax(array: Operand, axis: int | None = None, **_: Any) -> DeviceArray:
    """The first of equal elements, and the first NaN; torch returns any index among equals."""
    tensor = array.tensor.reshape(-1) if axis is None else array.tensor
    axis = 0 if axis is None else axis
    largest = tensor.amax(axis, keepdim=True)
    hit = (tensor == largest) | (tensor != tensor)
    size = tensor.shape[axis]
    shape = [1] * tensor.ndim
    shape[axis] = size
    places = torch.arange(size, device=tensor.device).reshape(shape)
    return DeviceArray(torch.where(hit, places, size).amin(axis))


def _truth(
    reduce: Callable[..., torch.Tensor], array: Operand, axis: Operand, out: Operand, keepdims: bool
) -> DeviceArray:
    tensor = array.tensor != 0
    axes = _axes(array, axis)
    return _into(out, reduce(tensor, axes, keepdim=keepdims) if axes else tensor)


@_implements(np.all)
def _all(array: Operand, axis: Operand = None, out: Operand = None, keepdims: bool = False, **_: Any) -> DeviceArray:
    return _truth(torch.all, array, axis, out, keepdims)


@_implements(np.any)
def _any(array: Operand, axis: Operand = None, out: Operand = None, keepdims: bool = False, **_: Any) -> DeviceArray:
    return _truth(torch.any, array, axis, out, keepdims)


@_implements(np.cumsum)
def _cumsum(array: Operand, axis: int | None = None, dtype: Operand = None, out: Operand = None) -> DeviceArray:
    tensor = array.tensor.reshape(-1) if axis is None else array.tensor
    dtype = np.dtype(dtype or array.dtype)
    return _into(out, torch.cumsum(tensor, 0 if axis is None else axis, dtype=torch_dtype(dtype)))


@_implements(np.trace)
def _trace(array: Operand, *arguments: Any) -> DeviceArray:
    return np.sum(np.diagonal(array, *arguments), axis=-1)


#: The ufuncs that reduce, and the functions that do so.
REDUCTIONS.update({np.add: _sum, np.maximum: _max, np.minimum: _min, np.logical_or: _any, np.logical_and: _all})

# -- places


@_implements(np.nonzero)
def _nonzero(array: Operand) -> tuple[DeviceArray, ...]:
    return tuple(map(DeviceArray, torch.nonzero(array.tensor, as_tuple=True)))


@_implements(np.flatnonzero)
def _flatnonzero(array: Operand) -> DeviceArray:
    return DeviceArray(torch.nonzero(array.tensor.reshape(-1))[:, 0])


@_implements(np.take)
def _take(array: Operand, indices: Operand, axis: int | None = None, **keywords: Any) -> DeviceArray:
    device = device_of(array, indices)
    tensor, places = as_tensor(array, device), as_tensor(indices, device).long()
    tensor = tensor.reshape(-1) if axis is None else tensor
    axis = 0 if axis is None else axis % tensor.ndim
    made = tensor.index_select(axis, places.reshape(-1))
    return DeviceArray(made.reshape(*tensor.shape[:axis], *places.shape, *tensor.shape[axis + 1 :]))


@_implements(np.take_along_axis)
def _take_along(array: Operand, indices: Operand, axis: int | None = -1) -> DeviceArray:
    device = device_of(array, indices)
    tensor = as_tensor(array, device)
    places = as_tensor(indices, device).long()
    if axis is None:
        return DeviceArray(tensor.reshape(-1).gather(0, places))
    return DeviceArray(torch.take_along_dim(tensor, places, axis))


@_implements(np.put_along_axis)
def _put_along(array: Operand, indices: Operand, values: Operand, axis: int) -> None:
    if not isinstance(array, DeviceArray):
        raise TypeError("numbers of a device are not written to an array of the host")
    places = as_tensor(indices, array.tensor.device).long()
    source = as_tensor(values, array.tensor.device, array.tensor.dtype)
    array.tensor.scatter_(axis, places, source.expand(places.shape))


@_implements(np.argsort)
def _argsort(array: Operand, axis: int = -1, kind: Operand = None, **keywords: Any) -> DeviceArray:
    return DeviceArray(torch.sort(_alike(array.tensor), dim=axis, stable=True)[1])


@_implements(np.sort)
def _sort(array: Operand, axis: int = -1, **keywords: Any) -> DeviceArray:
    places = torch.sort(_alike(array.tensor), dim=axis, stable=True)[1]
    return DeviceArray(array.tensor.gather(axis, places))


def _alike(tensor: torch.Tensor) -> torch.Tensor:
    """Zeros and NaN without their signs, which a sort by digits would take for a difference."""
    return torch.where(tensor == tensor, tensor + 0.0, math.nan) if tensor.is_floating_point() else tensor


@_implements(np.searchsorted)
def _searchsorted(edges: Operand, values: Operand, side: str = "left", **keywords: Any) -> DeviceArray:
    first, second = _tensors(edges, values)
    return DeviceArray(torch.searchsorted(first.contiguous(), second.contiguous(), right=side == "right"))


@_implements(np.unique)
def _unique(array: Operand, return_inverse: bool = False, equal_nan: bool = True, **keywords: Any) -> Operand:
    made = torch.unique(array.tensor, return_inverse=return_inverse)
    return tuple(map(DeviceArray, made)) if return_inverse else DeviceArray(made)


@_implements(np.unravel_index)
def _unravel(places: Operand, shape: Operand) -> tuple[DeviceArray, ...]:
    return tuple(map(DeviceArray, torch.unravel_index(places.tensor, tuple(shape))))


@_implements(np.bincount)
def _bincount(places: Operand, weights: Operand = None, minlength: int = 0) -> DeviceArray:
    device = device_of(places, weights)
    tensor = as_tensor(places, device).long()
    size = max(minlength, int(tensor.max()) + 1 if tensor.numel() else 0)
    values = torch.ones_like(tensor) if weights is None else as_tensor(weights, tensor.device, torch.float64)
    total = torch.zeros(size, dtype=values.dtype, device=tensor.device)
    add_by_index(total, (tensor,), values)
    return DeviceArray(total)


@_implements(np.diagonal)
def _diagonal(array: Operand, offset: int = 0, axis1: int = 0, axis2: int = 1) -> DeviceArray:
    return DeviceArray(torch.diagonal(array.tensor, offset, axis1, axis2))


@_implements(np.tril)
def _tril(array: Operand, k: int = 0) -> DeviceArray:
    return DeviceArray(torch.tril(array.tensor, k))


@_implements(np.triu)
def _triu(array: Operand, k: int = 0) -> DeviceArray:
    return DeviceArray(torch.triu(array.tensor, k))


# -- formulas


@_implements(np.polyval)
def _polyval(coefficients: Operand, x: Operand) -> DeviceArray:
    total = np.zeros_like(x)
    for coefficient in coefficients:
        total = total * x + float(coefficient)
    return total


@_implements(np.nan_to_num)
def _nan_to_num(array: Operand, **keywords: Any) -> DeviceArray:
    return DeviceArray(torch.nan_to_num(array.tensor))


@_implements(np.isclose)
def _isclose(a: Operand, b: Operand, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> DeviceArray:
    first, second = _tensors(a, b)
    if not first.is_floating_point():
        first, second = first.double(), second.double()
    return DeviceArray(torch.isclose(first, second, rtol, atol, equal_nan))


@_implements(np.allclose)
def _allclose(a: Operand, b: Operand, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> bool:
    return bool(torch.all(_isclose(a, b, rtol, atol, equal_nan).tensor))


@_implements(np.einsum)
def _einsum(text: str, *operands: Any, **keywords: Any) -> DeviceArray:
    return DeviceArray(torch.einsum(text, *_tensors(*operands)))


@_implements(np.dot)
def _dot(a: Operand, b: Operand) -> DeviceArray:
    first, second = _tensors(a, b)
    return DeviceArray(torch.matmul(first, second))


@_implements(np.linalg.norm)
def _norm(array: Operand, ord: Operand = None, axis: Operand = None, keepdims: bool = False) -> DeviceArray:
    return DeviceArray(torch.linalg.vector_norm(array.tensor, 2 if ord is None else ord, axis, keepdim=keepdims))


@_implements(np.histogram)
def _histogram(data: Operand, bins: Operand = 10, range: Operand = None, **keywords: Any) -> tuple[DeviceArray, Any]:
    """Counts between edges, the last one included, as NumPy's, which compares with the edges in the end."""
    values = data.tensor.reshape(-1)
    if isinstance(bins, int):
        edges: Operand = np.linspace(range[0], range[1], bins + 1)
        kind = np.result_type(np.float64, data.dtype) if data.dtype.kind != "f" else data.dtype
        sorted_edges = as_tensor(edges.astype(kind), values.device)
    else:
        edges, sorted_edges = bins, as_tensor(bins, values.device)
    both = torch.promote_types(values.dtype, sorted_edges.dtype)
    values, sorted_edges = values.to(both), sorted_edges.to(both).contiguous()
    count = len(sorted_edges) - 1
    place = torch.searchsorted(sorted_edges, values, right=True) - 1
    place = torch.where(values == sorted_edges[-1], count - 1, place)
    inside = (place >= 0) & (place < count) & (values == values)
    return _bincount(DeviceArray(place[inside]), minlength=count), edges


# -- linear algebra, whose errors are NumPy's


def _linear(function: Callable[..., Operand]) -> Callable[..., Operand]:
    def call(*arrays: Any, **keywords: Any) -> Operand:
        try:
            made = function(*_tensors(*arrays), **keywords)
        except _LinAlgError as error:
            singular = "singular" in str(error)
            message = "Singular matrix" if singular else "Matrix is not positive definite"
            raise np.linalg.LinAlgError(message) from error
        return tuple(map(DeviceArray, made)) if isinstance(made, tuple) else DeviceArray(made)

    return call


FUNCTIONS.update(
    {
        np.linalg.inv: _linear(torch.linalg.inv),
        np.linalg.cholesky: _linear(torch.linalg.cholesky),
        np.linalg.solve: _linear(torch.linalg.solve),
        np.linalg.det: _linear(torch.linalg.det),
        np.linalg.slogdet: _linear(torch.linalg.slogdet),
        np.linalg.eigh: _linear(torch.linalg.eigh),
        np.linalg.svd: _linear(torch.linalg.svd),
        np.linalg.qr: _linear(torch.linalg.qr),
        np.fft.fft: _linear(torch.fft.fft),
        np.fft.ifft: _linear(torch.fft.ifft),
    }
)

# -- new arrays `like` one of a device


def _filled(value: float | None) -> Callable[..., DeviceArray]:
    def create(on: torch.device, shape: Operand, *more: Any, dtype: Operand = None, **keywords: Any) -> DeviceArray:
        number, *rest = more if value is None else (value, *more)
        dtype = rest[0] if rest else dtype
        if dtype is None:
            dtype = float if value is not None else np.asarray(number).dtype
        sizes = (int(shape),) if isinstance(shape, (int, np.integer)) else tuple(map(int, shape))
        return DeviceArray(torch.full(sizes, number, dtype=torch_dtype(np.dtype(dtype)), device=on))

    return create


def _new_arange(on: torch.device, *ends: Any, dtype: Operand = None, **keywords: Any) -> DeviceArray:
    kind = np.arange(0, *([] if len(ends) < 3 else [0, ends[2]])).dtype if dtype is None else np.dtype(dtype)
    return DeviceArray(torch.arange(*ends, dtype=torch_dtype(kind), device=on))


def _new_array(on: torch.device, value: Operand, dtype: Operand = None, **keywords: Any) -> DeviceArray:
    return DeviceArray(as_tensor(value, on, None if dtype is None else torch_dtype(np.dtype(dtype))))


def _new_contiguous(on: torch.device, value: Operand, dtype: Operand = None, **keywords: Any) -> DeviceArray:
    return DeviceArray(_new_array(on, value, dtype).tensor.contiguous())


_CREATE: dict[Any, Callable[..., Operand]] = {
    np.zeros: _filled(0), np.empty: _filled(0), np.ones: _filled(1), np.full: _filled(None), np.arange: _new_arange,
    np.asarray: _new_array, np.array: _new_array, np.ascontiguousarray: _new_contiguous,
}  # fmt: skip
CREATORS.update(_CREATE)
