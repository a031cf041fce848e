"""Which arrays a backward writes: the same ones eagerly and hybridized. Where no gradient arrives, an array that the
heads depend on gets zeros; any other keeps the gradient that it has. Gradients of gradients of every record.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, nd
from hybrid_lab.gluon import HybridBlock, nn
from hybrid_lab.ndarray.invoke import invoke
from hybrid_lab.ops.framework.dtypes import is_floating
from tests import quick
from tests.failures import Failures
from tests.gluon.test_second_gradients import REFUSING, Twice, is_differentiable
from tests.hybridize.test_backward_from_some_outputs import ENGINES
from tests.ops.cases import Case, by_record
from tests.seeds import same_random_numbers
from tests.triton_device import use_triton

#: What stands behind a record: the gradient of a square reads the output, on which a sum does not depend.
BEHIND = {"nothing": lambda y: y, "a square": lambda y: y * y}


class Call(HybridBlock):
    """A sample's call with sums for inputs: a gradient that reads only the shape of one leads to neither summand."""

    def __init__(self, case: Case, behind: Any):
        super().__init__()
        self.op, self.given, self.behind = case.record.bind(**case.sample.attributes), case.inputs(), behind

    def forward(self, arrays, others):
        pairs = iter([a if b is None else a + b for a, b in zip(arrays, others, strict=True)])
        given = [next(pairs) if isinstance(item, np.ndarray) else item for item in self.given]
        count, y = self.op.signature.visible, invoke(self.op, given)
        return [self.behind(y[index] if count > 1 else y) for index in range(count)]


def written(case: Case, behind: str, engine: str | None, target: int) -> list[bool]:
    """Whether the backward of a gradient writes, per leaf. target : the leaf that the gradient belongs to"""
    twice, block = Twice(case), Call(case, BEHIND[behind])
    if engine:
        block.hybridize(engine=engine)
    arrays: list[Any] = [nd.array(array, dtype=array.dtype) for array in twice.arrays]
    others: list[Any] = [None] * len(arrays)
    for index in twice.wrt:
        others[index] = nd.zeros_like(arrays[index])
    leaves = [each[index] for each in (arrays, others) for index in twice.wrt]
    for leaf in leaves:
        leaf.attach_grad()
    mx.random.seed(7)
    with autograd.record():
        heads = [y for y in block(arrays, others) if is_floating(np.dtype(y.dtype))]
        (gradient,) = autograd.grad(heads, [leaves[target]], create_graph=True)
        loss = nd.sin(gradient).sum()
    loss.backward()
    return [leaf.tape_link.fresh for leaf in leaves]


CHOSEN = by_record(lambda case: case.record.name not in REFUSING and is_differentiable(case))


@pytest.mark.parametrize("cases", CHOSEN.values(), ids=list(CHOSEN))
def test_gradients_of_gradients_write_the_same_arrays(cases: list[Case]):
    failures = Failures()
    for behind, case in itertools.product(BEHIND, cases[: 3 if quick.ALL else 1]):
        for target in {0, len(Twice(case).wrt) - 1}:
            with failures.of(f"{case.id}, {case!r}, with {behind} behind it, for leaf {target}"):
                same_random_numbers()
                assert written(case, behind, "numpy", target) == written(case, behind, None, target)
    failures.raise_all()


class Scaled(HybridBlock):
    """Two normalizations that share parameters, or an array in the shape of another one."""

    def __init__(self, like: bool):
        super().__init__()
        self.like, self.norm = like, nn.BatchNorm(use_global_stats=True, in_channels=3)

    def forward(self, x, y):
        return nd.square(nd.reshape_like(x, y)) if self.like else self.norm(self.norm(x + y))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("like", [False, True], ids=["BatchNorm", "reshape_like"])
def test_what_no_gradient_depends_on_keeps_its_own(like, engine, monkeypatch):
    if engine == "triton":
        use_triton(monkeypatch)

    def gradients(engine: str | None) -> list[np.ndarray]:
        net = Scaled(like)
        net.initialize()
        if engine:
            net.hybridize(engine=engine)
        x, y = nd.array([[1.0, 2.0, 3.0]]), nd.array([[4.0, 5.0, 6.0]])
        x.attach_grad()
        y.attach_grad()
        net(x, y)
        arrays = [x.grad, y.grad, net.norm.beta.grad(), net.norm.gamma.grad()]
        for array in arrays:
            array[:] = 7
        with autograd.record():
            (first,) = autograd.grad(net(x, y), [x], create_graph=True)
            loss = nd.square(first).sum()
        loss.backward()
        return [array.asnumpy() for array in arrays]

    for found, wanted in zip(gradients(engine), gradients(None), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5)
