"""Models in bfloat16: cast, hybridized, trained, saved and loaded."""

from __future__ import annotations

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, gluon, nd
from hybrid_lab.gluon import nn, rnn
from hybrid_lab.ops.framework.dtypes import bfloat16
from tests.triton_device import use_triton

BFLOAT16 = bfloat16().type
ENGINES = ["numpy", "onnxruntime", "torch", "triton"]


def images() -> tuple[nn.HybridBlock, nd.NDArray]:
    net = nn.HybridSequential()
    net.add(
        nn.Conv2D(4, 3, in_channels=2, use_bias=False),  # before a BatchNorm the gradient of a bias is 0
        nn.BatchNorm(in_channels=4),
        nn.Activation("relu"),
        nn.MaxPool2D(),
        nn.Dense(6, in_units=16),
        nn.LayerNorm(in_channels=6),
        nn.Dropout(0.3),
        nn.Dense(3, in_units=6),
    )
    return net, nd.random.normal(shape=(5, 2, 6, 6))


class Sequences(gluon.HybridBlock):
    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.embedding = nn.Embedding(7, 5)
            self.lstm = rnn.LSTM(4, input_size=5, layout="NTC")
            self.dense = nn.Dense(2, in_units=4, flatten=False)

    def hybrid_forward(self, F, x):
        y = F.softmax(self.dense(self.lstm(self.embedding(x))))
        out, _ = F.contrib.foreach(lambda item, state: (item + state, state * 0.5), y.swapaxes(0, 1), y.mean(axis=1))
        return out


def sequences() -> tuple[nn.HybridBlock, nd.NDArray]:
    return Sequences(), nd.array(np.arange(12).reshape(3, 4) % 7)


def made(kind):
    mx.random.seed(2)
    net, x = kind()
    net.initialize(mx.init.Xavier())
    net.cast("bfloat16")
    return net, x.astype("bfloat16")


def step(net, x):
    mx.random.seed(4)
    with autograd.record():
        y = net(x)
        loss = (y * nd.arange(y.size, dtype=y.dtype).reshape(y.shape)).sum()
    loss.backward()
    gradients = [p.grad().asnumpy() for p in net.collect_params().values() if p.grad_req != "null"]
    return y.asnumpy(), gradients


def near(found, wanted, tolerance):
    assert found.dtype == wanted.dtype
    found, wanted = found.astype(np.float64), wanted.astype(np.float64)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=tolerance * np.abs(wanted).max())


@pytest.mark.parametrize("kind", [images, sequences])
@pytest.mark.parametrize("engine", ENGINES)
def test_hybridized_as_eagerly(engine, kind, monkeypatch):
    if engine == "triton":
        use_triton(monkeypatch)
    net, x = made(kind)
    net.cast("float32")
    _, exact = step(net, x.astype("float32"))
    net, x = made(kind)
    wanted, gradients = step(net, x)
    predicted = net(x).asnumpy()
    assert wanted.dtype == bfloat16() and bfloat16() in {gradient.dtype for gradient in gradients}
    net.hybridize(engine=engine)
    found, others = step(net, x)
    near(found, wanted, 2.0**-6)
    for gradient, other, best in zip(gradients, others, exact, strict=True):
        own = np.abs(gradient.astype(np.float32) - best).max() / np.abs(best).max()  # eager's distance from float32
        near(other.astype(np.float32), best, 2.0**-6 + 2 * own)
        assert other.dtype == gradient.dtype
    near(net(x).asnumpy(), predicted, 2.0**-6)
    if engine == "numpy":
        assert np.array_equal(found, wanted)


def test_it_is_near_float32():
    net, x = made(images)
    wanted, _ = step(net, x)
    net.cast("float32")
    found, _ = step(net, x.astype("float32"))
    near(wanted.astype(np.float32), found, 2.0**-5)


def test_statistics_stay_float32():
    net, _ = made(images)
    kinds = {name.rsplit("_", 1)[1]: parameter.data().dtype for name, parameter in net.collect_params().items()}
    assert kinds["weight"] is BFLOAT16 and kinds["mean"] is np.float32
    assert "dtype=bfloat16" in str(net.collect_params())


def test_explain_says_what_runs_where():
    pytest.importorskip("onnxruntime")
    pytest.importorskip("torch")
    net, x = made(images)
    net.hybridize(engine="onnxruntime")
    net(x)
    assert "bfloat16: ONNX Runtime does not compute in it on a CPU" in " ".join(str(mx.explain(net, x)).split())
    net.hybridize(engine="torch")
    net(x)
    assert "a torch call with bfloat16" in str(mx.explain(net, x))


def test_compare_and_profile():
    net, x = made(images)
    net.hybridize(engine="numpy")
    assert "equals eager" in str(mx.compare(net, x))
    assert "Convolution" in str(mx.profile(net, x))


@pytest.mark.filterwarnings("ignore:updating bfloat16 weights")
@pytest.mark.parametrize("options", [{}, {"multi_precision": True}])
@pytest.mark.parametrize("name", ["sgd", "nag", "adam", "rmsprop", "adagrad", "signum"])
def test_updates(name, options, monkeypatch):
    """In float32 copies steps of any size count; without them, as for float16, each one is rounded."""
    mx.random.seed(1)
    start, gradient = nd.random.normal(shape=50), nd.random.normal(shape=50)
    values = []
    for dtype in ("float32", "bfloat16"):
        weight = gluon.Parameter("weight", shape=50, dtype=dtype)
        weight.initialize()
        weight.set_data(start.astype("bfloat16").astype(dtype))
        trainer = gluon.Trainer({"weight": weight}, name, {"learning_rate": 1e-3, **options})
        for _ in range(3):
            with autograd.record():
                loss = (weight.data() * gradient.astype(dtype)).sum()
            loss.backward()
            trainer.step(1)
        values.append(weight.data().astype("float32").asnumpy())
    assert np.abs(values[0] - start.asnumpy()).max() > 0
    # Half a place of the largest: after three steps without copies one and a half.
    np.testing.assert_allclose(values[1], values[0], atol=2.0**-8 * np.abs(values[0]).max() * (1 if options else 3))


def test_small_steps_add_up_in_float32_copies():
    weight = gluon.Parameter("weight", shape=1, dtype="bfloat16", init="ones")
    weight.initialize()
    trainer = gluon.Trainer({"weight": weight}, "sgd", {"learning_rate": 1e-3, "multi_precision": True})
    for _ in range(8):
        with autograd.record():
            loss = weight.data().sum()
        loss.backward()
        trainer.step(1)
    assert weight.data().asscalar() == bfloat16().type(0.992)


def test_the_warning_names_the_dtype():
    weight = gluon.Parameter("weight", shape=1, dtype="bfloat16", init="ones")
    weight.initialize()
    trainer = gluon.Trainer({"weight": weight}, "sgd", {"learning_rate": 1})
    with autograd.record():
        loss = weight.data().sum()
    loss.backward()
    with pytest.warns(UserWarning, match="updating bfloat16 weights in bfloat16 loses small steps"):
        trainer.step(1)
    assert weight.data().asscalar() == 0


@pytest.mark.filterwarnings("ignore:updating bfloat16 weights")
@pytest.mark.parametrize("options", [{}, {"multi_precision": True}])
def test_updates_on_a_device(options, monkeypatch):
    """One launch for all weights, in float32 inside, and the same numbers but for the last place of a step."""
    use_triton(monkeypatch)
    found = {}
    for ctx in (mx.cpu(), mx.gpu(0)):
        mx.random.seed(1)
        start = [nd.random.normal(shape=(5, 7)), nd.random.normal(shape=3)]
        weights = {}
        for index, values in enumerate(start):
            weights[str(index)] = weight = gluon.Parameter(str(index), shape=values.shape, dtype="bfloat16")
            weight.initialize(ctx=ctx)
            weight.set_data(values.astype("bfloat16"))
        trainer = gluon.Trainer(weights, "sgd", {"learning_rate": 0.1, "momentum": 0.9, **options})
        for _ in range(3):
            with autograd.record():
                loss = sum((weight.data() ** 2).sum() for weight in weights.values())
            loss.backward()
            trainer.step(1)
        found[ctx] = [weight.data().asnumpy() for weight in weights.values()]
        if ctx == mx.gpu(0):
            assert trainer._updaters[0].fused.refusal == ""
    for on_cpu, on_device, values in zip(*found.values(), start, strict=True):
        assert on_device.dtype == on_cpu.dtype == bfloat16()
        bound = 2.0**-8 * float(values.abs().max()) * (1 if options else 3)
        np.testing.assert_allclose(on_device.astype(np.float64), on_cpu.astype(np.float64), rtol=0, atol=bound)


@pytest.mark.filterwarnings("ignore:updating bfloat16 weights")
@pytest.mark.parametrize("options", [{}, {"multi_precision": True}])
def test_parameters_and_states_on_disk(options, tmp_path):
    def build():
        net, x = made(images)
        net.hybridize(engine="numpy")
        return net, gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.01, **options}), x

    def train(net, trainer, x):
        step(net, x)
        trainer.step(1)

    net, trainer, x = build()
    train(net, trainer, x)
    net.save_parameters(str(tmp_path / "net.params"))
    trainer.save_states(str(tmp_path / "net.states"))
    other, second, _ = build()
    other.load_parameters(str(tmp_path / "net.params"))
    second.load_states(str(tmp_path / "net.states"))
    assert np.array_equal(other(x).asnumpy(), net(x).asnumpy())
    train(net, trainer, x)
    train(other, second, x)
    assert np.array_equal(other(x).asnumpy(), net(x).asnumpy())


def test_archives(tmp_path):
    net, x = made(images)
    net.hybridize(engine="numpy")
    wanted = net(x).asnumpy()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"momentum": 0.9, "multi_precision": True})
    step(net, x)
    trainer.step(1)
    path = tmp_path / "net.hlab"
    wanted = net(x).asnumpy()
    mx.save_cached_graphs(net, str(path), trainer=trainer, aux={"kept": nd.ones(2, dtype="bfloat16")})
    opened = gluon.load(str(path))
    assert np.array_equal(opened(x).asnumpy(), wanted)
    other, _ = made(images)
    other.hybridize(engine="numpy")
    report = mx.load_cached_graphs(other, str(path))
    assert report.aux["kept"].dtype is BFLOAT16
    assert np.array_equal(other(x).asnumpy(), wanted)
    other.cast("float32")
    with pytest.raises(mx.diagnostics.HybridLabError, match="bfloat16 in the file, float32 in the model"):
        mx.load_cached_graphs(other, str(path))


def test_mxnet_s_files(tmp_path):
    net, x = made(images)
    net.hybridize(engine="numpy")
    wanted = net(x).asnumpy()
    files = net.export(str(tmp_path / "net"))
    again = gluon.SymbolBlock.imports(files[0], ["data"], files[1])
    found = again(x)
    assert found.dtype is BFLOAT16 and np.array_equal(found.asnumpy(), wanted)


def test_another_dtype_compiles_another_program():
    net, x = made(images)
    net.hybridize(engine="numpy")
    net(x)
    net.cast("float32")
    assert net(x.astype("float32")).dtype is np.float32
    net.cast("bfloat16")
    assert net(x).dtype is BFLOAT16


@pytest.mark.parametrize("multi_precision", [True, False])
def test_updates_ahead_of_time(multi_precision):
    """With float32 copies the step computes in them, and writes weights besides."""
    from hybrid_lab.gluon.ahead import update_graphs

    net, _ = made(images)
    learned = [each for each in net.collect_params().values() if each.grad_req != "null"]
    options = {"momentum": 0.9, "multi_precision": multi_precision}
    trainer = gluon.Trainer(net.collect_params(), "sgd", options)
    graph = update_graphs(learned)["update of bfloat16"]
    assert trainer._optimizer.multi_precision is multi_precision
    numbers = {value for value in graph.inputs if value.node.op.role == "number"}
    assert {value.dtype.name for value in numbers} == {"float32"}, "rates are not rounded to the weights' dtype"
    arrays = {value.dtype.name for value in graph.inputs if value not in numbers}
    assert arrays == {"bfloat16", *(["float32"] if multi_precision else [])}
