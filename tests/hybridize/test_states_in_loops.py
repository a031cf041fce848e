"""backward() through loops and branches whose bodies update running statistics, from every set of outputs."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from itertools import product
from typing import Any

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, nd
from hybrid_lab.diagnostics import AutogradError
from hybrid_lab.gluon import nn
from tests import quick
from tests.hybridize.test_backward_from_some_outputs import same, subsets

ENGINES = ["numpy", "onnxruntime", *(["torch"] if find_spec("torch") else []), None]
X = np.random.RandomState(3).randn(3, 4, 3).astype(np.float32)


def foreach(F: Any, layer: Any, x: Any) -> Any:
    return F.contrib.foreach(lambda a, s: (layer(a * s), s + layer(a)), x, F.ones((4, 3)))


def while_loop(F: Any, layer: Any, x: Any) -> Any:
    def body(i: Any, s: Any) -> Any:
        return layer(s), [i + 1, s * 0.5 + F.tanh(layer(s * s))]

    out, (_, last) = F.contrib.while_loop(lambda i, s: i < 2, body, [F.zeros((1,)), x[0] * 1.5], max_iterations=3)
    return out[0] if isinstance(out, list) else out, last


def cond(F: Any, layer: Any, x: Any) -> Any:
    number = (x.sum() < 1e6).reshape((1,))
    return F.contrib.cond(number, lambda: [layer(x[0]), x[1] * 2], lambda: [x[0], x[1]])


def cond_in_foreach(F: Any, layer: Any, x: Any) -> Any:
    def body(a: Any, s: Any) -> Any:
        y, z = F.contrib.cond((a.sum() < 0.5).reshape((1,)), lambda: [layer(a), s + a], lambda: [a * 2, layer(s) + a])
        return y, z

    return F.contrib.foreach(body, x, F.ones((4, 3)))


BODIES = [foreach, while_loop, cond, cond_in_foreach]


class Layer(nn.HybridBlock):
    """BatchNorm, with Dropout behind it, which may read the running mean beside it."""

    def __init__(self, dropout: bool, reads: bool):
        super().__init__()
        self.norm = nn.BatchNorm(in_channels=3, momentum=0.5)
        self.dropout = nn.Dropout(0.5) if dropout else None
        self.reads = reads

    def forward(self, x):
        y = self.norm(x)
        if self.dropout is not None:
            y = self.dropout(y)
        return y + nd.tanh(x * nd.identity(self.norm.running_mean.data())) if self.reads else y


class Net(nn.HybridBlock):
    """before : the layer is called outside first, so that the loop updates what that call left"""

    def __init__(self, program: Any, dropout: bool = False, before: bool = False, reads: bool = False):
        super().__init__()
        self.layer = Layer(dropout, reads)
        self.program, self.before = program, before

    def forward(self, x):
        first, second = self.program(nd, self.layer, self.layer(x[0]) + x if self.before else x)
        return first * 2, nd.tanh(second)


def made(*args: Any, **flags: Any) -> Net:
    net = Net(*args)
    net.initialize()
    if flags:
        net.hybridize(**flags)
    return net


def run(net: Net, heads: tuple[int, ...], second: bool = False) -> list[Any]:
    """Gradients and statistics after a backward from these outputs."""
    mx.random.seed(5)
    x = nd.array(X)
    x.attach_grad()
    norm = net.layer.norm
    for name in ("gamma", "beta"):
        getattr(norm, name).zero_grad()
    with autograd.record():
        outputs = net(x)
        chosen = [outputs[index] for index in heads]
        if second:
            chosen = [(autograd.grad(chosen, [x], create_graph=True)[0] ** 2).sum()]
    autograd.backward(chosen)
    arrays = [*outputs, x.grad, norm.gamma.grad(), norm.beta.grad(), norm.running_mean.data(), norm.running_var.data()]
    return [array.asnumpy() for array in arrays]


@cache
def after_each_set_of_heads(program, dropout, before, **flags):
    """What `run` gives for one set of outputs after the other: the first backward is from one output, or from both."""
    net = made(program, dropout, before, **flags)
    return [run(net, heads) for heads in subsets(2)[:: 1 if before else -1]]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("program", BODIES)
def test_every_set_of_heads(program, engine):
    # Each pair of two of these four is in `make test`: an engine, a program, with dropout or not, with a call before.
    turn = (ENGINES.index(engine) + BODIES.index(program)) % 2
    for dropout, before in product((False, True), repeat=2):
        if quick.ALL or (dropout + before) % 2 == turn:
            found = after_each_set_of_heads(program, dropout, before, engine=engine)
            for one, other in zip(found, after_each_set_of_heads(program, dropout, before), strict=True):
                same(one, other)


@pytest.mark.parametrize("dropout", [False, True])
@pytest.mark.parametrize("program", BODIES)
def test_gradients_of_gradients(program, dropout):
    for heads in subsets(2):
        eager, net = made(program, dropout), made(program, dropout, engine="numpy")
        for _ in range(2):
            same(run(net, heads, second=True), run(eager, heads, second=True))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("program", BODIES)
def test_bodies_that_read_the_state(program, engine):
    """Each step's gradient is computed from the value that the step read."""
    for before in (False, True):
        eager, net = made(program, False, before, True), made(program, False, before, True, engine=engine)
        for _ in range(3):
            same(run(net, (0, 1)), run(eager, (0, 1)))
        # Another set runs the forward again, of which the states are no longer what they were.
        with pytest.raises(AutogradError, match="running_mean.* written to since"):
            run(net, (0,))
        net = made(program, False, before, True, engine=engine)
        with pytest.raises(AutogradError, match="running_mean.* written to since"):
            run(net, (0, 1), second=True)
