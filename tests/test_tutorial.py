"""The tutorial against the real MXNet: outputs and gradients, eager and hybridized, both styles, all flags, each
engine.
"""

import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, gluon
from hybrid_lab.engines.registry import find
from tests.triton_device import use_triton
from tests.tutorial_nets import Net, Net2, TrainingNet

GOLDEN = Path(__file__).parent / "golden" / "tutorial"

#: Triton runs in its interpreter, which stands in for a GPU.
ENGINES = ["numpy", "onnxruntime", "triton"]


@pytest.fixture
def engine(request, monkeypatch):
    if request.param == "triton":
        use_triton(monkeypatch)
    missing = find(request.param).missing()
    if missing:
        pytest.skip(missing)
    return request.param


@pytest.fixture(scope="module")
def golden():
    with np.load(GOLDEN / "lenet.npz") as held:
        return dict(held)


def near(value, expected, tolerance):
    """Relative to the largest reference value."""
    value = value.asnumpy() if hasattr(value, "asnumpy") else value
    assert value.shape == expected.shape
    assert np.abs(value - expected).max() <= tolerance * np.abs(expected).max()


def loaded(kind):
    net = kind()
    net.initialize()
    net.load_parameters(str(GOLDEN / "lenet.params"))
    return net


def check(net, golden):
    x = mx.nd.array(golden["x"])
    near(net(x), golden["y"], 1e-5)
    x.attach_grad()
    with autograd.record():
        y = net(x)
        loss = gluon.loss.SoftmaxCrossEntropyLoss()(y, mx.nd.array(golden["labels"]))
    loss.backward()
    near(loss, golden["loss"], 1e-5)
    near(x.grad, golden["grad:x"], 1e-4)
    for path, parameter in net._collect_params_with_prefix().items():
        near(parameter.grad(), golden[f"grad:{path}"], 1e-4)


@pytest.mark.parametrize("kind", [Net, Net2])
def test_eager_equals_mxnet(kind, golden):
    check(loaded(kind), golden)


@pytest.mark.parametrize("kind", [Net, Net2])
@pytest.mark.parametrize("engine", ENGINES, indirect=True)
@pytest.mark.parametrize("static", [False, True])
def test_hybrid_equals_mxnet(kind, engine, static, golden):
    net = loaded(kind)
    net.hybridize(engine=engine, static_alloc=static, static_shape=static)
    check(net, golden)


@pytest.mark.parametrize("kind", [Net, Net2])
def test_the_symbol_is_printed_once(kind, golden, capsys):
    net = loaded(kind)
    net.hybridize()
    for count in (4, 2, 1):
        net(mx.nd.array(golden["x"][:count]))
        with autograd.record():
            net(mx.nd.array(golden["x"][:count]))
    assert capsys.readouterr().out == "<Symbol data>\n"


def test_the_first_call_says_one_line(golden, capsys):
    net = loaded(Net)
    net.hybridize(engine="numpy")
    net(mx.nd.array(golden["x"]))
    net(mx.nd.array(golden["x"]))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith(f"{net.name}: 1 graph, 12 operators, NumPy")


def test_static_alloc_allocates_only_outputs(golden):
    net = loaded(Net)
    net.hybridize(engine="numpy", static_alloc=True, static_shape=True)
    x = mx.nd.array(golden["x"])
    for _ in range(3):
        net(x)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        y = net(x)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # Beside the output only Python objects and NumPy's small iteration buffers; the smallest layer has 64 KiB.
    assert peak - before <= y._data.nbytes + 12288


def test_outputs_stay_what_they_were(golden):
    net = loaded(Net)
    net.hybridize(engine="numpy", static_alloc=True)
    first = net(mx.nd.array(golden["x"]))
    held = first.asnumpy().copy()
    net(mx.nd.array(golden["x"] * 2))
    assert np.array_equal(first.asnumpy(), held)


def test_mxnets_exported_files_run(golden):
    net = gluon.SymbolBlock.imports(str(GOLDEN / "lenet-symbol.json"), ["data"], str(GOLDEN / "lenet-0001.params"))
    x = mx.nd.array(golden["x"])
    near(net(x), golden["y"], 1e-5)
    net.hybridize()
    near(net(x), golden["y"], 1e-5)


@pytest.mark.parametrize("engine", ENGINES, indirect=True)
def test_training_follows_eager(engine):
    """50 SGD steps with Dropout and BatchNorm: the same losses, weights and running statistics.

    Every step begins with the eager parameters, so that rounding is not amplified from step to step. Triton's
    interpreter takes seconds a step: four.
    """
    steps = 4 if engine == "triton" else 50
    generator = np.random.RandomState(0)
    batches = [
        (generator.rand(8, 1, 28, 28).astype("float32"), generator.randint(0, 10, 8).astype("float32"))
        for _ in range(5)
    ]
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()

    def network():
        mx.random.seed(7)
        net = TrainingNet(prefix="net_")
        net.initialize(mx.init.Xavier())
        net(mx.nd.array(batches[0][0]))
        settings = {"learning_rate": 0.005, "momentum": 0.9, "wd": 1e-4}
        return net, gluon.Trainer(net.collect_params(), "sgd", settings)

    def train(net, trainer, step):
        mx.random.seed(step)
        x, label = batches[step % len(batches)]
        with autograd.record():
            loss = loss_of(net(mx.nd.array(x)), mx.nd.array(label))
        loss.backward()
        trainer.step(len(x))
        return loss.mean().asscalar()

    eager, compiled = network(), network()
    compiled[0].hybridize(engine=engine)
    for step in range(steps):
        for key, parameter in compiled[0].collect_params().items():
            parameter.set_data(eager[0].collect_params()[key].data())
        loss = train(*eager, step)
        assert abs(train(*compiled, step) - loss) <= 1e-4 * abs(loss)
        for key, parameter in eager[0].collect_params().items():
            value, other = parameter.data().asnumpy(), compiled[0].collect_params()[key].data().asnumpy()
            assert np.abs(value - other).max() <= 1e-4 * max(np.abs(value).max(), 1e-2), key
