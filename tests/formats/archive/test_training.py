"""Archives in the middle of a training: parameters keep their identity, a Trainer's states come back to the bit."""

import doctest

import numpy as np
import pytest
import rfc_model

import hybrid_lab as mx
from hybrid_lab import gluon
from hybrid_lab.diagnostics import LoadMismatchError
from hybrid_lab.gluon import nn


def test_parameters_keep_their_identity_and_so_do_trainers(saved):
    other = rfc_model.called_net()
    before = dict(other._collect_params_with_prefix())
    trainer = gluon.Trainer([p for p in before.values() if p._data is not None], "sgd", {"learning_rate": 0.5})
    other.load(saved)
    assert all(before[key] is p for key, p in other._collect_params_with_prefix().items())
    loaded = rfc_model.values(other)
    with mx.autograd.record():
        loss = other(rfc_model.images(4)).square().sum()
    loss.backward()
    trainer.step(1, ignore_stale_grad=True)
    assert not np.array_equal(rfc_model.values(other)["head.out.weight"], loaded["head.out.weight"])


@pytest.mark.parametrize("engine", ["numpy", None])
def test_resuming_is_exact_to_the_bit(engine, tmp_path):
    def start():
        mx.random.seed(9)
        net = rfc_model.Net()
        net.initialize(mx.init.Xavier())
        net.hybridize(engine=engine)
        net(rfc_model.images(4))
        params = [p for p in net.collect_params().values() if p._data is not None]
        return net, gluon.Trainer(params, "adam", {"learning_rate": 0.01, "wd": 0.001})

    def train(net, trainer, steps):
        for step in steps:
            with mx.autograd.record():
                loss = net(rfc_model.images(4, seed=step)).square().sum()
            loss.backward()
            trainer.step(4, ignore_stale_grad=True)

    net, trainer = start()
    train(net, trainer, range(3))
    mx.save_cached_graphs(net, tmp_path / "step3", trainer=trainer, aux={"epoch": 3})
    train(net, trainer, range(3, 6))
    expected = rfc_model.values(net)

    for _ in range(11):
        nn.Dense(1)  # dense9 and dense10 come in another order, and so do a Trainer's parameters
    again, fresh = start()
    mx.random.seed(1)
    report = mx.load_cached_graphs(again, tmp_path / "step3", trainer=fresh)
    assert report.aux == {"epoch": 3} and fresh.learning_rate == 0.01
    train(again, fresh, range(3, 6))
    assert rfc_model.equal(rfc_model.values(again), expected)


def test_a_trainer_that_does_not_fit_is_a_difference(tmp_path):
    net = nn.Dense(2, in_units=2)
    net.initialize()
    mx.save_cached_graphs(net, tmp_path / "m", trainer=gluon.Trainer(net.collect_params(), "adam"))
    before = net.weight.data().asnumpy() + 1
    net.weight.set_data(before)
    other = gluon.Trainer([net.weight], "sgd")
    with pytest.raises(LoadMismatchError, match="trainer: 1 parameter in this Trainer, 2 in the file"):
        mx.load_cached_graphs(net, tmp_path / "m", trainer=other)
    with pytest.raises(LoadMismatchError, match="trainer: optimizer: SGD here, Adam in the file"):
        mx.load_cached_graphs(net, tmp_path / "m", trainer=gluon.Trainer(net.collect_params(), "sgd"))
    assert np.array_equal(net.weight.data().asnumpy(), before)
    report = mx.load_cached_graphs(net, tmp_path / "m")
    report.trainer_states.restore(gluon.Trainer(net.collect_params(), "adam"))


@pytest.fixture
def trained(tmp_path, monkeypatch):
    """A model and a Trainer after five updates, saved as run.hlab in the current folder; and a fresh pair."""
    monkeypatch.chdir(tmp_path)

    def start():
        net = nn.Dense(2, in_units=2)
        net.initialize()
        return net, gluon.Trainer(net.collect_params(), "adam")

    net, trainer = start()
    for _ in range(5):
        with mx.autograd.record():
            loss = net(mx.nd.ones((1, 2))).sum()
        loss.backward()
        trainer.step(1)
    mx.save_cached_graphs(net, "run", trainer=trainer, aux={"epoch": 3})
    return start()


def test_the_example_of_load_cached_graphs_is_true(trained):
    net, trainer = trained
    finder = doctest.DocTestFinder(recurse=False)
    (example,) = finder.find(mx.load_cached_graphs, globs={"net": net, "trainer": trainer})
    example.globs["load_cached_graphs"] = mx.load_cached_graphs
    failed, attempted = doctest.DocTestRunner().run(example)
    assert attempted == 5 and failed == 0


def test_a_trainer_takes_the_states_of_the_report(trained):
    net, trainer = trained
    report = net.load("run")
    assert str(report).endswith(
        "<trainer states: Adam after 5 updates of 2 parameters>: not restored; "
        "report.trainer_states.restore(trainer) does it"
    )
    trainer.set_states(report.trainer_states)
    assert trainer.optimizer.num_update == 5
    other = gluon.Trainer(net.collect_params(), "adam")
    report = net.load("run", trainer=other)
    assert report.restored and str(report).endswith("of 2 parameters>: restored")
    assert other.optimizer.num_update == 5
