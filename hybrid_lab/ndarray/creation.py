"""Making arrays: from values, by shape, as ranges; and functions of MXNet's `nd` that are no operators."""

from __future__ import annotations

import functools
import inspect
import operator
import sys
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar

import numpy as np
from numpy.typing import DTypeLike

from hybrid_lab.diagnostics.errors import DTypeError, ShapeError
from hybrid_lab.diagnostics.formatting import dimensions
from hybrid_lab.engines.memory import numpy_dtype
from hybrid_lab.ndarray.context import Context, current_context, device_of, gpu, require, resolve
from hybrid_lab.ndarray.invoke import invoke
from hybrid_lab.ndarray.ndarray import NDArray, check_dtype, sparse_zeros
from hybrid_lab.ndarray.tape import state
from hybrid_lab.ops.framework.dtypes import BFLOAT16
from hybrid_lab.ops.framework.operator import get
from hybrid_lab.system.provided import Provided

Shape = int | Sequence[int]
GPUS = (2, 10)
"""DLPack's kinds of devices that are GPUs: CUDA and ROCm."""

compose_creation: Provided[[str, dict[str, Any]], Any] = Provided("compose_creation")
"""Called with the name and the arguments of a function that makes an array in traced code of the 2.x style."""

sparse_array: Provided[[Any, Context | None, Any], NDArray] = Provided("sparse_array")
"""`nd.sparse.array`: a copy of a sparse array, or of a sparse matrix of SciPy."""

P = ParamSpec("P")
R = TypeVar("R")


def _traceable(function: Callable[P, R]) -> Callable[P, R]:
    """In a 2.x-style trace the array becomes part of the graph."""
    parameters = inspect.signature(function)

    @functools.wraps(function)
    def create(*args: P.args, **keywords: P.kwargs) -> Any:
        if state.trace is not None:
            return compose_creation(function.__name__, dict(parameters.bind(*args, **keywords).arguments))
        return function(*args, **keywords)

    return create


@_traceable
def array(source_array: Any, ctx: Context | None = None, dtype: Any = None) -> NDArray:
    """A new array with the values of a list, a NumPy array, an NDArray or a number. A sparse array, or a sparse matrix
    of SciPy, gives a sparse array.

        x = nd.array([[1, 2, 3], [4, 5, 6]])
        x.shape, x.dtype
        x[:, 1]

    dtype : default the source's for an NDArray, else float32 - also for NumPy's float64 and int64, as in MXNet
    Strings that are numbers are read as such. Raises DTypeError for anything but numbers.
    """
    if source_array.buffer.stored if isinstance(source_array, NDArray) else hasattr(source_array, "tocsr"):
        return sparse_array(source_array, ctx, dtype)
    ctx = resolve(ctx)
    if isinstance(source_array, NDArray):
        dtype = source_array.dtype if dtype is None else check_dtype(dtype)
        return NDArray.from_host(np.array(source_array._data, dtype, order="C"), ctx)
    wanted = np.dtype(np.float32) if dtype is None else check_dtype(dtype)
    try:
        values = np.asarray(source_array)
        if values.dtype.kind in "US":
            values = _numbers_in(values, wanted)
        if values.dtype.kind not in "biuf" and values.dtype.name != BFLOAT16:
            raise TypeError(f"elements of type {values.dtype}")
    except DTypeError:
        raise
    except (TypeError, ValueError) as error:
        raise DTypeError(
            f"nd.array takes numbers in lists of equal lengths, or an array of numbers ({error})"
        ) from None
    return NDArray.from_host(np.array(values, wanted, order="C"), ctx)


def _numbers_in(texts: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """The numbers that are written in an array of texts. Raises DTypeError that names the first text that is not a
    number.
    """
    try:
        return texts.astype(dtype)
    except (ValueError, OverflowError):
        for text in texts.ravel():
            try:
                text.astype(dtype)
            except ValueError:
                whole = "" if dtype.kind == "f" else f" of the dtype {dtype.name}"
                raise DTypeError(f"nd.array: {text.item()!r} is not a number{whole}") from None
            except OverflowError:
                raise DTypeError(f"nd.array: {text.item()!r} is out of the range of {dtype.name}") from None
        raise


def _sparse_zeros(stype: str, shape: Shape, ctx: Context | None, dtype: DTypeLike | None) -> NDArray:
    made: NDArray = sparse_zeros(stype, _shape(shape), np.float32 if dtype is None else dtype, resolve(ctx))
    return made


def _shape(shape: Shape) -> tuple[int, ...]:
    try:
        if isinstance(shape, np.ndarray):
            shape = shape.tolist()
        sizes = (operator.index(shape),) if hasattr(shape, "__index__") else tuple(map(operator.index, shape))
    except TypeError:
        raise ShapeError(f"a shape must be an int or a tuple of ints, not {shape!r}") from None
    if any(size < 0 for size in sizes):
        raise ShapeError(f"a shape cannot have negative sizes: {sizes}")
    return sizes


def _fill(
    shape: Shape, value: object, ctx: Context | None, dtype: DTypeLike | None, out: NDArray | None = None
) -> NDArray:
    if out is not None:
        out[:] = value
        return out
    return NDArray.from_host(np.full(_shape(shape), value, check_dtype(dtype or np.float32)), resolve(ctx))


@_traceable
def zeros(
    shape: Shape,
    ctx: Context | None = None,
    dtype: DTypeLike | None = None,
    stype: str | None = None,
    *,
    out: NDArray | None = None,
    name: str | None = None,
) -> NDArray:
    """Zeros. dtype : default float32; stype : 'default', or a sparse storage type."""
    if stype not in (None, "default"):
        return _sparse_zeros(stype, shape, ctx, dtype)
    if out is not None:
        return _fill(shape, 0, ctx, dtype, out)
    return NDArray.from_host(np.zeros(_shape(shape), check_dtype(dtype or np.float32)), resolve(ctx))


@_traceable
def ones(
    shape: Shape,
    ctx: Context | None = None,
    dtype: DTypeLike | None = None,
    *,
    out: NDArray | None = None,
    name: str | None = None,
) -> NDArray:
    """Ones. dtype : default float32."""
    return _fill(shape, 1, ctx, dtype, out)


@_traceable
def full(
    shape: Shape,
    val: float,
    ctx: Context | None = None,
    dtype: DTypeLike | None = np.float32,
    out: NDArray | None = None,
) -> NDArray:
    """An array filled with `val`."""
    return _fill(shape, val, ctx, dtype, out)


def empty(
    shape: Shape, ctx: Context | None = None, dtype: DTypeLike | None = None, stype: str | None = None
) -> NDArray:
    """An array with arbitrary values, to be written. stype : 'default', or a sparse storage type, which gives zeros."""
    if stype not in (None, "default"):
        return _sparse_zeros(stype, shape, ctx, dtype)
    return NDArray.from_host(np.empty(_shape(shape), check_dtype(dtype or np.float32)), resolve(ctx))


def _create(name: str, ctx: Context | None, dtype: DTypeLike | None, **attributes: object) -> NDArray:
    op = get(name).bind(dtype=check_dtype(dtype or np.float32).name, **attributes)
    with resolve(ctx):
        return invoke(op, ())


@_traceable
def arange(
    start: float,
    stop: float | None = None,
    step: float = 1.0,
    repeat: int = 1,
    infer_range: bool | None = None,
    ctx: Context | None = None,
    dtype: DTypeLike | None = np.float32,
) -> NDArray:
    """start, start + step, ... below stop, each `repeat` times; with one number from 0 to it.

    infer_range : True, a size that other operators decide, is refused with AttributeSpecError
    """
    asked = bool(infer_range)
    return _create("_arange", ctx, dtype, start=start, stop=stop, step=step, repeat=repeat, infer_range=asked)


def linspace(
    start: float,
    stop: float,
    num: int,
    endpoint: bool = True,
    ctx: Context | None = None,
    dtype: DTypeLike | None = np.float32,
) -> NDArray:
    """`num` evenly spaced numbers from start to stop, stop included if `endpoint`."""
    return _create("_linspace", ctx, dtype, start=start, stop=stop, num=num, endpoint=endpoint)


def eye(N: int, M: int = 0, k: int = 0, ctx: Context | None = None, dtype: DTypeLike | None = None) -> NDArray:
    """An (N, M or N) matrix with ones on diagonal k."""
    return _create("_eye", ctx, dtype, N=N, M=M, k=k)


def from_numpy(ndarray: np.ndarray, zero_copy: bool = True) -> NDArray:
    """An array on a NumPy array's own memory, which must be C-contiguous and not be written by other code from then on.

    zero_copy=False copies. Raises DTypeError for dtypes that arrays do not have, ShapeError if not contiguous.
    """
    check_dtype(ndarray.dtype)
    if not zero_copy:
        return NDArray.wrap(np.array(ndarray, order="C"))
    if not ndarray.flags.c_contiguous:
        raise ShapeError("from_numpy needs a C-contiguous array; use nd.array(x, dtype=x.dtype) to copy it")
    shared = ndarray.view(np.ndarray)
    ndarray.flags.writeable = False
    return NDArray.wrap(shared)


class _Capsule:
    """A capsule of DLPack for memory on the CPU, as an object that NumPy takes."""

    def __init__(self, capsule: object) -> None:
        self._capsule = capsule

    def __dlpack__(self, **keywords: object) -> object:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


def to_dlpack_for_read(data: NDArray) -> Any:
    """As `data.to_dlpack_for_read()`."""
    return data.to_dlpack_for_read()


def to_dlpack_for_write(data: NDArray) -> Any:
    """As `data.to_dlpack_for_write()`."""
    return data.to_dlpack_for_write()


def from_dlpack(source: Any) -> NDArray:
    """An array with the values of any object that has `__dlpack__` (torch, CuPy, NumPy ...), or of the capsule that
    `x.to_dlpack_for_read()` of an array on the CPU gives.

    Memory on a GPU is not copied, and belongs to both then; the array is on the context of that GPU. Other values are
    copied. Raises EngineUnavailable if that GPU cannot be used.
    """
    if isinstance(source, NDArray):
        return array(source, dtype=source.dtype)
    if type(source).__name__ == "PyCapsule":
        capsule: Any = _Capsule(source)
        return _own(np.from_dlpack(capsule))
    kind, number = source.__dlpack_device__()
    current = current_context()
    if kind in GPUS or current.is_gpu:
        context = gpu(number) if kind in GPUS else current
        require(context)
        import torch

        tensor = torch.utils.dlpack.from_dlpack(source)
        if tensor.device == device_of(context) or kind in GPUS:
            check_dtype(numpy_dtype(tensor.dtype))
            made = NDArray.wrap_device(tensor.detach().contiguous(), context)
            made.buffer.exported = True
            return made
    return _own(np.from_dlpack(source))


def _own(values: np.ndarray) -> NDArray:
    check_dtype(values.dtype)
    return NDArray.wrap(np.array(values, order="C"))


def concatenate(arrays: Sequence[NDArray], axis: int = 0, always_copy: bool = True) -> NDArray:
    """Arrays joined along an existing axis. always_copy=False returns a single array unchanged."""
    if not always_copy and len(arrays) == 1:
        return arrays[0]
    return invoke(get("Concat").bind(dim=axis), tuple(arrays))


def moveaxis(tensor: NDArray, source: int | Sequence[int], destination: int | Sequence[int]) -> NDArray:
    """Move axes to other positions, the others keep their order."""
    sources = _axes(tensor.ndim, source)
    destinations = _axes(tensor.ndim, destination)
    if len(sources) != len(destinations):
        raise ShapeError(f"moveaxis: {len(sources)} axes cannot move to {len(destinations)} places")
    order = [axis for axis in range(tensor.ndim) if axis not in sources]
    for position, axis in sorted(zip(destinations, sources, strict=True)):
        order.insert(position, axis)
    return tensor.transpose(tuple(order))


def _axes(ndim: int, axes: int | Sequence[int]) -> list[int]:
    numbers = list(axes) if isinstance(axes, Sequence) else [axes]
    if any(not -ndim <= axis < ndim for axis in numbers) or len({axis % ndim for axis in numbers}) != len(numbers):
        raise ShapeError(f"moveaxis: {axes} does not name different axes; the array has {dimensions(ndim)}")
    return [axis % ndim for axis in numbers]


def onehot_encode(indices: NDArray, out: NDArray) -> NDArray:
    """Write a row of zeros with a one at each index into `out`, (n, classes)."""
    out[:] = invoke(get("one_hot").bind(depth=out.shape[1]), (indices,))
    return out


def waitall() -> None:
    """Wait for the GPU, if one was used; calls on the host are synchronous."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.synchronize()


#: Two-operand functions whose operands may both be Python numbers: name -> (operator, what Python does with numbers).
BINARY: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "add": ("broadcast_add", operator.add),
    "subtract": ("broadcast_sub", operator.sub),
    "multiply": ("broadcast_mul", operator.mul),
    "divide": ("broadcast_div", operator.truediv),
    "true_divide": ("broadcast_div", operator.truediv),
    "modulo": ("broadcast_mod", operator.mod),
    "power": ("broadcast_power", operator.pow),
    "maximum": ("broadcast_maximum", max),
    "minimum": ("broadcast_minimum", min),
    "equal": ("broadcast_equal", lambda a, b: int(a == b)),
    "not_equal": ("broadcast_not_equal", lambda a, b: int(a != b)),
    "greater": ("broadcast_greater", lambda a, b: int(a > b)),
    "greater_equal": ("broadcast_greater_equal", lambda a, b: int(a >= b)),
    "lesser": ("broadcast_lesser", lambda a, b: int(a < b)),
    "lesser_equal": ("broadcast_lesser_equal", lambda a, b: int(a <= b)),
    "logical_and": ("broadcast_logical_and", lambda a, b: int(bool(a) and bool(b))),
    "logical_or": ("broadcast_logical_or", lambda a, b: int(bool(a) or bool(b))),
    "logical_xor": ("broadcast_logical_xor", lambda a, b: int(bool(a) != bool(b))),
}


def binary_function(name: str) -> Callable[..., Any]:
    """`nd.add(lhs, rhs)` and similar functions: arrays, numbers, or one of each."""
    operator_name, on_numbers = BINARY[name]
    op = get(operator_name).bind()

    def function(lhs: object, rhs: object, out: NDArray | None = None, name: str | None = None) -> Any:
        if isinstance(lhs, (int, float, np.generic)) and isinstance(rhs, (int, float, np.generic)):
            return on_numbers(lhs, rhs)
        return invoke(op, (lhs, rhs), out, name)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{get(operator_name).__doc__ or ''}\n\nTwo Python numbers give a Python number."
    return function
