"""Update operators: one optimizer step of one weight - the SGD, Adam, AdaGrad, RMSProp and LAMB families, FTRL, FTML.

A record is a pure rule: `step(F, weight, grad, states ..., numbers ...)` gives the new weight and the new states, in F,
so that the kernel, `lower()` and a fused update graph are one text. The new weight is the visible output; the new
states are hidden outputs, and `aux` hands them to the states among the inputs, in training and outside of it:
`nd.sgd_mom_update(w, g, m, lr=0.1, momentum=0.9, out=w)` changes w and m.

What changes from step to step - lr, wd, rescale_grad, and t and eta if a rule has them - is a `Scalar`: written like an
attribute, but an input behind the arrays. As a Python number it is an immediate of that call; as an array with one
element, float32 or the weight's dtype, it is a value of the graph, and a new learning rate runs the same program:

    op = ops.get("sgd_mom_update").bind(momentum=0.9)
    w2, m2 = builder.append(op, [w, g, m, lr, wd, rescale_grad])       # Values, or numbers that never change
    effects = [(w, w2), (m, m2)]

What stays (momentum, betas, limits) is an attribute. Every output may be written over any input of its shape.
Half-precision weights are updated in float32 and rounded at the end, as epsilon and the squares of small gradients are
0 in float16; the `mp_` forms keep a float32 copy, `weight32`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from math import log, prod
from typing import Any, ClassVar

import numpy as np

from hybrid_lab.diagnostics.errors import DTypeError, ShapeError
from hybrid_lab.ops.framework import Operator, Sample, Signature, contiguous, into, ints, is_scalar, sample
from hybrid_lab.ops.framework.contract import named_parameters
from hybrid_lab.ops.framework.dtypes import is_narrow
from hybrid_lab.ops.framework.namespace import F as raw
from hybrid_lab.ops.framework.protocols import Functions, Number, Tensor
from hybrid_lab.ops.framework.types import Array, Arrays, Outs, PartialShape, PartialShapes, Shape, Shapes

_PIECE = 32768
"""Elements updated at a time: weight, gradient, states and temporaries stay in the cache."""


def scaled(value: Tensor, number: Number) -> Tensor:
    """value * number, without the multiplication by an immediate 1."""
    return value if is_scalar(number) and number == 1 else value * number


def decayed(gradient: Tensor, weight: Tensor, wd: Number) -> Tensor:
    """gradient + wd * weight, without an immediate 0."""
    return gradient if is_scalar(wd) and wd == 0 else gradient + weight * wd


def limited(F: Functions, value: Tensor, limit: float) -> Tensor:
    """value within [-limit, limit]; a negative limit is none."""
    return F.clip(value, a_min=-limit, a_max=limit) if limit >= 0 else value


def mean_of(old: Tensor, new: Tensor, beta: float) -> Tensor:
    """The running mean beta * old + (1 - beta) * new."""
    return old * beta + new * (1.0 - beta)


def begun(F: Functions, beta: float, t: Number) -> Number:
    """1 - beta^t, the share of a running mean after t steps; by expm1, because beta^t is close to 1."""
    return 1.0 - beta**t if is_scalar(t) or beta <= 0 else -F.expm1(t * log(beta))


def updating(*states: str) -> Signature:
    """Outputs: the new weight, which users see, and the new states."""
    return Signature(outputs=1 + len(states), visible=1, aux=states, aux_always=True)


class Update(Operator):
    """Base of the update operators; a subclass writes `step`, whose parameters are its arrays and scalars."""

    dtype_kinds = "f"
    alias_safe = True
    own_bfloat16 = True
    signature = updating()
    single: ClassVar[tuple[str, ...]] = ()
    """The arrays that are float32 whatever the weight is."""
    ones: ClassVar[tuple[str, ...]] = ()
    """The inputs with one element that are inputs in MXNet too; numbers will do."""

    @classmethod
    def named_inputs(cls) -> tuple[tuple[str, ...], bool]:
        if cls.infer_shape is not Update.infer_shape:
            return super().named_inputs()
        names, more = named_parameters(cls.step)
        return names[1:], more

    def infer_shape(self, *shapes: Shape) -> Shapes:
        return self.same(*shapes)

    def targets(self) -> tuple[int, ...]:
        """The input that each visible output replaces when the operator is called with `out=`."""
        return (0,)

    def step(self, F: Functions, *inputs: Any) -> tuple[Tensor, ...]:
        """(arrays ..., numbers ...) -> (new weight, new states ...). Numbers are floats, or values of one element."""
        raise NotImplementedError

    def is_array(self, name: str) -> bool:
        """Whether the input has an element for each one of the weight."""
        return name not in self.scalars and name not in self.ones

    @cached_property
    def _whole(self) -> tuple[bool, ...]:
        """Per input, whether it has an element for each one of the weight."""
        return tuple(map(self.is_array, self.signature.inputs))

    def complete(self, *shapes: PartialShape) -> PartialShapes:
        given = list(zip(self.signature.inputs, shapes, strict=True))
        known = next((item for name, item in given if self.is_array(name) and item and None not in item), None)
        return tuple(known if shape is None and self.is_array(name) else shape for name, shape in given)

    def same(self, *shapes: Shape) -> list[tuple[int, ...]] | tuple[int, ...]:
        """The shape rule: arrays of one shape, scalars of one element; every output has the weight's shape."""
        for name, shape in zip(self.signature.inputs, shapes, strict=True):
            if self.is_array(name):
                if shape != shapes[0]:
                    raise ShapeError(f"{self.name}: {name} has shape {shape}, the weight {shapes[0]}")
            elif prod(shape) != 1 or len(shape) > 1:
                raise ShapeError(f"{self.name}: {name} has shape {shape}; a number or an array of shape (1,) is needed")
        return [shapes[0]] * self.signature.outputs if self.signature.outputs > 1 else shapes[0]

    def infer_type(self, *dtypes: np.dtype | None) -> list[np.dtype]:
        weight = dtypes[0]
        for name, dtype in zip(self.signature.inputs, dtypes, strict=True):
            wanted = np.dtype("float32") if name in self.single else weight
            if dtype is None and self.is_array(name):
                raise DTypeError(f"{self.name}: {name} must be an array")
            if dtype is None or dtype == wanted or (not self.is_array(name) and dtype.name in ("float32", "float64")):
                continue
            raise DTypeError(f"{self.name}: {name} is {dtype}, {wanted} is needed")
        assert weight is not None
        return [weight, *(np.dtype("float32") if name in self.single else weight for name in self.signature.aux)]

    def numpy(self, *inputs: Array, out: Outs = None) -> Array | Arrays:
        values: list[Any] = [
            np.ascontiguousarray(item).reshape(-1) if whole else (item if is_scalar(item) else item.item())
            for whole, item in zip(self._whole, inputs, strict=True)
        ]
        given: tuple[Any, ...] = out if isinstance(out, tuple) else (out,) * self.signature.outputs
        made: list[Any] = list(given)
        if not all(target is not None and target.flags.c_contiguous for target in given):
            kinds = self.infer_type(*(getattr(item, "dtype", None) for item in inputs))
            shape = inputs[0].shape
            made = [contiguous(target, shape, kind) for target, kind in zip(given, kinds, strict=True)]
        flat = [item.reshape(-1) for item in made]
        narrow = not self.single and is_narrow(inputs[0].dtype)
        for start in range(0, inputs[0].size, _PIECE):
            piece = slice(start, start + _PIECE)
            parts: list[Any] = [item if is_scalar(item) else item[piece] for item in values]
            if narrow:
                parts = [item if is_scalar(item) else item.astype(np.float32) for item in parts]
            new = self.step(raw, *parts)
            for target, value in zip(flat, new, strict=True):
                target[piece] = value
        results = tuple(into(item, None if target is item else target) for item, target in zip(made, given))
        return results if len(results) > 1 else results[0]

    def aux(self, F: Functions, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> dict[str, Tensor]:
        return dict(zip(self.signature.aux, outputs[1:], strict=True))

    def lower(self, F: Functions, *inputs: Tensor) -> Tensor | tuple[Tensor, ...]:
        names, given = self.signature.inputs, list(inputs)
        narrow = not self.single and is_narrow(inputs[0].dtype)
        if narrow:
            given = [F.Cast(item, dtype="float32") if self.is_array(name) else item for name, item in zip(names, given)]
        master = given[names.index(self.single[-1])] if self.single else given[0]
        values = [
            item if self.is_array(name) or is_scalar(item) else F._cast_like(item, master)
            for name, item in zip(names, given, strict=True)
        ]
        results = self.step(F, *values)
        if narrow:
            results = tuple(F._cast_like(item, inputs[0]) for item in results)
        return results if len(results) > 1 else results[0]


class Descent(Update):
    """Base: the hyperparameters that almost every rule has."""

    clip_gradient: float = -1.0

    def gradient(self, F: Functions, grad: Tensor, rescale_grad: Number) -> Tensor:
        """grad, rescaled and then limited."""
        return limited(F, scaled(grad, rescale_grad), self.clip_gradient)

    def regularized(self, F: Functions, weight: Tensor, grad: Tensor, wd: Number, rescale_grad: Number) -> Tensor:
        """grad, rescaled, with the decay in it, and then limited."""
        return limited(F, decayed(scaled(grad, rescale_grad), weight, wd), self.clip_gradient)


class Mixed:
    """Mixin for the `mp_` forms: the step is made in float32 on `weight32`, the last array; the weight follows it."""

    signature: Signature
    single: ClassVar[tuple[str, ...]]

    @classmethod
    def named_inputs(cls) -> tuple[tuple[str, ...], bool]:
        rule: Any = super()
        names, more = named_parameters(rule.step)
        count = 2 + len(cls.single)  # F, weight, gradient and states
        return (*names[1:count], "weight32", *names[count:]), more

    def step(self, F: Functions, weight: Tensor, grad: Tensor, *rest: Any) -> tuple[Tensor, ...]:
        count = len(self.signature.aux) - 1
        states, weight32, numbers = rest[:count], rest[count], rest[count + 1 :]
        rule: Any = super()
        new, *changed = rule.step(F, weight32, F._cast_like(grad, weight32), *states, *numbers)
        return (F._cast_like(new, weight), *changed, new)


def changing(*shape: int, states: int = 0, numbers: Sequence[float] = (0.1, 0.01, 0.5), **attributes: Any) -> Sample:
    """A sample: weight, gradient and positive states of one shape, then the scalars."""
    arrays = [shape] * (2 + states)
    return sample(*arrays, *numbers, gradient=False, low=0.05, high=1.0, **attributes)


def mixed(states: int, numbers: Sequence[float] = (0.1, 0.01, 0.5), **attributes: Any) -> Sample:
    """A sample of an `mp_` form: float16 weight and gradient, float32 states and copy."""
    narrow, wide = [ints((3, 4), 1, 6, "float16")] * 2, [(3, 4)] * (states + 1)
    return sample(*narrow, *wide, *numbers, gradient=False, low=0.05, high=1.0, **attributes)
