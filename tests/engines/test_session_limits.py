"""Sessions within limits: forms of a few nodes, sessions that are given up, interrupts that come through."""

from __future__ import annotations

import _thread
import logging
import threading

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, gluon
from hybrid_lab.diagnostics.errors import EngineError
from hybrid_lab.engines.engine import Executable
from hybrid_lab.gluon import nn
from hybrid_lab.graph.builder import make_node
from hybrid_lab.graph.node import Node, input_node
from hybrid_lab.ops.framework.operator import get as operator
from hybrid_lab.ops.framework.run import run_kernel
from tests.graph.building import graph_of, uniform

ort = pytest.importorskip("onnxruntime")
from hybrid_lab.engines.onnxruntime import OnnxRuntimeEngine, loading, model, session  # noqa: E402
from tests.engines.test_onnxruntime import close  # noqa: E402

ALWAYS = OnnxRuntimeEngine(worth=lambda region: None)


# -- forms ---------------------------------------------------------------------------------------------------------


def node_of(name: str, *shapes: tuple[int, ...], **attributes: object) -> Node:
    inputs = [input_node(f"x{index}", shape=shape, dtype=np.dtype("float32")) for index, shape in enumerate(shapes)]
    return make_node(operator(name).bind(**attributes), inputs)


def weight_gradient(data: tuple[int, ...], filters: int, **attributes: object) -> Node:
    name, attributes = "_conv_weight_grad", {"num_filter": filters, **attributes}
    record = operator(name).bind(**attributes)
    return node_of(name, record.output_shape(data), data, record.weight_shape(data[1]), **attributes)


LARGE_KERNELS = {
    "line": weight_gradient((2, 3, 200), 4, kernel=(100,), pad=(7,)),
    "image": weight_gradient((2, 3, 20, 21), 4, kernel=(17, 16)),
    "whole image": weight_gradient((2, 3, 40, 40), 4, kernel=(40, 40)),
    "volume": weight_gradient((2, 2, 7, 8, 9), 3, kernel=(5, 5, 4)),
    "strides with a rest": weight_gradient((2, 3, 30, 33), 4, kernel=(9, 10), stride=(2, 3), pad=(1, 4)),
    "dilated": weight_gradient((2, 3, 40, 31), 4, kernel=(9, 9), dilate=(3, 2), stride=(2, 1), pad=(2, 0)),
    "groups": weight_gradient((2, 6, 20, 20), 4, kernel=(9, 9), num_group=2, stride=(2, 1)),
    "depthwise": weight_gradient((3, 4, 20, 20), 8, kernel=(9, 8), num_group=4, pad=(3, 3)),
    "transposed": node_of(
        "_deconv_weight_grad", (2, 4, 29, 28), (2, 3, 11, 10), (3, 4, 9, 10),
        kernel=(9, 10), stride=(2, 2), num_filter=4,
    ),
    "transposed groups": node_of(
        "_deconv_weight_grad", (2, 4, 19, 19), (2, 6, 11, 11), (6, 2, 9, 9),
        kernel=(9, 9), num_group=2, num_filter=4,
    ),
}  # fmt: skip


@pytest.mark.parametrize("node", LARGE_KERNELS.values(), ids=LARGE_KERNELS)
def test_weight_gradients_of_large_kernels_are_a_few_nodes(node: Node):
    emitter = model.RegionEmitter()
    model.emit(emitter, node, {})
    assert len(emitter.nodes) < 12
    arrays = uniform(*(value.shape for value in node.values_in))
    graph = mx.graph.Graph(node.values_in, node.outputs)
    executable = ALWAYS.compile(graph)
    assert executable.report.operators["onnxruntime"] == 1
    assert close(executable(arrays)[0], run_kernel(node.op, arrays)[0], 1e-4)


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        (node_of("im2col", (1, 1, 60, 60), kernel=(40, 40)), "window of 1600 places"),
        (node_of("_channel_window_sum", (1, 4000, 2), nsize=3), "MB of constants"),
    ],
    ids=["im2col", "window sum"],
)
def test_forms_with_too_large_constants_are_refused(node: Node, reason: str):
    assert reason in str(model.refusal_of_form(node))


def test_a_form_of_too_many_nodes_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(model, "MOST_NODES", -8)
    reason = str(model.refusal_of_form(node_of("softmax", (2, 3))))
    assert "nodes, over which ONNX Runtime would take too long" in reason


# -- waiting -------------------------------------------------------------------------------------------------------


@pytest.fixture
def blocked(monkeypatch: pytest.MonkeyPatch):
    """onnxruntime makes no session before this event is set; `waiting` is set as soon as one is asked for."""
    event = threading.Event()
    event.waiting = threading.Event()  # type: ignore[attr-defined]
    make = ort.InferenceSession

    def blocking(*given, **named):
        event.waiting.set()
        assert event.wait(60)
        return make(*given, **named)

    session._shared.clear()
    session._given_up.clear()
    monkeypatch.setattr(ort, "InferenceSession", blocking)
    yield event
    event.set()
    session._given_up.clear()


def convolutional() -> gluon.HybridBlock:
    mx.random.seed(3)
    net = nn.HybridSequential()
    net.add(nn.Conv2D(8, 3, in_channels=3, activation="relu"), nn.Dense(4, in_units=8 * 14 * 14))
    net.initialize()
    return net


def interrupt_when(event: threading.Event) -> None:
    """Ctrl-C in the main thread as soon as the event is set."""
    threading.Thread(target=lambda: event.wait(60) and _thread.interrupt_main()).start()


@pytest.mark.parametrize("recorded", [False, True])
def test_an_interrupt_comes_through_while_a_session_is_made(blocked, recorded: bool):
    net, (x,) = convolutional(), uniform((8, 3, 16, 16))
    expected = net(mx.nd.array(x)).asnumpy()
    net.hybridize(engine="onnxruntime")
    interrupt_when(blocked.waiting)
    with pytest.raises(KeyboardInterrupt):
        if recorded:
            with autograd.record():
                net(mx.nd.array(x))
        else:
            net(mx.nd.array(x))
    assert not autograd.is_recording()
    blocked.set()
    assert close(net(mx.nd.array(x)).asnumpy(), expected)
    with autograd.record():
        loss = net(mx.nd.array(x)).sum()
    loss.backward()
    assert np.isfinite(net[0].weight.grad().asnumpy()).all()


def test_a_session_that_takes_too_long_is_given_up(blocked, monkeypatch: pytest.MonkeyPatch, caplog):
    monkeypatch.setattr(session, "LONGEST", 0.2)
    monkeypatch.setattr(session, "LONGEST_PER_NODE", 0.0)
    graph, (x,) = graph_of(lambda F, x: F.exp(x) * 2.0, (3, 4)), uniform((3, 4))
    with caplog.at_level(logging.WARNING):
        executable = ALWAYS.compile(graph)
        again = ALWAYS.compile(graph)
    for made in (executable, again):
        assert close(made([x])[0], np.exp(x) * 2)
        assert {"numpy": 2, "onnxruntime": 0} == made.report.operators
        assert all("no session ready" in item.reason for item in made.report.fallbacks)
    assert sum("no session ready" in record.message for record in caplog.records) == 1


def test_every_error_of_onnxruntime_is_one_of_those_that_are_caught():
    from onnxruntime.capi import onnxruntime_pybind11_state as native

    own = [item for item in vars(native).values() if isinstance(item, type) and issubclass(item, BaseException)]
    assert len(own) > 5 and all(issubclass(item, loading.native_errors()) for item in own)
    with pytest.raises(EngineError, match="Failed to load model|protobuf"):
        session.create_session(b"no model")


def test_packed_weights_that_take_too_long_are_left_alone(blocked, monkeypatch: pytest.MonkeyPatch, caplog):
    net, (x,) = convolutional(), uniform((8, 3, 16, 16))
    expected = net(mx.nd.array(x)).asnumpy()
    net.hybridize(engine="onnxruntime")
    blocked.set()
    assert close(net(mx.nd.array(x)).asnumpy(), expected)
    blocked.clear()
    monkeypatch.setattr(session, "LONGEST", 0.2)
    with caplog.at_level(logging.WARNING):
        for _ in range(4):
            assert close(net(mx.nd.array(x)).asnumpy(), expected)
    assert sum("no session ready" in record.message for record in caplog.records) == 1
    net[0].weight.set_data(net[0].weight.data() * 0)
    changed = net(mx.nd.array(x)).asnumpy()
    assert close(changed, np.broadcast_to(changed[:1], changed.shape)) and not close(changed, expected)


def test_no_weights_stay_packed_after_an_interrupt(monkeypatch: pytest.MonkeyPatch):
    """Two regions, of which the second is interrupted while its weights are packed: neither keeps the old ones."""
    net, (x,) = convolutional(), uniform((8, 3, 16, 16))
    net.hybridize(engine="onnxruntime")
    net(mx.nd.array(x))
    pack, unpacked = session.BoundSession.pack, []

    def interrupted(self, *given):
        pack(self, *given)
        raise KeyboardInterrupt

    monkeypatch.setattr(session.BoundSession, "pack", interrupted)
    monkeypatch.setattr(session.BoundSession, "unpack", lambda self: unpacked.append(self))
    with pytest.raises(KeyboardInterrupt):
        for _ in range(3):
            net(mx.nd.array(x))
    assert unpacked


def test_what_waits_for_nothing_adds_nothing():
    assert loading.load(lambda: 5, lambda: None, 10.0) == 5
    with pytest.raises(ValueError, match="its own"):
        loading.load(lambda: int("its own"), lambda: None, 10.0)


def test_executables_say_what_was_given_up(blocked, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(session, "LONGEST", 0.1)
    made: Executable = ALWAYS.compile(graph_of(lambda F, x: F.exp(x) * 3.0, (3, 4)))
    assert "no session ready" in str(made.report)
