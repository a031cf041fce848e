"""Blocks as modules of torch."""

from __future__ import annotations

import copy

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import hybrid_lab as mx  # noqa: E402
from hybrid_lab import gluon, nd  # noqa: E402
from hybrid_lab.gluon import nn  # noqa: E402


def _net(hybrid=True):
    net = nn.HybridSequential()
    net.add(nn.Dense(5, activation="relu"), nn.BatchNorm(), nn.Dense(3))
    net.initialize(mx.init.Normal(0.5))
    net(nd.ones((2, 4)))
    if hybrid:
        net.hybridize()
    return net


def _twin(state):
    """The same network in torch, with the module's values."""
    twin = torch.nn.Sequential(
        torch.nn.Linear(4, 5), torch.nn.ReLU(), torch.nn.BatchNorm1d(5, eps=1e-5, momentum=0.1), torch.nn.Linear(5, 3)
    )
    names = {"0": "0", "1": "2", "2": "3"}
    for path, tensor in state.items():
        part, name = path.split(".")
        name = {"gamma": "weight", "beta": "bias"}.get(name, name)
        twin.get_submodule(names[part]).state_dict()[name].copy_(tensor)
    return twin


@pytest.mark.parametrize("hybrid", [False, True])
def test_training_in_a_torch_model_as_with_torch_layers(hybrid):
    torch.manual_seed(0)
    inner = mx.torch.module(_net(hybrid))
    assert list(inner.state_dict()) == [
        "0.weight", "0.bias", "1.gamma", "1.beta", "1.running_mean", "1.running_var", "2.weight", "2.bias"
    ]  # fmt: skip
    twin = _twin(inner.state_dict())
    before, after = torch.nn.Linear(6, 4), torch.nn.Linear(3, 1)
    models = [
        torch.nn.Sequential(before, inner, after),
        torch.nn.Sequential(copy.deepcopy(before), twin, copy.deepcopy(after)),
    ]
    losses = []
    for model in models:
        model.train()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        rng = torch.Generator().manual_seed(1)
        own = []
        for _ in range(5):
            x = torch.randn(8, 6, generator=rng)
            optimizer.zero_grad()
            loss = (model(x) - x[:, :1]).square().mean()
            loss.backward()
            optimizer.step()
            own.append(loss.item())
        losses.append(own)
    np.testing.assert_allclose(*losses, rtol=1e-4)
    x = torch.randn(3, 6)
    assert not torch.equal(models[0](x), models[0].eval()(x))


def test_the_memory_is_shared_both_ways():
    net = _net()
    module = mx.torch.module(net).eval()
    x = torch.ones(2, 4)
    with torch.no_grad():
        first = module(x)
        module.get_parameter("2.bias").add_(1.0)
        torch.testing.assert_close(module(x), first + 1)
    np.testing.assert_allclose(net(nd.ones((2, 4))).asnumpy(), first.numpy() + 1, rtol=1e-5)
    net[2].bias.set_data(nd.zeros((3,)))
    assert not module.state_dict()["2.bias"].any()
    module.load_state_dict({name: torch.zeros_like(item) for name, item in module.state_dict().items()})
    assert not net[0].weight.data().asnumpy().any()


class Pair(gluon.HybridBlock):
    """Two inputs in a tuple, a dictionary of results."""

    def __init__(self):
        super().__init__()
        self.dense = nn.Dense(3, in_units=3, use_bias=False)

    def hybrid_forward(self, F, pair, scale):
        a, b = pair
        y = self.dense(a)
        return {"y": y * scale, "z": [y + b, F.cast(F.argmax(y, axis=1), dtype="int32")]}


@pytest.mark.parametrize("hybrid", [False, True])
def test_several_inputs_and_results_and_double_use(hybrid):
    net = Pair()
    net.initialize()
    net.hybridize(hybrid)
    module = mx.torch.module(net)
    weight = module.get_parameter("dense.weight")
    a, b = torch.randn(2, 3, requires_grad=True), torch.randn(2, 3, requires_grad=True)
    first, second = module((a, b), 2.0), module((b, a), 2.0)
    assert not first["z"][1].requires_grad
    total = (first["y"] * b).sum() + second["z"][0].sum()
    total.backward(retain_graph=True)
    found = [item.grad.clone() for item in (weight, a, b)]
    expected = torch.autograd.grad((2 * (a @ weight.T) * b).sum() + (b @ weight.T + a).sum(), (weight, a, b))
    for one, two in zip(found, expected, strict=True):
        torch.testing.assert_close(one, two)
    total.backward()
    torch.testing.assert_close(weight.grad, 2 * expected[0])


def test_frozen_parameters_and_no_grad():
    module = mx.torch.module(_net())
    module.requires_grad_(False)
    assert not module(torch.ones(2, 4)).requires_grad
    module.get_parameter("2.bias").requires_grad_(True)
    module(torch.ones(2, 4)).sum().backward()
    assert module.get_parameter("2.bias").grad.tolist() == [2, 2, 2]
    assert module.get_parameter("0.weight").grad is None
    with torch.no_grad():
        assert not module(torch.ones(2, 4)).requires_grad


def test_results_may_be_written_to():
    module = mx.torch.module(_net())
    x = torch.ones(2, 4, requires_grad=True)
    module(x).relu_().sum().backward()
    assert x.grad is not None


def test_a_copy_has_its_own_block():
    module = mx.torch.module(_net())
    twin = copy.deepcopy(module)
    with torch.no_grad():
        twin.get_parameter("2.bias").add_(1.0)
    assert not torch.equal(twin.state_dict()["2.bias"], module.state_dict()["2.bias"])


def test_errors():
    net = nn.Dense(3)
    net.initialize()
    with pytest.raises(mx.torch.TorchError, match=r"weight has no values yet: .*net.initialize\(\)"):
        mx.torch.module(net)
    module = mx.torch.module(_net())
    with pytest.raises(mx.torch.TorchError, match="cannot become torch.float64"):
        torch.nn.Sequential(module).double()
    module.float().cpu()
    x = torch.ones(2, 4, requires_grad=True)
    with pytest.raises(mx.torch.TorchError, match=r"create_graph=True\) through the Block"):
        torch.autograd.grad(module(x).sum(), x, create_graph=True)
    y = module(x)
    with torch.no_grad():
        module.get_parameter("0.weight").add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
    module.net.cast("float64")
    with pytest.raises(mx.torch.TorchError, match="left the memory"):
        module(torch.ones(2, 4))


def test_a_module_of_an_imported_module():
    original = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Tanh())
    net = mx.torch.imports(original, torch.randn(2, 4))
    again = mx.torch.module(net)
    assert list(again.state_dict()) == list(original.state_dict())
    x = torch.randn(5, 4)
    torch.testing.assert_close(again(x), original(x), rtol=1e-5, atol=1e-6)
