"""Optimizers: the numbers are the real MXNet's (tests/golden/gluon/make_optimizers.py)."""

import json
import logging
import pathlib

import numpy as np
import pytest

from hybrid_lab import lr_scheduler, nd, optimizer
from hybrid_lab.diagnostics import SettingError

GOLDEN = np.load(pathlib.Path(__file__).parent / "golden" / "gluon" / "optimizers.npz")
CASES = json.loads(GOLDEN["cases"].tobytes())


@pytest.mark.parametrize("number", range(len(CASES)), ids=[f"{name}{number}" for number, (name, _) in enumerate(CASES)])
def test_six_steps_equal_mxnet(number):
    name, options = CASES[number]
    updater = optimizer.get_updater(optimizer.create(name, **options))
    weight = nd.array(GOLDEN["start"])
    for grad, expected in zip(GOLDEN["grads"], GOLDEN[f"case{number}"], strict=True):
        updater(0, nd.array(grad), weight)
        np.testing.assert_allclose(weight.asnumpy(), expected, rtol=2e-6, atol=2e-6)


def test_names_and_arguments_are_checked():
    assert isinstance(optimizer.create("SGD", momentum=0.9, wd=0.1), optimizer.SGD)
    with pytest.raises(ValueError, match="no optimizer named 'adm'; did you mean 'adam'"):
        optimizer.create("adm")
    with pytest.raises(TypeError, match="'sgd' .*momentm; did you mean momentum"):
        optimizer.create("sgd", momentm=0.9)


def test_multipliers_by_index_and_name():
    sgd = optimizer.create("sgd", learning_rate=1.0, wd=1.0, param_idx2name={0: "fc_weight", 1: "fc_bias"})
    sgd.set_lr_mult({"fc_bias": 2.0})
    assert [sgd._get_lr(index) for index in (0, 1)] == [1.0, 2.0]
    assert [sgd._get_wd(index) for index in (0, 1)] == [1.0, 0.0]  # only weights and gammas decay


def test_float16_weights_in_float32_copies():
    updater = optimizer.get_updater(optimizer.create("sgd", learning_rate=1.0, momentum=0.9, multi_precision=True))
    weight = nd.ones((1,), dtype="float16")
    for _ in range(10):
        updater(0, nd.full((1,), 1e-5, dtype="float16"), weight)
    copy, momentum = updater.states[0]
    assert copy.dtype == momentum.dtype == np.float32
    assert copy.asscalar() < 0.9997 < 1.0
    with pytest.warns(UserWarning, match="multi_precision=True updates float32 copies"):
        optimizer.get_updater(optimizer.create("sgd"))(0, weight, weight)


def test_a_users_optimizer():
    @optimizer.register
    class Fixed(optimizer.Optimizer):
        def update(self, index, weight, grad, state):
            weight[:] = weight - self._get_lr(index) * (grad > 0)

    weight = nd.array([1.0, 1.0])
    optimizer.get_updater(optimizer.create("fixed", learning_rate=0.5))(0, nd.array([3.0, -3.0]), weight)
    assert weight.asnumpy().tolist() == [0.5, 1.0]


def test_a_weight_larger_than_one_piece():
    """Elements are updated in pieces: each must see its own states."""
    size = 70_001
    rng = np.random.default_rng(0)
    start, grads = rng.normal(size=size).astype("float32"), rng.normal(size=(3, size)).astype("float32")
    whole, parts = nd.array(start), [nd.array(start[:40_000]), nd.array(start[40_000:])]
    one, two = (optimizer.get_updater(optimizer.create("adam", wd=0.1)) for _ in range(2))
    for grad in grads:
        one(0, nd.array(grad), whole)
        two([0, 1], [nd.array(grad[:40_000]), nd.array(grad[40_000:])], parts)
    assert np.array_equal(whole.asnumpy(), np.concatenate([part.asnumpy() for part in parts]))


def test_rates_of_a_schedule_with_an_own_learning_rate():
    schedule = lr_scheduler.CosineScheduler(max_update=10, base_lr=5.0, warmup_steps=2)
    sgd = optimizer.create("sgd", learning_rate=1.0, lr_scheduler=schedule)
    sgd.num_update = 1
    assert sgd.learning_rate == 0.5
    assert optimizer.create("adam", lr_scheduler=lr_scheduler.FactorScheduler(1, base_lr=0.3)).learning_rate == 0.3


def test_any_function_of_the_number_of_updates_is_a_schedule():
    sgd = optimizer.create("sgd", lr_scheduler=lambda updates: 0.5 / (updates + 1))
    assert sgd.learning_rate == 0.5
    sgd.num_update = 4
    assert sgd.learning_rate == 0.1
    with pytest.raises(SettingError, match="learning_rate=1.0 .*one of the two"):
        optimizer.create("sgd", learning_rate=1.0, lr_scheduler=lambda updates: 0.5)


def test_signum_without_momentum_refuses_the_decay_it_would_not_use():
    with pytest.raises(SettingError, match="wd_lh needs a momentum"):
        optimizer.create("signum", momentum=0.0, wd_lh=0.1)


NUMBERS = {"float32": np.float32(0.5), "float64": np.float64(0.5), "array": nd.array([0.5])}


@pytest.mark.parametrize("number", NUMBERS.values(), ids=NUMBERS)
@pytest.mark.parametrize("name", ["sgd", "adagrad", "adam", "adamax", "rmsprop"])
def test_numbers_of_other_kinds(name, number):
    """They are Python's numbers from then on, so that they are saved with a Trainer's states."""
    weights = []
    for value in (0.5, number):
        made = optimizer.create(name, learning_rate=value, wd=value, clip_gradient=value, rescale_grad=value)
        weight = nd.array([1.0, -2.0])
        optimizer.get_updater(made)(0, nd.array([0.3, 0.2]), weight)
        weights.append(weight.asnumpy())
        assert {made.hyperparameters()[key] for key in ("lr", "wd", "clip_gradient", "rescale_grad")} == {0.5}
    assert np.array_equal(*weights)
    assert type(optimizer.create("sgd", momentum=np.float32(0.5)).momentum) is float


def test_adadelta_says_once_that_it_uses_no_learning_rate(monkeypatch):
    said: list[str] = []
    monkeypatch.setattr(logging.getLogger("hybrid_lab"), "warning", said.append)
    made = optimizer.create("adadelta", rho=0.8)
    assert not said
    weights = [nd.array([1.0]), nd.array([1.0])]
    for weight, rate in zip(weights, (0.5, 2.0), strict=True):
        made = optimizer.create("adadelta", learning_rate=rate)
        made.set_learning_rate(rate * 2)
        optimizer.get_updater(made)(0, nd.array([0.3]), weight)
    optimizer.create("adadelta", lr_scheduler=lr_scheduler.FactorScheduler(1))
    assert [text.split(":")[0] for text in said] == [
        *["AdaDelta does not use learning_rate"] * 2,
        "AdaDelta does not use lr_scheduler",
    ]
    assert weights[0].asscalar() == weights[1].asscalar() != 1


def test_dcasgd_with_momentum_follows_its_rule():
    """MXNet's raises for weights of more than one element."""
    updater = optimizer.get_updater(optimizer.create("dcasgd", learning_rate=0.5, momentum=0.9, lamda=2.0))
    weight, own, momentum, previous = nd.array([1.0, -2.0]), np.array([1.0, -2.0]), 0.0, np.array([1.0, -2.0])
    for grad in ([0.1, 0.2], [0.3, -0.1]):
        updater(0, nd.array(grad), weight)
        grad = np.array(grad)
        momentum = 0.9 * momentum - 0.5 * (grad + 2.0 * grad * grad * (own - previous))
        own, previous = own + momentum, own
        np.testing.assert_allclose(weight.asnumpy(), own, rtol=1e-6)


def test_sgld_draws_with_the_variance_of_the_rate():
    updater = optimizer.get_updater(optimizer.create("sgld", learning_rate=0.04))
    weight = nd.zeros((20_000,))
    updater(0, nd.ones((20_000,)), weight)
    assert abs(weight.asnumpy().mean() + 0.02) < 0.01
    assert abs(weight.asnumpy().std() - 0.2) < 0.01


def test_lars_corrects_the_momentum_of_every_weight_at_a_new_rate():
    lars = optimizer.create("lars", learning_rate=1.0, momentum=0.5, param_idx2name={0: "a_bias", 1: "b_bias"})
    updater, weights = optimizer.get_updater(lars), [nd.zeros((1,)), nd.zeros((1,))]
    for rate in (1.0, 0.5):
        lars.set_learning_rate(rate)
        updater([0, 1], [nd.ones((1,))] * 2, weights)
    assert [weight.asscalar() for weight in weights] == [-1.75, -1.75]  # -1; then 0.25 * -1 - 0.5
