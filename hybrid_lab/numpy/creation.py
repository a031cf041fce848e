"""Functions of `mx.np` that make arrays; in traced code these arrays are part of the graph."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable
from os import PathLike
from typing import Any

import numpy as np

from hybrid_lab.diagnostics.errors import AttributeSpecError, DTypeError, InputError, UnsupportedArgument
from hybrid_lab.diagnostics.file_errors import read_error
from hybrid_lab.ndarray.context import Context
from hybrid_lab.ndarray.ndarray import NDArray, check_dtype
from hybrid_lab.numpy.elementwise import refuse_options
from hybrid_lab.numpy.methods import FUNCTIONS
from hybrid_lab.numpy.operators import R, as_tensor, call, cast, dtype_of, from_values, is_tensor, write
from hybrid_lab.numpy.shaping import check_order, sizes_of
from hybrid_lab.numpy.types import ArrayLike, DType, Function, Out, ShapeLike, Tensor
from hybrid_lab.ops.framework.operator import get


@FUNCTIONS.add
def array(object: ArrayLike, dtype: DType = None, ctx: Context | None = None) -> Tensor:
    """A new array. dtype : by default the dtype of an array, and float32 for numbers and lists. Raises DTypeError."""
    return from_values(object, dtype, ctx)


def _filled(record: str, shape: ShapeLike, dtype: DType, ctx: Context | None, **attributes: float) -> Tensor:
    name = check_dtype(np.float32 if dtype is None else dtype).name
    return call(get(record).bind(shape=sizes_of(shape), dtype=name, **attributes), (), ctx)


@FUNCTIONS.add
def zeros(shape: ShapeLike, dtype: DType = None, order: str = "C", ctx: Context | None = None) -> Tensor:
    """Zeros. dtype : default float32"""
    check_order("zeros", order)
    return _filled("_zeros", shape, dtype, ctx)


@FUNCTIONS.add
def ones(shape: ShapeLike, dtype: DType = None, order: str = "C", ctx: Context | None = None) -> Tensor:
    """Ones. dtype : default float32"""
    check_order("ones", order)
    return _filled("_ones", shape, dtype, ctx)


@FUNCTIONS.add
def empty(shape: ShapeLike, dtype: DType = None, order: str = "C", ctx: Context | None = None) -> Tensor:
    """An array to be written; its values are zeros. dtype : default float32"""
    return zeros(shape, dtype, order, ctx)


@FUNCTIONS.add
def full(
    shape: ShapeLike,
    fill_value: ArrayLike,
    dtype: DType = None,
    order: str = "C",
    ctx: Context | None = None,
    out: Out = None,
) -> Tensor:
    """An array filled with a number or an array that broadcasts. dtype : default float32, bool for a bool"""
    check_order("full", order)
    if is_tensor(fill_value):
        made = cast(FUNCTIONS["broadcast_to"](fill_value, shape), dtype or dtype_of(fill_value) or np.float32)
    else:
        kind = dtype if dtype is not None else np.bool_ if isinstance(fill_value, (bool, np.bool_)) else np.float32
        made = from_values(np.full(sizes_of(shape), fill_value, check_dtype(kind)), kind, ctx)
    return write(out, made)


def _like(name: str, record: str) -> Function:
    def function(
        a: ArrayLike,
        dtype: DType = None,
        order: str = "C",
        ctx: Context | None = None,
        out: Out = None,
        **options: object,
    ) -> Tensor:
        check_order(name, order)
        refuse_options(name, options)
        made = getattr(R, record)(as_tensor(a))
        return write(out, made if dtype is None else cast(made, dtype))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{name.partition('_')[0].capitalize()} in the shape and dtype of an array."
    return function


FUNCTIONS["zeros_like"], FUNCTIONS["ones_like"] = _like("zeros_like", "zeros_like"), _like("ones_like", "ones_like")


@FUNCTIONS.add
def empty_like(
    prototype: ArrayLike, dtype: DType = None, order: str = "C", subok: bool = False, shape: ShapeLike | None = None
) -> Tensor:
    """Zeros in the shape and dtype of an array, or with a given shape or dtype. subok : without effect; no array has a
    subclass
    """
    check_order("empty_like", order)
    prototype = as_tensor(prototype)
    if shape is not None:
        return full(shape, 0, dtype_of(prototype) if dtype is None else dtype)
    made = R.zeros_like(prototype)
    return made if dtype is None else cast(made, dtype)


@FUNCTIONS.add
def full_like(
    a: ArrayLike,
    fill_value: float,
    dtype: DType = None,
    order: str = "C",
    ctx: Context | None = None,
    out: Out = None,
) -> Tensor:
    """An array in the shape and dtype of another, filled with a number."""
    check_order("full_like", order)
    made = as_tensor(a) if dtype is None else cast(as_tensor(a), dtype)
    return write(out, R.full_like(made, fill_value=float(fill_value)))


@FUNCTIONS.add
def arange(
    start: ArrayLike,
    stop: ArrayLike | None = None,
    step: ArrayLike | None = 1,
    dtype: DType = None,
    ctx: Context | None = None,
) -> Tensor:
    """start, start + step ... below stop; with one number from 0 to it. dtype : default float32"""
    if dtype is None:
        dtype = np.float32
    if stop is None:
        start, stop = 0, start
    if step is None:
        step = 1
    if step == 0:
        raise ZeroDivisionError("division by zero")
    values = np.arange(_number(start), _number(stop), _number(step), dtype=check_dtype(dtype))
    return from_values(values, dtype, ctx)


def _number(value: ArrayLike) -> Any:
    return value.item() if isinstance(value, NDArray) else value


@FUNCTIONS.add
def linspace(
    start: Any, stop: Any, num: int = 50, endpoint: bool = True, retstep: bool = False,
    dtype: DType = None, axis: int = 0, ctx: Context | None = None,
) -> Tensor | tuple[Tensor, float]:  # fmt: skip
    """`num` numbers at equal distances from start to stop. dtype : default float32"""
    if isinstance(start, (list, np.ndarray, NDArray)) or isinstance(stop, (list, np.ndarray, NDArray)):
        raise UnsupportedArgument("np.linspace: start and stop must be numbers")
    if axis != 0:
        raise UnsupportedArgument("np.linspace: axis must be 0")
    if num < 0:
        raise AttributeSpecError(f"np.linspace: num={num}; the number of numbers cannot be negative")
    values, step = np.linspace(start, stop, num, endpoint, retstep=True, dtype=check_dtype(dtype or np.float32))
    made = from_values(values, dtype or np.float32, ctx)
    return (made, step) if retstep else made


@FUNCTIONS.add
def logspace(
    start: Any, stop: Any, num: int = 50, endpoint: bool = True, base: float = 10.0,
    dtype: DType = None, axis: int = 0, ctx: Context | None = None,
) -> Tensor:  # fmt: skip
    """`num` numbers from base**start to base**stop at equal ratios. dtype : default float32"""
    if axis != 0:
        raise UnsupportedArgument("np.logspace: axis must be 0")
    start, stop, base = _number(start), _number(stop), _number(base)
    values = np.logspace(start, stop, num, endpoint, base, check_dtype(dtype or np.float32))
    return from_values(values, dtype or np.float32, ctx)


@FUNCTIONS.add
def eye(
    N: int, M: int | None = None, k: int = 0, dtype: DType = None, ctx: Context | None = None, **options: object
) -> Tensor:  # noqa: N803
    """A matrix with ones on a diagonal. dtype : default float32"""
    refuse_options("eye", {key: value for key, value in options.items() if key != "order" or value != "C"})
    for size in (N, N if M is None else M):
        if int(size) < 0:
            raise AttributeSpecError(f"np.eye: a matrix cannot have {size} rows or columns")
    return from_values(np.eye(N, M, k, check_dtype(dtype or np.float32)), dtype or np.float32, ctx)


@FUNCTIONS.add
def identity(n: int, dtype: DType = None, ctx: Context | None = None) -> Tensor:
    """The square matrix with ones on its diagonal. dtype : default float32"""
    return eye(n, dtype=dtype, ctx=ctx)


@FUNCTIONS.add
def indices(dimensions: ShapeLike, dtype: DType = np.int32, ctx: Context | None = None) -> Tensor:
    """The coordinates of every place of an array of this shape, one array for each axis."""
    return from_values(np.indices(sizes_of(dimensions), check_dtype(dtype or np.int32)), dtype or np.int32, ctx)


def _window(name: str) -> Function:
    def function(M: int, dtype: DType = np.float32, ctx: Context | None = None) -> Tensor:  # noqa: N803 - NumPy's name
        return from_values(getattr(np, name)(M), dtype or np.float32, ctx)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"The {name} window of M numbers. dtype : default float32"
    return function


for _name in ("blackman", "hamming", "hanning"):
    FUNCTIONS[_name] = _window(_name)


@FUNCTIONS.add
def tri(N: int, M: int | None = None, k: int = 0, dtype: DType = None, ctx: Context | None = None) -> Tensor:  # noqa: N803
    """Ones on and below a diagonal."""
    return from_values(np.tri(N, M, k, check_dtype(dtype or np.float32)), dtype or np.float32, ctx)


@FUNCTIONS.add
def copy(a: ArrayLike) -> Tensor:
    """A copy."""
    return R.identity(as_tensor(a))


@FUNCTIONS.add
def genfromtxt(fname: object, dtype: DType = np.float32, *args: object, **options: object) -> Tensor:
    """The numbers in a text file; see numpy.genfromtxt.

    fname : a path, an open file or lines of text. Raises DTypeError for another one or an unknown dtype, InputError for
    rows of different lengths, and FileError, as MissingFileError for a file that is not there.
    """
    item = fname[0] if isinstance(fname, (list, tuple)) and fname else fname  # of lines: the first one
    readable = isinstance(item, (str, PathLike, Iterable)) and not isinstance(item, np.ndarray)
    if is_tensor(item) or isinstance(fname, bytes) or not readable:
        raise DTypeError(f"np.genfromtxt: fname is a path, an open file or lines of text, not {type(item).__name__}")
    read: Callable[..., np.ndarray] = np.genfromtxt
    try:
        found = read(fname, dtype if dtype is None else check_dtype(dtype), *args, **options)
    except OSError as error:
        if not isinstance(fname, (str, PathLike)):
            raise
        number = errno.ENOENT if error.errno is None else error.errno  # NumPy's FileNotFoundError has no number
        raise read_error(number, fname) from None
    except ValueError as error:
        raise InputError(f"np.genfromtxt: {error}") from None
    return from_values(found, None)
