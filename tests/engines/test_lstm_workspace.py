"""LSTMs by oneDNN: what the forward keeps is nobody else's, and the numbers are the record's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hybrid_lab import autograd, engines, gluon, nd
from hybrid_lab.diagnostics.errors import EngineError
from hybrid_lab.engines.engine import SeparateTraining, Training
from hybrid_lab.graph import Graph, input_node
from hybrid_lab.graph.builder import Builder, Expr, make_node
from hybrid_lab.graph.call_graphs import Specialized
from hybrid_lab.graph.specialize import specialize
from hybrid_lab.ops.framework.operator import get as operator
from tests.graph.building import evaluate, graph_of, uniform

pytest.importorskip("torch")
from hybrid_lab.engines.torch_kernels import workspace  # noqa: E402
from hybrid_lab.engines.torch_kernels.workspace import WorkspaceTraining, rewritten  # noqa: E402

RNG = (0, 0)


def lstm(dtype: str = "float32", outputs: int | None = None, **attributes) -> tuple[Graph, list[tuple[int, ...]]]:
    """A graph of one operator over 5 steps, 3 sequences and 6 features, and the shapes of its inputs."""
    op = operator("RNN").bind(**{"mode": "lstm", "state_size": 4, "num_layers": 1, "state_outputs": True, **attributes})
    places = op.num_layers * op.sizes.directions
    shapes = [(5, 3, 6), (op.sizes.parameters(6),), (places, 3, op.sizes.units), (places, 3, 4)]
    inputs = [input_node(f"x{index}", shape=shape, dtype=dtype) for index, shape in enumerate(shapes[: len(op.roles)])]
    node = make_node(op, inputs, draw=0 if op.random else None)
    return Graph(inputs, node.outputs[: outputs or op.signature.visible], draws=int(op.random)), shapes[: len(op.roles)]


def parts_of(graph: Graph, shapes: list[tuple[int, ...]], dtype: str = "float32") -> Specialized:
    return specialize(graph, shapes, [dtype] * len(shapes), True, range(len(shapes)))


def training_of(parts: Specialized, engine: str = "torch", **options: bool) -> Training:
    assert parts.split is not None
    return engines.get(engine).compile_training(parts.split, **options)


def step(training: Training, parts: Specialized, arrays, last: bool = True) -> list[np.ndarray]:
    """Outputs and gradients; the head gradients are the cosines of the outputs."""
    results, kept = training.begin(arrays, RNG)
    given = {"input": arrays, "output": results, "saved": kept.saved, "head": [np.cos(result) for result in results]}
    operands = [given[kind][index] for kind, index in parts.sources]
    gradients = training.finish(kept, operands, RNG, last)
    if not last:
        again = training.finish(kept, operands, RNG, False)
        assert all(np.array_equal(one, two) for one, two in zip(gradients, again, strict=True))
    return [*results, *gradients]


def agree(found: list[np.ndarray], wanted: list[np.ndarray]) -> None:
    for one, two in zip(found, wanted, strict=True):
        assert one.dtype == two.dtype and one.flags.c_contiguous
        np.testing.assert_allclose(one, two, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize(("outputs", "static_alloc"), [(1, False), (2, True), (3, False)])
@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_values_and_gradients_are_the_records(bidirectional, layers, outputs, static_alloc):
    graph, shapes = lstm(outputs=outputs, num_layers=layers, bidirectional=bidirectional)
    parts, arrays = parts_of(graph, shapes), uniform(*shapes)
    training = training_of(parts, static_alloc=static_alloc)
    assert isinstance(training, WorkspaceTraining)
    wanted = step(training_of(parts, "numpy"), parts, arrays)
    for last in (True, False, True):
        agree(step(training, parts, arrays, last), wanted)


def test_without_state_outputs():
    graph, shapes = lstm(state_outputs=False, num_layers=2)
    parts, arrays = parts_of(graph, shapes), uniform(*shapes)
    training = training_of(parts)
    assert isinstance(training, WorkspaceTraining)
    agree(step(training, parts, arrays), step(training_of(parts, "numpy"), parts, arrays))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e30])
def test_numbers_that_are_none_arrive_where_the_record_has_them(bad):
    graph, shapes = lstm()
    parts, arrays = parts_of(graph, shapes), uniform(*shapes)
    arrays[0][2, 1, 3] = bad
    with np.errstate(all="ignore"):
        wanted = step(training_of(parts, "numpy"), parts, arrays)
        agree(step(training_of(parts), parts, arrays), wanted)


def test_many_forwards_wait_for_their_backwards():
    graph, shapes = lstm(num_layers=2)
    parts = parts_of(graph, shapes)
    training, numpy = training_of(parts, static_alloc=True), training_of(parts, "numpy")
    cases = [uniform(*shapes, seed=seed) for seed in range(3)]
    begun = [training.begin(arrays, RNG) for arrays in cases]
    for arrays, (results, kept) in zip(cases, begun, strict=True):
        given = {"input": arrays, "output": results, "saved": kept.saved, "head": [np.cos(each) for each in results]}
        found = training.finish(kept, [given[kind][index] for kind, index in parts.sources], RNG)
        agree([*results, *found], step(numpy, parts, arrays))


def test_what_a_failed_backward_overwrote_is_refused():
    graph, shapes = lstm()
    parts, arrays = parts_of(graph, shapes), uniform(*shapes)
    training = training_of(parts)
    results, kept = training.begin(arrays, RNG)
    given = {"input": arrays, "output": results, "saved": kept.saved, "head": results}
    operands = [given[kind][index] for kind, index in parts.sources]
    kept.kept.spent = True
    with pytest.raises(EngineError, match="run the forward again"):
        training.finish(kept, operands, RNG)


def test_what_others_may_read_is_as_the_graphs_say():
    """Forward and backward alone keep the record's gates and cells."""
    graph, shapes = lstm(num_layers=2)
    parts, arrays = parts_of(graph, shapes), uniform(*shapes)
    training = training_of(parts)
    wanted = evaluate(parts.forward, arrays)
    agree(training.forward(arrays), wanted)
    apart = SeparateTraining(training.forward, training.backward, 3)
    agree(step(apart, parts, arrays), step(training, parts, arrays))
    inner = training.begin(arrays, RNG)[1]
    assert inner.saved == [None] * 3


def test_states_that_one_number_fills():
    """A broadcast state is a view of one number, and oneDNN reads as many as there are."""
    attributes = {"mode": "lstm", "state_size": 40, "num_layers": 2}
    shapes = [(5, 16, 24), (operator("RNN").bind(**attributes).sizes.parameters(24),)]

    def layers(F, x, parameters):
        first = F.slice_axis(F.slice_axis(x, axis=2, begin=0, end=1), axis=0, begin=0, end=2)
        state = F.broadcast_axis(first, axis=2, size=40)
        return F.RNN(x, parameters, state, state, **attributes)

    parts = parts_of(graph_of(layers, *shapes), shapes)
    arrays = [np.float32(0.1) * array for array in uniform(*shapes)]
    training = training_of(parts)
    assert isinstance(training, WorkspaceTraining)
    agree(step(training, parts, arrays), step(training_of(parts, "numpy"), parts, arrays))


def test_layers_among_other_operators():
    """Two LSTMs, and saved values that are not theirs."""
    op = operator("RNN").bind(mode="lstm", state_size=6, num_layers=1)
    shapes = [(5, 3, 6), (op.sizes.parameters(6),), (op.sizes.parameters(6),), (1, 3, 6), (1, 3, 6), (6, 6)]
    inputs = [input_node(f"x{index}", shape=shape, dtype="float32") for index, shape in enumerate(shapes)]
    F = Builder()
    x, first, second, state, cell, weight = (Expr(F, value) for value in inputs)
    (y,) = make_node(op, [F.tanh(F.dot(x, weight)).value, first.value, state.value, cell.value]).outputs[:1]
    hidden = F.sigmoid(F.dot(Expr(F, y), weight))
    (z,) = make_node(op, [hidden.value, second.value, state.value, cell.value]).outputs[:1]
    parts, arrays = parts_of(Graph(inputs, [z, F.exp(hidden).value]), shapes), uniform(*shapes)
    training = training_of(parts)
    assert isinstance(training, WorkspaceTraining)
    saved = training.begin(arrays, RNG)[1].saved
    assert sum(value is None for value in saved) == 4 and any(value is not None for value in saved)
    agree(step(training, parts, arrays), step(training_of(parts, "numpy"), parts, arrays))


@pytest.mark.parametrize(
    ("dtype", "attributes"),
    [
        ("float64", {}),
        ("float32", {"mode": "gru"}),
        ("float32", {"num_layers": 2, "p": 0.5}),
        ("float32", {"lstm_state_clip_min": -0.1, "lstm_state_clip_max": 0.1}),
        ("float32", {"projection_size": 3}),
    ],
    ids=["float64", "gru", "dropout", "clip", "projection"],
)
def test_what_stays_as_it_is(dtype, attributes):
    graph, shapes = lstm(dtype, **attributes)
    parts = parts_of(graph, shapes, dtype)
    assert rewritten(parts.split) is None


def test_a_processor_without_the_primitive(monkeypatch):
    import torch

    def refuse(*given):
        raise RuntimeError("could not create a primitive descriptor")

    monkeypatch.setattr(torch.ops.aten.mkldnn_rnn_layer, "default", refuse)
    workspace._workspace.cache_clear()
    graph, shapes = lstm()
    parts, arrays = parts_of(graph, shapes), uniform(*shapes)
    training = training_of(parts)
    workspace._workspace.cache_clear()
    assert not isinstance(training, WorkspaceTraining)
    agree(step(training, parts, arrays), step(training_of(parts, "numpy"), parts, arrays))


def test_saved_values_that_somebody_else_reads_stay_as_they_are():
    graph, shapes = lstm()
    split = parts_of(graph, shapes).split
    twice = Graph(split.forward.inputs, (split.forward.outputs[-1], *split.forward.outputs))
    assert rewritten(replace(split, forward=twice)) is None
    assert rewritten(split) is not None


def test_a_layer_trains_alike_in_torch_and_numpy():
    x = nd.array(uniform((7, 4, 5))[0])
    found = {}
    for engine in ("torch", "numpy"):
        net = gluon.rnn.LSTM(6, num_layers=2, bidirectional=True, input_size=5, prefix="lstm_")
        net.initialize()
        for index, parameter in enumerate(net.collect_params().values()):
            parameter.set_data(nd.array(uniform(parameter.shape, seed=index)[0]))
        net.hybridize(engine=engine)
        trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9})
        for _ in range(3):
            with autograd.record():
                loss = (net(x) ** 2).mean()
            loss.backward()
            trainer.step(1)
        found[engine] = [parameter.data().asnumpy() for parameter in net.collect_params().values()]
        if engine == "torch":
            (compiled,) = net._graph_calls.programs.values()
            assert not compiled.forward.report.fallbacks and len(compiled.forward.report.regions) == 1
            assert "torch_lstm" in compiled.forward.report.regions[0].operators
    agree(found["torch"], found["numpy"])
