"""Recurrent layers in kernels: tiles of sequences and units with ragged ends, and whole networks with few launches."""

import numpy as np
import pytest

pytest.importorskip("triton")
pytest.importorskip("torch")

import hybrid_lab as mx
from hybrid_lab import autograd, gluon
from hybrid_lab.engines.triton.build.compiling import compile_all
from hybrid_lab.engines.triton.plan.other_batches import kernels_of
from hybrid_lab.engines.triton.run import kernel
from hybrid_lab.engines.triton.write.special import recurrence
from hybrid_lab.graph.builder import make_node
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import input_node
from hybrid_lab.ops.framework.operator import get
from tests.engines.test_triton import interpreter  # noqa: F401
from tests.engines.test_triton_rows import agree, data, op

GATES = {"rnn_relu": 1, "rnn_tanh": 1, "lstm": 4, "gru": 3}


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    monkeypatch.setattr(recurrence, "COLUMNS", 16)
    monkeypatch.setattr(recurrence, "INNER", 16)
    monkeypatch.setattr(kernel, "INTERPRETER_TILE", 4096)  # 16 sequences a program


def forward_graph(mode, steps, batch, hidden, lengths, **attributes):
    """The steps of one layer, and arrays for them."""
    rows = GATES[mode] * hidden
    shapes = {"projected": (steps, batch, rows), "weight": (rows, hidden)}
    shapes |= {"hidden_bias": (hidden,)} if mode == "gru" else {}
    shapes |= {"state": (batch, hidden)} | ({"cell": (batch, hidden)} if mode == "lstm" else {})
    return built("_recurrence", mode, shapes, steps, batch, lengths, attributes)


def backward_graph(mode, steps, batch, hidden, lengths, **attributes):
    """Their gradient; gates between 0 and 1, as they are."""
    whole, state = (steps, batch, hidden), (batch, hidden)
    shapes = {"dy": whole, "weight": (GATES[mode] * hidden, hidden), "dstate": state}
    gates = {"gates": (steps, batch, 4 * hidden)}
    shapes |= {"lstm": {"dcell": state, **gates, "cells": whole, "cell": state}, "gru": {**gates, "before": whole}}.get(
        mode, {"states": whole}
    )
    return built("_recurrence_grad", mode, shapes, steps, batch, lengths, attributes)


def built(name, mode, shapes, steps, batch, lengths, attributes):
    inputs = [input_node(key, shape=shape, dtype="float32") for key, shape in shapes.items()]
    arrays = {key: data(shape, number) * 0.5 for number, (key, shape) in enumerate(shapes.items())}
    if "gates" in arrays:
        arrays["gates"] = abs(np.tanh(arrays["gates"]))
    if lengths:
        inputs.append(input_node("sequence_length", shape=(batch,), dtype="int32"))
        arrays["sequence_length"] = np.random.RandomState(0).randint(0, steps + 1, batch).astype("int32")
    op = get(name).bind(mode=mode, use_sequence_length=lengths, **attributes)
    return Graph(inputs, make_node(op, inputs).outputs), arrays


@pytest.mark.parametrize("reverse, lengths", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("mode", ["lstm", "gru"])
def test_tiles_with_ragged_ends(mode, reverse, lengths):
    """17 sequences are two programs, 18 units two tiles of 16."""
    for make in (forward_graph, backward_graph):
        graph, arrays = make(mode, 2, 17, 18, lengths, reverse=reverse)
        assert [source.kind for source in kernels_of(graph)[2]] == ["pointwise", "recurrence"]
        agree(graph, **arrays)


@pytest.mark.parametrize("steps, batch, hidden", [(1, 1, 1), (1, 3, 2), (4, 1, 5), (2, 3, 1)])
@pytest.mark.parametrize("mode", GATES)
def test_sizes_of_one(mode, steps, batch, hidden):
    for make in (forward_graph, backward_graph):
        graph, arrays = make(mode, steps, batch, hidden, False)
        agree(graph, **arrays)


@pytest.mark.parametrize("kept", [(0,), (1,), (2,), (1, 2)])
def test_what_nobody_reads_is_not_stored(kept):
    graph, arrays = forward_graph("lstm", 3, 2, 5, False)
    graph = Graph(graph.inputs, [graph.outputs[index] for index in kept])
    assert len(kernels_of(graph)[2][-1].outputs) == len(kept)
    agree(graph, **arrays)
    graph, arrays = backward_graph("lstm", 3, 2, 5, False)
    graph = Graph(graph.inputs, [graph.outputs[index] for index in kept])
    agree(graph, **arrays)


def test_another_batch_and_length_run_the_same_kernel():
    def text(steps, batch):
        return kernels_of(forward_graph("lstm", steps, batch, 21, False)[0])[2][-1].code

    assert text(3, 4) == text(7, 9)


def test_weights_that_are_computed_go_to_all_layers():
    """Each part of them is cut from what is computed, and a recurrence takes no other operator into its kernel."""
    x, packed, state = (
        input_node(name, shape=shape, dtype="float32")
        for name, shape in (("x", (3, 2, 3)), ("packed", (48,)), ("state", (2, 2, 3)))
    )
    rnn = get("RNN").bind(state_size=3, num_layers=2, mode="rnn_relu", state_outputs=True).bind_mode(True)
    moved = op("broadcast_add", op("broadcast_mul", packed, 0.675), 0.15)
    graph = Graph([x, packed, state], make_node(rnn, [x, moved, state]).outputs[:1])
    assert "recurrence" in [source.kind for source in kernels_of(graph)[2]]
    agree(graph, x=data((3, 2, 3)), packed=data((48,), 1), state=data((2, 2, 3), 2))


class Words(gluon.HybridBlock):
    """A language model: words, two recurrent layers, scores."""

    def __init__(self, layer, **keywords):
        super().__init__()
        with self.name_scope():
            self.words = gluon.nn.Embedding(30, 6)
            self.layers = layer(5, num_layers=2, input_size=6, **keywords)
            self.scores = gluon.nn.Dense(30, flatten=False, in_units=5 * (2 if keywords.get("bidirectional") else 1))

    def hybrid_forward(self, F, words, *states):
        y = self.layers(self.words(words))
        return self.scores(y)


@pytest.mark.parametrize(
    "layer, keywords",
    [
        (gluon.rnn.LSTM, {}),
        (gluon.rnn.LSTM, {"dropout": 0.4}),
        pytest.param(gluon.rnn.LSTM, {"bidirectional": True}, marks=pytest.mark.long),
        (gluon.rnn.GRU, {"bidirectional": True, "dropout": 0.3}),
        pytest.param(gluon.rnn.RNN, {"activation": "tanh"}, marks=pytest.mark.long),
    ],
)
def test_a_language_model_is_wholly_in_kernels(layer, keywords):
    """The same losses, masks of dropout and gradients as eager, and nothing outside of kernels."""
    net = Words(layer, **keywords)
    equals_eager(net)
    assert not mx.explain(net).fallbacks


def test_an_lstm_with_a_projection_runs_without_kernels_of_its_steps():
    net = Words(gluon.rnn.LSTM, projection_size=5)
    equals_eager(net)
    fallbacks = mx.explain(net).fallbacks
    assert [each.split(":")[0] for each in fallbacks] == ["2 x _recurrence on torch", "2 x _recurrence_grad on torch"]


def equals_eager(net):
    mx.random.seed(3)
    net.initialize()
    words = mx.nd.array(np.random.RandomState(0).randint(0, 30, (4, 3)))

    def run():
        mx.random.seed(5)
        with autograd.record():
            y = net(words)
            loss = (y * y).sum()
        loss.backward()
        return [y.asnumpy(), *(item.grad().asnumpy() for item in net.collect_params().values())]

    eager = run()
    net.hybridize(engine="triton")
    for found, wanted in zip(run(), eager, strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-4 * abs(wanted).max())


@pytest.mark.long
@pytest.mark.parametrize("target", ["gfx942", "gfx1100", "sm90"])
def test_they_compile_for_gpus_without_spills(target):
    sources = [
        source
        for make in (forward_graph, backward_graph)
        for mode in ("lstm", "gru")
        for source in kernels_of(make(mode, 35, 32, 200, False)[0])[2]
    ]
    assert all(binary.resources.spills == 0 for binary in compile_all(sources, target))
