"""A hybridized block gives what its code gives eagerly: outputs, gradients and states, in unusual places too."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, nd
from hybrid_lab.gluon import HybridBlock, nn

ENGINES = ["numpy", "onnxruntime"]
each_engine = pytest.mark.parametrize("engine", ENGINES)
#: torch's sums round otherwise, so that it is not held to gradients that are zero but for rounding.
each_engine_and_torch = pytest.mark.parametrize("engine", [*ENGINES, *(["torch"] if find_spec("torch") else [])])


def uniform(*shape: int, seed: int = 0, dtype: str = "float32") -> np.ndarray:
    return np.random.RandomState(seed).uniform(-1, 1, shape).astype(dtype)


class Function(HybridBlock):
    """A block whose code is `function(F, *inputs)`."""

    def __init__(self, function: Callable[..., Any]):
        super().__init__()
        self.function = function

    def hybrid_forward(self, F, *inputs):
        return self.function(F, *inputs)


def flat(item: Any) -> list[Any]:
    if isinstance(item, dict):
        item = list(item.values())
    return [leaf for part in item for leaf in flat(part)] if isinstance(item, (list, tuple)) else [item]


def close(found: list[np.ndarray], wanted: list[np.ndarray], tolerance: float) -> None:
    assert [(y.shape, y.dtype) for y in found] == [(y.shape, y.dtype) for y in wanted]
    for y, expected in zip(found, wanted, strict=True):
        scale = max(np.abs(expected.astype(np.float64)).max(initial=0.0), 1e-3)
        np.testing.assert_allclose(y.astype(np.float64), expected.astype(np.float64), rtol=0, atol=tolerance * scale)


def check(block: HybridBlock, *arrays: np.ndarray, engine: str, train: bool = True, tolerance: float = 1e-5) -> None:
    """Outputs, gradients of inputs and parameters, and states of one recorded call: hybrid as eager."""

    def run() -> tuple[list[np.ndarray], list[np.ndarray]]:
        mx.random.seed(7)
        for name, value in before.items():
            block.collect_params()[name].set_data(value)
        inputs = [nd.array(array, dtype=array.dtype) for array in arrays]
        for item in inputs:
            item.attach_grad()
        with autograd.record(train_mode=train):
            outputs = flat(block(*inputs))
        autograd.backward(outputs)
        parameters = block.collect_params().values()
        gradients = [item.grad for item in inputs] + [p.grad() for p in parameters if p.grad_req != "null"]
        states = [p.data() for p in parameters if p.grad_req == "null"]
        return [y.asnumpy() for y in outputs], [y.asnumpy() for y in (*gradients, *states)]

    if block.collect_params():
        block.initialize(mx.init.Xavier())
        block(*(nd.array(array, dtype=array.dtype) for array in arrays))
    before = {name: p.data().copy() for name, p in block.collect_params().items()}
    outputs, gradients = run()
    block.hybridize(engine=engine)
    for _ in range(2):
        found = run()
        close(found[0], outputs, tolerance)
        close(found[1], gradients, 10 * tolerance)


def dropout_in_a_loop(F: Any, x: Any) -> Any:
    def step(row: Any, state: Any) -> Any:
        out = F.Dropout(row, p=0.5) + state
        return out, out

    return F.contrib.foreach(step, x, F.sum(x, axis=0))


FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "no dimensions": (lambda F, x: F.exp(x) * 2 + 1, ((),)),
    "a sum of no dimensions": (lambda F, x: F.sum(F.exp(x)), ((),)),
    "two numbers stacked": (lambda F, x, y: F.stack(x, y), ((), ())),
    "operators made of several steps, no dimensions": (lambda F, x: F.sigmoid(x) + F.erf(x), ((),)),
    "no elements": (lambda F, x: F.exp(x) + x, ((0, 3),)),
    "a sum over nothing": (lambda F, x: F.sum(x, axis=0), ((0, 3),)),
    "a softmax over nothing": (lambda F, x: F.softmax(x, axis=0), ((0, 3),)),
    "a product over nothing": (lambda F, x, y: F.dot(x, y), ((2, 0), (0, 3))),
    "no rows joined to some": (lambda F, x, y: F.concat(x, y, dim=0), ((0, 3), (2, 3))),
    "axes of one": (lambda F, x, y: x * y + F.sum(x, axis=(0, 2), keepdims=True), ((1, 3, 1), (2, 1, 1))),
    "negative axes": (lambda F, x: F.concat(*F.split(x, num_outputs=2, axis=-1), dim=-2), ((2, 3, 4),)),
    "the input itself": (lambda F, x: x, ((2, 3),)),
    "the input beside a result": (lambda F, x: (x, F.exp(x)), ((2, 3),)),
    "one value twice": (lambda F, x: [F.exp(x)] * 2, ((2, 3),)),
    "views": (lambda F, x: (F.transpose(x), x.reshape((-1,)), x[0], x[:, 1:]), ((2, 3),)),
    "views of a result that is returned too": (
        lambda F, x: (lambda y: (F.transpose(y), y.reshape((-1,)), y))(F.exp(x)),
        ((2, 3),),
    ),
    "an unused input": (lambda F, x, y: F.exp(x), ((2, 3), (4,))),
    "two random draws, one dead": (
        lambda F, x: (F.Dropout(x, p=0.3), F.Dropout(x, p=0.3) * F.Dropout(x, p=0.5))[1],
        ((4, 5),),
    ),
    "random numbers": (lambda F, x: x * F.random.uniform(shape=(4, 5)) + F.random.normal(shape=(4, 5)), ((4, 5),)),
    "a structure": (lambda F, x, y: {"a": x + y, "b": [x * y, (x - y,)]}, ((2, 3), (2, 3))),
    "numbers only": (lambda F, x: F.sum(x) * 2 + F.mean(x) / 3, ((2, 3),)),
    "division by zero": (lambda F, x: F.where(x > 0, x, x / (x * 0 + 2)), ((2, 3),)),
    "many results": (lambda F, x: [x * number for number in range(60)], ((3,),)),
    "a result of no input": (lambda F, x: (x * 2, F.ones((2, 2)) + F.sum(x) * 0), ((2, 3),)),
    "exponents beyond every range": (lambda F, x: (F.softmax(x * 1e4), F.sigmoid(x * 1e3)), ((2, 3),)),
    "reversed slices": (lambda F, x: F.slice(x, begin=(None, 1), end=(None, None), step=(-1, 2)), ((4, 5),)),
    "dropout in a loop": (dropout_in_a_loop, ((4, 3),)),
}


@each_engine_and_torch
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str, engine: str):
    function, shapes = FUNCTIONS[name]
    check(Function(function), *(uniform(*shape, seed=seed) for seed, shape in enumerate(shapes)), engine=engine)


@each_engine
def test_states_among_the_inputs(engine: str):
    """Running statistics that are inputs of the call are updated too."""
    states = []
    for hybrid in (False, True):
        block = Function(lambda F, x, mean, var: F.BatchNorm(x, F.ones((4,)), F.zeros((4,)), mean, var))
        block.hybridize(hybrid, engine=engine)
        x, mean, var = nd.array(uniform(5, 4)), nd.zeros((4,)), nd.ones((4,))
        x.attach_grad()
        with autograd.record():
            y = block(x, mean, var)
        y.backward()
        states.append([mean.asnumpy(), var.asnumpy(), x.grad.asnumpy()])
    close(states[1], states[0], 1e-4)
    assert np.abs(states[0][0]).max() > 0


@each_engine
def test_the_same_array_as_two_inputs(engine: str):
    block = Function(lambda F, x, y: x * y + x)
    gradients = []
    for _ in range(2):
        x = nd.array(uniform(3))
        x.attach_grad()
        with autograd.record():
            y = block(x, x)
        y.backward()
        gradients.append(x.grad.asnumpy())
        block.hybridize(engine=engine)
    np.testing.assert_allclose(*gradients, rtol=1e-6)


class Twice(HybridBlock):
    """One BatchNorm called twice."""

    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.norm, self.dense = nn.BatchNorm(), nn.Dense(4)

    def hybrid_forward(self, F, x):
        return self.norm(self.dense(self.norm(x)))


class Shared(HybridBlock):
    """One BatchNorm under two parents."""

    def __init__(self):
        super().__init__()
        with self.name_scope():
            norm = nn.BatchNorm()
            self.one, self.two = nn.HybridSequential(), nn.HybridSequential()
            self.one.add(nn.Dense(4), norm)
            self.two.add(nn.Dense(4), norm)

    def hybrid_forward(self, F, x):
        return self.one(x) + self.two(x * 2), self.two(x)


class ReadsItsState(HybridBlock):
    """Reads its running statistics behind the operator that updates them."""

    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.mean = self.params.get("mean", shape=(4,), grad_req="null", init="zeros")
            self.var = self.params.get("var", shape=(4,), grad_req="null", init="ones")

    def hybrid_forward(self, F, x, mean, var):
        y = F.BatchNorm(x, F.ones((4,)), F.zeros((4,)), mean, var, fix_gamma=False)
        return y + mean + var * 2


class SameWeight(HybridBlock):
    """A weight of its own and a layer's, both used twice."""

    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.weight = self.params.get("weight", shape=(4, 4))
            self.dense = nn.Dense(4)

    def hybrid_forward(self, F, x, weight):
        return self.dense(self.dense(F.dot(x, weight))) + F.dot(weight, weight)[0:1]


@each_engine
@pytest.mark.parametrize("kind", [Twice, Shared, ReadsItsState, SameWeight])
def test_shared_parameters_and_states(kind: type[HybridBlock], engine: str):
    check(kind(), uniform(5, 4), engine=engine)


def perceptron() -> nn.HybridSequential:
    net = nn.HybridSequential()
    net.add(nn.Dense(4, activation="tanh"), nn.BatchNorm(), nn.LayerNorm(), nn.Dropout(0.3), nn.Dense(3))
    return net


@each_engine
@pytest.mark.parametrize("dtype", ["float64", "float16"])
def test_other_dtypes(dtype: str, engine: str):
    net = perceptron()
    net.cast(dtype)
    check(net, uniform(5, 4, dtype=dtype), engine=engine, tolerance=2e-3 if dtype == "float16" else 1e-5)


@each_engine_and_torch
@pytest.mark.parametrize("dtype", ["uint8", "int8", "int32", "int64"])
def test_whole_numbers_wrap_around_as_they_do_eagerly(dtype: str, engine: str):
    def function(F, x):
        return -x, F.abs(-x), F.abs(x - 5), x * -1, 3 - x, x * x, x / 2, x + 0.5, x % 3, F.maximum(x, 1.5), x > 1

    block = Function(function)
    x = nd.array(np.array([0, 1, 2, 7, 100, 127, 128, 255]).astype(dtype), dtype=dtype)
    wanted = [y.asnumpy() for y in block(x)]
    block.hybridize(engine=engine)
    for y, expected in zip(block(x), wanted, strict=True):
        assert y.asnumpy().dtype == expected.dtype == dtype
        np.testing.assert_array_equal(y.asnumpy(), expected)


def test_cast_between_initialize_and_the_first_call():
    for hybrid in (False, True):
        net = perceptron()
        net.initialize()
        net.cast("float64")
        net.hybridize(hybrid, engine="numpy")
        assert net(nd.array(uniform(5, 4), dtype="float64")).dtype == np.float64


@each_engine
def test_batch_sizes_and_modes_back_and_forth(engine: str):
    for batch, train in ((5, True), (3, False), (1, True), (5, False), (3, True)):
        check(perceptron(), uniform(batch, 4), engine=engine, train=train)


@each_engine
def test_an_empty_batch(engine: str):
    net = nn.HybridSequential()
    net.add(nn.Dense(4, in_units=3, activation="relu"), nn.LayerNorm(in_channels=4), nn.Dense(2, in_units=4))
    check(net, uniform(0, 3), engine=engine)


@each_engine
def test_gradients_of_gradients_reach_the_parameters(engine: str):
    """The gradient of x depends on the parameters, though its own computation did not ask for theirs."""

    def gradients(net: nn.HybridSequential) -> list[np.ndarray]:
        mx.random.seed(3)
        x = nd.array(uniform(5, 4))
        x.attach_grad()
        with autograd.record():
            y = net(x)
            (dx,) = autograd.grad(y, [x], create_graph=True, retain_graph=True)
            penalty = (dx * dx).sum() + y.sum()
        penalty.backward()
        parameters = net.collect_params().values()
        return [x.grad.asnumpy(), *(p.grad().asnumpy() for p in parameters if p.grad_req != "null")]

    mx.random.seed(5)
    net = nn.HybridSequential()
    net.add(nn.Dense(4, activation="tanh"), nn.LayerNorm(), nn.Dropout(0.5), nn.Dense(3))
    net.initialize(mx.init.Xavier())
    net(nd.array(uniform(5, 4)))
    eager = gradients(net)
    net.hybridize(engine=engine)
    close(gradients(net), eager, 1e-4)
    assert all(np.abs(gradient).max() > 0 for gradient in eager[:-1])


@each_engine
def test_a_long_chain(engine: str):
    def chain(F, x):
        for _ in range(700):
            x = F.tanh(x) * 1.01
        return x

    block = Function(chain)
    check(block, uniform(3), engine=engine, tolerance=1e-4)
    assert str(block._graphs.first()).count("\n") > 1400
