"""Types of the operands of shape rules and kernels; protocols.py has the types of gradients and lowerings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from hybrid_lab.ops.framework.attributes import Shape as Shape

#: A shape in `complete`: None if nothing is known, None inside for an unknown dimension.
PartialShape: TypeAlias = tuple[int | None, ...] | None
PartialSizes: TypeAlias = tuple[int | None, ...]
PartialShapes: TypeAlias = tuple[PartialShape, ...]
#: The result of a shape rule: the shape of the output, or a list of shapes.
Shapes: TypeAlias = Shape | list[Shape]

#: An array of any shape and dtype.
Array: TypeAlias = np.ndarray[tuple[Any, ...], np.dtype[Any]]
#: The outputs of a kernel with several.
Arrays: TypeAlias = tuple[Array, ...]
#: `out` of a kernel with several outputs: an array to fill, or None, per output.
Outs: TypeAlias = Sequence[Array | None] | None
#: An input of a kernel that may be an immediate (a Python number in place of an array).
Operand: TypeAlias = Array | float
