"""Types of the arguments and results of the functions of `mx.np`, and the tables that hold the functions by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import DTypeLike

    from hybrid_lab.ndarray.ndarray import NDArray
    from hybrid_lab.symbol.symbol import Symbol

#: An array, or a Symbol in a trace. What functions give is of the classes of `mx.np`.
Tensor: TypeAlias = "NDArray | Symbol"
#: What functions take as an array.
ArrayLike: TypeAlias = "NDArray | Symbol | np.ndarray | np.generic | float | Sequence[ArrayLike]"
#: One axis, several, or all axes.
Axis: TypeAlias = "int | Sequence[int] | None"
#: A size, or the sizes along all axes.
ShapeLike: TypeAlias = "int | Sequence[int] | NDArray | np.ndarray"
#: The argument `out`: an array that gets the result, or one for each of several results.
Out: TypeAlias = "NDArray | Sequence[NDArray] | None"

#: The dtype of a result; None for the dtype that follows from the arguments.
DType: TypeAlias = "DTypeLike | None"

#: A function of `mx.np`. Most give a tensor, `split` a list of them, `shape` a tuple.
Function: TypeAlias = Callable[..., Any]
F = TypeVar("F", bound=Function)


class Records(Protocol):
    """Every record as a function: `R.softmax(x, axis=1)`. One with several outputs gives a list of tensors."""

    def __getattr__(self, name: str, /) -> Callable[..., Tensor]: ...


class NumPyFunctions(dict[str, Function]):
    """Functions of `mx.np` by name."""

    def add(self, function: F) -> F:
        """Decorator: the function is in the table under its own name."""
        self[function.__name__] = function
        return function
