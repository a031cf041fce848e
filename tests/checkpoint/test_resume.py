"""A training that continues from a checkpoint in the middle of an epoch has the losses of one that never stopped."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from training import BATCH, SAMPLES, Training

import hybrid_lab as mx
from hybrid_lab import autograd, gluon, nd
from hybrid_lab.contrib import amp
from hybrid_lab.diagnostics import HybridLabError, LoadMismatchError
from hybrid_lab.gluon import nn
from hybrid_lab.optimizer import optimizer as optimizers

OPTIMIZERS = [name for name, kind in optimizers._registry.items() if kind.__module__.startswith("hybrid_lab.")]

#: How many random steps are resumed from; `make test-checkpoints` takes 50.
RESUMES = int(os.environ.get("HYBRID_LAB_RESUMES", "6"))
STEPS = 24
EPOCH = SAMPLES // BATCH


@pytest.mark.parametrize(("optimizer", "threads"), [("sgd", 0), ("sgd", 3), ("adam", 0), ("adam", 3)])
def test_losses_go_on_to_the_bit_from_random_steps(optimizer, threads, tmp_path):
    expected = Training(optimizer, threads, None).run(STEPS)
    assert len(set(expected)) > STEPS // 2
    steps = random.Random(7).choices(range(1, STEPS), k=RESUMES)
    assert RESUMES < 6 or any(step % EPOCH for step in steps)
    for number, step in enumerate(steps):
        folder = tmp_path / str(number)
        before = Training(optimizer, threads, folder)
        assert before.run(step, save_at=(step,)) == expected[:step]
        before.loader = list(before.loader)  # what the first process does afterwards changes nothing
        again = Training(optimizer, threads, folder)
        mx.random.seed(number)
        np.random.seed(number)
        random.seed(number)
        assert again.run(STEPS) == expected[step:], step


def test_in_a_process_of_its_own(tmp_path):
    expected = Training("adam", 2, None).run(STEPS)
    Training("adam", 2, tmp_path).run(9, save_at=(4, 9))
    script = Path(__file__).with_name("training.py")
    done = subprocess.run(
        [sys.executable, script, "adam", "2", tmp_path, str(STEPS)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == expected[9:]


def test_saving_changes_no_loss_and_other_thread_counts_go_on(tmp_path):
    expected = Training("sgd", 3, None).run(STEPS)
    assert Training("sgd", 3, tmp_path).run(11, save_at=range(1, 12)) == expected[:11]
    again = Training("sgd", 3, tmp_path)
    again.loader._workers = again.loader._ahead = 1
    assert again.run(STEPS) == expected[11:]


def test_an_eager_training(tmp_path):
    expected = Training("adam", 2, None, engine=None).run(STEPS)
    Training("adam", 2, tmp_path, engine=None).run(10, save_at=(10,))
    assert Training("adam", 2, tmp_path, engine=None).run(STEPS) == expected[10:]


def test_the_end_of_an_epoch(tmp_path):
    """Saved inside the loop after its last batch, and saved after the loop."""
    for inside in (True, False):
        training = Training("sgd", 0, tmp_path / str(inside))
        training.checkpoints.restore()
        batches = 0
        for _ in training.loader:
            batches += 1
            if inside:
                training.checkpoints.save(step=batches)
        if not inside:
            training.checkpoints.save(step=batches)
        again = Training("sgd", 0, tmp_path / str(inside))
        point = again.checkpoints.restore()
        assert (point.step, point.epoch) == (batches, 0 if inside else 1)
        assert len(list(again.loader)) == (0 if inside else 7)  # two samples were left by the first epoch
        assert again.loader.epoch == point.epoch + 1


def test_a_loop_that_is_left_by_break_begins_a_new_epoch():
    """The restored loader does what the saved one does."""
    loader = Training("sgd", 0, None).loader
    for number, _ in enumerate(loader):
        if number == 2:
            break
    state, other = loader.get_state(), Training("sgd", 0, None).loader
    other.set_state(state)
    assert loader.epoch == other.epoch == 1 and len(list(other)) == len(list(loader)) == EPOCH


def uninterrupted_and_resumed(start, train):
    """A net and its Trainer after six steps; and others that took over a checkpoint after three of them."""
    net, trainer, checkpoints = start()
    train(net, trainer, range(3))
    checkpoints.save(step=3)
    train(net, trainer, range(3, 6))
    again, fresh, checkpoints = start()
    checkpoints.restore()
    train(again, fresh, range(3, 6))
    return net, trainer, again, fresh


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_every_optimizer_goes_on_in_a_net_without_shapes(name, tmp_path):
    """Its states are checked and taken over although the new net learns its shapes from the file."""

    def start():
        mx.random.seed(2)
        net = nn.HybridSequential()
        bias = name != "groupadagrad"  # which updates matrices only
        net.add(nn.Dense(4, activation="tanh", use_bias=bias), nn.Dense(1, use_bias=bias))
        net.initialize()
        options = {"momentum": 0.9} if name in ("sgd", "nag", "lbsgd", "signum", "lars", "dcasgd") else {}
        trainer = gluon.Trainer(net.collect_params(), name, {"learning_rate": 0.01, **options})
        return net, trainer, mx.checkpoint.Manager(tmp_path, net, trainer)

    def train(net, trainer, steps):
        for step in steps:
            with autograd.record():
                loss = (net(nd.array([[step, 1.0, -1.0], [0.5, step, 2.0]])) ** 2).sum()
            loss.backward()
            trainer.step(2)

    net, _, again, _ = uninterrupted_and_resumed(start, train)
    for mine, theirs in zip(again.collect_params().values(), net.collect_params().values(), strict=True):
        assert np.array_equal(mine.data().asnumpy(), theirs.data().asnumpy())


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_states_that_do_not_fit_leave_a_net_without_shapes_as_it_was(tmp_path):
    net = nn.Dense(2, in_units=3)
    net.initialize()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"momentum": 0.9})
    with autograd.record():
        loss = net(nd.ones((1, 3))).sum()
    loss.backward()
    trainer.step(1)
    mx.checkpoint.Manager(tmp_path, net, trainer).save(step=1)
    waiting = nn.Dense(2)
    waiting.initialize()
    other = gluon.Trainer(waiting.collect_params(), "sgd", {"momentum": 0.9, "multi_precision": True})
    waiting.cast("float16")
    with pytest.raises(LoadMismatchError):
        mx.checkpoint.Manager(tmp_path, waiting, other).restore()
    assert waiting.weight.shape == (2, 0) and other.optimizer.num_update == 0


def test_sums_of_gradients_under_way(tmp_path):
    def start():
        net = nn.Dense(2, in_units=3)
        net.initialize(mx.init.One())
        net.setattr("grad_req", "add")
        trainer = gluon.Trainer(net.collect_params(), "sgd")
        return net, trainer, mx.checkpoint.Manager(tmp_path, net, trainer)

    def backward(net, value):
        with autograd.record():
            loss = (net(nd.full((2, 3), value)) ** 2).sum()
        loss.backward()

    net, trainer, checkpoints = start()
    backward(net, 1.5)
    checkpoints.save(step=1)
    backward(net, 0.5)
    trainer.step(1)
    again, fresh, checkpoints = start()
    checkpoints.restore()
    backward(again, 0.5)
    fresh.step(1)
    assert np.array_equal(again.weight.data().asnumpy(), net.weight.data().asnumpy())
    again.setattr("grad_req", "write")
    with pytest.raises(LoadMismatchError, match="gradient: weight is added up in the file"):
        checkpoints.restore()


@pytest.fixture
def mixed_precision():
    amp.init("float16")
    yield
    amp.disable()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_the_scale_of_the_loss(mixed_precision, tmp_path):
    def start():
        net = nn.Dense(2, in_units=3)
        net.initialize(mx.init.One())
        trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 1e-3})
        amp.init_trainer(trainer)
        return net, trainer, mx.checkpoint.Manager(tmp_path, net, trainer)

    def train(net, trainer, steps):
        for step in steps:
            with autograd.record():
                loss = (net(nd.full((2, 3), 1e30 if step == 1 else step)) ** 2).sum()
                with amp.scale_loss(loss, trainer) as scaled:
                    scaled.backward()
            trainer.step(1)

    net, trainer, again, fresh = uninterrupted_and_resumed(start, train)
    assert trainer._amp_loss_scaler.get_state() == fresh._amp_loss_scaler.get_state()
    assert np.array_equal(again.weight.data().asnumpy(), net.weight.data().asnumpy())


class Drawing(gluon.data.Sampler):
    """Draws a random number for each sample, when it is asked for it."""

    def __iter__(self):
        return (np.random.randint(8) for _ in range(8))

    def __len__(self):
        return 8


class OwnGenerator(gluon.data.Sampler):
    """Has a generator of its own, whose state it tells."""

    def __init__(self):
        self.generator = np.random.default_rng(1)

    def __iter__(self):
        return iter(self.generator.permutation(8).tolist())

    def __len__(self):
        return 8

    def get_state(self):
        return self.generator.bit_generator.state

    def set_state(self, state):
        self.generator.bit_generator.state = state


def loader_with(sampler, size=8):
    return gluon.data.DataLoader(list(range(size)), 2, sampler=sampler)


def test_a_sampler_with_a_state_of_its_own(tmp_path):
    net = nn.Dense(1, in_units=1)
    net.initialize()
    loader = loader_with(OwnGenerator())
    list(loader)
    batches = iter(loader)
    next(batches)
    mx.checkpoint.Manager(tmp_path, net, None, loader).save(step=1)
    rest = [batch.asnumpy().tolist() for batch in batches]
    other = loader_with(OwnGenerator())
    mx.checkpoint.Manager(tmp_path, net, None, other).restore()
    assert [batch.asnumpy().tolist() for batch in other] == rest


def test_a_sampler_that_draws_between_batches_is_refused_and_nothing_changes(tmp_path):
    np.random.seed(0)
    net = nn.Dense(1, in_units=1)
    net.initialize()
    loader = loader_with(Drawing())
    batches = iter(loader)
    next(batches)
    np.random.rand(5)  # an augmentation, for instance
    next(batches)
    mx.checkpoint.Manager(tmp_path, net, None, loader).save(step=1)
    net.weight.set_data(nd.full((1, 1), 3))
    state = np.random.get_state()[1].tolist()
    with pytest.raises(HybridLabError, match="does not give the batches of the saved epoch again"):
        mx.checkpoint.Manager(tmp_path, net, None, loader_with(Drawing())).restore()
    assert net.weight.data().asscalar() == 3 and np.random.get_state()[1].tolist() == state


def test_another_data_set_is_refused():
    loader = gluon.data.DataLoader(list(range(9)), 2, shuffle=True)
    with pytest.raises(HybridLabError, match="the data set has 9 samples, that of the saved position 8"):
        loader.set_state(gluon.data.DataLoader(list(range(8)), 2, shuffle=True).get_state())


@pytest.mark.parametrize("damage", [{"epoch": "x"}, {"start": None}, {"start": {}}, {"delivered": "many"}])
def test_damaged_positions_are_refused(damage):
    loader = gluon.data.DataLoader(list(range(8)), 2, shuffle=True)
    next(iter(loader))
    batches = iter(loader)
    next(batches)
    with pytest.raises(HybridLabError, match="not a saved position"):
        loader.set_state({**loader.get_state(), **damage})


def test_random_numbers_of_a_transform_do_not_depend_on_the_threads():
    def batches(threads):
        mx.random.seed(1)
        data = gluon.data.SimpleDataset(list(range(10))).transform(lambda x: nd.random.uniform(shape=2))
        loader = gluon.data.DataLoader(data, 3, num_workers=threads)
        return [[batch.asnumpy().tolist() for batch in loader] for _ in range(2)]

    first, second = batches(0)
    assert first != second
    assert batches(1) == batches(4) == [first, second]
