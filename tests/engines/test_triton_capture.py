"""Captured launches (static_shape) with a stand-in for torch's graphs, on Triton's interpreter or a GPU."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

import torch

import hybrid_lab as mx
from hybrid_lab import autograd, gluon, nd
from hybrid_lab.engines.launches import launches
from hybrid_lab.engines.triton.run import availability, capture
from hybrid_lab.gluon import nn
from tests.graph.building import graph_of
from tests.triton_device import ON_GPU, use_triton

GPU = mx.gpu(0)


@pytest.fixture(autouse=True)
def interpreter(monkeypatch):
    use_triton(monkeypatch)


class StandIn:
    """Stands for torch's graphs: a replay runs the function again and writes what it gives where it first was."""

    replays = 0
    spoil = False

    def capture(self, function):
        import torch

        made = function()  # a capture runs nothing: so the first replay does not either
        waiting = [True]

        def replay():
            StandIn.replays += 1
            if not waiting:
                for place, value in zip(made, function(), strict=True):
                    if place is not value:
                        place.copy_(value)
            waiting.clear()
            if StandIn.spoil and made:
                with torch.no_grad():
                    made[0].view(-1)[0] += 1

        return replay, made


@pytest.fixture
def stand_in(monkeypatch):
    monkeypatch.setattr(capture, "recorder", lambda: StandIn().capture)
    monkeypatch.setattr(StandIn, "replays", 0)
    monkeypatch.setattr(StandIn, "spoil", False)
    return StandIn


def plain_net():
    """Without Dropout, which would keep it from being captured."""
    net = nn.HybridSequential()
    net.add(nn.Dense(5, in_units=6, activation="tanh"), nn.BatchNorm(in_channels=5), nn.Dense(3, in_units=5))
    return net


def trained(steps, watch=lambda: None, **flags):
    mx.random.seed(0)
    net = plain_net()
    net.initialize(ctx=GPU)
    net.hybridize(**flags)
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9})
    numbers, outputs = np.random.RandomState(0), []
    for _ in range(steps):
        x = nd.array(numbers.randn(4, 6), ctx=GPU)
        with autograd.record():
            y = net(x)
        y.backward()
        trainer.step(4)
        outputs.append(y)
        watch()
    values = [y.asnumpy() for y in outputs] + [item.data(GPU).asnumpy() for item in net.collect_params().values()]
    return net, values


def test_captured_calls_give_what_plain_ones_give(stand_in):
    plain, captured = trained(5)[1], trained(5, static_shape=True)
    assert stand_in.replays >= 2 * 3
    for one, other in zip(plain, captured[1], strict=True):
        np.testing.assert_array_equal(one, other)
    assert "not captured" not in str(mx.explain(captured[0]))


def test_a_captured_step_is_two_replays_and_one_launch(stand_in):
    seen = []
    trained(5, watch=lambda: seen.append(launches.snapshot()), static_shape=True)
    step = {name: seen[-1][name] - seen[-2][name] for name in seen[-1]}
    # Kernels of the stand-in's replays count, too; a graph's do not. The update is one launch of its own.
    assert step["replays"] == 2
    # The batch, the gradient of the output and four results: the output, and BatchNorm's statistics.
    assert step["others"] <= 6
    plain = []
    trained(5, watch=lambda: plain.append(launches.snapshot()))
    assert plain[-1]["replays"] == plain[-2]["replays"] and plain[-1]["others"] == plain[-2]["others"]
    assert plain[-1]["kernels"] - plain[-2]["kernels"] > 3


def test_a_replay_with_other_bits_is_not_used(stand_in):
    plain = trained(5)[1]
    stand_in.spoil = True
    net, values = trained(5, static_shape=True)
    for one, other in zip(plain, values, strict=True):
        np.testing.assert_array_equal(one, other)
    assert "the first replay of the forward gave other numbers than a plain run" in str(mx.explain(net))


def test_a_prediction_is_captured_and_parameters_may_change(stand_in):
    net = plain_net()
    net.initialize(ctx=GPU)
    net.hybridize(static_shape=True)
    for number in range(6):
        x = nd.array(np.random.RandomState(number).randn(4, 6), ctx=GPU)
        found = net(x).asnumpy()
        net.hybridize(False)
        np.testing.assert_allclose(net(x).asnumpy(), found, rtol=1e-5, atol=1e-6)
        object.__setattr__(net, "_active", True)
        if number == 3:
            net[0].weight.set_data(nd.ones((5, 6)))


def test_a_prediction_between_training_steps_stays_captured(stand_in, monkeypatch):
    """What is hoisted is made anew after every step, in other memory; no parameter has moved."""
    captures, capturing = [], StandIn.capture
    net = plain_net()
    net.initialize(ctx=GPU)
    net.hybridize(static_alloc=True, static_shape=True)
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.5})
    numbers = np.random.RandomState(0)

    def predicted(x):
        found = net(x).asnumpy()
        object.__setattr__(net, "_active", False)
        np.testing.assert_allclose(found, net(x).asnumpy(), rtol=1e-5, atol=1e-6)
        object.__setattr__(net, "_active", True)

    def step():
        with autograd.record():
            y = net(nd.array(numbers.randn(4, 6), ctx=GPU))
        y.backward()
        trainer.step(4)

    for _ in range(3):
        step()
        predicted(nd.array(numbers.randn(4, 6), ctx=GPU))
    monkeypatch.setattr(StandIn, "capture", lambda self, run: captures.append(run) or capturing(self, run))
    for _ in range(capture.CAPTURES + 2):
        step()
        predicted(nd.array(numbers.randn(4, 6), ctx=GPU))
    assert not captures
    assert "not captured" not in str(mx.explain(net))
    # Without a step in between, what is hoisted is not copied again: the data, and the output.
    x, replays = nd.array(numbers.randn(4, 6), ctx=GPU), stand_in.replays
    net(x)
    before = launches.snapshot()["others"]
    net(x)
    assert stand_in.replays == replays + 2 and launches.snapshot()["others"] == before + 2


def test_hoisted_values_are_told_apart_by_the_tensor_and_not_by_its_address():
    graph = graph_of(lambda F, x, w: x + w, (2,), (2,))
    steady = capture.Steady(graph)
    steady._hoisted, steady._stays = [False, True], [False, False]
    numbers = torch.zeros(2)
    x, held = torch.ones(2), numbers.view(2)
    steady.take([x, held])
    numbers += 1
    again = numbers.view(2)
    assert again.data_ptr() == held.data_ptr() and steady.serves([x, again])
    steady.fill([x, again])
    assert steady.inputs[1].tolist() == [1, 1]
    steady.forget()
    assert not steady.serves([x, again])


def test_gradients_that_always_lie_elsewhere_are_not_captured_each_time(stand_in, monkeypatch):
    captures, plain, kept = [], StandIn.capture, []
    monkeypatch.setattr(StandIn, "capture", lambda self, run: captures.append(run) or plain(self, run))
    net = plain_net()
    net.initialize(ctx=GPU)
    net.hybridize(static_shape=True)
    for number in range(12):
        x = nd.array(np.random.RandomState(number).randn(4, 6), ctx=GPU)
        x.attach_grad()
        kept.append(x)
        with autograd.record():
            y = net(x)
        y.backward()
    assert len(captures) == 1 + 1 + capture.CAPTURES + 2 < 12
    net.hybridize()
    found = x.grad.asnumpy()
    with autograd.record():
        y = net(x)
    y.backward()
    np.testing.assert_array_equal(x.grad.asnumpy(), found)


def test_a_capture_that_fails_leaves_the_stream_as_it_was(monkeypatch):
    """As torch does it: what ends the capture fails, too, and the stream of the capture stays the current one."""
    import torch

    streams = ["first"]

    class Graph:
        def __init__(self, graph, capture_error_mode):
            assert capture_error_mode == "thread_local"

        def __enter__(self):
            streams.append("capture")

        def __exit__(self, *error):
            raise RuntimeError("CUDA error: operation failed due to a previous error during capture")

    monkeypatch.setattr(torch.cuda, "CUDAGraph", object)
    monkeypatch.setattr(torch.cuda, "graph", Graph)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: streams[-1])
    monkeypatch.setattr(torch.cuda, "set_stream", streams.append)

    def failing():
        raise RuntimeError("CUDA error: operation not permitted when stream is capturing\nCompile with ...")

    with pytest.raises(RuntimeError) as caught:
        capture.by_torch(failing)
    assert streams == ["first", "capture", "first"]
    assert capture._failure(caught.value) == "it failed: CUDA error: operation not permitted when stream is capturing"


def test_a_forward_that_waits_for_its_backward_keeps_its_memory(stand_in):
    net = plain_net()
    net.initialize(ctx=GPU)
    net.hybridize(static_shape=True)
    xs = [nd.array(np.random.RandomState(number).randn(4, 6), ctx=GPU) for number in range(2)]

    def gradient(*order):
        with autograd.record():
            ys = [net(x) for x in xs]
        for number in order:
            ys[number].backward()
        return net[0].weight.grad(GPU).asnumpy()

    for _ in range(3):
        with autograd.record():
            y = net(xs[0])
        y.backward()
    expected = net[0].weight.grad(GPU).asnumpy()
    np.testing.assert_array_equal(gradient(1, 0), expected)
    np.testing.assert_array_equal(gradient(0, 1), gradient(0, 1))


def test_programs_that_draw_are_not_captured_and_draw_anew(stand_in):
    net = nn.HybridSequential()
    net.add(nn.Dense(8, in_units=4), nn.Dropout(0.5))
    net.initialize(ctx=GPU)
    net.hybridize(static_shape=True)
    x = nd.ones((4, 4), ctx=GPU)
    with autograd.record():
        masks = [net(x).asnumpy() != 0 for _ in range(4)]
    assert len({mask.tobytes() for mask in masks}) == 4
    assert "launches are not captured: it draws random numbers" in str(mx.explain(net))


@pytest.mark.skipif(ON_GPU, reason="a GPU captures")
def test_the_interpreter_says_that_it_captures_nothing():
    net = nn.Dense(2, in_units=3)
    net.initialize()
    net.hybridize(static_shape=True)
    net(nd.ones((1, 3)))
    assert "Triton's interpreter has no captured launches" in str(mx.explain(net))


def test_replays_on_two_streams_are_in_order(monkeypatch):
    """They read and write the same memory."""
    waited, streams = [], [7, 7, 0, 0, 7]
    monkeypatch.setattr(availability, "device", lambda: availability.Device("sm90", "cuda", False))
    monkeypatch.setattr(availability, "current_stream", lambda: streams.pop(0))
    monkeypatch.setattr(capture, "wait_for", waited.append)
    captured = capture._Capturing.__new__(capture._Capturing)
    captured._last = None
    while streams:
        captured._in_order()
    assert waited == [None, 7, 0]
