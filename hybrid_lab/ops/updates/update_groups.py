"""Update rules that treat a row of the weight as one: AdaGrad with one rate per row."""

from __future__ import annotations

from typing import Any

from hybrid_lab.diagnostics.errors import ShapeError
from hybrid_lab.ops.framework import into, is_scalar, sample
from hybrid_lab.ops.framework.attributes import Scalar
from hybrid_lab.ops.framework.namespace import F as raw
from hybrid_lab.ops.framework.protocols import Functions, Number, Tensor
from hybrid_lab.ops.framework.types import Array, Arrays, Outs, PartialShape, PartialShapes, Shape
from hybrid_lab.ops.updates.rule import Descent, updating


class GroupAdaGradUpdate(Descent, name="_contrib_group_adagrad_update", aliases=("contrib_group_adagrad_update",)):
    """AdaGrad with one rate per row: g = clip(rescale_grad * grad); history = history + mean(g^2) of each row;
    returns : weight - lr * g / sqrt(history + epsilon). weight, grad : (n, m); history : (n, 1)
    """

    signature = updating("history")
    half_in_float32 = True
    own_bfloat16 = False
    alias_safe = False
    lr: Scalar
    rescale_grad: Scalar = Scalar(1.0)
    clip_gradient: float = -1.0
    epsilon: float = 1e-5
    samples = [
        sample((3, 4), (3, 4), (3, 1), 0.1, 0.5, gradient=False, low=0.05),
        sample((2, 3), (2, 3), (2, 1), 0.1, 1.0, gradient=False, low=0.05, clip_gradient=0.2, epsilon=0.1),
    ]

    def complete(self, *shapes: PartialShape) -> PartialShapes:
        weight, grad, history, *numbers = shapes
        known = weight if weight is not None and None not in weight else grad
        if known is None or None in known:
            return shapes
        rows = (known[0], 1) if history is None else history
        return (known if weight is None else weight, known if grad is None else grad, rows, *numbers)

    def infer_shape(self, weight: Shape, grad: Shape, history: Shape, lr: Shape, rescale_grad: Shape) -> list[Shape]:
        if len(weight) != 2 or grad != weight or history != (weight[0], 1):
            raise ShapeError(
                f"group_adagrad_update: {weight}, {grad} and {history}; (n, m), (n, m) and (n, 1) are needed"
            )
        return [weight, history]

    def numpy(self, *inputs: Array, out: Outs = None) -> Array | Arrays:
        numbers = [item if is_scalar(item) else item.item() for item in inputs[3:]]
        new: tuple[Any, ...] = self.step(raw, *inputs[:3], *numbers)
        return tuple(map(into, new, out or (None, None)))

    def step(
        self, F: Functions, weight: Tensor, grad: Tensor, history: Tensor, lr: Number, rescale_grad: Number
    ) -> tuple[Tensor, ...]:
        g = self.gradient(F, grad, rescale_grad)
        history = history + F.mean(F.square(g), axis=1, keepdims=True)
        return weight - g / F.sqrt(history + self.epsilon) * lr, history
