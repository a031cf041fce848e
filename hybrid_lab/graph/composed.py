"""Composed: base of the operators that are made from graphs; Backward: the gradient of one that holds graphs."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from hybrid_lab.ops.framework.memory import into
from hybrid_lab.ops.framework.operator import Operator
from hybrid_lab.ops.framework.signature import Signature

if TYPE_CHECKING:
    from hybrid_lab.graph.control_flow import ControlFlow
    from hybrid_lab.graph.node import Node, Value
    from hybrid_lab.ops.framework.types import Array, Outs, Shape


class Composed(Operator):
    """Base of operators that are made from graphs instead of attributes; an instance is equal to itself only."""

    fields: ClassVar[dict[str, Any]] = {}
    own_bfloat16: ClassVar[bool] = True
    run_keywords: ClassVar[frozenset[str]] = frozenset({"out", "rng", "need"})
    differentiable: ClassVar[bool] = True
    grad_wants: ClassVar[bool] = True

    def __init__(self, **members: Any):
        for key, value in {"attributes": {}, "inferred": {}, **members}.items():
            object.__setattr__(self, key, value)

    def infer_shape(self, *shapes: Shape) -> list[Shape]:
        raise NotImplementedError

    def __reduce__(self) -> Any:
        return object.__reduce__(self)


class Backward(Composed):
    """The gradient of a control-flow operator: its inputs, its hidden outputs, and the gradients `heads` of its outputs
    -> the gradients of its inputs number `wanted`, and hidden, for each of them whether there is one in this call.
    """

    name: ClassVar[str] = "_control_flow_grad"
    refuses_gradient: ClassVar[bool] = True
    run_keywords: ClassVar[frozenset[str]] = frozenset({"out"})
    differentiable: ClassVar[bool] = False
    grad_wants: ClassVar[bool] = False
    forward: ControlFlow
    heads: tuple[int, ...]
    wanted: tuple[int, ...]

    @cached_property
    def signature(self) -> Signature:  # type: ignore[override]
        count = len(self.forward.signature.inputs) + self.forward.num_hidden + len(self.heads)
        return Signature(tuple(f"arg{index}" for index in range(count)), 2 * len(self.wanted), len(self.wanted))

    @cached_property
    def shape_only(self) -> tuple[str, ...]:  # type: ignore[override]
        """States that no output is computed from, and what the history of a loop has for every step."""
        forward = self.forward
        read = forward.read_for(frozenset(range(forward.num_visible))) - set(forward.history)
        names = forward.signature.inputs
        return tuple([names[index] for index in forward.carried if index not in read])

    def presence(self, node: Node, index: int) -> Value | None:
        certain = self.wanted[index] in self.forward.certain(self.heads)
        return None if certain else node.outputs[len(self.wanted) + index]

    def infer_shape(self, *shapes: Shape) -> list[Shape]:
        return [*(shapes[index] for index in self.wanted), *((1,) for _ in self.wanted)]

    def infer_type(self, *dtypes: np.dtype | None) -> list[np.dtype | None]:
        return [*(dtypes[index] for index in self.wanted), *(np.dtype(np.float32) for _ in self.wanted)]

    def numpy(self, *inputs: Array, out: Outs = None) -> tuple[Array, ...]:
        count = len(self.forward.signature.inputs)
        first = count + self.forward.num_hidden
        heads = dict(zip(self.heads, inputs[first:], strict=True))
        gradients = self.forward.run_backward(inputs[:count], inputs[count:first], heads, self.wanted)
        results = [
            np.zeros_like(inputs[index]) if index not in gradients else gradients[index] for index in self.wanted
        ]
        results += [np.array([index in gradients], np.float32) for index in self.wanted]
        outs = (None,) * len(results) if out is None else out
        return tuple(into(value, target) for value, target in zip(results, outs, strict=True))

    def __repr__(self) -> str:
        return f"gradient of {self.forward!r}"
