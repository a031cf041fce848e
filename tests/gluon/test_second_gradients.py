"""Gradients of gradients of every record, from its samples: eager calls against differences of the first gradient, in
float64; hybridized blocks on every engine of a CPU against eager calls. Where one refuses, the others do.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, nd
from hybrid_lab.diagnostics.errors import AutogradError
from hybrid_lab.gluon import HybridBlock
from hybrid_lab.ndarray.invoke import invoke
from hybrid_lab.ops.framework.dtypes import is_floating
from hybrid_lab.ops.framework.sample import Ints
from tests import quick
from tests.failures import Failures
from tests.ops.cases import Case, close, each_sample

#: Records whose gradient cannot be differentiated: an AutogradError says so, in both modes.
REFUSING = {
    "RNN",
    "CTCLoss",
    "_contrib_box_nms",
    "_sample_multinomial",
    "_sampler_grid_grad",
    # With respect to where they read, as in MXNet.
    *("_deformed_patches", "_masked_patches", "_contrib_DeformableConvolution"),
    *("_contrib_ModulatedDeformableConvolution", "_contrib_DeformablePSROIPooling", "Correlation"),
    # Their gradient is the loss's, and starts from the output: MXNet refuses it, too.
    *("SoftmaxOutput", "LinearRegressionOutput", "LogisticRegressionOutput", "MAERegressionOutput"),
}

Arrays = list[np.ndarray]


class Call(HybridBlock):
    """One sample's call, on its arrays."""

    def __init__(self, case: Case):
        super().__init__()
        self.op, self.given = case.record.bind(**case.sample.attributes), case.inputs()

    def forward(self, *arrays):
        following = iter(arrays)
        return invoke(self.op, [next(following) if isinstance(item, np.ndarray) else item for item in self.given])


def differentiated(case: Case, dtype: str | None = None) -> list[int]:
    """Which arrays of a sample are differentiated: floating ones that are neither classes, lengths or places nor
    states.
    """
    given, signature = case.inputs(dtype), case.op.signature
    names = (*signature.inputs, *[""] * len(given))
    places = [place for place, item in enumerate(given) if isinstance(item, np.ndarray)]
    return [
        index
        for index, place in enumerate(places)
        if is_floating(given[place].dtype)
        and not isinstance(case.sample.inputs[place], Ints)
        and names[place] not in signature.aux
    ]


class Twice:
    """A sample's call with random head gradients for the first and for the second order.

    wrt : which arrays are differentiated
    """

    def __init__(self, case: Case, dtype: str | None = None):
        self.arrays: Arrays = [item for item in case.inputs(dtype) if isinstance(item, np.ndarray)]
        self.wrt = differentiated(case, dtype)
        self.block = Call(case)
        generator = np.random.RandomState(case.number)
        with autograd.record():
            outputs = self._flat(self.block(*map(_array, self.arrays)))
        self.heads: Arrays = [generator.uniform(-1, 1, y.shape).astype(np.dtype(y.dtype)) for y in outputs]
        self.second: Arrays = [
            generator.uniform(-1, 1, self.arrays[index].shape).astype(self.arrays[index].dtype) for index in self.wrt
        ]

    @staticmethod
    def _flat(outputs: Any) -> list[Any]:
        return list(outputs) if isinstance(outputs, list) else [outputs]

    def first(self, arrays: Arrays, heads: Arrays, create_graph: bool = False) -> tuple[list[Any], list[Any]]:
        """The gradients, and the arrays that they depend on: inputs, then head gradients."""
        inputs, given = list(map(_array, arrays)), list(map(_array, heads))
        leaves = [inputs[index] for index in self.wrt]
        for leaf in (*leaves, *given):
            leaf.attach_grad()
        mx.random.seed(7)
        with autograd.record():
            outputs = self._flat(self.block(*inputs))
            pairs = [(y, head) for y, head in zip(outputs, given, strict=True) if is_floating(np.dtype(y.dtype))]
            ys, used = zip(*pairs, strict=True)
            gradients = autograd.grad(ys, leaves, head_grads=used, create_graph=create_graph, retain_graph=True)
        return gradients, [*leaves, *used]

    def run(self) -> Arrays:
        """The gradients of (first gradients * second heads)."""
        gradients, leaves = self.first(self.arrays, self.heads, create_graph=True)
        autograd.backward(gradients, list(map(_array, self.second)))
        return [leaf.grad.asnumpy() for leaf in leaves]

    def paired(self, arrays: Arrays, heads: Arrays) -> float:
        gradients, _ = self.first(arrays, heads)
        return sum(float((u * g.asnumpy()).sum()) for u, g in zip(self.second, gradients, strict=True))


def _array(values: np.ndarray) -> Any:
    return nd.array(values, dtype=values.dtype)


@cache
def is_differentiable(case: Case) -> bool:
    """Whether the gradient of the sample's call can be differentiated by an input."""
    return bool(case.record.differentiable and case.sample.gradient and differentiated(case))


@each_sample(is_differentiable)
def test_eager_second_gradients_are_differences_of_the_first(case: Case):
    twice = Twice(case, "float64")
    if case.record.name in REFUSING:
        with pytest.raises(AutogradError, match="has no gradient"):
            twice.run()
        return
    found = twice.run()
    firsts = [gradient.asnumpy() for gradient in twice.first(twice.arrays, twice.heads)[0]]
    if not case.sample.smooth or any(item.dtype != np.float64 for item in (*firsts, *twice.heads)):
        return  # ties, where a difference is none; or a dtype of few digits
    generator, step = np.random.RandomState(5), 1e-6
    # No gradient on purpose, as of regions: the others depend on these inputs all the same.
    moved = [index for index, first in zip(twice.wrt, firsts, strict=True) if first.any()]
    for place, index in (*((0, index) for index in moved), *((1, index) for index in range(len(twice.heads)))):
        given = [list(twice.arrays), list(twice.heads)]
        array = given[place][index]
        direction = generator.uniform(-1, 1, array.shape)
        ends = []
        for sign in (1, -1):
            given[place][index] = array + sign * step * direction
            ends.append(twice.paired(*given))
        gradient = found[twice.wrt.index(index) if place == 0 else len(twice.wrt) + index]
        scale = max(np.abs(gradient).max(initial=0.0), abs(twice.paired(twice.arrays, twice.heads)), 1e-2)
        assert abs((ends[0] - ends[1]) / (2 * step) - (gradient * direction).sum()) < 2e-5 * scale


@each_sample(is_differentiable)
def test_hybrid_second_gradients_are_the_eager_ones(case: Case):
    twice, failures = Twice(case), Failures()
    eager = None if case.record.name in REFUSING else twice.run()
    # The operators of a gradient's gradient run on every engine in tests/engines; here the engines take whole graphs.
    first = case.number == 0 or quick.ALL
    for engine in quick.in_turn(case.id, "numpy", "onnxruntime", "torch") if first else ("numpy",):
        with failures.of(engine):
            twice.block.hybridize(engine=engine)
            if eager is None:
                with pytest.raises(AutogradError, match="has no gradient"):
                    twice.run()
            else:
                for found, wanted in zip(twice.run(), eager, strict=True):
                    close(found, wanted, 1e-4)
    failures.raise_all()


@each_sample(lambda case: len(case.sample.inputs) > 1 and case.number < 2 and is_differentiable(case))
def test_one_input_alone_is_differentiated_or_refused_in_both_modes(case: Case):
    """What is refused for all inputs together may be there for one of them."""

    def answer(run: Any) -> Any:
        try:
            return run()
        except AutogradError:
            return None

    twice = Twice(case)
    for index, second in zip(list(twice.wrt), list(twice.second), strict=True):
        twice.wrt, twice.second = [index], [second]
        twice.block.hybridize(False)
        eager = answer(twice.run)
        twice.block.hybridize(engine="numpy")
        found = answer(twice.run)
        assert (eager is None) == (found is None)
        for given, wanted in zip(found or (), eager or (), strict=True):
            close(given, wanted, 1e-4)


# -- third derivatives -----------------------------------------------------------------------------------------

THIRD = {
    "tanh": lambda x: nd.tanh(x),
    "digamma": lambda x: invoke(mx.ops.get("_digamma").bind(), [nd.exp(x)]),
    "softmax": lambda x: nd.softmax(x, axis=1),
    "LayerNorm": lambda x: nd.LayerNorm(x, nd.ones(4, dtype="float64"), nd.zeros(4, dtype="float64")),
    "GroupNorm": lambda x: nd.GroupNorm(x, nd.ones(2, dtype="float64"), nd.zeros(2, dtype="float64"), num_groups=2),
    "khatri_rao": lambda x: nd.khatri_rao(x, nd.square(x)),
    "dot": lambda x: nd.dot(x, x, transpose_b=True) ** 2,
}


class Function(HybridBlock):
    def __init__(self, function: Any):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


@pytest.mark.each_value
@pytest.mark.parametrize("engine", [None, "numpy", "onnxruntime", "torch"])
@pytest.mark.parametrize("name", THIRD)
def test_third_derivatives(name: str, engine: str | None):
    generator = np.random.RandomState(3)
    block = Function(THIRD[name])
    if engine is not None:
        block.hybridize(engine=engine)
    point = generator.uniform(-1, 1, (3, 4))
    heads = [generator.uniform(-1, 1, size) for size in (block(_array(point)).shape, (3, 4), (3, 4))]

    def derivative(values: np.ndarray, order: int) -> Any:
        x = _array(values)
        x.attach_grad()
        with autograd.record():
            y = block(x)
            for head in heads[:order]:
                (y,) = autograd.grad(y, [x], head_grads=_array(head), create_graph=True)
        return y.asnumpy()

    direction, step = generator.uniform(-1, 1, (3, 4)), 1e-6
    second = partial(derivative, order=2)
    along = (second(point + step * direction) - second(point - step * direction)) / (2 * step)
    close((derivative(point, 3) * direction).sum(), (along * heads[2]).sum(), 1e-5)
