"""Mixed precision: eager and hybrid convert alike, nets learn as in float32, steps that overflow are skipped."""

from __future__ import annotations

import logging

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, gluon, nd
from hybrid_lab.contrib import amp
from hybrid_lab.diagnostics import DTypeError, HybridLabError, SettingError
from hybrid_lab.gluon import HybridBlock, nn, rnn
from hybrid_lab.ndarray import invoke as invoking
from tests.triton_device import use_triton


@pytest.fixture(autouse=True)
def off_again():
    yield
    amp.disable()


def uniform(*shape, seed=0, dtype="float32"):
    return np.random.RandomState(seed).uniform(-1, 1, shape).astype(dtype)


# -- nets ------------------------------------------------------------------------------------------------------------


def lenet():
    net = nn.HybridSequential()
    net.add(
        nn.Conv2D(4, 3, activation="relu"),
        nn.BatchNorm(),
        nn.MaxPool2D(2),
        nn.Flatten(),
        nn.Dense(16, activation="tanh"),
        nn.Dense(10),
    )
    return net


class Attention(HybridBlock):
    """Products of arrays, softmax, a sum of a float16 and a float32 value, LayerNorm."""

    def __init__(self):
        super().__init__()
        self.keys, self.queries = nn.Dense(4, flatten=False), nn.Dense(4, flatten=False)
        self.norm, self.slope = nn.LayerNorm(), nn.PReLU()

    def hybrid_forward(self, F, x):
        scores = F.batch_dot(self.queries(x), self.keys(x), transpose_b=True) / 2
        return self.norm(self.slope(x + F.batch_dot(F.softmax(scores), x)))


class TwiceRead(HybridBlock):
    """A parameter that is read as it is and in products."""

    def __init__(self):
        super().__init__()
        self.weight = self.params.get("weight", shape=(5, 5))

    def hybrid_forward(self, F, x, weight):
        return F.dot(F.dot(x, weight), weight) + F.sum(weight**2) / F.exp(weight).mean()


class Scan(HybridBlock):
    """Loops whose bodies compute their states in float16, and a branch."""

    def __init__(self):
        super().__init__()
        self.step, self.end = nn.Dense(3, in_units=3), nn.Dense(3, in_units=3)

    def hybrid_forward(self, F, x):
        outputs, state = F.contrib.foreach(lambda row, state: (state, self.step(row + state)), x, F.zeros((1, 3)))
        rows, last = F.contrib.while_loop(
            lambda count, value: F.sum(self.end(value)) < 1e3,
            lambda count, value: (self.end(value), (count + 1, self.step(value))),
            (F.zeros((1,)), state),
            max_iterations=2,
        )
        chosen = F.contrib.cond(F.sum(state) > 0, lambda: self.end(state), lambda: state * 2)
        return outputs, state, rows, last[1], chosen


class AsksForTheDtype(HybridBlock):
    """2.x style: the code goes another way where its values are float16."""

    def __init__(self):
        super().__init__()
        self.dense = nn.Dense(3, in_units=4)

    def forward(self, x):
        y = self.dense(x)
        return (y + 1 if y.dtype == np.float16 else y * 2).astype("float32")


def lstm():
    return rnn.LSTM(4, num_layers=2, input_size=3)


NETS = {
    "lenet": (lenet, (4, 1, 8, 8)),
    "attention": (Attention, (2, 3, 5)),
    "twice": (TwiceRead, (2, 5)),
    "scan": (Scan, (3, 1, 3)),
    "dtype": (AsksForTheDtype, (2, 4)),
    "lstm": (lstm, (5, 2, 3)),
}


def flat(item):
    return [leaf for part in item for leaf in flat(part)] if isinstance(item, (list, tuple)) else [item]


def run(net, x, train=True):
    """Outputs, the gradients of x and of all parameters, and the states after one call."""
    x = nd.array(x)
    x.attach_grad()
    with autograd.record(train_mode=train):
        outputs = flat(net(x))
    autograd.backward(outputs)
    parameters = net.collect_params().values()
    gradients = [x.grad, *(p.grad() for p in parameters if p.grad_req != "null")]
    states = [p.data() for p in parameters if p.grad_req == "null"]
    return [array.asnumpy() for array in (*outputs, *gradients, *states)]


def made(name, x):
    mx.random.seed(3)
    net = NETS[name][0]()
    net.initialize(mx.init.Xavier())
    net(nd.array(x))
    return net


def close(found, wanted, tolerance):
    assert [(y.shape, y.dtype) for y in found] == [(y.shape, y.dtype) for y in wanted]
    for y, expected in zip(found, wanted, strict=True):
        scale = max(np.abs(expected).max(initial=0.0), 1e-2)
        assert np.abs(y.astype("float64") - expected.astype("float64")).max(initial=0.0) <= tolerance * scale


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("engine", ["numpy", "onnxruntime"])
@pytest.mark.parametrize("name", NETS)
def test_hybrid_equals_eager(name, engine, train):
    if engine == "onnxruntime":
        pytest.importorskip("onnxruntime")
    x = uniform(*NETS[name][1])
    amp.init()
    wanted = run(made(name, x), x, train)
    net = made(name, x)
    net.hybridize(engine=engine)
    for _ in range(2 if train is False else 1):  # running statistics move in training
        # A sum in another order may round to the next number of float16.
        close(run(net, x, train), wanted, 2e-3)


@pytest.mark.parametrize("name, shape", [("twice", (2, 5)), ("lenet", (1, 1, 6, 6))])
def test_hybrid_equals_eager_in_kernels(name, shape, monkeypatch):
    use_triton(monkeypatch)
    x = uniform(*shape)
    amp.init()
    wanted = run(made(name, x), x)
    net = made(name, x)
    net.hybridize(engine="triton")
    # Values that stay inside of a kernel are not rounded to float16 on the way.
    close(run(net, x), wanted, 5e-3)


@pytest.mark.parametrize("name", ["lenet", "attention", "lstm"])
def test_near_float32_and_parameters_stay_float32(name):
    x = uniform(*NETS[name][1])
    exact = run(made(name, x), x)
    amp.init()
    net = made(name, x)
    found = run(net, x)
    for y, expected in zip(found, exact, strict=True):
        assert 0 <= np.abs(y - expected).max() <= 2e-2 * max(1, np.abs(expected).max())
    assert any(not np.array_equal(y, expected) for y, expected in zip(found, exact, strict=True))
    for parameter in net.collect_params().values():
        assert parameter.dtype == "float32" and parameter.data().dtype == np.float32
        assert parameter.grad_req == "null" or parameter.grad().dtype == np.float32


def test_dtypes_along_the_way():
    amp.init()
    x = nd.ones((2, 3))
    y = nd.FullyConnected(x, nd.ones((4, 3)), no_bias=True, num_hidden=4)
    assert y.dtype == np.float16 and nd.relu(y).dtype == np.float16 and (y * 2).dtype == np.float16
    assert nd.exp(y).dtype == np.float32 and (y + nd.ones((2, 4))).dtype == np.float32 and y.sum().dtype == np.float32
    assert (y**2).dtype == np.float32 and (1 / y).dtype == np.float32 and (y / 2).dtype == np.float16
    assert nd.concat(y, nd.ones((2, 1)), dim=1).dtype == np.float32 and (x @ nd.ones((3, 2))).dtype == np.float16
    wide = nd.ones((2, 3), dtype="float64")
    assert nd.dot(wide, wide, transpose_b=True).dtype == np.float64
    total = nd.ones((2, 4))
    total += y
    assert total.dtype == np.float32 and total.asnumpy().max() == 4
    with pytest.raises(DTypeError, match=r"the result is float32, out= is float16"):
        y += nd.ones((2, 4))


def test_gradients_of_gradients_are_alike():
    def second(net):
        x = nd.array(uniform(2, 5))
        x.attach_grad()
        with autograd.record():
            first = autograd.grad((net(x) ** 2).sum(), [x], create_graph=True)[0]
            loss = (first**2).sum()
        loss.backward()
        return [x.grad.asnumpy(), net.weight.grad().asnumpy()]

    x = uniform(2, 5)
    amp.init()
    wanted = second(made("twice", x))
    net = made("twice", x)
    net.hybridize(engine="numpy")
    close(second(net), wanted, 5e-3)


# -- on and off ------------------------------------------------------------------------------------------------------


def test_compiled_calls_are_compiled_anew(caplog):
    x = nd.array(uniform(2, 4))
    net = nn.Dense(3, in_units=4)
    net.initialize()
    net.hybridize(engine="numpy")
    asks = made("dtype", x)
    asks.hybridize(engine="numpy")
    plain, other = net(x), asks(x)
    with caplog.at_level(logging.INFO, "hybrid_lab"):
        amp.init()
        assert net(x).dtype == np.float16
    assert "mixed precision (float16 and float32) is on" in caplog.text
    assert "1 graph, 1 operator in float16 and float32" in caplog.text
    np.testing.assert_allclose(asks(x).asnumpy(), other.asnumpy() / 2 + 1, atol=2e-3)
    amp.disable()
    assert net(x).dtype == np.float32
    np.testing.assert_array_equal(net(x).asnumpy(), plain.asnumpy())
    np.testing.assert_array_equal(asks(x).asnumpy(), other.asnumpy())


def test_explain_has_the_pass():
    amp.init()
    net = nn.Dense(3, in_units=4)
    net.initialize()
    net.hybridize(engine="numpy")
    net(nd.ones((2, 4)))
    assert "prediction, in float16 and float32 f32[2,4]" in str(mx.explain(net))
    passes = mx.explain(net).passes()
    assert next(iter(passes)).name == "mixed_precision"
    assert "Cast(%data, dtype='float16')" in str(passes["mixed_precision"])
    assert "equals eager" in str(mx.compare(net, nd.ones((2, 4))))


def test_a_second_init():
    amp.init()
    amp.init()
    amp.init("float16")
    with pytest.raises(SettingError, match=r"is on with other settings; call amp.disable\(\) first"):
        amp.init(fp32_ops=["exp"])
    amp.disable()
    amp.disable()
    conditional = [("Activation", "act_type", ["relu"])]
    amp.init(target_precision_ops=["dot"], fp32_ops=["exp"], conditional_fp32_ops=conditional)
    y = nd.dot(nd.ones((2, 2)), nd.ones((2, 2)))
    assert y.dtype == np.float16 and nd.log(y).dtype == np.float16 and nd.exp(y).dtype == np.float32
    assert nd.Activation(y, act_type="relu").dtype == np.float32


@pytest.mark.parametrize("dtype", ["int8", "float32", "a half", type("bfloat", (), {})])
def test_other_dtypes_are_refused(dtype):
    with pytest.raises(SettingError, match="target_dtype is 'float16' or 'bfloat16', not "):
        amp.init(dtype)
    assert invoking.precision is None


def test_dtypes_that_are_accepted():
    amp.init(np.float16)
    amp.init(np.dtype("float16"))


def test_lists_that_cannot_be():
    with pytest.raises(SettingError, match=r"the operators of float32: they are a list of names, \['exp'\], not 'exp'"):
        amp.init(fp32_ops="exp")
    with pytest.raises(SettingError, match="dot cannot compute in float16 and in float32; give both lists"):
        amp.init(fp32_ops=["dot"])
    with pytest.raises(SettingError, match="dot cannot compute in float16 and in float32$"):
        amp.init(fp32_ops=["dot"], target_precision_ops=["dot"])
    assert invoking.precision is None


def test_a_loss_is_an_array():
    net = nn.Dense(1, in_units=1)
    net.initialize()
    trainer = gluon.Trainer(net.collect_params(), "sgd")
    amp.init()
    amp.init_trainer(trainer)
    with pytest.raises(TypeError, match="takes an NDArray or a list of them, not float"), amp.scale_loss(1.0, trainer):
        pass


def test_names_that_are_not_here():
    with pytest.raises(AttributeError, match="use amp.convert_hybrid_block"):
        amp.convert_bucketing_module  # noqa: B018
    with pytest.raises(AttributeError, match="quantization"):
        mx.contrib.quantization  # noqa: B018
    assert mx.contrib.amp is amp


# -- training --------------------------------------------------------------------------------------------------------


def small(optimizer="sgd", rate=0.1):
    mx.random.seed(1)
    net = nn.HybridSequential()
    net.add(nn.Dense(4, in_units=3, activation="relu"), nn.Dense(2, in_units=4))
    net.initialize(mx.init.Xavier())
    return net, gluon.Trainer(net.collect_params(), optimizer, {"learning_rate": rate})


def values(net):
    return [p.data().asnumpy() for p in net.collect_params().values()]


def gradients(net):
    return [p.grad().asnumpy() for p in net.collect_params().values()]


@pytest.mark.parametrize("hybrid", [False, True])
def test_a_scaled_loss_gives_the_step_of_a_plain_one(hybrid):
    x, y = nd.array(uniform(8, 3)), nd.array([0, 1] * 4)
    loss_function = gluon.loss.SoftmaxCrossEntropyLoss()
    amp.init()
    steps = []
    for scaled in (False, True):
        net, trainer = small()
        if hybrid:
            net.hybridize(engine="numpy")
        with autograd.record():
            loss = loss_function(net(x), y)
            if not scaled:
                loss.backward()
        if scaled:
            amp.init_trainer(trainer)
            with amp.scale_loss(loss, trainer) as big:
                autograd.backward(big)
            np.testing.assert_array_equal(big.asnumpy(), loss.asnumpy() * 2**16)
        trainer.step(8)
        steps.append(values(net))
    for one, other in zip(*steps, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4)


def test_small_gradients_survive():
    """The gradient of 1e-9 leaves the range of float16, where the smallest number is 6e-8."""
    x = nd.ones((1, 3))
    amp.init()
    net, trainer = small()
    amp.init_trainer(trainer)
    with autograd.record():
        loss = net(x).astype("float32").sum() * 1e-9
    loss.backward()
    assert not any(grad.any() for grad in gradients(net))
    with autograd.record():
        loss = net(x).astype("float32").sum() * 1e-9
        with amp.scale_loss([loss], trainer) as (big,):
            big.backward()
    amp.unscale(trainer)
    np.testing.assert_allclose(gradients(net)[3], [1e-9, 1e-9], rtol=1e-3)


def overflow(net, trainer, factor=1e30):
    with autograd.record():
        loss = (net(nd.ones((2, 3))) * nd.array([factor])).sum()
        with amp.scale_loss(loss, trainer) as big:
            autograd.backward(big)


@pytest.mark.filterwarnings("error::RuntimeWarning")  # an overflow is nothing to warn of here
@pytest.mark.parametrize("hybrid", [False, True])
def test_a_step_that_overflows_is_skipped(hybrid, caplog):
    amp.init()
    net, trainer = small("adam", 0.01)
    if hybrid:
        net.hybridize(engine="numpy")
    amp.init_trainer(trainer)
    before = values(net)
    with caplog.at_level(logging.INFO, "hybrid_lab"):
        for _ in range(3):
            overflow(net, trainer)
            trainer.step(2)
    assert all(np.array_equal(one, other) for one, other in zip(values(net), before, strict=True))
    scaler = trainer._amp_loss_scaler
    assert (scaler.loss_scale, scaler.skipped, scaler.steps) == (2.0**13, 3, 3)
    assert trainer.optimizer.num_update == 0
    said = [record.message for record in caplog.records if "step is skipped" in record.message]
    assert len(said) == 1 and "the loss scaled by 32768 from now on" in said[0]
    assert trainer.updates[-1] == "the loss is scaled by 8192; 3 of 3 steps skipped"
    overflow(net, trainer, factor=1e-3)
    trainer.step(2)
    assert not any(np.array_equal(one, other) for one, other in zip(values(net), before, strict=True))
    assert (scaler.skipped, scaler.steps, trainer.optimizer.num_update) == (3, 4, 1)


def test_a_skipped_step_has_used_its_gradients_up():
    amp.init()
    net, trainer = small()
    amp.init_trainer(trainer)
    overflow(net, trainer)
    trainer.step(2)
    with pytest.raises(gluon.trainer.StaleGradientError):
        trainer.step(2)


def test_the_scale_grows_after_many_good_steps():
    scaler = amp.LossScaler()
    good, bad = [nd.ones(2), nd.ones((2, 2))], [nd.ones(2), nd.array([np.nan])]
    assert scaler.loss_scale == 2.0**16
    assert not any(scaler.overflowed(good) for _ in range(1999)) and scaler.loss_scale == 2.0**16
    assert not scaler.overflowed(good) and scaler.loss_scale == 2.0**17
    assert not any(scaler.overflowed(good) for _ in range(1999))
    assert scaler.overflowed(bad) and scaler.loss_scale == 2.0**16  # and the counting starts anew
    assert not scaler.overflowed(good) and scaler.loss_scale == 2.0**16
    for _ in range(2000 * 10):
        scaler.overflowed([])
    assert scaler.loss_scale == 2.0**24


def test_gradients_that_are_never_finite_are_told_of(caplog):
    scaler = amp.LossScaler()
    with caplog.at_level(logging.INFO, "hybrid_lab"):
        for _ in range(60):
            assert scaler.overflowed([nd.array([np.inf])])
    assert scaler.loss_scale == 2.0**-24
    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING"]
    assert "not finite even where the loss is not scaled up" in caplog.records[1].message


def test_unscaled_gradients_are_those_of_the_loss():
    x = nd.array(uniform(4, 3))
    amp.init()
    net, trainer = small()
    with autograd.record():
        loss = (net(x) ** 2).sum()
    loss.backward()
    wanted = gradients(net)
    amp.init_trainer(trainer)
    for _ in range(2):
        with autograd.record():
            loss = (net(x) ** 2).sum()
            with amp.scale_loss(loss, trainer) as big:
                big.backward()
        scaled = gradients(net)
        amp.unscale(trainer)
        amp.unscale(trainer)  # a second time there is nothing to do
        for one, big_one, other in zip(wanted, scaled, gradients(net), strict=True):
            np.testing.assert_allclose(one, other, atol=2e-3)
            np.testing.assert_array_equal(big_one / 2**16, other)
    before = values(net)
    trainer.step(1)
    for new, old, gradient in zip(values(net), before, gradients(net), strict=True):
        np.testing.assert_allclose(new, old - 0.1 * gradient, rtol=1e-5, atol=1e-7)


def test_a_step_without_a_scaled_loss_is_a_plain_one():
    amp.init()
    net, trainer = small()
    amp.init_trainer(trainer)
    overflow(net, trainer, 1e-3)
    trainer.step(2)
    before = values(net)
    with autograd.record():
        loss = net(nd.ones((2, 3))).astype("float32").sum()
    loss.backward()
    trainer.step(1)
    np.testing.assert_allclose(values(net)[3], before[3] - 0.1 * 2, rtol=1e-4)


def test_disable_gives_trainers_their_steps_back():
    amp.init()
    net, trainer = small()
    amp.init_trainer(trainer)
    overflow(net, trainer, 1e-3)
    amp.disable()
    assert trainer._amp_loss_scaler is None and len(trainer.updates) == 1
    before = values(net)
    with autograd.record():
        loss = net(nd.ones((2, 3))).sum()
    loss.backward()
    trainer.step(1)
    np.testing.assert_allclose(values(net)[3], before[3] - 0.1 * 2, rtol=1e-4)


def test_what_comes_too_early_or_is_no_trainer():
    net, trainer = small()
    with pytest.raises(HybridLabError, match=r"call amp.init\(\) first"):
        amp.init_trainer(trainer)
    amp.init()
    with pytest.raises(HybridLabError, match=r"call amp.init_trainer\(trainer\) first"), amp.scale_loss(None, trainer):
        pass
    with pytest.raises(HybridLabError, match=r"call amp.init_trainer\(trainer\) first"):
        amp.unscale(trainer)
    with pytest.raises(TypeError, match="takes a gluon.Trainer, not SGD"):
        amp.init_trainer(trainer.optimizer)


def test_an_operator_with_a_gradient_of_its_own_is_warned_of(caplog):
    amp.init()
    with caplog.at_level(logging.WARNING, "hybrid_lab"):
        for dtype in ("float16", "float32"):
            nd.SoftmaxOutput(nd.ones((2, 3), dtype=dtype), nd.zeros(2))
    said = [record.message.split(":")[0] for record in caplog.records if "SoftmaxOutput" in record.message]
    assert said == ["SoftmaxOutput starts a gradient of its own, which amp.scale_loss does not scale"]


def learn(mixed, hybrid):
    """The accuracy on digits that were not trained on, after four rounds."""
    datasets = pytest.importorskip("sklearn.datasets")
    x, y = datasets.load_digits(return_X_y=True)
    x = (x.reshape(-1, 1, 8, 8) / 16).astype("float32")
    if mixed:
        amp.init()
    mx.random.seed(0)
    net = lenet()
    net.initialize(mx.init.Xavier())
    if hybrid:
        net.hybridize(engine="numpy")
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.01})
    if mixed:
        amp.init_trainer(trainer)
    loss_function = gluon.loss.SoftmaxCrossEntropyLoss()
    order = np.random.RandomState(0).permutation(1000)
    for start in [*range(0, 1000, 40)] * 4:
        rows = order[start : start + 40]
        with autograd.record():
            loss = loss_function(net(nd.array(x[rows])), nd.array(y[rows]))
            if mixed:
                with amp.scale_loss(loss, trainer) as scaled:
                    autograd.backward(scaled)
            else:
                loss.backward()
        trainer.step(40)
    found = net(nd.array(x[1000:])).asnumpy().argmax(axis=1)
    return float((found == y[1000:]).mean()), trainer


def test_a_net_learns_as_in_float32():
    exact, _ = learn(False, True)
    mixed, trainer = learn(True, True)
    assert exact > 0.87 and mixed > exact - 0.03
    assert trainer._amp_loss_scaler.skipped < 10


# -- files -----------------------------------------------------------------------------------------------------------


def test_archives_of_a_net_used_in_mixed_precision_are_plain(tmp_path):
    x = nd.array(uniform(2, 1, 8, 8))
    net = made("lenet", x)
    net.hybridize(engine="numpy")
    plain = net(x).asnumpy()
    amp.init()
    assert net(x).dtype == np.float16
    net.save(tmp_path / "net")
    net.export(str(tmp_path / "net"))
    amp.disable()
    found = gluon.load(tmp_path / "net.hlab")
    assert {p.data().dtype for p in found.collect_params().values()} == {np.float32}
    np.testing.assert_allclose(found(x).asnumpy(), plain, atol=1e-6)
    live = lenet()
    live.load(tmp_path / "net")
    np.testing.assert_allclose(live(x).asnumpy(), plain, atol=1e-6)
    assert "cast" not in (tmp_path / "net-symbol.json").read_text().lower()
    amp.init()
    assert found(x).dtype == np.float16  # its graph is converted like any other
    eager = found(x).asnumpy()
    found.hybridize(engine="numpy")
    np.testing.assert_allclose(found(x).asnumpy(), eager, atol=2e-3)


# -- converted nets --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cast_optional_params", [False, True])
def test_a_converted_net_computes_what_mixed_precision_computes(cast_optional_params, tmp_path):
    x = nd.array(uniform(2, 1, 8, 8))
    net = made("lenet", x)
    net.hybridize(engine="numpy")
    plain = net(x).asnumpy()
    converted = amp.convert_hybrid_block(net, cast_optional_params=cast_optional_params)
    found = converted(x)
    assert found.dtype == np.float16 and net(x).dtype == np.float32
    kinds = {p.name.rsplit("_", 1)[1]: np.dtype(p.dtype).name for p in converted.collect_params().values()}
    assert kinds["weight"] == kinds["bias"] == ("float16" if cast_optional_params else "float32")
    assert kinds["gamma"] == kinds["var"] == "float32"
    amp.init()
    np.testing.assert_array_equal(found.asnumpy(), net(x).asnumpy())
    np.testing.assert_array_equal(found.asnumpy(), converted(x).asnumpy())
    amp.disable()
    converted.hybridize(engine="numpy")
    np.testing.assert_allclose(converted(x).asnumpy(), found.asnumpy(), atol=2e-3)
    np.testing.assert_allclose(converted(x).asnumpy(), plain, atol=1e-2)

    converted.save(tmp_path / "small")
    loaded = gluon.load(tmp_path / "small.hlab")
    np.testing.assert_array_equal(loaded(x).asnumpy(), found.asnumpy())
    assert loaded(x).dtype == np.float16
    again = amp.convert_hybrid_block(net, cast_optional_params=cast_optional_params)
    again.load(tmp_path / "small", graphs="file")
    np.testing.assert_array_equal(again(x).asnumpy(), found.asnumpy())


def test_export_leaves_the_conversions_out_unless_asked(tmp_path):
    x = nd.array(uniform(2, 1, 8, 8))
    net = made("lenet", x)
    net.hybridize(engine="numpy")
    plain = net(x).asnumpy()
    converted = amp.convert_hybrid_block(net)
    for keep in (True, False):
        files = converted.export(str(tmp_path / "net"), remove_amp_cast=not keep)
        assert ("amp_cast" in (tmp_path / "net-symbol.json").read_text()) == keep
        found = gluon.SymbolBlock.imports(files[0], ["data"], files[1])(x)
        assert found.dtype == (np.float16 if keep else np.float32)
        np.testing.assert_array_equal(found.asnumpy(), converted(x).asnumpy() if keep else plain)
    narrow = amp.convert_hybrid_block(net, cast_optional_params=True)
    with pytest.raises(HybridLabError, match="are float16, so that the graph needs its conversions"):
        narrow.export(str(tmp_path / "narrow"))
    files = narrow.export(str(tmp_path / "narrow"), remove_amp_cast=False)
    np.testing.assert_array_equal(
        gluon.SymbolBlock.imports(files[0], ["data"], files[1])(x).asnumpy(), narrow(x).asnumpy()
    )


def test_a_converted_net_keeps_its_arrangement_of_arguments_and_results():
    class Pair(HybridBlock):
        def __init__(self):
            super().__init__()
            self.dense = nn.Dense(2, in_units=3)

        def hybrid_forward(self, F, inputs):
            return {"sum": self.dense(inputs["a"]) + inputs["b"], "rest": (inputs["b"],)}

    net = Pair()
    net.initialize()
    net.hybridize(engine="numpy")
    inputs = {"a": nd.ones((1, 3)), "b": nd.ones((1, 2))}
    wanted = net(inputs)
    found = amp.convert_hybrid_block(net)(inputs)
    assert found["rest"][0].shape == (1, 2) and found["sum"].dtype == np.float32
    np.testing.assert_allclose(found["sum"].asnumpy(), wanted["sum"].asnumpy(), atol=1e-3)


def test_a_converted_loop(tmp_path):
    x = nd.array(uniform(3, 1, 3))
    net = made("scan", x)
    net.hybridize(engine="numpy")
    net(x)
    converted = amp.convert_hybrid_block(net)
    found = flat(converted(x))
    amp.init()
    for one, other in zip(found, flat(net(x)), strict=True):
        np.testing.assert_array_equal(one.asnumpy(), other.asnumpy())
    amp.disable()
    converted.save(tmp_path / "loop")
    for one, other in zip(found, flat(gluon.load(tmp_path / "loop.hlab")(x)), strict=True):
        np.testing.assert_array_equal(one.asnumpy(), other.asnumpy())


def test_what_convert_hybrid_block_refuses():
    net = nn.Dense(2, in_units=3)
    net.initialize()
    with pytest.raises(HybridLabError, match=r"has no graph yet: call net.hybridize\(\)"):
        amp.convert_hybrid_block(net)
    net.hybridize(engine="numpy")
    net(nd.ones((1, 3)))
    with pytest.raises(SettingError, match="the graph has no node 'dense_fwd'"):
        amp.convert_hybrid_block(net, excluded_sym_names=["dense_fwd"])
    with pytest.raises(SettingError, match=r"they are a list of names, \['dense0'\]"):
        amp.convert_hybrid_block(net, excluded_sym_names="dense0")
    with pytest.raises(SettingError, match="target_dtype is 'float16' or 'bfloat16', not 'int8'"):
        amp.convert_hybrid_block(net, "int8")
    with pytest.raises(TypeError, match="takes a HybridBlock, not Block"):
        amp.convert_hybrid_block(gluon.Block())
    name = net._graphs.first().graph.operators[-1].name
    assert amp.convert_hybrid_block(net, excluded_sym_names=[name])(nd.ones((1, 3))).dtype == np.float32


def test_convert_model():
    symbol = mx.sym.softmax(mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=2, name="fc"), name="out")
    weights = {"fc_weight": nd.ones((2, 3)), "fc_bias": nd.ones(2)}
    for narrow in (False, True):
        made, arguments, states = amp.convert_model(symbol, weights, {}, cast_optional_params=narrow)
        assert {array.dtype for array in arguments.values()} == {np.float16 if narrow else np.float32} and not states
        assert made.list_arguments() == symbol.list_arguments() and made.list_outputs() == symbol.list_outputs()
        block = gluon.SymbolBlock(made, mx.sym.var("data"))
        block.cast("float16" if narrow else "float32")
        block.initialize()
        for name, array in arguments.items():
            block.params[name].set_data(array)
        assert block(nd.ones((1, 3))).dtype == np.float32


# -- lists -----------------------------------------------------------------------------------------------------------


def test_lists():
    assert {"Convolution", "Deconvolution", "FullyConnected", "RNN", "batch_dot"} <= set(amp.list_lp16_ops())
    assert {"exp", "softmax", "LayerNorm", "norm", "broadcast_power"} <= set(amp.list_fp32_ops("float16"))
    assert {"broadcast_add", "Concat", "stack"} <= set(amp.list_widest_type_cast())
    assert {"relu", "Pooling", "BatchNorm", "Embedding", "transpose"} <= set(amp.list_lp16_fp32_ops())
    assert ("Activation", "act_type", ["softrelu"]) in amp.list_conditional_fp32_ops()
    assert "SoftmaxOutput" in amp.list_loss_output_functions() and amp.list_lp16_use_fp32_params() is None
    parts = [amp.list_lp16_ops(), amp.list_fp32_ops(), amp.list_widest_type_cast(), amp.list_lp16_fp32_ops()]
    names = [name for part in parts for name in part]
    assert len(names) == len(set(names)) and not any(name.startswith("_relu") for name in names)
    assert amp.list_lp16_ops("bfloat16") == amp.list_lp16_ops()
    with pytest.raises(SettingError):
        amp.list_lp16_ops("int8")


# -- saved states ----------------------------------------------------------------------------------------------------


def scaled_trainer():
    net = nn.Dense(1, in_units=2)
    net.initialize()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    return net, trainer


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("archive", [True, False])
def test_the_loss_scale_is_part_of_the_saved_states(before, archive, tmp_path):
    amp.init()
    net, trainer = scaled_trainer()
    amp.init_trainer(trainer)
    for factor in (np.inf, 1.0, 1.0):
        with autograd.record():
            loss = net(nd.ones((1, 2))).sum() * factor
            with amp.scale_loss(loss, trainer) as scaled:
                autograd.backward(scaled)
        trainer.step(1)
    scaler = trainer._amp_loss_scaler
    assert scaler.get_state() == {"loss_scale": 2.0**15, "good": 2, "steps": 3, "skipped": 1}
    other, second = scaled_trainer()
    if before:
        amp.init_trainer(second)
    path = str(tmp_path / ("net.hlab" if archive else "net.states"))
    if archive:
        net.hybridize(engine="numpy")
        net(nd.ones((1, 2)))
        mx.save_cached_graphs(net, path, trainer=trainer)
        other.hybridize(engine="numpy")
        mx.load_cached_graphs(other, path, trainer=second)
    else:
        trainer.save_states(path)
        second.load_states(path)
    if not before:
        amp.init_trainer(second)
    assert second._amp_loss_scaler.get_state() == scaler.get_state()


@pytest.mark.parametrize(
    "state",
    [
        {"loss_scale": 0.0, "good": 0, "steps": 0, "skipped": 0},
        {"loss_scale": float("inf"), "good": 0, "steps": 0, "skipped": 0},
        {"loss_scale": 2.0, "good": -1, "steps": 0, "skipped": 0},
        {"loss_scale": 2.0},
        "2.0",
    ],
)
def test_damaged_loss_scales_are_refused(state):
    _, trainer = scaled_trainer()
    data, arrays = trainer.get_states()
    assert "amp" not in data
    with pytest.raises(mx.diagnostics.LoadMismatchError, match="amp: the loss scale or its counters"):
        trainer.set_states({**data, "amp": state}, arrays)
    trainer.set_states(data, arrays)
