"""Step boundaries: work from other threads is done between two training steps, by the training thread."""

import signal
import threading
import time
from functools import partial

import numpy as np
import pytest

from hybrid_lab import autograd, gluon, nd
from hybrid_lab.diagnostics.errors import HybridLabError
from hybrid_lab.formats.archive.summary import verify
from hybrid_lab.gluon import nn
from hybrid_lab.gluon.step import StepBoundary, boundary
from tests.lab.conftest import inputs, make_net, same, weights


def elsewhere(function):
    """Run in another thread; returns (thread, list that gets the result or the error)."""
    results = []

    def call():
        try:
            results.append(function())
        except BaseException as error:  # noqa: BLE001
            results.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    return thread, results


def wait_until(condition):
    until = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.001)


def test_outside_of_cells_work_runs_at_once():
    assert StepBoundary().run(lambda: 7) == (7, "idle")
    thread, results = elsewhere(lambda: StepBoundary().run(lambda: 7))
    thread.join()
    assert results == [(7, "idle")]


def test_the_main_thread_never_waits_for_itself():
    steps = StepBoundary()
    steps.cell_started()
    assert steps.run(lambda: 7) == (7, "idle")


def test_work_is_done_by_the_training_thread_at_its_next_boundary():
    steps = StepBoundary()
    steps.cell_started()
    thread, results = elsewhere(lambda: steps.run(threading.current_thread))
    wait_until(lambda: steps._waiting)
    steps.passed()
    thread.join()
    assert results == [(threading.current_thread(), "boundary")]


def test_what_waits_is_done_when_the_cell_ends():
    steps = StepBoundary()
    steps.cell_started()
    pairs = [elsewhere(lambda: steps.run(lambda: 1)) for _ in range(3)]
    wait_until(lambda: len(steps._waiting) == 3)
    steps.cell_ended()
    for thread, results in pairs:
        thread.join()
        assert results == [(1, "boundary")]


def test_without_a_boundary_the_work_is_done_after_a_while():
    steps = StepBoundary()
    steps.cell_started()
    thread, results = elsewhere(lambda: steps.run(lambda: 1, patience=0.01))
    thread.join()
    assert results == [(1, "unsynchronized")] and not steps._waiting


def test_a_cell_that_trains_is_given_more_time():
    steps = StepBoundary()
    steps.cell_started()
    assert steps._patience() < 10
    steps.passed()
    assert steps._patience() > 30


def test_a_save_beside_a_cell_that_writes_to_the_parameters_is_intact(tmp_path, monkeypatch):
    """Digests, examples and bytes are of the same values, though no step ends that the save could wait for."""
    monkeypatch.setattr("hybrid_lab.gluon.step.PATIENCE", 0.0)
    net = nn.Dense(600, in_units=600)
    net.initialize()
    net.hybridize(engine="numpy")
    net(nd.ones((1, 600)))
    files = [tmp_path / f"{number}.hlab" for number in range(4)]
    boundary.cell_started()
    try:
        thread, results = elsewhere(lambda: [boundary.run(partial(net.save, file))[1] for file in files])
        value = 0
        while thread.is_alive():
            value += 1
            for parameter in net.collect_params().values():
                parameter.set_data(nd.full(parameter.shape, value))
    finally:
        boundary.cell_ended()
    assert results == [["unsynchronized"] * 4]
    for file in files:
        verify(file)
        gluon.load(file)


def test_an_error_is_the_asking_thread_s_and_training_goes_on():
    steps = StepBoundary()
    steps.cell_started()
    thread, results = elsewhere(lambda: steps.run(lambda: 1 / 0))
    wait_until(lambda: steps._waiting)
    steps.passed()
    thread.join()
    assert isinstance(results[0], ZeroDivisionError)


def test_an_interrupt_is_the_training_thread_s():
    def interrupted():
        raise KeyboardInterrupt

    steps = StepBoundary()
    steps.cell_started()
    thread, results = elsewhere(lambda: steps.run(interrupted))
    wait_until(lambda: steps._waiting)
    with pytest.raises(KeyboardInterrupt):
        steps.passed()
    thread.join()
    assert isinstance(results[0], HybridLabError) and "may be incomplete" in str(results[0])
    with steps.lock:
        pass


def test_an_interrupt_waits_for_the_end_of_such_work():
    done = []

    def slow():
        signal.raise_signal(signal.SIGINT)
        done.append("all of it")
        return 7

    steps = StepBoundary()
    steps.cell_started()
    thread, results = elsewhere(lambda: steps.run(slow))
    wait_until(lambda: steps._waiting)
    with pytest.raises(KeyboardInterrupt):
        steps.passed()
    thread.join()
    assert results == [(7, "boundary")] and done == ["all of it"]


def test_a_cell_starts_after_work_that_is_being_done():
    steps, order = StepBoundary(), []

    def slow():
        order.append("work begins")
        time.sleep(0.1)
        order.append("work ends")

    thread, _ = elsewhere(lambda: steps.run(slow))
    wait_until(lambda: order)
    steps.cell_started()
    order.append("cell starts")
    thread.join()
    assert order == ["work begins", "work ends", "cell starts"]


def test_training_outside_of_a_cell_has_boundaries_too():
    """A widget's callback trains on the main thread, or the user's own thread does."""
    steps = StepBoundary()
    steps.passed()
    thread, results = elsewhere(lambda: steps.run(threading.current_thread))
    wait_until(lambda: steps._waiting)
    steps.passed()
    thread.join()
    assert results == [(threading.current_thread(), "boundary")]


def test_a_trainer_s_step_is_a_boundary(tmp_path):
    """What is saved there, statistics included, is what the model is after that step; training is not disturbed."""

    def train(save):
        net = make_net()
        for number, parameter in enumerate(net.collect_params().values()):
            values = np.random.RandomState(number).rand(*parameter.shape).astype("float32")
            parameter.set_data(nd.array(values))
        trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9})
        boundary.cell_started()
        states, path = [], tmp_path / "mid.hlab"
        try:
            for step in range(4):
                if save and step == 2:
                    thread, results = elsewhere(lambda: boundary.run(lambda: net.save(path)))
                    wait_until(lambda: boundary._waiting)
                with autograd.record():
                    loss = (net(inputs()) ** 2).sum() + nd.random.uniform(shape=(1,)) * 0
                loss.backward()
                trainer.step(4)
                states.append(weights(net))
        finally:
            boundary.cell_ended()
        if save:
            thread.join()
            assert results[0][1] == "boundary"
        return states, nd.random.uniform(shape=(3,)).asnumpy()

    import hybrid_lab as mx

    mx.random.seed(3)
    quiet, drawn = train(save=False)
    mx.random.seed(3)
    disturbed, drawn_too = train(save=True)
    assert np.array_equal(drawn, drawn_too)
    for one, two in zip(quiet, disturbed, strict=True):
        assert all(np.array_equal(one[key], two[key]) for key in one)
    saved = weights(gluon.load(tmp_path / "mid.hlab"))
    assert same(saved, disturbed[2]) and not same(saved, disturbed[1]) and not same(saved, disturbed[3])
