"""What calls a HybridBlock again gives it the arguments of the call: defaults, positional ones, None, nested ones."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, gluon, nd
from hybrid_lab.gluon import HybridBlock, nn


def compute(dense: Any, x: Any, scale: float, bias: Any, more: Any) -> Any:
    y = dense(x) * scale
    parts = list(bias.values()) if isinstance(bias, dict) else bias if isinstance(bias, (list, tuple)) else [bias]
    for part in parts:
        y = y if part is None else y + part
    if isinstance(more, dict):
        return y * y * more["k"]
    first, (second, third) = more
    return y * y * (first if second is None else second * third)


MORE = (1, [None, 3.0])


class Hybrid(HybridBlock):
    def __init__(self):
        super().__init__()
        self.dense = nn.Dense(3)

    def hybrid_forward(self, F, x, scale=2.0, bias=None, more=MORE):
        return compute(self.dense, x, scale, bias, more)


class WithWeight(HybridBlock):
    """Its own parameter waits for its shape."""

    def __init__(self):
        super().__init__()
        self.weight = self.params.get("weight", shape=(3, 0), allow_deferred_init=True)

    def hybrid_forward(self, F, x, scale=2.0, bias=None, more=MORE, weight=None):
        def dense(x):
            return F.FullyConnected(x, weight, num_hidden=3, no_bias=True)

        return compute(dense, x, scale, bias, more)


class Arrays(HybridBlock):
    """2.x style."""

    def __init__(self):
        super().__init__()
        self.dense = nn.Dense(3)

    def forward(self, x, scale=2.0, bias=None, more=MORE):
        return compute(self.dense, x, scale, bias, more)


class OwnCall(Hybrid):
    def __call__(self, x, scale=2.0, bias=None, more=MORE):
        return super().__call__(x, scale, bias, more)


class OwnForward(Hybrid):
    def forward(self, x, scale=2.0, bias=None, more=MORE):
        return super().forward(x, scale, bias, more) + 1


class KeywordsAlone(Hybrid):
    def __call__(self, x, *, scale=2.0, bias=None, more=MORE):
        return super().__call__(x, scale, bias, more)


class Outer(HybridBlock):
    def __init__(self, kind: type[HybridBlock]):
        super().__init__()
        self.inner = kind()

    def hybrid_forward(self, F, x, *args):
        if isinstance(self.inner, KeywordsAlone):
            return self.inner(x, **dict(zip(("scale", "bias", "more"), args, strict=False)))
        return self.inner(x, *args)


def b(rows: int) -> Any:
    return nd.ones((rows, 3)) * 0.5


#: rows -> the arguments after x
ARGUMENTS: dict[str, Callable[[int], tuple[Any, ...]]] = {
    "defaults": lambda rows: (),
    "a number": lambda rows: (3.0,),
    "None": lambda rows: (3.0, None),
    "an array": lambda rows: (3.0, b(rows)),
    "a list": lambda rows: (3.0, [b(rows), None, b(rows) * 2]),
    "a dict": lambda rows: (3.0, {"q": b(rows), "a": b(rows) * 2}),
    "nested": lambda rows: (3.0, (b(rows),), (2.0, (None, None))),
    "a dict of numbers": lambda rows: (3.0, None, {"k": 4.0}),
}
KINDS: dict[str, Callable[[], HybridBlock]] = {
    kind.__name__: kind for kind in (Hybrid, WithWeight, Arrays, OwnCall, OwnForward)
}
KINDS |= {f"{kind.__name__} inside": lambda kind=kind: Outer(kind) for kind in (*KINDS.values(), KeywordsAlone)}


def x(rows: int) -> Any:
    return nd.array(np.random.RandomState(rows).uniform(-1, 1, (rows, 4)))


def call(net: Any, rows: int, arguments: Any) -> Any:
    return net(x(rows), *arguments(rows)).asnumpy()


def another_batch(net, arguments, folder):
    call(net, 2, arguments)
    return call(net, 5, arguments)


def cast(net, arguments, folder):
    call(net, 2, arguments)
    net.cast("float64")
    net.cast("float32")
    return call(net, 5, arguments)


def another_engine(net, arguments, folder):
    call(net, 2, arguments)
    net.hybridize(engine="onnxruntime")
    return call(net, 5, arguments)


def copied(net, arguments, folder):
    call(net, 2, arguments)
    twin = copy.deepcopy(net)
    twin.hybridize(engine="numpy")
    return call(twin, 5, arguments)


def opened(net, arguments, folder):
    return call(gluon.load(net.save(folder / "m")), 5, arguments)


def saved(net, arguments, folder):
    call(net, 5, arguments)
    return opened(net, arguments, folder)


def saved_after_hybridize(net, arguments, folder):
    call(net, 2, arguments)
    net.hybridize()
    return opened(net, arguments, folder)


def saved_after_eager_calls(net, arguments, folder):
    net.hybridize(False)
    call(net, 2, arguments)
    net.cast("float64")
    net.cast("float32")
    return opened(net, arguments, folder)


def a_copy_saved(net, arguments, folder):
    call(net, 2, arguments)
    return opened(copy.deepcopy(net), arguments, folder)


def a_pickle_saved(net, arguments, folder):
    call(net, 2, arguments)
    return opened(pickle.loads(pickle.dumps(net)), arguments, folder)


def saved_in_mxnets_files(net, arguments, folder):
    call(net, 5, arguments)
    net.hybridize()
    mx.save_cached_graphs(net, folder / "m", format="mxnet")
    return call(gluon.load(folder / "m"), 5, arguments)


def exported_to_onnx(net, arguments, folder):
    pytest.importorskip("onnx")
    call(net, 5, arguments)
    net.hybridize()
    return call(mx.onnx.imports(mx.onnx.export(net, folder / "m.onnx")), 5, arguments)


def explained(net, arguments, folder):
    call(net, 2, arguments)
    net.hybridize()
    assert str(mx.explain(net))
    return call(net, 5, arguments)


def compared(net, arguments, folder):
    assert str(mx.compare(net, x(5), *arguments(5)))
    return call(net, 5, arguments)


def profiled(net, arguments, folder):
    assert str(mx.profile(net, x(5), *arguments(5)))
    return call(net, 5, arguments)


def summarized(net, arguments, folder):
    net.hybridize(False)
    net.summary(x(5), *arguments(5))
    net.hybridize(engine="numpy")
    return call(net, 5, arguments)


DOORS = [
    another_batch,
    cast,
    another_engine,
    copied,
    saved,
    saved_after_hybridize,
    saved_after_eager_calls,
    a_copy_saved,
]
DOORS += [a_pickle_saved, saved_in_mxnets_files, exported_to_onnx, explained, compared, profiled, summarized]


def made(kind: str, hybrid: bool) -> Any:
    mx.random.seed(0)
    net = KINDS[kind]()
    net.initialize()
    if hybrid:
        net.hybridize(engine="numpy")
    return net


@pytest.mark.parametrize("name", ARGUMENTS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("door", DOORS)
def test_arguments_are_those_of_the_call(door, kind, name, tmp_path, capsys):
    wanted = call(made(kind, False), 5, ARGUMENTS[name])
    assert np.allclose(door(made(kind, True), ARGUMENTS[name], tmp_path), wanted, 1e-5, 1e-6)


def second_gradients(net: Any, rows: int, arguments: Any) -> list[Any]:
    data = x(rows)
    data.attach_grad()
    with autograd.record():
        y = net(data, *arguments(rows))
        weights = [parameter.data() for parameter in net.collect_params().values()]
        z = nd.add_n(*[(g * g).sum() for g in autograd.grad(y, [data, *weights[:1]], create_graph=True)])
    z.backward()
    return [z.asnumpy(), data.grad.asnumpy(), *[weight.grad.asnumpy() for weight in weights]]


@pytest.mark.parametrize("kind", KINDS)
def test_arguments_of_second_gradients(kind):
    for name, arguments in ARGUMENTS.items():
        net = made(kind, True)
        second_gradients(net, 2, arguments)
        for found, wanted in zip(
            second_gradients(net, 5, arguments), second_gradients(made(kind, False), 5, arguments), strict=True
        ):
            assert np.allclose(found, wanted, 1e-4, 1e-5), name


class Constant(HybridBlock):
    def hybrid_forward(self, F, x, constant):
        return x * 2


class Number(float):
    """A class that a pickle can name."""


def local_number() -> type:
    class Local(float):
        pass

    return Local


@pytest.mark.parametrize(
    "number", [None, ..., Number(2), mx.cpu(), slice(None), np.dtype("float16"), 2, (None, [None])]
)
def test_a_pickle_keeps_calls_with_any_constant(number):
    net = Constant()
    net(nd.ones((2,)), number)
    twin = pickle.loads(pickle.dumps(net))
    assert [*twin._graphs.calls] == [*net._graphs.calls] != []


def test_a_pickle_leaves_out_a_call_that_it_cannot_hold():
    net = Constant()
    net(nd.ones((2,)), local_number()(2))
    twin = pickle.loads(pickle.dumps(net))
    assert [*twin._graphs.calls] == [] and "class a pickle cannot name" in twin._graphs.calls.refused
