"""Training in mixed precision: losses are scaled, steps that overflow are skipped, the scale is saved."""

from __future__ import annotations

import logging

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, gluon, nd
from hybrid_lab.contrib import amp
from hybrid_lab.diagnostics import HybridLabError
from hybrid_lab.gluon import nn
from tests.contrib.amp_nets import lenet, uniform


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
