"""Forked children: eager and hybrid calls work in them, whatever threads and locks the parent had."""

from __future__ import annotations

import gc
import logging
import multiprocessing
import os
import threading
import time

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, gluon, nd
from hybrid_lab.engines import registry
from hybrid_lab.gluon import nn
from hybrid_lab.ndarray.random_state import state
from hybrid_lab.system import memory as collector
from tests.forking import in_child
from tests.graph.building import graph_of
from tests.triton_device import ON_GPU, use_triton

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork"),
    pytest.mark.skipif(ON_GPU, reason="a child cannot use its parent's GPU"),
    # Python 3.12 warns of forks beside threads: which is what these tests are about.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
ENGINES = ["numpy", "onnxruntime", "torch", None]
#: A child that has not come back after so many seconds never will.
SECONDS = 120


def network(engine):
    mx.random.seed(2)
    net = nn.HybridSequential()
    net.add(nn.Conv2D(16, 3, in_channels=3, activation="relu"), nn.Dense(64, in_units=16 * 30 * 30))
    net.initialize()
    net.hybridize(engine=engine)
    return net


def images():
    return nd.array(np.random.RandomState(0).uniform(-1, 1, (8, 3, 32, 32)))


def work(net, x):
    """Eager and hybrid, predicted and recorded."""
    predicted = net(x).asnumpy()
    net.collect_params().zero_grad()
    with autograd.record():
        loss = (net(x) ** 2).sum()
    loss.backward()
    product = nd.dot(nd.ones((400, 400)), nd.ones((400, 400))).asnumpy()
    return predicted, net[0].weight.grad().asnumpy(), product[0, :3]


def expect_equal(got, wanted):
    assert not isinstance(got, str), got
    for one, other in zip(got, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4 * np.abs(other).max())


@pytest.fixture(params=ENGINES)
def engine(request):
    if request.param is not None and registry.find(request.param).missing():
        pytest.skip(f"{request.param} is not installed")
    return request.param


def test_a_child_goes_on_with_its_parents_model(engine):
    net, x = network(engine), images()
    expected = work(net, x)
    expect_equal(in_child(lambda: work(net, x)), expected)
    expect_equal(work(net, x), expected)


def test_a_child_goes_on_with_a_model_on_a_device(monkeypatch):
    """Triton's interpreter: the parameters' latest values are torch's."""
    use_triton(monkeypatch)
    net = nn.Dense(300, in_units=200)
    net.initialize()
    net.hybridize(engine="triton")
    x = nd.ones((2, 200))
    trainer = gluon.Trainer(net.collect_params(), "sgd")
    with autograd.record():
        loss = net(x).sum()
    loss.backward()
    trainer.step(1)
    got = in_child(lambda: (net(x).asnumpy(), net.weight.data().asnumpy()))
    expect_equal(got, (net(x).asnumpy(), net.weight.data().asnumpy()))


def test_a_child_makes_models_of_its_own(engine):
    expected = work(network(engine), images())
    expect_equal(in_child(lambda: work(network(engine), images())), expected)


def test_a_child_deletes_sessions_with_threads_of_their_own(monkeypatch):
    """As ONNX Runtime makes them before 1.23: their destructor waits for threads, which a child lacks."""
    pytest.importorskip("onnxruntime")
    from hybrid_lab.engines.onnxruntime import OnnxRuntimeEngine, session

    monkeypatch.setattr(session, "_shared", {})
    graph = graph_of(lambda F, x: F.exp(F.dot(x, x)), (300, 300))
    held = [OnnxRuntimeEngine(worth=lambda region: None).compile(graph)]
    held[0]([np.ones((300, 300), np.float32)])
    assert in_child(lambda: (held.clear(), gc.collect(), "came back")[2]) == "came back"


def test_a_childs_child_works_too(engine):
    net, x = network(engine), images()
    expected = work(net, x)
    expect_equal(in_child(lambda: in_child(lambda: work(net, x))), expected)


@pytest.mark.parametrize("engine", ["numpy", "onnxruntime"], indirect=True)
def test_a_child_of_a_parent_whose_threads_compute(engine, caplog):
    """Forked at any time, also while other threads hold locks or compile."""
    caplog.set_level(logging.WARNING, "hybrid_lab")  # Python does not open the lock of standard error in a child
    net, x, stop = network(engine), images(), threading.Event()
    expected = work(net, x)

    def compute():
        while not stop.is_set():
            network("numpy")(x)
            nd.random.normal(shape=(3,)).asnumpy()

    threads = [threading.Thread(target=compute) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(4):
            time.sleep(0.01)
            expect_equal(in_child(lambda: work(net, x)), expected)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    expect_equal(work(net, x), expected)


def test_locks_that_other_threads_hold_are_open_in_a_child():
    net, x = network("numpy"), images()
    expected, held, go_on = work(net, x), threading.Event(), threading.Event()

    def hold():
        with net._graphs.lock, state._lock, collector.without_collecting():
            held.set()
            go_on.wait(SECONDS)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(SECONDS)
    try:
        got, collecting = in_child(lambda: (work(net, x), (nd.random.normal(shape=(2,)).asnumpy(), gc.isenabled())))
    finally:
        go_on.set()
        thread.join()
    assert collecting[1]
    expect_equal(got, expected)


@pytest.mark.parametrize("engine", ["onnxruntime", "torch"], indirect=True)
def test_what_stands_in_is_said_once(engine, caplog):
    net, x = network(engine), images()
    net(x)

    def said():
        caplog.clear()
        net(x)
        network(engine)(x)
        return [record.message for record in caplog.records if "forked" in record.message]

    (message,) = in_child(said)
    assert registry.find(engine).title in message and "spawn" in message
    net(x)
    assert not registry.left_behind


def forked_work(seed):
    return work(network(None), images())


def test_pools_of_processes_work():
    expected = forked_work(0)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        for got in pool.map_async(forked_work, range(2)).get(SECONDS):
            expect_equal(got, expected)


@pytest.mark.parametrize("workers", [0, 2])
def test_loaders_transform_with_hybrid_blocks(workers):
    net = network(None)
    data = gluon.data.SimpleDataset(list(np.random.RandomState(0).uniform(-1, 1, (6, 3, 32, 32)).astype("float32")))
    expected = [net(nd.array(item[None])).asnumpy()[0] for item in data]

    def features():
        loader = gluon.data.DataLoader(
            data.transform(lambda item: net(nd.array(item[None])).asnumpy()[0]), batch_size=2, num_workers=workers
        )
        return np.concatenate([batch.asnumpy() for batch in loader])

    np.testing.assert_allclose(features(), expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(in_child(features), expected, rtol=1e-4, atol=1e-4)
