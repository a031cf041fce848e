"""Calls that a gradient of a gradient goes back through in two steps, though one step and two are not the same there:
layers that are losses give their own gradient in each, whole numbers cut off a part in each. Such a compiled call is
replaced on the tape by its operators.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, nd
from hybrid_lab.diagnostics.errors import AutogradError
from hybrid_lab.gluon import HybridBlock
from tests.gluon.test_second_gradients import Twice, is_differentiable
from tests.ops.cases import Case, close, each_sample

ENGINES = ["numpy", "onnxruntime", "torch"]


@each_sample(is_differentiable)
def test_gradients_of_records_add_up_or_the_record_says_they_do_not(case: Case):
    """The gradients for two head gradients and for their sum."""
    twice = Twice(case, "float64")
    others = [np.cos(head * 3).astype(head.dtype) for head in twice.heads]

    def first(heads: list[np.ndarray]) -> list[np.ndarray]:
        return [gradient.asnumpy().astype(np.float64) for gradient in twice.first(twice.arrays, heads)[0]]

    pairs = zip(first(twice.heads), first(others), strict=True)
    together = first([head + other for head, other in zip(twice.heads, others, strict=True)])
    add_up = all(np.allclose(a + b, c, 1e-2, 1e-3) for (a, b), c in zip(pairs, together, strict=True))
    assert add_up != case.op.own_gradient


def _rows(F, x):
    return F.reshape(x, shape=(2, 2))


#: One sin(.) of each is linear, so that the value that has a gradient of its own is read by the gradient as well.
CALLS = {
    "make_loss": lambda F, x: x / F.make_loss(x),
    "MakeLoss": lambda F, x: F.sin(x) * F.MakeLoss(x * x, grad_scale=0.5, normalization="valid"),
    "SVMOutput": lambda F, x: F.SVMOutput(_rows(F, x), F.zeros((2,))) * _rows(F, x),
    "SoftmaxOutput": lambda F, x: F.SoftmaxOutput(_rows(F, x), F.zeros((2,))) * _rows(F, x),
    "SoftmaxOutput with a head": lambda F, x: F.SoftmaxOutput(_rows(F, x), F.zeros((2,)), out_grad=True) * _rows(F, x),
    "LinearRegressionOutput": lambda F, x: F.LinearRegressionOutput(x, F.ones_like(x)) * x,
    "LogisticRegressionOutput": lambda F, x: F.LogisticRegressionOutput(x, F.ones_like(x)) * x,
    "MAERegressionOutput": lambda F, x: F.MAERegressionOutput(x, F.ones_like(x)) * x,
    "whole numbers": lambda F, x: F.sin(x) * F.cast(F.cast(x * 2.5, dtype="int32"), dtype="float32"),
    "several outputs": lambda F, x: (F.sqrt(x), x * F.make_loss(x) * x),
    "random numbers": lambda F, x: F.Dropout(x, p=0.5) * F.make_loss(x) * x,
    "an output that is an input": lambda F, x: (x, F.make_loss(x) * x),
    "foreach": lambda F, x: F.contrib.foreach(lambda a, s: (a * F.make_loss(a) * s, s + a), x, F.ones((1,)))[0],
    "cond": lambda F, x: F.contrib.cond(F.sum(x) > 0, lambda: x * F.make_loss(x) * x, lambda: x),
}


class Net(HybridBlock):
    def __init__(self, name: str):
        super().__init__()
        self.name_of_call = name

    def hybrid_forward(self, F, x):
        return CALLS[self.name_of_call](F, x)


def _derivatives(net: Any) -> list[Any]:
    """First to third derivatives, which start behind and go on before the Block."""
    mx.random.seed(5)
    x = nd.array([1.5, 0.25, 0.75, 2.0])
    x.attach_grad()
    seen: list[Any] = []
    try:
        with autograd.record():
            y = net(nd.sin(x) + 1.5)
            y = y[-1] if isinstance(y, (list, tuple)) else y
            (g,) = autograd.grad([y * y], [x], create_graph=True)
            seen.append(g.asnumpy())
            z = nd.sin(g).sum() + (y * nd.reshape_like(x, y)).sum()
            (h,) = autograd.grad([z], [x], create_graph=True)
            seen.append(h.asnumpy())
            z = (h * h).sum()
        z.backward()
        seen.append(x.grad.asnumpy())
    except AutogradError as error:
        seen.append(str(error))
    return seen


@pytest.mark.each_value
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", CALLS)
def test_higher_derivatives_are_the_eager_ones(name: str, engine: str):
    net = Net(name)
    eager = _derivatives(net)
    assert len(eager) == 3 or "has no gradient" in eager[-1]
    net.hybridize(engine=engine)
    for _ in range(2):
        for found, wanted in zip(_derivatives(net), eager, strict=True):
            assert type(found) is type(wanted)
            close(found, wanted, 1e-4) if isinstance(wanted, np.ndarray) else None


def test_a_call_is_replaced_only_where_it_must_be():
    for name, whole in (("make_loss", False), ("SoftmaxOutput with a head", True)):
        net = Net(name)
        net.hybridize(engine="numpy")
        x = nd.array([1.5, 0.25, 0.75, 2.0])
        x.attach_grad()
        with autograd.record():
            y = net(x)
            entry = y.tape_link.node.entry
            autograd.grad([y], [x], create_graph=True)
        assert (y.tape_link.node.entry is entry) is whole


def test_an_input_that_was_written_to_since_is_an_error():
    net = Net("make_loss")
    net.hybridize(engine="numpy")
    x = nd.array([1.5, 0.25])
    x.attach_grad()
    with autograd.record():
        y = net(x)
    x[:] = 3
    with pytest.raises(AutogradError, match="written to since"):
        autograd.grad([y], [x], create_graph=True)
