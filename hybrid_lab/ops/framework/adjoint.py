"""Adjoint: the base of gradients of linear operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from hybrid_lab.ops.framework.operator import Operator, forward_shape
from hybrid_lab.ops.framework.protocols import Functions, Gradients, Tensor
from hybrid_lab.ops.framework.types import Shape


class Adjoint(Operator):
    """The gradient of the first input of an operator that is linear in it, as `_diag_grad` is of `diag`.

    Inputs: dy, the gradient of the operator's output; number `shaped_like`, the operator's first input, of which only
    the shape is read; and the operator's other inputs, in order. The gradient of dy is the operator itself.
    """

    shaped_like = 1
    typed_like = 0
    mxnet = None
    adjoint_of: ClassVar[str]
    """The name of that operator, which has the attributes of its gradient, too."""

    def __init_subclass__(cls, name: str | None = None, aliases: Sequence[str] = (), **keywords: Any):
        super().__init_subclass__(name, aliases, **keywords)
        if name is not None:
            cls.shape_only = (cls.input_names[cls.shaped_like],)

    def first_shape(self, *shapes: Shape) -> Shape:
        others = [shape for index, shape in enumerate(shapes) if index not in (0, self.shaped_like)]
        return forward_shape(self.adjoint_of, shapes[self.shaped_like], *others, **self.written)

    def grad(self, F: Functions, *values: Tensor) -> Gradients:
        others = [item for index, item in enumerate(values[:-2]) if index not in (0, self.shaped_like)]
        d = getattr(F, self.adjoint_of)(values[-1], *others, **self.written)
        return (d, *(None for _ in values[1:-2]))
