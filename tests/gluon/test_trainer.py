"""Trainer: steps, stale gradients, several contexts, saved states. (test_golden.py has the real MXNet's numbers.)"""

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, gluon, lr_scheduler, nd
from hybrid_lab.diagnostics import ArchiveError, LoadMismatchError, UninitializedError
from hybrid_lab.gluon import nn
from hybrid_lab.gluon.trainer import StaleGradientError
from hybrid_lab.optimizer import ScheduledRateError


def weight_of(values):
    weight = gluon.Parameter("weight", shape=(len(values),))
    weight.initialize()
    weight.set_data(nd.array(values))
    return weight


def backward(*weights):
    with autograd.record():
        loss = sum((each.data() * 2).sum() for each in weights)
    loss.backward()


def test_a_step_divides_by_the_batch_size():
    weight = weight_of([1.0, 2.0])
    trainer = gluon.Trainer([weight], "sgd", {"learning_rate": 0.5})
    backward(weight)
    trainer.step(4)
    assert weight.data().asnumpy().tolist() == [0.75, 1.75]


def test_the_parameters_object_and_array_stay():
    weight = weight_of([1.0])
    array = weight.data()
    trainer = gluon.Trainer([weight], "adam")
    backward(weight)
    trainer.step(1)
    assert weight.data() is array and weight._array is array


def test_stale_gradients_are_refused_or_skipped():
    used, unused = weight_of([1.0]), weight_of([1.0])
    unused.name = "unused"
    trainer = gluon.Trainer([used, unused], "sgd", {"learning_rate": 1.0})
    backward(used)
    with pytest.raises(StaleGradientError, match="'unused' on cpu.0. was not written by a backward pass"):
        trainer.step(1)
    assert used.data().asscalar() == 1.0  # nothing was updated
    trainer.step(1, ignore_stale_grad=True)
    assert (used.data().asscalar(), unused.data().asscalar()) == (-1.0, 1.0)
    trainer.step(1, ignore_stale_grad=True)
    assert used.data().asscalar() == -1.0


def test_a_parameter_that_is_given_twice_is_updated_once():
    weight = gluon.Parameter("weight", shape=(2,))
    weight.initialize(mx.init.One())
    trainer = gluon.Trainer([weight, weight], "sgd", {"learning_rate": 0.5})
    with autograd.record():
        loss = weight.data().sum()
    loss.backward()
    trainer.step(1)
    assert weight.data().asnumpy().tolist() == [0.5, 0.5]


def test_frozen_parameters_stay():
    weight = weight_of([1.0])
    weight.grad_req = "null"
    trainer = gluon.Trainer([weight], "sgd")
    trainer.step(1)
    assert weight.data().asscalar() == 1.0


def test_uninitialized_parameters_are_refused():
    with pytest.raises(UninitializedError, match="net.initialize.. is missing"):
        gluon.Trainer(nn.Dense(2).collect_params(), "sgd")


def test_gradients_of_several_contexts_are_summed():
    weight = gluon.Parameter("weight", shape=(1,), init="zeros")
    weight.initialize(ctx=[mx.cpu(0), mx.cpu(1)])
    trainer = gluon.Trainer([weight], "sgd", {"learning_rate": 1.0})
    with autograd.record():
        losses = [weight.data(mx.cpu(place)) * (place + 1) for place in range(2)]
    autograd.backward(losses)
    trainer.step(1)
    assert [each.asscalar() for each in weight.list_data()] == [-3.0, -3.0]


def test_gradients_may_be_changed_between_allreduce_and_update():
    weight = weight_of([0.0, 0.0])
    trainer = gluon.Trainer([weight], "sgd", {"learning_rate": 1.0})
    backward(weight)
    trainer.allreduce_grads()
    gluon.utils.clip_global_norm([weight.grad()], 1.0)
    trainer.update(1)
    assert weight.data().asnumpy() == pytest.approx([-(0.5**0.5)] * 2, rel=1e-6)


def test_learning_rate_and_scheduler():
    weight = weight_of([0.0])
    trainer = gluon.Trainer([weight], "sgd", {"learning_rate": 0.1})
    trainer.set_learning_rate(0.2)
    assert trainer.learning_rate == 0.2
    schedule = lr_scheduler.FactorScheduler(step=1, factor=0.5)
    trainer = gluon.Trainer([weight], "sgd", {"learning_rate": 0.4, "lr_scheduler": schedule})
    rates = []
    for _ in range(3):
        backward(weight)
        trainer.step(1)
        rates.append(trainer.learning_rate)
    assert rates == [0.4, 0.2, 0.1]
    with pytest.raises(ScheduledRateError, match="follows the lr_scheduler"):
        trainer.set_learning_rate(1.0)


def test_a_step_allocates_nothing_once_it_is_warm():
    import tracemalloc

    weight = gluon.Parameter("weight", shape=(300, 1000))
    weight.initialize()
    trainer = gluon.Trainer([weight], "adam", {"wd": 0.1, "clip_gradient": 1.0})
    for _ in range(2):
        backward(weight)
        trainer.step(1)
    backward(weight)
    tracemalloc.start()
    trainer.step(1)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20_000  # the weight has 1.2 MB


# -- saved states --------------------------------------------------------------------------------------------------


def training(optimizer, options):
    mx.random.seed(0)
    net = nn.HybridSequential()
    net.add(nn.Dense(4, in_units=3, activation="tanh"), nn.Dense(2, in_units=4))
    net.initialize(mx.init.Xavier())
    trainer = gluon.Trainer(net.collect_params(), optimizer, dict(options))

    def step():
        with autograd.record():
            loss = gluon.loss.L2Loss()(net(nd.ones((5, 3))), nd.ones((5, 2)))
        loss.backward()
        trainer.step(5)
        return loss.asnumpy()

    return net, trainer, step


@pytest.mark.parametrize(
    ("optimizer", "options"),
    [("sgd", {"momentum": 0.9, "learning_rate": 0.1}), ("adam", {}), ("sgd", {}), ("rmsprop", {"centered": True})],
)
def test_training_continues_exactly_from_saved_states(tmp_path, optimizer, options):
    net, trainer, step = training(optimizer, options)
    for _ in range(3):
        step()
    net.save_parameters(tmp_path / "net.params")
    trainer.save_states(tmp_path / "trainer.states")
    expected = [step() for _ in range(3)]

    resumed, trainer, step = training(optimizer, {**options, "learning_rate": 123.0})
    resumed.load_parameters(tmp_path / "net.params")
    trainer.load_states(tmp_path / "trainer.states")
    assert all(np.array_equal(one, step()) for one in expected)


def test_states_of_another_trainer_are_refused_completely(tmp_path):
    _, trainer, step = training("sgd", {"momentum": 0.9})
    step()
    trainer.save_states(tmp_path / "states")
    _, other, other_step = training("adam", {})
    with pytest.raises(LoadMismatchError, match="optimizer: Adam here, SGD in the file"):
        other.load_states(tmp_path / "states")
    narrow = nn.Dense(4, in_units=3)
    narrow.initialize()
    with pytest.raises(LoadMismatchError, match="parameters: 2 here, 4 in the file"):
        gluon.Trainer(narrow.collect_params(), "sgd", {"momentum": 0.9}).load_states(tmp_path / "states")


def test_a_damaged_states_file_is_refused(tmp_path):
    _, trainer, step = training("sgd", {"momentum": 0.9})
    step()
    path = tmp_path / "states"
    trainer.save_states(path)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ArchiveError):
        trainer.load_states(path)
