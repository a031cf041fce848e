"""`mx.np.ndarray`: an NDArray with NumPy's semantics."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import numpy as np

from hybrid_lab.diagnostics.errors import ShapeError
from hybrid_lab.ndarray.context import Context
from hybrid_lab.ndarray.ndarray import NDArray
from hybrid_lab.numpy.methods import FUNCTIONS, Methods
from hybrid_lab.numpy.types import DType, ShapeLike, Tensor
from hybrid_lab.ops.framework.dtypes import prepared


def _in_place(name: str) -> Callable[[ndarray, object], Any]:
    def method(self: ndarray, other: object) -> Tensor:
        return FUNCTIONS[name](self, other, out=self)

    return method


class ndarray(Methods, NDArray):  # type: ignore[misc]  # methods with NumPy's arguments
    """An array of numbers with NumPy's shapes, dtypes, operators and indexing; made by `np.array(...)` and its like.

    It is an NDArray: gluon, autograd and the operators of `mx.nd` take it, and their results are `mx.np` arrays, too.
    """

    __slots__ = ()
    is_np = True
    __hash__ = NDArray.__hash__

    def __new__(
        cls,
        shape: ShapeLike | None = None,
        dtype: DType = np.float32,
        ctx: Context | None = None,
        **options: object,
    ) -> Any:
        """`np.ndarray(shape, dtype)`: an array with arbitrary values."""
        if shape is None:
            raise TypeError("create arrays with np.array(values), np.zeros(shape) or a similar function")
        return FUNCTIONS["empty"](shape, dtype=prepared(dtype), ctx=ctx)

    def __init__(self, *arguments: object, **keywords: object) -> None:
        pass

    # -- views ---------------------------------------------------------------------------------------------------

    def as_nd_ndarray(self) -> NDArray:
        """The NDArray on the same memory, with the same history and gradient."""
        return NDArray.view_of(self.buffer, self.host_view, self.tape_link)

    def as_np_ndarray(self) -> ndarray:
        """The array itself."""
        return self

    # -- attributes and values -------------------------------------------------------------------------------------

    @property
    def dtype(self) -> np.dtype:
        """The NumPy dtype, `dtype('float32')`."""
        return self.host_view.dtype

    @property
    def device(self) -> Context:
        """The context."""
        return self.context

    def item(self, *args: int) -> Any:
        """The only element, or the element at a place, as a Python number. Raises ShapeError for several elements."""
        if not args and self.size != 1:
            raise ShapeError("can only convert an array of size 1 to a Python scalar")
        return self._data.item(*args)

    def __bool__(self) -> bool:
        if self.size > 1:
            raise ShapeError("The truth value of an array with more than one element is ambiguous; use any() or all()")
        return bool(self._data.any())

    def __len__(self) -> int:
        if not self.host_view.ndim:
            raise TypeError("len() of unsized object")
        return self.host_view.shape[0]

    def __iter__(self) -> Iterator[NDArray]:
        if not self.host_view.ndim:
            raise TypeError("iteration over a 0-d array")
        return (self[index] for index in range(self.host_view.shape[0]))

    def __repr__(self) -> str:
        text = repr(self.asnumpy())
        default = ", dtype=float32"
        text = text[: -len(default) - 1] + ")" if text.endswith(default + ")") else text
        where = f", ctx={self.context}" if self.context.device_type != "cpu" else ""
        return text[:-1] + where + ")"

    def __str__(self) -> str:
        return str(self.asnumpy())

    def __format__(self, specification: str) -> str:
        return format(self.item() if self.ndim == 0 else self.asnumpy(), specification)

    def copy(self, order: str = "C") -> NDArray:
        """A copy on the same device; recorded."""
        FUNCTIONS["_check_order"]("copy", order)
        return super().copy()

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return _restored, super().__reduce__()

    def __contains__(self, value: object) -> bool:
        return bool(np.any(self._data == (value._data if isinstance(value, NDArray) else value)))

    # -- writes ----------------------------------------------------------------------------------------------------

    __iadd__, __isub__, __imul__ = _in_place("add"), _in_place("subtract"), _in_place("multiply")
    __itruediv__, __ifloordiv__ = _in_place("true_divide"), _in_place("floor_divide")
    __imod__, __ipow__ = _in_place("mod"), _in_place("power")
    __iand__, __ior__, __ixor__ = _in_place("bitwise_and"), _in_place("bitwise_or"), _in_place("bitwise_xor")

    # -- names that only NDArrays have -----------------------------------------------------------------------------

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(
            f"'mx.np.ndarray' object has no attribute {name!r}; np.{name}(x), npx.{name}(x) or "
            f"x.as_nd_ndarray().{name} may be meant"
        )

    def __dir__(self) -> list[str]:
        return sorted(name for name in object.__dir__(self) if name != "asscalar")

    # -- NumPy's protocols -----------------------------------------------------------------------------------------

    def __array_function__(
        self, function: Callable[..., object], types: object, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> object:
        return FUNCTIONS["_array_function"](function, args, kwargs)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: object, **kwargs: object) -> object:
        return FUNCTIONS["_array_ufunc"](ufunc, method, inputs, kwargs)


def _restored(restore: Callable[..., NDArray], arguments: tuple[object, ...]) -> object:
    return restore(*arguments).as_np_ndarray()


def numpy_class() -> type[ndarray]:
    """The class, for rooms below."""
    return ndarray
