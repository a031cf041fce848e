"""F for the importers of ATen's operators: as for ONNX's, with torch's results at hand and errors in its words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from hybrid_lab.graph.graph import reachable
from hybrid_lab.onnx.reading.importers import functions
from hybrid_lab.onnx.reading.importers.functions import Size as Size
from hybrid_lab.onnx.reading.importers.functions import Tensor as Tensor
from hybrid_lab.ops.framework.sizes import SymbolicSize
from hybrid_lab.torch.errors import UnsupportedOperatorError
from hybrid_lab.torch.failures import line_of
from hybrid_lab.torch.memory import numpy_dtype

Operand: TypeAlias = Tensor | float | SymbolicSize
"""A tensor, or a number or an open size in its place."""
Result: TypeAlias = Tensor | Sequence[Tensor | None]
"""One result, or several; None for one that nobody reads."""
Axes: TypeAlias = int | Sequence[int] | None
"""One axis, several, or all."""


class Functions(functions.Functions):
    """F of one import, at one operator.

    result : the operator's results in torch's export, as fake tensors
    used : numbers of the outputs that others read, if there are several
    path : of the module that the operator is of; overload : of the operator, "Tensor"
    """

    close_sizes = "export with this size fixed: imports(..., dynamic_shapes={})"
    source = "torch"

    def __init__(self) -> None:
        super().__init__()
        self.result: Any = None
        self.used: frozenset[int] = frozenset()
        self.path = ""
        self.overload = ""
        self.node: Any = None

    # -- what torch's export says ------------------------------------------------------------------------------------

    @property
    def dtype(self) -> np.dtype:
        """The dtype of the (first) result."""
        first = self.result[0] if isinstance(self.result, (tuple, list)) else self.result
        return numpy_dtype(first.dtype, f"the result of {self.operator}")

    def promoted(self, *items: Operand) -> list[Any]:
        """Operands in the dtype of the result; numbers stay numbers unless they depend on open sizes."""
        dtype = self.dtype
        return [self.cast(self.operand(item), dtype) if _is_array(item) else item for item in items]

    def operand(self, item: Operand) -> Tensor:
        """A tensor, a number or an open size as a Tensor."""
        return (
            item if isinstance(item, Tensor) else self.constant(item if not _is_open(item) else np.array(item, object))
        )

    def in_common(self, *items: Operand) -> list[Tensor]:
        """Operands of a comparison in one dtype."""
        tensors = [self.operand(item) for item in items]
        typed = [tensor.dtype for tensor, item in zip(tensors, items, strict=True) if isinstance(item, Tensor)]
        dtype = typed[0] if len(set(typed)) == 1 else np.result_type(*typed)
        numbers = [item for item in items if not isinstance(item, Tensor)]
        if dtype.kind == "b" or (dtype.kind in "iu" and any(isinstance(item, float) for item in numbers)):
            dtype = np.dtype(np.float32 if any(isinstance(item, float) for item in numbers) else np.int64)
        return [self.cast(tensor, dtype) for tensor in tensors]

    # -- errors ------------------------------------------------------------------------------------------------------

    def unsupported(self, message: str) -> UnsupportedOperatorError:  # type: ignore[override]  # of torch's own errors
        """The error for an operator that cannot be imported."""
        return UnsupportedOperatorError(f"{self.located()}: {message}", self.operator)

    def located(self) -> str:
        """`layer1.0.conv1 (aten.convolution, node 'convolution_3', net.py, line 21: self.conv1(x))`."""
        return f"{self.path or 'the module'} ({self.operator}, node {self.node_name!r}{line_of(self.node)})"

    def known(self, tensor: Tensor, what: str) -> np.ndarray:
        """The elements of a tensor that decides a shape or the like. Raises UnsupportedOperatorError."""
        if tensor.array is not None:
            return tensor.array
        inputs = [node.name for node in reachable([tensor.value]) if node.op.name == "null"]
        raise self.unsupported(
            f"{what} depends on the data ({', '.join(inputs) or 'it is drawn at random'}), and no graph has shapes "
            "that do. Make it an attribute of the module, or leave this part out of the module that is imported"
        )


def _is_open(item: object) -> bool:
    return isinstance(item, SymbolicSize)


def _is_array(item: object) -> bool:
    return isinstance(item, (Tensor, SymbolicSize))


def ints(F: Functions, items: Sequence[Tensor | Size]) -> tuple[Size, ...]:
    """A shape as ATen gives it; a Tensor in it must be known."""
    return tuple(int(F.number(item, "a size")) if isinstance(item, Tensor) else item for item in items)
