"""HybridBlocks without parameters whose graphs have constants that are computed once: tables, masks, positions."""

from __future__ import annotations

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, gluon, nd
from hybrid_lab.engines import registry
from tests.triton_device import use_triton


class Positions(gluon.HybridBlock):
    """A table of more than 16 KiB, which is not folded but computed once."""

    def hybrid_forward(self, F, x):
        return x + F.arange(0, 5000) * 2


class Several(gluon.HybridBlock):
    """Constants from an operator with several outputs, which is not folded however small they are."""

    def hybrid_forward(self, F, x):
        first, second = F.split(F.arange(0, 6).reshape((2, 3)), num_outputs=2, axis=0)
        return F.broadcast_add(x, first) * F.exp(second)


class Masked(gluon.HybridBlock):
    """A causal mask, read in two places, and random numbers beside it."""

    def hybrid_forward(self, F, x):
        places = F.arange(0, 80)
        mask = F.broadcast_lesser_equal(places.reshape((1, -1)), places.reshape((-1, 1)))
        return F.Dropout(F.softmax(x * mask) + mask, p=0.5)


class TwoInputs(gluon.HybridBlock):
    def hybrid_forward(self, F, x, y):
        table = F.sqrt(F.arange(0, 5000))
        return x * table, [y + table]


CASES = {
    "positions": (Positions, [(2, 5000)]),
    "several outputs": (Several, [(4, 3)]),
    "masked": (Masked, [(80, 80)]),
    "two inputs": (TwoInputs, [(2, 5000), (1, 5000)]),
}
ENGINES = ["numpy", "onnxruntime", "torch", "triton", None]


def flat(outputs):
    """All arrays of a nested result."""
    if isinstance(outputs, (list, tuple)):
        return [array for item in outputs for array in flat(item)]
    return [outputs.asnumpy()]


def expect_equal(got, wanted):
    for one, other in zip(flat(got), flat(wanted), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


def inputs_of(shapes, seed=0):
    random = np.random.RandomState(seed)
    return [nd.array(random.uniform(-1, 1, shape)) for shape in shapes]


@pytest.mark.each_value
@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", CASES)
def test_calls_equal_eager_ones(name, engine, static, monkeypatch):
    if engine == "triton":
        use_triton(monkeypatch)
    elif engine is not None and registry.find(engine).missing():
        pytest.skip(f"{engine} is not installed")
    make, shapes = CASES[name]
    eager, net = make(), make()
    net.hybridize(engine=engine, static_alloc=static, static_shape=static)
    for number in range(4):
        given = inputs_of(shapes, number)
        expect_equal(net(*given), eager(*given))
    given = inputs_of([(2 * shape[0], *shape[1:]) if name != "masked" else shape for shape in shapes])
    expect_equal(net(*given), eager(*given))
    for array in given:
        array.attach_grad()
    gradients = []
    for block in (eager, net):
        mx.random.seed(5)
        with autograd.record():
            outputs = block(*given)
        head = outputs[0] if isinstance(outputs, tuple) else outputs
        head.backward()
        gradients.append((outputs, [given[0].grad.copy()]))
    expect_equal(*gradients)
    expect_equal(net(*given), eager(*given))


@pytest.mark.parametrize("name", CASES)
def test_looks_and_files_work_as_with_parameters(name, tmp_path):
    make, shapes = CASES[name]
    net, given = make(prefix="net_"), inputs_of(shapes)
    expected = net(*given)
    net.hybridize(engine="numpy")
    net(*given)
    assert "1 program" in str(mx.explain(net, *given))
    assert mx.compare(net, *given).equal
    mx.profile(net, *given)
    net.save(tmp_path / "net.hlab")
    for again in (gluon.load(tmp_path / "net.hlab"), make(prefix="net_")):
        again.load(tmp_path / "net.hlab")
        again.hybridize(engine="numpy")
        expect_equal(again(*given), expected)
        expect_equal(again(*given), expected)
