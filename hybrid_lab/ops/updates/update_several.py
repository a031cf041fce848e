"""Update operators of several weights at once: the `multi_` forms, and `preloaded_multi_` with rates as arrays.

The inputs are interleaved, weight0, grad0, states ..., weight1 ...; there is one output per weight, and the states are
updated as in the operator of one weight. Rates of `multi_` are attributes, as in MXNet: a new rate is a new operator.
If they change from step to step the `preloaded_` forms, or one `sgd_update` per weight, run the same program.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar, TypeVar

import numpy as np

from hybrid_lab.diagnostics.errors import AttributeSpecError, DTypeError, ShapeError
from hybrid_lab.ops.framework import Operator, Signature, all_into, get, into, ints, sample
from hybrid_lab.ops.framework.lowering import run_lowering
from hybrid_lab.ops.framework.namespace import F as raw
from hybrid_lab.ops.framework.protocols import Functions, Number, Tensor
from hybrid_lab.ops.framework.run import run_kernel
from hybrid_lab.ops.framework.signature import MOST_OUTPUTS
from hybrid_lab.ops.framework.types import Array, Arrays, Outs, Shape, Shapes

Item = TypeVar("Item")


class _Several(Operator):
    """Base: `rule` names the update operator of one weight. data : interleaved arrays; lrs, wds if preloaded."""

    dtype_kinds = "f"
    rule: ClassVar[str]
    preloaded: ClassVar[bool] = False

    rescale_grad: float = 1.0
    clip_gradient: float = -1.0
    num_weights: int = 1

    def one(self) -> Operator:
        """The operator of one weight."""
        momentum = {key: self.attributes[key] for key in ("momentum",) if key in self.attributes}
        return get(self.rule).bind(clip_gradient=self.clip_gradient, **momentum)

    @property
    def group(self) -> tuple[str, ...]:
        """Names of the arrays of one weight."""
        return tuple(name for name in self.one().signature.inputs if name not in self.one().scalars)

    @cached_property
    def signature(self) -> Signature:
        numbers, one = range(self.num_weights), self.one().signature
        names = [f"{name}_{index}" for index in numbers for name in self.group]
        states = tuple(f"{name}_{index}" for index in numbers for name in one.aux)
        names += ["lrs", "wds"] if self.preloaded else []
        return Signature(tuple(names), len(numbers) * one.outputs, len(numbers), states, aux_always=True)

    def targets(self) -> tuple[int, ...]:
        """The input that each visible output replaces when the operator is called with `out=`."""
        return tuple(range(0, self.num_weights * len(self.group), len(self.group)))

    def check(self) -> None:
        if not 1 <= self.num_weights <= MOST_OUTPUTS:
            raise AttributeSpecError(f"{self.name}: num_weights={self.num_weights}; 1 to {MOST_OUTPUTS:,} are possible")
        if self.preloaded:
            return
        lrs, wds = self.attributes["lrs"], self.attributes["wds"]
        if not len(lrs) == len(wds) == self.num_weights:
            raise AttributeSpecError(
                f"{self.name}: {len(lrs)} lrs and {len(wds)} wds for num_weights={self.num_weights}; one each is needed"
            )

    def each(self, data: tuple[Item, ...]) -> list[tuple[Item, ...]]:
        """The arrays of each weight. Raises ShapeError."""
        count, size = self.num_weights, len(self.group)
        wanted = count * size + 2 * self.preloaded
        if len(data) != wanted:
            names = self.signature.inputs
            raise ShapeError(f"{self.name}: {len(data)} inputs; num_weights={count} needs {wanted}: {names}")
        return [data[index * size : (index + 1) * size] for index in range(count)]

    def arranged(self, results: Sequence[Sequence[Item]]) -> tuple[Item, ...]:
        """The weights first, then all states."""
        return (*(item[0] for item in results), *(state for item in results for state in item[1:]))

    def infer_shape(self, *data: Shape) -> Shapes:
        if self.preloaded and any(shape != (self.num_weights,) for shape in data[-2:]):
            raise ShapeError(f"{self.name}: lrs {data[-2]} and wds {data[-1]}; ({self.num_weights},) is needed")
        for arrays in self.each(data):
            self.one().infer_shape(*arrays, (), (), ())
        shapes = self.arranged([(arrays[0],) * self.one().signature.outputs for arrays in self.each(data)])
        return list(shapes) if len(shapes) > 1 else shapes[0]

    def infer_type(self, *dtypes: np.dtype | None) -> np.dtype | list[np.dtype]:
        if any(dtype is None for dtype in dtypes):
            raise DTypeError(f"{self.name}: all inputs must be arrays")
        try:
            made = [tuple(self.one().infer_type(*arrays, None, None, None)) for arrays in self.each(dtypes)]
        except DTypeError as error:
            raise DTypeError(f"{self.name}: {error}") from None
        return list(self.arranged(made))

    def rates(self, F: Functions, data: tuple[Any, ...], index: int) -> tuple[Number, Number]:
        """lr and wd of one weight: numbers, or values of one element."""
        if not self.preloaded:
            return self.attributes["lrs"][index], self.attributes["wds"][index]
        lr, wd = (F.slice_axis(item, axis=0, begin=index, end=index + 1) for item in data[-2:])
        return lr, wd

    def numpy(self, *data: Array, out: Outs = None) -> Array | Arrays:
        results = []
        for index, arrays in enumerate(self.each(data)):
            results.append(run_kernel(self.one(), (*arrays, *self.rates(raw, data, index), self.rescale_grad)))
        return all_into(self.arranged(results), out)

    def aux(self, F: Functions, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> dict[str, Tensor]:
        return dict(zip(self.signature.aux, outputs[self.num_weights :], strict=True))

    def lower(self, F: Functions, *data: Tensor) -> Tensor | tuple[Tensor, ...]:
        results = []
        for index, arrays in enumerate(self.each(data)):
            made = self.one().lower(F, *arrays, *self.rates(F, data, index), self.rescale_grad)
            results.append(made if isinstance(made, tuple) else (made,))
        filled = self.arranged(results)
        return filled if len(filled) > 1 else filled[0]


class _WithRates(_Several):
    """Base of the forms whose rates are attributes."""

    lrs: tuple[float, ...]
    wds: tuple[float, ...]


def _declare(rule: str, dtypes: Sequence[str], momentum: bool = False) -> None:
    """Declare multi_X and preloaded_multi_X of a rule X. dtypes : of the arrays of one weight, in samples"""
    title = "".join(part.capitalize() for part in rule.split("_"))
    body: dict[str, Any] = {"__module__": __name__, "rule": rule}
    body |= {"momentum": 0.0, "__annotations__": {"momentum": float}} if momentum else {}
    group = [name for name in get(rule).input_names if name not in get(rule).scalars]
    data = f"{', '.join(f'{name}_0' if name[-1].isdigit() else f'{name}0' for name in group)}, weight1 ..."
    arrays = [ints(shape, 1, 6, kind) if kind == "float16" else shape for shape in ((3, 4), (5,)) for kind in dtypes]
    shared: dict[str, Any] = {"gradient": False, "low": 0.05, "num_weights": 2, "rescale_grad": 0.5}
    shared |= {"momentum": 0.9} if momentum else {}
    doc = f"{rule} of several weights. data : {data}; returns : the new weights."
    samples = [sample(*arrays, lrs=(0.1, 0.2), wds=(0.01, 0.0), **shared)]
    if rule == "sgd_update":
        samples += [sample((2, 3), (2, 3), gradient=False, lrs=(0.1,), wds=(0.01,), num_weights=1, clip_gradient=0.2)]
    type(f"Multi{title}", (_WithRates,), {**body, "__doc__": doc, "samples": samples}, name=f"multi_{rule}")
    doc = f"{rule} of several weights. data : {data}, lrs, wds; the rates are (num_weights,)."
    rates = (np.array([0.1, 0.2], "float32"), np.array([0.01, 0.0], "float32"))
    body |= {"__doc__": doc, "preloaded": True, "samples": [sample(*arrays, *rates, **shared)]}
    type(f"PreloadedMulti{title}", (_Several,), body, name=f"preloaded_multi_{rule}")


_declare("sgd_update", ["float32"] * 2)
_declare("sgd_mom_update", ["float32"] * 3, momentum=True)
_declare("mp_sgd_update", ["float16", "float16", "float32"])
_declare("mp_sgd_mom_update", ["float16", "float16", "float32", "float32"], momentum=True)


class MultiSumSquares(Operator, name="multi_sum_sq"):
    """The sum of the squares of each input: float32, one number per array."""

    arrays_only = ("args",)
    dtype_kinds = "f"
    num_arrays: int
    samples = [sample((3, 4), (5,), gradient=False, num_arrays=2)]

    def infer_shape(self, *data: Shape) -> Shape:
        if len(data) != self.num_arrays:
            raise ShapeError(f"multi_sum_sq: {len(data)} inputs, num_arrays={self.num_arrays}")
        return (len(data),)

    def infer_type(self, *dtypes: np.dtype) -> np.dtype:
        super().infer_type(*dtypes)
        return np.dtype("float32")

    def numpy(self, *data: Array, out: Array | None = None) -> Array:
        flat = [item.reshape(-1).astype(np.float32, copy=False) for item in data]
        return into(np.array([np.dot(item, item) for item in flat], np.float32), out)

    def lower(self, F: Functions, *data: Tensor) -> Tensor:
        return F.Concat(*(F.sum(F.square(F.Cast(item, dtype="float32"))) for item in data), dim=0)


class MultiLARS(Operator, name="multi_lars"):
    """Learning rates of LARS (arXiv 1708.03888): lr * eta * |w| / (|g| * rescale_grad + wd * |w| + eps), if both norms
    are positive, else lr.

    lrs, weights_sum_sq, grads_sum_sq, wds : (n,), the squares of the norms; returns : (n,)
    """

    dtype_kinds = "f"
    eta: float
    eps: float
    rescale_grad: float = 1.0
    numpy = run_lowering
    samples = [
        sample(*[(3,)] * 4, gradient=False, low=0.1, eta=0.01, eps=1e-6, rescale_grad=0.5),
        sample(
            (2,), np.array([0.0, 4.0], "float32"), (2,), (2,), gradient=False, low=0.1, attrs={"eta": 0.01, "eps": 0.0}
        ),
    ]

    def infer_shape(self, lrs: Shape, weights_sum_sq: Shape, grads_sum_sq: Shape, wds: Shape) -> Shape:
        if not lrs == weights_sum_sq == grads_sum_sq == wds:
            raise ShapeError(f"multi_lars: the shapes {lrs}, {weights_sum_sq}, {grads_sum_sq} and {wds} differ")
        return lrs

    def lower(self, F: Functions, lrs: Tensor, weights_sum_sq: Tensor, grads_sum_sq: Tensor, wds: Tensor) -> Tensor:
        weights, grads = F.sqrt(weights_sum_sq), F.sqrt(grads_sum_sq)
        usable = F.broadcast_greater(weights, 0.0) * F.broadcast_greater(grads, 0.0)
        divisor = F.where(usable, grads * self.rescale_grad + wds * weights + self.eps, 1.0)
        return lrs * F.where(usable, weights * self.eta / divisor, 1.0)
