"""Protocols of the arguments that the methods of records take: `F`, tensors, `g`, `elements` and `scratch`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeAlias, overload

import numpy as np

from hybrid_lab.ops.framework.types import Array, Shape

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, DTypeLike

    from hybrid_lab.ops.framework.operator import Operator


class Scratch(Protocol):
    """Temporary memory for a kernel, uninitialized. `np.empty` is one."""

    def __call__(self, shape: Shape, dtype: DTypeLike, /) -> Array: ...


# -- gradients, lowerings, auxiliary states ----------------------------------------------------------------------


class Tensor(Protocol):
    """What `grad`, `lower` and `aux` compute with: raw arrays, NDArrays, Symbols, or Exprs of a graph.

    Only arithmetic common to all is allowed; everything else goes through `F`.
    """

    @property
    def shape(self) -> Shape: ...

    @property
    def dtype(self) -> np.dtype: ...

    def __add__(self, other: Self | float, /) -> Tensor: ...

    def __radd__(self, other: Self | float, /) -> Tensor: ...

    def __sub__(self, other: Self | float, /) -> Tensor: ...

    def __rsub__(self, other: Self | float, /) -> Tensor: ...

    def __mul__(self, other: Self | float, /) -> Tensor: ...

    def __rmul__(self, other: Self | float, /) -> Tensor: ...

    def __truediv__(self, other: Self | float, /) -> Tensor: ...

    def __rtruediv__(self, other: Self | float, /) -> Tensor: ...

    def __pow__(self, other: Self | float, /) -> Tensor: ...

    def __rpow__(self, other: Self | float, /) -> Tensor: ...

    def __neg__(self) -> Tensor: ...


#: An input that may be an immediate: a scalar of an update rule, an operand of a broadcast.
Number: TypeAlias = Tensor | float
#: The gradient of an input; None if it has none, or none is wanted.
Gradient: TypeAlias = Tensor | None
#: The gradients of all inputs.
Gradients: TypeAlias = tuple[Gradient, ...]
#: Which inputs need a gradient, one bool each; None: all gradients.
Wanted: TypeAlias = Sequence[bool] | None


class Functions(Protocol):
    """`F`: operators as functions by name, `F.softmax(x, axis=1)`.

    An operator with several outputs returns a tuple: `cast(Arrays, F.split(...))` says so.
    """

    def __getattr__(self, name: str, /) -> Callable[..., Tensor]: ...


# -- ONNX ------------------------------------------------------------------------------------------------------


class OnnxFunction(Protocol):
    """Adds a node. Inputs are names of values, None for an optional one; returns the name of the output, or a tuple."""

    @overload
    def __call__(self, *inputs: str | Sequence[int] | None, outputs: int, **attributes: Any) -> tuple[str, ...]: ...

    @overload
    def __call__(self, *inputs: str | Sequence[int] | None, **attributes: Any) -> str: ...


class OnnxGraph(Protocol):
    """`g` in a record's `onnx`, named as in torch.onnx: the ONNX graph under construction. OnnxEmitter explains the
    members.
    """

    def shape(self, name: str) -> Shape: ...

    def dtype(self, name: str) -> np.dtype: ...

    def const(self, value: ArrayLike, dtype: DTypeLike) -> str: ...

    def arange(self, count: int) -> str: ...

    def cast(self, value: str, dtype: DTypeLike) -> str: ...

    def declare(self, name: str, shape: Sequence[int], dtype: DTypeLike) -> str: ...

    def emit(self, op: Operator, inputs: Sequence[Any], scope: str = "") -> tuple[str, ...]: ...

    def reshape_batched(self, value: str, shape: Sequence[int]) -> str: ...

    def __getattr__(self, op_type: str, /) -> OnnxFunction:
        """Not for the members above. `g.Softmax(x, axis=1)`"""
        ...


# -- elements of kernels ---------------------------------------------------------------------------------------


class Index(Protocol):
    """A position along an axis, as a kernel computes it; printed as an expression of Triton."""

    @property
    def constant(self) -> int: ...

    @property
    def smallest(self) -> int: ...

    @property
    def largest(self) -> int: ...

    @property
    def variables(self) -> Sequence[object]: ...

    def __add__(self, other: Self | int, /) -> Self: ...

    def __mul__(self, factor: int, /) -> Self: ...


#: One index per axis.
Place: TypeAlias = tuple[Index, ...]


class Elements(Protocol):
    """Reads elements of the inputs for an Element kernel; ops/framework/kernel.py explains the members."""

    @property
    def count(self) -> int: ...

    @property
    def zero(self) -> Index: ...

    def dtype(self, number: int | None = None) -> np.dtype: ...

    def shape(self, number: int) -> Shape: ...

    def read(self, number: int, place: Sequence[Index], guard: str = "") -> str: ...

    def number(self, number: int, place: Sequence[Index], size: int, mode: str = "clip") -> Index: ...

    def computed(self, text: str, size: int, *indices: Any) -> Index: ...

    def quotient(self, index: Any, by: int) -> Index: ...

    def named(self, expression: str, wanted: str) -> str: ...

    def inside(self, number: int, guard: str, name: str) -> str: ...

    def where(self, guard: str, name: str, other: str) -> str: ...

    def places(self, place: Sequence[Index], number: int) -> Sequence[Index]: ...

    def unravel(self, place: Sequence[Index], sizes: Sequence[int], shape: Sequence[int]) -> Place: ...

    def cast(self, name: str) -> str: ...

    def whole(self, name: str, number: int) -> str: ...

    def guard(self, index: Any, size: int) -> str: ...

    def shown(self, size: int) -> str: ...

    def divided(self, index: Any, by: int, size: int) -> tuple[Index, str]: ...

    def literal(self, number: float, of: int | None = None) -> str: ...

    def scaled(self, index: Any, factor: float, start: float) -> str: ...
