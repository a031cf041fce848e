"""Types of what operators' rules compute with: shapes, arrays in kernels, tensors in gradients and lowerings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, Self, TypeAlias

import numpy as np

from hybrid_lab.ops.framework.attributes import Shape as Shape

# -- shape rules and kernels -----------------------------------------------------------------------------------

#: A shape in `complete`: None where nothing is known, None inside for an unknown dimension.
PartialShape: TypeAlias = tuple[int | None, ...] | None
PartialShapes: TypeAlias = tuple[PartialShape, ...]
#: What a shape rule answers: the shape of the output, or a list of them.
Shapes: TypeAlias = Shape | list[Shape]

#: An array of any shape and dtype.
Array: TypeAlias = np.ndarray[tuple[Any, ...], np.dtype[Any]]
#: The outputs of a kernel with several.
Arrays: TypeAlias = tuple[Array, ...]
#: `out` of a kernel with several outputs: an array to fill, or None, per output.
Outs: TypeAlias = Sequence[Array | None] | None
#: An input of a kernel that may be an immediate, which is a Python number in place of an array.
Operand: TypeAlias = Array | float


# -- gradients, lowerings, auxiliary states --------------------------------------------------------------------


class Tensor(Protocol):
    """What `grad`, `lower` and `aux` compute with: raw arrays, NDArrays, Symbols, or Exprs of a graph.

    Only arithmetic that all of them have is allowed; everything else goes through `F`.
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
#: The gradient of an input; None where it has none, or none is wanted.
Gradient: TypeAlias = Tensor | None
#: The gradients of all inputs.
Gradients: TypeAlias = tuple[Gradient, ...]
#: Which inputs need a gradient, one bool each; None: all of them.
Wanted: TypeAlias = Sequence[bool] | None
