"""How the functions of `mx.np` use the operators: on arrays they run, on Symbols they become part of the graph.

A function is written once. `R.<operator>` calls a record on arrays, Symbols and numbers and gives arrays, or Symbols,
of `mx.np`. A function's question about a Symbol restricts the graph to such inputs: `rank_of` and `dtype_of` for inputs
with as many axes and these dtypes, `shape_of` for inputs of these shapes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeGuard, TypeVar
from typing import cast as cast_to

import numpy as np

from hybrid_lab.diagnostics.errors import AttributeSpecError, DTypeError
from hybrid_lab.diagnostics.formatting import count
from hybrid_lab.diagnostics.location import capture
from hybrid_lab.ndarray.context import Context, resolve
from hybrid_lab.ndarray.invoke import invoke
from hybrid_lab.ndarray.ndarray import NDArray, check_dtype
from hybrid_lab.numpy.array import ndarray
from hybrid_lab.numpy.symbol import _Symbol
from hybrid_lab.numpy.types import ArrayLike, DType, Out, Records, Tensor
from hybrid_lab.ops.framework.namespace import Namespace
from hybrid_lab.ops.framework.operator import Operator
from hybrid_lab.symbol import tracing
from hybrid_lab.symbol.symbol import Symbol, compose, constant

Number = (bool, int, float, np.generic)
Item = TypeVar("Item")
F = TypeVar("F", bound=Callable[..., Any])


def call(op: Operator, inputs: Sequence[object], ctx: Context | None = None) -> Any:
    """One operator on arrays, Symbols and numbers. ctx : where one without inputs makes its array"""
    plain: list[object] = []
    for item in inputs:
        if isinstance(item, Symbol):
            return _symbol(compose(op, inputs, None))
        plain.append(item.as_nd_ndarray() if type(item) is ndarray else item)
    if not plain:
        if in_graph():
            return _symbol(compose(op, (), None))
        with resolve(ctx):
            results = invoke(op, plain)
    else:
        results = invoke(op, plain)
    return list(map(_array, results)) if type(results) is list else _array(results)


def _array(result: NDArray) -> NDArray:
    """A new array as an `mx.np` array; a sparse array unchanged."""
    if type(result) is not NDArray:
        return result
    return ndarray.view_of(result.buffer, result.host_view, result.tape_link)


def _symbol(made: Symbol) -> Symbol | list[Symbol]:
    """The outputs of a node as Symbols of `mx.np` code, several in a list."""
    symbols: list[Symbol] = [_Symbol((value,)) for value in made.outputs]
    return symbols[0] if len(symbols) == 1 else symbols


R: Records = Namespace(call)
"""Every record as a function: `R.softmax(x, axis=1)`."""


class _Symbolic(threading.local):
    """Whether functions of `sym.np` run in this thread: they make Symbols also outside of traces."""

    active = False


symbolic = _Symbolic()


def in_graph() -> bool:
    """Whether what functions make is part of a graph."""
    return symbolic.active or tracing.current() is not None


def is_tensor(item: object) -> TypeGuard[Tensor]:
    """Whether it is an array or a Symbol, and no number, list or NumPy array."""
    return isinstance(item, (NDArray, Symbol))


def as_tensor(item: object, name: str = "an argument") -> Tensor:
    """An array or Symbol unchanged; NumPy arrays and lists as arrays (in a trace as constants). Raises DTypeError."""
    if is_tensor(item):
        tensor: Tensor = item.as_np_ndarray()
        return tensor
    if isinstance(item, (np.ndarray, list, tuple, *Number)):
        return from_values(item, None)
    raise DTypeError(f"{name} must be an array or a number, not {type(item).__name__}")


def from_values(values: object, dtype: DType, ctx: Context | None = None) -> Tensor:
    """Numbers as a new array, or as a constant of the graph in progress. dtype : None keeps the dtype of a NumPy array
    and takes float32 for numbers and lists
    """
    if isinstance(values, NDArray):
        host = values._data
    else:
        host = _host_values(values)
        if dtype is None and not isinstance(values, (np.ndarray, np.generic)):
            dtype = np.float32
    try:
        wanted = check_dtype(host.dtype if dtype is None else dtype)
        made = np.array(host, wanted, order="C")
    except (TypeError, ValueError) as error:
        raise DTypeError(f"array: the values are no numbers ({error})") from None
    if in_graph():
        return _Symbol(constant(made).outputs)
    return ndarray.from_host(made, resolve(ctx))


def _host_values(values: Any) -> np.ndarray:
    """Nested lists of numbers and arrays as a NumPy array."""
    if isinstance(values, (list, tuple)) and any(isinstance(item, (NDArray, list, tuple)) for item in values):
        values = [_host_values(item) if isinstance(item, (list, tuple)) else item for item in values]
        values = [item._data if isinstance(item, NDArray) else item for item in values]
    try:
        return np.asarray(values)
    except ValueError as error:
        raise DTypeError(f"array: the lists differ in their lengths ({error})") from None


# -- known facts of a tensor -------------------------------------------------------------------------------------


def _known(symbol: Symbol, what: str) -> tuple[Any, Any] | None:
    """Shape and dtype of a Symbol, as the trace knows them; sizes may be None where `what` is "layout"."""
    trace, value = tracing.current(), symbol.outputs[0]
    known = None if trace is None else trace.known_type(value)
    if trace is not None and known is not None:
        trace.observed.append((what, capture()))
    if known is None and what == "layout" and value.shape is not None:
        known = value.shape, value.dtype or FLOAT32
    return known


def rank_of(item: Any) -> int | None:
    """The number of axes; None of a Symbol of which it is not known."""
    if isinstance(item, Symbol):
        known = _known(item, "layout")
        return None if known is None else len(known[0])
    return item.ndim if isinstance(item, NDArray) else np.ndim(item)


def has_no_axes(item: Tensor) -> bool:
    """Whether it is known to be a single number of shape (). Only if it is, a Symbol makes the graph hold for such
    inputs.
    """
    if isinstance(item, Symbol):
        trace = tracing.current()
        known = None if trace is None else trace.known_type(item.outputs[0])
        if known is None or known[0]:
            return False
    return rank_of(item) == 0


def known_rank(item: ArrayLike) -> int:
    """The number of axes. Raises AttributeSpecError if it is not known."""
    rank = rank_of(item)
    if rank is None:
        raise AttributeSpecError(f"the number of axes of {item!r} is not known; call it in a Block")
    return rank


def shape_of(item: Any) -> tuple[int, ...]:
    """The shape. Raises AttributeSpecError if it is not known."""
    if isinstance(item, Symbol):
        known = _known(item, "shape")
        if known is None:
            raise AttributeSpecError(f"the shape of {item!r} is not known; call it in a Block")
        return tuple(known[0])
    return tuple(item.shape) if isinstance(item, NDArray) else np.shape(item)


def dtype_of(item: Tensor) -> np.dtype | None:
    """The dtype of an array; None of a Symbol of which it is not known."""
    if isinstance(item, Symbol):
        known = _known(item, "layout")
        return None if known is None else np.dtype(known[1])
    return item.host_view.dtype


# -- dtypes --------------------------------------------------------------------------------------------------------

FLOAT32, BOOL, INT64 = np.dtype("float32"), np.dtype("bool"), np.dtype("int64")
_KINDS = {"b": 0, "u": 1, "i": 1, "f": 2, "V": 2}


def cast(item: Tensor, dtype: DType) -> Tensor:
    """In another dtype; the tensor itself if it has it."""
    wanted = check_dtype(dtype)
    return item if dtype_of(item) == wanted else R.Cast(item, dtype=wanted.name)


def common(*items: object, floating: bool = False) -> np.dtype | None:
    """The dtype of a result of these tensors and Python numbers, by NumPy's rules with two exceptions: whole numbers
    never widen floating dtypes (int64 and float32 give float32), and whole numbers that become floating become float32.

    floating : the result must be floating; returns None if a dtype is not known
    """
    found: np.dtype | None = None
    number = 0
    for item in items:
        if is_tensor(item):
            dtype = dtype_of(item)
            if dtype is None:
                return None
            found = dtype if found is None or found == dtype else promoted(found, dtype)
        else:
            number = max(number, kind_of_number(item))
    assert found is not None
    kind = _KINDS[found.kind]
    if kind < 2 and (floating or number == 2):
        return FLOAT32
    return INT64 if kind == 0 and number == 1 else found


def kind_of_number(item: object) -> int:
    """0 for a bool, 1 for a whole number, 2 for another number. Raises DTypeError for anything but a number."""
    kind = _KINDS.get(np.asarray(item).dtype.kind)
    if kind is None:
        raise DTypeError(f"an operand must be an array or a number, not {type(item).__name__}")
    return kind


def promoted(first: np.dtype, second: np.dtype) -> np.dtype:
    """The dtype of a result of two arrays."""
    if _KINDS[first.kind] == _KINDS[second.kind] == 2 or _KINDS[first.kind] < 2 > _KINDS[second.kind]:
        if "V" in (first.kind, second.kind):
            return first if first == second else FLOAT32
        return np.promote_types(first, second)
    return first if _KINDS[first.kind] == 2 else second


def alike(*items: Item, floating: bool = False) -> tuple[Item, ...]:
    """The tensors in their common dtype; numbers stay numbers."""
    dtype = common(*items, floating=floating)
    if dtype is None:
        return items
    return tuple(cast_to("Item", cast(item, dtype)) if is_tensor(item) else item for item in items)


def write(out: Out, result: Item) -> Item:
    """The result, or `out` with its values; a list of results stays one. Raises what writing to an array raises."""
    return result if out is None else cast_to("Item", _written(out, result))


def _written(out: object, result: Any) -> object:
    if isinstance(out, (tuple, list)):
        if len(out) == 1 and not isinstance(result, (tuple, list)):
            return write(out[0], result)
        results = len(result) if isinstance(result, (tuple, list)) else 1
        if len(out) != results:
            raise DTypeError(f"out= has {count(len(out), 'array')}, and the function gives {count(results, 'result')}")
        for target, part in zip(out, result, strict=True):
            write(target, part)
        return out
    if not isinstance(out, NDArray):
        raise DTypeError(f"out= must be an array, not {type(out).__name__}")
    out[...] = result
    return out
