"""backward() from some outputs leaves the gradients of inputs and parameters that they do not depend on as they were.

However a network came to be a graph: traced, exported and imported, saved and opened, or converted from torch or ONNX.
"""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, gluon, nd
from hybrid_lab.diagnostics import AutogradError
from hybrid_lab.diagnostics.errors import DeclaredSizeError
from hybrid_lab.gluon import HybridBlock
from tests import quick
from tests.hybridize.test_backward_from_some_outputs import ENGINES, subsets
from tests.triton_device import use_triton

SHAPES = (2, 3), (1, 3, 2), (2, 3)


class Apart(HybridBlock):
    """The outputs depend on x0 and w0, on x1 and w1, and on x0, x2 and w0."""

    def __init__(self) -> None:
        super().__init__()
        self.w0 = self.params.get("w0", shape=(1, 1), init="ones")
        self.w1 = self.params.get("w1", shape=(1, 1), init="ones")

    def hybrid_forward(self, F: Any, x0: Any, x1: Any, x2: Any, w0: Any, w1: Any) -> Any:
        first = F.broadcast_mul(x0, w0)
        return first, F.broadcast_mul(F.mean(x1, axis=1), w1), first * x2


class ReadsShapes(Apart):
    """The same, valid for the shapes that it was traced with: its graphs check them."""

    def forward(self, x0: Any, x1: Any, x2: Any) -> Any:
        w0, w1 = self.w0.data(), self.w1.data()
        first = nd.broadcast_mul(x0, w0)
        return first, nd.broadcast_mul(x1.sum(axis=1) / x1.shape[1], w1), first * x2


def exported(net: Any, folder: Any, arrays: list[Any]) -> Any:
    symbol, parameters = net.export(str(folder / "net"))
    return gluon.SymbolBlock.imports(symbol, ["data0", "data1", "data2"], parameters)


def opened(net: Any, folder: Any, arrays: list[Any]) -> Any:
    net.save(str(folder / "net.hlab"))
    return gluon.load(str(folder / "net.hlab"))


def pinned(net: Any, folder: Any, arrays: list[Any]) -> Any:
    net.save(str(folder / "net.hlab"))
    net.load(str(folder / "net.hlab"), graphs="file")
    return net


def through_onnx(net: Any, folder: Any, arrays: list[Any]) -> Any:
    mx.onnx.export(net, str(folder / "net.onnx"))
    return mx.onnx.imports(str(folder / "net.onnx"))


def from_torch(net: Any, folder: Any, arrays: list[Any]) -> Any:
    return copy.deepcopy(torch_graph())


@cache
def torch_graph() -> Any:
    """A module of torch, imported once: torch takes seconds to export it."""
    torch = pytest.importorskip("torch")

    class Module(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w0, self.w1 = (torch.nn.Parameter(torch.ones(1, 1)) for _ in range(2))

        def forward(self, x0: Any, x1: Any, x2: Any) -> Any:
            first = x0 * self.w0
            return first, x1.sum(1) / x1.shape[1] * self.w1, first * x2

    return mx.torch.imports(Module(), tuple([torch.ones(shape) for shape in SHAPES]))


class Around(HybridBlock):
    """Calls a network from code."""

    def __init__(self, net: Any) -> None:
        super().__init__()
        self.net = net

    def hybrid_forward(self, F: Any, x0: Any, x1: Any, x2: Any) -> Any:
        return tuple(self.net(x0, x1, x2))


def imported_in_code(net: Any, folder: Any, arrays: list[Any]) -> Any:
    return Around(exported(net, folder, arrays))


def copied(net: Any, folder: Any, arrays: list[Any]) -> Any:
    return copy.deepcopy(exported(net, folder, arrays))


WAYS = {
    "traced": lambda net, folder, arrays: net,
    "exported": exported,
    "opened": opened,
    "pinned": pinned,
    "ONNX": through_onnx,
    "torch": from_torch,
    "imported in code": imported_in_code,
    "copied": copied,
}


def made(kind: type[Apart], way: str, folder: Any) -> Any:
    net = kind()
    net.initialize()
    net.hybridize()
    arrays = [nd.ones(shape) for shape in SHAPES]
    net(*arrays)
    return WAYS[way](net, folder, arrays)


def leaves(net: Any, request: str, tracked: tuple[int, ...] = (0, 1, 2)) -> tuple[list[Any], list[Any]]:
    """The inputs, and all arrays with gradients, which are 7 before a backward."""
    inputs = [nd.array(np.linspace(1, 2, int(np.prod(shape))).reshape(shape)) for shape in SHAPES]
    for index in tracked:
        inputs[index].attach_grad(request)
    parameters = sorted(net.collect_params().items(), key=lambda item: item[0])
    for _, parameter in parameters:
        parameter.grad_req = request
    arrays = [*(inputs[index] for index in tracked), *(parameter.data() for _, parameter in parameters)]
    for array in arrays:
        array.grad[:] = 7
    return inputs, arrays


def gradients(net: Any, request: str, heads: tuple[int, ...]) -> list[np.ndarray]:
    inputs, arrays = leaves(net, request)
    with autograd.record():
        outputs = net(*inputs)
    autograd.backward([outputs[index] for index in heads])
    return [array.grad.asnumpy() for array in arrays]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", [Apart, ReadsShapes])
@pytest.mark.parametrize("request_", ["write", "add"])
def test_what_the_heads_do_not_depend_on_keeps_its_gradient(request_, kind, way, engine, tmp_path, monkeypatch):
    if engine == "triton":
        use_triton(monkeypatch)
    net = made(kind, way, tmp_path)
    wanted = {}
    # Each set of heads costs Triton a compilation, which does not depend on the way.
    all_heads = subsets(3) if quick.ALL or engine != "triton" or way == "traced" else [(0,), (1,), (1, 2)]
    for active in (False, True):
        net.hybridize(active, engine=engine)
        for heads in all_heads:
            found = gradients(net, request_, heads)
            if not active:
                wanted[heads] = found
                apart = [1, 2, 4] if heads == (0,) else [0, 2, 3] if heads == (1,) else []
                assert all((found[index] == 7).all() for index in apart)
            for one, other in zip(found, wanted[heads], strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-5)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", [Apart, ReadsShapes])
def test_an_output_is_in_the_history_only_through_what_it_depends_on(kind, way, tmp_path):
    net = made(kind, way, tmp_path)
    net.collect_params().setattr("grad_req", "null")
    for active in (False, True):
        net.hybridize(active, engine="numpy")
        inputs = [nd.ones(shape) for shape in SHAPES]
        inputs[1].attach_grad()
        with autograd.record():
            outputs = net(*inputs)
        for index in (0, 2):
            with pytest.raises(AutogradError, match="not in a computational graph"):
                outputs[index].backward()
        outputs[1].backward()
        assert (inputs[1].grad.asnumpy() != 0).all()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("create_graph", [False, True])
def test_a_gradient_of_what_the_heads_do_not_depend_on_is_an_error(way, create_graph, tmp_path):
    net = made(ReadsShapes, way, tmp_path)
    for active in (False, True):
        net.hybridize(active, engine="numpy")
        inputs, _ = leaves(net, "write")
        with autograd.record():
            outputs = net(*inputs)
            with pytest.raises(AutogradError, match="the heads do not depend on it"):
                autograd.grad(outputs[0], [inputs[1]], retain_graph=True, create_graph=create_graph)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", [Apart, ReadsShapes])
def test_a_gradient_attached_after_the_call_keeps_its_value(kind, way, tmp_path):
    net = made(kind, way, tmp_path)
    for active in (False, True):
        net.hybridize(active, engine="numpy")
        for heads in subsets(3):
            inputs, _ = leaves(net, "write")
            first = [each.grad for each in inputs]
            with autograd.record():
                outputs = net(*inputs)
            for each in inputs:
                each.attach_grad()
                each.grad[:] = 5
            autograd.backward([outputs[index] for index in heads])
            assert all((each.grad.asnumpy() == 5).all() for each in inputs)
            assert ((first[1].asnumpy() == 7).all()) == (1 not in heads)


class InBody(HybridBlock):
    """Calls a network from the body of a loop or a branch."""

    def __init__(self, net: Any, place: str) -> None:
        super().__init__()
        self.net, self.place = net, place

    def hybrid_forward(self, F: Any, x0: Any, x1: Any, x2: Any) -> Any:
        if self.place == "cond":
            twice = F.contrib.cond(
                F.sum(x0) > 0, lambda: list(self.net(x0, x1, x2)), lambda: list(self.net(x0 * 2, x1, x2))
            )
            return tuple(twice)
        if self.place == "foreach":
            outputs, _ = F.contrib.foreach(
                lambda a, state: (list(self.net(x0, x1, F.broadcast_mul(x2, F.mean(a, keepdims=True)))), state + a),
                F.ones((2, 1)),
                F.zeros((1,)),
            )
            return tuple(outputs)
        outputs, _ = F.contrib.while_loop(
            lambda i, a, b: i < 2,
            lambda i, a, b: (list(self.net(a, b, x2)), (i + 1, a * 2, b * 3)),
            (F.zeros((1,)), x0, x1),
            max_iterations=2,
        )
        return tuple(outputs)


@pytest.mark.parametrize("place", ["foreach", "while_loop", "cond"])
@pytest.mark.parametrize("way", ["exported", "ONNX", "torch"])
def test_an_imported_network_in_a_body(way, place, tmp_path):
    net = InBody(made(ReadsShapes, way, tmp_path), place)
    wanted = {}
    for active in (False, True):
        net.hybridize(active, engine="numpy")
        for heads in subsets(3):
            found = gradients(net, "write", heads)
            for one, other in zip(found, wanted.setdefault(heads, found), strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-5)
    inputs = [nd.ones(shape) * 1.5 for shape in SHAPES]
    outputs = [each.asnumpy() for each in net(*inputs)]
    (tmp_path / "again").mkdir()
    for door in (exported, opened, through_onnx):
        again = door(net, tmp_path / "again", inputs)
        for one, other in zip(again(*inputs), outputs, strict=True):
            np.testing.assert_allclose(one.asnumpy(), other, rtol=1e-5)
        if door is not exported:  # MXNet's files have checks of the inputs of the whole network only
            with pytest.raises(DeclaredSizeError):
                again(inputs[0], nd.ones((1, 4, 2)), inputs[2])
