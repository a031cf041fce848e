"""DeviceArray: a tensor that NumPy's functions compute with, so that a record's NumPy kernel runs on a device.

NumPy hands calls with such an array on (NEP 13 and NEP 18): a ufunc to `__array_ufunc__`, any other function to
`__array_function__`, which look up what torch has for it, here or in `device_functions`. Dtypes are those that NumPy
would give. Numbers never go to the host unasked: NumPy cannot convert a DeviceArray, and a function without an entry,
or an argument that the entry does not have, is a TypeError. What a kernel asks for as a Python number, a length or a
condition, is read from the device; so are the least and the largest of the places that index an array, because a place
outside would end the process's use of the device instead of raising an error. Sums by index have a fixed order.
"""

from __future__ import annotations

import contextlib
import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.lib.array_utils import normalize_axis_index

from hybrid_lab.engines.memory import numpy_dtype, shared, torch_dtype
from hybrid_lab.ops.elementwise import special

#: A DeviceArray, an array of the host, a number, or any other argument of NumPy's functions.
Operand: TypeAlias = Any
SCALARS = (bool, int, float, complex)
#: NumPy's rules for conversions.
Casting: TypeAlias = Literal["no", "equiv", "safe", "same_kind", "unsafe"]


class _Flags(NamedTuple):
    """What kernels ask an array about its memory."""

    c_contiguous: bool
    writeable: bool = True


#: What torch's errors of a device or of memory say; they are no errors of arguments.
_OF_DEVICE = re.compile(r"\bcu[a-z]* ?error|\bhip error|out of memory|allocate memory", re.IGNORECASE)


@contextlib.contextmanager
def numpy_errors() -> Iterator[None]:
    """Raise torch's errors of arguments as NumPy's: AxisError for an axis outside, ValueError for shapes."""
    try:
        yield
    except IndexError as error:
        if type(error) is not IndexError or not str(error).startswith("Dimension "):
            raise
        raise np.exceptions.AxisError(str(error)) from error
    except RuntimeError as error:
        if type(error) is not RuntimeError or _OF_DEVICE.search(str(error)):
            raise
        if "not implemented for" in str(error):
            raise TypeError(f"torch has no form for a DeviceArray of this dtype: {error}") from error
        raise ValueError(str(error)) from error


class DeviceArray(np.lib.mixins.NDArrayOperatorsMixin):
    """A tensor with the interface of an array. tensor : its numbers, on any device of torch"""

    __array_priority__ = 1000.0

    def __init__(self, tensor: torch.Tensor):
        self.tensor = tensor

    def __array__(self, *arguments: Any, **keywords: Any) -> np.ndarray:
        raise TypeError("numbers of a device are not converted to an array of the host")

    def __repr__(self) -> str:
        return f"DeviceArray({self.tensor!r})"

    # -- what it is ------------------------------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.tensor.shape)

    @property
    def dtype(self) -> np.dtype:
        return numpy_dtype(self.tensor.dtype)

    @property
    def ndim(self) -> int:
        return self.tensor.ndim

    @property
    def size(self) -> int:
        return self.tensor.numel()

    @property
    def itemsize(self) -> int:
        return self.tensor.itemsize

    @property
    def nbytes(self) -> int:
        return self.tensor.nbytes

    @property
    def T(self) -> DeviceArray:
        return DeviceArray(self.tensor.permute(*reversed(range(self.ndim))))

    @property
    def flags(self) -> _Flags:
        return _Flags(self.tensor.is_contiguous())

    @property
    def base(self) -> None:
        """The array under a view, for an array of the host. Here the step looks where its results lie."""
        return None

    @property
    def real(self) -> DeviceArray:
        return DeviceArray(self.tensor.real) if self.tensor.is_complex() else self

    @property
    def imag(self) -> DeviceArray:
        return DeviceArray(self.tensor.imag)

    def __len__(self) -> int:
        return len(self.tensor)

    def __iter__(self) -> Iterator[DeviceArray]:
        return (DeviceArray(item) for item in self.tensor)

    # -- numbers for the host --------------------------------------------------------------------------------------

    def item(self) -> Operand:
        return self.tensor.item()

    def tolist(self) -> Operand:
        return self.tensor.tolist()

    def __bool__(self) -> bool:
        return bool(self.tensor)

    def __int__(self) -> int:
        return int(self.tensor)

    def __index__(self) -> int:
        return int(self.tensor)

    def __float__(self) -> float:
        return float(self.tensor)

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec)

    # -- elements --------------------------------------------------------------------------------------------------

    @numpy_errors()
    def __getitem__(self, key: Operand) -> DeviceArray:
        key, flipped = self.key(key)
        found = self.tensor.flip(flipped) if flipped else self.tensor
        return DeviceArray(found[key])

    @numpy_errors()
    def __setitem__(self, key: Operand, value: Operand) -> None:
        key, flipped = self.key(key)
        if flipped:
            raise TypeError("a DeviceArray is not written backwards")
        self.tensor[key] = self._operand(value, self.tensor.dtype)

    def key(self, key: Operand) -> tuple[Any, list[int]]:
        """The key for torch, and the axes that are read backwards before; of these only whole ones can be."""
        items, flipped = [], []
        given = key if isinstance(key, tuple) else (key,)
        read = sum(map(_axes_read, given))
        axis = -1  # of this array, not of the key
        for item in given:
            axis += self.ndim - read if item is Ellipsis else _axes_read(item)
            if isinstance(item, slice) and item.step is not None and item.step < 0:
                if item != slice(None, None, -1):
                    raise TypeError("of a DeviceArray only whole axes are read backwards")
                flipped.append(axis)
                item = slice(None)
            elif isinstance(item, (DeviceArray, np.ndarray)) and item.dtype.kind not in "iub":
                raise IndexError("arrays used as indices must be of integer (or boolean) type")
            elif isinstance(item, DeviceArray):
                item = item.tensor if item.tensor.dtype == torch.bool else within(item.tensor, self.shape, axis)
            elif isinstance(item, list) or (isinstance(item, np.ndarray) and item.ndim):
                places = np.asarray(item)
                on_host = as_tensor(places, torch.device("cpu"))  # checked there, before it is copied
                on_host = on_host if places.dtype == bool else within(on_host, self.shape, axis)
                item = on_host.to(self.tensor.device)
            elif isinstance(item, np.integer):
                item = int(item)
            items.append(item)
        return tuple(items), flipped

    def _operand(self, value: Operand, dtype: torch.dtype | None = None) -> torch.Tensor:
        """A number or array as a tensor on this device."""
        return as_tensor(value, self.tensor.device, dtype)

    # -- methods of arrays -----------------------------------------------------------------------------------------

    def view(self, dtype: Operand) -> DeviceArray:
        return DeviceArray(self.tensor.view(torch_dtype(np.dtype(dtype))))

    def clip(self, low: Operand, high: Operand) -> DeviceArray:
        return FUNCTIONS[np.clip](self, low, high)

    def astype(self, dtype: Operand, copy: bool = True, casting: Casting = "unsafe") -> DeviceArray:
        _check_cast(self.dtype, np.dtype(dtype), casting)
        wanted = torch_dtype(np.dtype(dtype))
        if wanted == self.tensor.dtype and not copy:
            return self
        return DeviceArray(self.tensor.to(wanted, copy=True))

    def copy(self) -> DeviceArray:
        return DeviceArray(self.tensor.clone(memory_format=torch.contiguous_format))

    def fill(self, value: Operand) -> None:
        self.tensor.fill_(value)

    @numpy_errors()
    def reshape(self, *shape: Any) -> DeviceArray:
        sizes = shape[0] if len(shape) == 1 and isinstance(shape[0], Sequence) else shape
        return DeviceArray(self.tensor.reshape(tuple(max(int(size), -1) for size in sizes)))

    @numpy_errors()
    def transpose(self, *axes: Any) -> DeviceArray:
        if not axes or axes == (None,):
            return self.T
        order = axes[0] if len(axes) == 1 and isinstance(axes[0], Sequence) else axes
        return DeviceArray(self.tensor.permute(tuple(order)))

    @numpy_errors()
    def swapaxes(self, first: int, second: int) -> DeviceArray:
        return DeviceArray(self.tensor.transpose(first, second))

    def take(self, indices: Operand, axis: int | None = None) -> DeviceArray:
        return FUNCTIONS[np.take](self, indices, axis)

    def sum(self, axis: Operand = None, dtype: Operand = None, keepdims: bool = False) -> DeviceArray:
        return FUNCTIONS[np.sum](self, axis=axis, dtype=dtype, keepdims=keepdims)

    def mean(self, axis: Operand = None, dtype: Operand = None, keepdims: bool = False) -> DeviceArray:
        return FUNCTIONS[np.mean](self, axis=axis, dtype=dtype, keepdims=keepdims)

    def max(self, axis: Operand = None, keepdims: bool = False, **keywords: Any) -> DeviceArray:
        return FUNCTIONS[np.max](self, axis=axis, keepdims=keepdims, **keywords)

    def min(self, axis: Operand = None, keepdims: bool = False, **keywords: Any) -> DeviceArray:
        return FUNCTIONS[np.min](self, axis=axis, keepdims=keepdims, **keywords)

    def all(self, axis: Operand = None) -> DeviceArray:
        return FUNCTIONS[np.all](self, axis=axis)

    def any(self, axis: Operand = None) -> DeviceArray:
        return FUNCTIONS[np.any](self, axis=axis)

    def argmax(self, axis: int | None = None) -> DeviceArray:
        return FUNCTIONS[np.argmax](self, axis)

    # -- NumPy's protocols -----------------------------------------------------------------------------------------

    @numpy_errors()
    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: Any, out: Operand = None, **keywords: Any
    ) -> Operand:
        function = _UFUNCS.get(ufunc)
        if function is None:
            raise TypeError(f"np.{ufunc.__name__} has no function of torch for a DeviceArray")
        device = self.tensor.device
        if method == "at":
            return _at(ufunc, device, *inputs)
        if method != "__call__":
            over_axes: Callable[..., Operand] | None = {
                "accumulate": _ACCUMULATIONS.get(ufunc), "reduce": REDUCTIONS.get(ufunc),
                "reduceat": _sums_of_segments if ufunc is np.add else None,
            }.get(method)  # fmt: skip
            if over_axes is None:
                raise TypeError(f"np.{ufunc.__name__}.{method} has no function of torch for a DeviceArray")
            made = checked_call(f"np.{ufunc.__name__}.{method}", over_axes, inputs, {"axis": 0} | keywords)
            return made if out is None else written(out[0], made.tensor)
        where, casting = keywords.pop("where", True), keywords.pop("casting", "same_kind")
        if ufunc in _OPAQUE:
            if out is not None or where is not True or keywords:
                raise TypeError(f"np.{ufunc.__name__} for a DeviceArray takes no further arguments")
            results: Operand = function(*(as_tensor(item, device) for item in inputs))
            return DeviceArray(results)
        kinds = tuple(type(item) if type(item) in SCALARS else kind_of(item) for item in inputs)
        dtype = keywords.pop("dtype", None)
        if keywords:
            raise TypeError(f"np.{ufunc.__name__} with {', '.join(keywords)} has no function of torch")
        if dtype is None:
            loop = ufunc.resolve_dtypes(kinds + (None,) * ufunc.nout)
        else:
            wanted = (None,) * ufunc.nin + (np.dtype(dtype),) * ufunc.nout
            loop = ufunc.resolve_dtypes(kinds + (None,) * ufunc.nout, signature=wanted, casting="same_kind")
        tensors = [
            as_tensor(item, device, torch_dtype(kind)) for item, kind in zip(inputs, loop[: len(inputs)], strict=True)
        ]
        results = function(*tensors)
        results = results if isinstance(results, tuple) else (results,)
        results = [item.to(torch_dtype(kind)) for item, kind in zip(results, loop[len(inputs) :], strict=True)]
        if out is not None:
            results = [write(target, result, where, casting) for target, result in zip(out, results, strict=True)]
        elif where is not True:
            raise TypeError("where= needs out=")
        arrays = [DeviceArray(item) for item in results]
        return arrays[0] if len(arrays) == 1 else tuple(arrays)

    def __array_function__(self, function: Operand, types: Operand, arguments: Operand, keywords: Operand) -> Operand:
        if function in CREATORS:
            return checked_call(
                f"np.{function.__name__}", CREATORS[function], (self.tensor.device, *arguments), keywords
            )
        name = f"np.{getattr(function, '__name__', function)}"
        known = FUNCTIONS.get(function)
        if known is None:
            raise TypeError(f"{name} has no function of torch for a DeviceArray")
        return checked_call(name, known, arguments, keywords)


def checked_call(name: str, function: Callable[..., Operand], arguments: Operand, keywords: dict[str, Any]) -> Operand:
    """The function's result. Raises TypeError, with NumPy's name, for arguments that the function does not have, and
    for arguments of a wrong shape or axis what NumPy raises.
    """
    try:
        with numpy_errors():
            return function(*arguments, **keywords)
    except TypeError:
        try:
            inspect.signature(function).bind(*arguments, **keywords)
        except TypeError as error:
            raise TypeError(f"{name} has no form for a DeviceArray with these arguments: {error}") from None
        raise


def _axes_read(item: Operand) -> int:
    """How many axes of an array an item of a key is for; an Ellipsis is for the axes that are left."""
    if item is None or item is Ellipsis or isinstance(item, bool):
        return 0
    return item.ndim if isinstance(item, (DeviceArray, np.ndarray)) and item.dtype == bool else 1


def kind_of(item: Operand) -> np.dtype:
    return item.dtype if isinstance(item, (DeviceArray, np.ndarray, np.generic)) else np.asarray(item).dtype


def as_tensor(value: Operand, device: torch.device, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Numbers of the host or of the device as a tensor on the device."""
    if isinstance(value, DeviceArray):
        return value.tensor if dtype is None else value.tensor.to(dtype)
    if type(value) in SCALARS and dtype is not None:
        return torch.full((), value, dtype=dtype, device=device)
    array = np.asarray(value)
    if not array.flags.writeable or not array.flags.c_contiguous:
        array = np.array(array, order="C")
    return shared(array).to(device, dtype)


def device_of(*items: Any) -> torch.device:
    for item in items:
        if isinstance(item, DeviceArray):
            return item.tensor.device
        if isinstance(item, (list, tuple)):
            try:
                return device_of(*item)
            except LookupError:
                continue
    raise LookupError("no DeviceArray")


def _check_cast(source: np.dtype, target: np.dtype, casting: Casting) -> None:
    if casting != "unsafe" and not np.can_cast(source, target, casting):
        raise TypeError(f"cannot cast {source.name} to {target.name} with casting={casting!r}")


def within(places: torch.Tensor, shape: Sequence[int], axis: int) -> torch.Tensor:
    """Places along an axis as int64. Raises IndexError as NumPy does if one of them is outside."""
    places, size = places.long(), shape[axis]
    if places.numel():
        low, high = torch.stack(torch.aminmax(places)).tolist()
        if low < -size or high >= size:
            outside = low if low < -size else high
            raise IndexError(f"index {outside} is out of bounds for axis {axis} with size {size}")
    return places


def write(target: Operand, result: torch.Tensor, where: Operand = True, casting: Casting = "same_kind") -> torch.Tensor:
    """Write a result into the array `target`, where `where` holds; the tensor of `target`. Raises TypeError."""
    if not isinstance(target, DeviceArray):
        raise TypeError("numbers of a device are not written to an array of the host")
    _check_cast(numpy_dtype(result.dtype), target.dtype, casting)
    if where is not True:
        result = torch.where(as_tensor(where, result.device), result, target.tensor.to(result.dtype))
    target.tensor.copy_(result)
    return target.tensor


def written(out: Operand, made: torch.Tensor) -> DeviceArray:
    """A result in the memory of `out`. Raises ValueError if `out` has another shape."""
    if out.shape != tuple(made.shape):
        raise ValueError(f"out has the shape {out.shape}, the result {tuple(made.shape)}")
    return DeviceArray(write(out, made))


def add_by_index(total: torch.Tensor, key: tuple[torch.Tensor, ...], values: torch.Tensor) -> None:
    """total[key] += values; a place may come several times. On a device torch sorts the places, so that the additions
    have the same order in every run.
    """
    shape = torch.broadcast_shapes(*(item.shape for item in key)) + total.shape[len(key) :]
    total.index_put_(key, values.expand(shape), accumulate=True)


def _at(ufunc: np.ufunc, device: torch.device, target: Operand, key: Operand, *values: Any) -> None:
    if ufunc is not np.add or not isinstance(target, DeviceArray):
        raise TypeError(f"np.{ufunc.__name__}.at has no function of torch for a DeviceArray")
    items, flipped = target.key(key)
    if flipped:
        raise TypeError("a DeviceArray is not written backwards")
    value = as_tensor(values[0], device, target.tensor.dtype)
    rank = max(item.ndim for item in items if isinstance(item, torch.Tensor))
    places = []
    for axis, item in enumerate(items):
        if isinstance(item, slice):  # only a whole axis in front, which is one of the result
            if item != slice(None) or axis:
                raise TypeError("np.add.at with slices behind an index has no function of torch for a DeviceArray")
            item = torch.arange(len(target), device=device).reshape(-1, *(1,) * rank)
        places.append(torch.as_tensor(item, device=device))
    add_by_index(target.tensor, tuple(places), value)


def _running_or(array: Operand, axis: int = 0) -> DeviceArray:
    return DeviceArray(array.tensor.to(torch.int64).cummax(normalize_axis_index(axis, array.ndim))[0] != 0)


def _running_maximum(array: Operand, axis: int = 0) -> DeviceArray:
    return DeviceArray(array.tensor.cummax(normalize_axis_index(axis, array.ndim))[0])


def _sums_of_segments(values: DeviceArray, starts: Operand, axis: int = 0) -> DeviceArray:
    """Of segments behind one another along the first axis, in the order of their elements."""
    if axis:
        raise TypeError("np.add.reduceat for a DeviceArray takes the first axis only")
    places = as_tensor(starts, values.tensor.device)
    if places.ndim != 1:
        raise ValueError("np.add.reduceat takes starts along one axis")
    if places.is_floating_point():
        raise TypeError("np.add.reduceat takes whole numbers as starts")
    places, count = places.long(), len(values)
    low, high = torch.stack(torch.aminmax(places)).tolist() if len(places) else (0, 0)
    if low < 0 or (len(places) and high >= count):
        raise IndexError(f"index {low if low < 0 else high} out-of-bounds in add.reduceat [0, {count})")
    ends = torch.cat([places[1:], places.new_tensor([count])])[: len(places)]
    tensor = values.tensor.contiguous()
    if not tensor.is_floating_point():  # differences of running sums wrap around as sums do
        running = torch.cat([tensor.new_zeros((1, *tensor.shape[1:]), dtype=torch.int64), tensor.long().cumsum(0)])
        return DeviceArray(running[torch.maximum(ends, places + 1)] - running[places])
    if bool((ends <= places).any()):  # such a start has its own element only
        lengths = (ends - places).clamp(min=1)
        before = lengths.cumsum(0) - lengths
        line = torch.arange(int(lengths.sum()), device=tensor.device)
        tensor = tensor[line + torch.repeat_interleave(places - before, lengths)]
        places, count = before, len(tensor)
    if not tensor.numel() or not len(places):
        return DeviceArray(tensor.new_zeros((len(places), *tensor.shape[1:])))
    offsets = torch.cat([places, places.new_tensor([count])])
    return DeviceArray(torch.segment_reduce(tensor, "sum", offsets=offsets, axis=0))


def _sign(x: torch.Tensor) -> torch.Tensor:
    return torch.where(torch.isnan(x), x, torch.sign(x)) if x.is_floating_point() else torch.sign(x)


def _frexp(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    mantissa, exponent = torch.frexp(x)
    return mantissa, exponent


def _power(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.pow(x, y)


def _same(x: torch.Tensor) -> torch.Tensor:
    return x


def _whole_or(function: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[torch.Tensor], torch.Tensor]:
    """The function of floating numbers; whole ones stay."""
    return lambda x: function(x) if x.is_floating_point() else x.clone()


def _matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.matmul(a, b)


#: ufuncs of Python functions, whose dtypes NumPy does not know -> torch's.
_OPAQUE = {special.exact_erf}

#: What `device_functions` has for NumPy's other functions: function -> implementation.
FUNCTIONS: dict[Any, Callable[..., Operand]] = {}
#: Functions that make an array `like` one of a device -> implementation, which takes the device first.
CREATORS: dict[Any, Callable[..., Operand]] = {}
#: ufunc -> the implementation of its `reduce`.
REDUCTIONS: dict[Any, Callable[..., Operand]] = {}
#: ufunc -> the implementation of its `accumulate`.
_ACCUMULATIONS: dict[Any, Callable[..., Operand]] = {np.logical_or: _running_or, np.maximum: _running_maximum}

_UFUNCS: dict[Any, Callable[..., Operand]] = {
    **{getattr(np, name): getattr(torch, name) for name in (
        "add", "subtract", "multiply", "floor_divide", "remainder", "negative", "square", "sqrt", "exp", "expm1",
        "log", "log2", "log10", "log1p", "sin", "cos", "tan", "sinh", "cosh", "tanh", "arcsin", "arccos", "arctan",
        "arcsinh", "arccosh", "arctanh", "arctan2", "maximum", "minimum", "fmax", "fmin", "copysign", "isfinite",
        "isnan", "isinf", "logical_and", "logical_or", "logical_xor", "logical_not", "bitwise_and", "bitwise_or",
        "bitwise_xor", "hypot", "logaddexp", "reciprocal", "absolute", "fmod", "signbit", "deg2rad", "rad2deg",
    )},
    np.divide: torch.true_divide, np.invert: torch.bitwise_not, np.power: _power, np.sign: _sign,
    np.floor: _whole_or(torch.floor), np.ceil: _whole_or(torch.ceil), np.trunc: _whole_or(torch.trunc),
    np.rint: _whole_or(torch.round), np.equal: torch.eq, np.not_equal: torch.ne, np.less: torch.lt,
    np.less_equal: torch.le, np.greater: torch.gt, np.greater_equal: torch.ge, np.matmul: _matmul,
    np.vecdot: lambda a, b: (a * b).sum(-1), np.frexp: _frexp, np.positive: _same, np.conjugate: torch.conj,
    np.left_shift: torch.bitwise_left_shift, np.right_shift: torch.bitwise_right_shift,
    np.divmod: lambda a, b: (torch.floor_divide(a, b), torch.remainder(a, b)), special.exact_erf: torch.special.erf,
}  # fmt: skip
