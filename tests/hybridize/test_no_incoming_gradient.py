"""Where no gradient arrives in an eager run, a hybridized Block sends none on: 0 times infinity is NaN.

What the Block's input was computed from, sqrt at 0, would be differentiated with zeros.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, nd
from hybrid_lab.gluon import HybridBlock, nn
from tests.hybridize.test_backward_from_some_outputs import ENGINES
from tests.triton_device import use_triton

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

#: Expressions that have no gradient, or none of their gradient, with respect to x.
CONSTANT = {
    "zeros": lambda F, x, w: F.zeros_like(x) * w,
    "ones": lambda F, x, w: F.ones_like(x) * w,
    "sign": lambda F, x, w: F.sign(x) * w,
    "floor": lambda F, x, w: F.floor(x) * w,
    "round": lambda F, x, w: F.round(x) * w,
    "stopped": lambda F, x, w: F.BlockGrad(x) * w,
    "compared": lambda F, x, w: (x > 1) * w,
    "position": lambda F, x, w: F.argmax(x, axis=0) * w,
    "order": lambda F, x, w: F.argsort(x) * w,
    "index": lambda F, x, w: F.take(w, x),
    "condition": lambda F, x, w: F.where(x, w, w * 2),
    "shape": lambda F, x, w: F.broadcast_like(F.sum(w), x),
    "linear": lambda F, x, w: x * 3 + w,
    "dropout": lambda F, x, w: F.Dropout(x, p=0.5) + w,
    "dropped rows": lambda F, x, w: F.Dropout(F.reshape(x, (3, 1)), p=0.5, axes=(1,)).reshape((3,)) * 2 + w,
    "relu": lambda F, x, w: F.relu(x) + w,
    "largest": lambda F, x, w: F.max(x) + w,
    "sorted": lambda F, x, w: F.sort(x) + w,
    "pooled": lambda F, x, w: F.Pooling(F.reshape(x, (1, 1, 3)), kernel=(2,), pool_type="max").sum() + w,
}


class Function(HybridBlock):
    def __init__(self, function: Any):
        super().__init__()
        self.function = function

    def hybrid_forward(self, F, x, w):
        return self.function(F, x, w)


def gradients(function: Any, second: bool, engine: str | None) -> list[np.ndarray]:
    """Of x, from which a square root is the first input of a Block, and of w, the second one."""
    mx.random.seed(3)
    net = Function(function)
    if engine:
        net.hybridize(engine=engine)
    x, w = nd.array([0.0, 1.0, 4.0]), nd.array([2.0, 3.0, 5.0])
    for array in (x, w):
        array.attach_grad()
        array.grad[:] = 7
    with autograd.record():
        root = nd.sqrt(x)
        loss = nd.square(net(root, w)).sum() if not second else net(root, w).sum()
        if second:
            first = autograd.grad(loss, [x, w], create_graph=True)
            loss = nd.add_n(*[nd.square(each).sum() for each in first])
        loss = loss + nd.square(x).sum() + nd.square(w).sum()
    loss.backward()
    return [x.grad.asnumpy(), w.grad.asnumpy()]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("second", [False, True], ids=["first", "second"])
@pytest.mark.parametrize("name", CONSTANT)
def test_what_stands_before_a_block_gets_what_it_gets_eagerly(name, second, engine, monkeypatch):
    if engine == "triton":
        use_triton(monkeypatch)
    for found, wanted in zip(
        gradients(CONSTANT[name], second, engine), gradients(CONSTANT[name], second, None), strict=True
    ):
        np.testing.assert_allclose(found, wanted, rtol=1e-5)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_parameter_on_which_no_gradient_of_a_gradient_depends_keeps_its_own(engine, monkeypatch):
    if engine == "triton":
        use_triton(monkeypatch)

    def beta(engine: str | None) -> np.ndarray:
        mx.random.seed(3)
        norm, drop = nn.BatchNorm(), nn.Dropout(0.5)
        norm.initialize()
        x = nd.array([[1.0, 2.0], [3.0, 5.0]])
        norm(x)
        if engine:
            norm.hybridize(engine=engine)
            drop.hybridize(engine=engine)
        x.attach_grad()
        norm.beta.grad()[:] = 7
        with autograd.record():
            (first,) = autograd.grad(drop(norm(x)), [x], create_graph=True)
            loss = nd.square(first).sum()
        loss.backward()
        return norm.beta.grad().asnumpy()

    np.testing.assert_array_equal(beta(engine), beta(None))
