"""The fused recurrent operator: in prediction, with lengths, in ONNX; what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

from hybrid_lab import nd
from hybrid_lab.diagnostics.errors import AttributeSpecError, DTypeError, ShapeError
from hybrid_lab.engines.onnxruntime.model import refusal
from hybrid_lab.graph.passes.bind_mode import bind_mode
from hybrid_lab.ops.framework.namespace import F
from hybrid_lab.ops.framework.run import infer, run_gradient, run_kernel
from hybrid_lab.ops.rnn.rnn import RNN
from tests.graph.building import graph_of
from tests.ops.cases import CASES, RNG, Case, close
from tests.ops.onnx_model import run_model

ALL = [case for case in CASES if case.record is RNN]
each = pytest.mark.parametrize("case", ALL, ids=[case.id for case in ALL])


@each
def test_prediction_keeps_nothing_and_drops_nothing(case: Case):
    op = case.op.bind_mode(False)
    assert op.signature.outputs == op.signature.visible and not op.random
    without = case.record.bind(**{**case.sample.attributes, "p": 0.0}).bind_mode(True)
    for y, wanted in zip(run_kernel(op, case.inputs()), run_kernel(without, case.inputs())):
        close(y, wanted, 1e-6)


@each
def test_a_backward_in_prediction_computes_the_forward_again(case: Case):
    op = case.op.bind_mode(False)
    without = case.record.bind(**{**case.sample.attributes, "p": 0.0}).bind_mode(True)
    gradients = []
    for each in (op, without):
        outputs = run_kernel(each, case.inputs())
        heads = [np.linspace(-1, 1, y.size).reshape(y.shape).astype(y.dtype) for y in outputs[: op.signature.visible]]
        gradients.append(run_gradient(each, F, case.inputs(), outputs, heads))
    for dx, wanted in zip(*gradients):
        assert (dx is None) == (wanted is None)
        if dx is not None:
            close(dx, wanted, 1e-5)


@pytest.mark.parametrize("case", [c for c in ALL if c.sample.dtype == "float32"], ids=lambda case: case.id)
def test_onnx_equals_numpy_in_prediction(case: Case):
    if "lstm_state_clip_min" in case.sample.attributes:
        pytest.skip("ONNX clips something else")
    if "projection_size" in case.sample.attributes:
        pytest.skip("ONNX has no projection")
    op = case.op.bind_mode(False)
    inputs = case.inputs()
    tolerance = 1e-4 if case.sample.attributes["mode"] == "rnn_tanh" else 1e-5
    for y, wanted in zip(run_model(op, inputs), run_kernel(op, inputs), strict=True):
        close(y, wanted, tolerance)


def test_the_engine_leaves_an_rnn_with_tanh_to_numpy():
    (case,) = [case for case in ALL if case.id == "RNN-0"]
    assert case.sample.attributes["mode"] == "rnn_tanh"
    graph = graph_of(lambda F, *inputs: F.RNN(*inputs, **case.sample.attributes), *map(np.shape, case.inputs()))
    graph = bind_mode(graph, train=False)
    (node,) = graph.operators
    assert "off by 1e-7" in refusal(node)


def lstm(**attributes):
    return RNN.bind(mode="lstm", state_size=4, num_layers=2, **attributes).bind_mode(True)


def arrays(op, steps=5, batch=3, width=6, seed=0):
    generator = np.random.RandomState(seed)
    shapes = op.complete((steps, batch, width), *(None,) * (len(op.signature.inputs) - 1))
    return [generator.uniform(-0.5, 0.5, shape).astype(np.float32) for shape in shapes]


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("projection", [None, 3])
def test_lengths_are_the_sequences_cut_short(bidirectional: bool, projection: int | None):
    whole = lstm(bidirectional=bidirectional, state_outputs=True, projection_size=projection)
    op = whole.variant(use_sequence_length=True)
    x, parameters, h, c, _ = arrays(op)
    lengths = np.array([2, 5, 0], "int32")
    y, final, cell, *_ = run_kernel(op, [x, parameters, h, c, lengths])
    for number, length in enumerate(lengths):
        part = slice(number, number + 1)
        alone = run_kernel(whole, [x[:length, part], parameters, h[:, part], c[:, part]])
        close(y[:length, part], alone[0])
        assert not y[length:, part].any()
        close(final[:, part], alone[1])
        close(cell[:, part], alone[2])


@pytest.mark.parametrize("projection", [None, 3])
def test_what_lies_behind_the_end_is_not_read(projection: int | None):
    op = lstm(use_sequence_length=True, bidirectional=True, projection_size=projection)
    x, parameters, h, c, _ = arrays(op)
    lengths = np.array([2, 5, 1], "int32")
    y = run_kernel(op, [x, parameters, h, c, lengths])
    x[2:, 0] = x[1:, 2] = np.nan
    again = run_kernel(op, [x, parameters, h, c, lengths])
    np.testing.assert_array_equal(again[0], y[0])
    gradients = run_gradient(op, F, [x, parameters, h, c, lengths], again, [np.ones_like(y[0])])
    assert all(np.isfinite(dx).all() for dx in gradients[:4])


def test_dropout_between_the_layers_depends_on_the_draw_alone():
    op = lstm(p=0.5)
    inputs = arrays(op)
    first, again, other = (run_kernel(op, inputs, rng=rng) for rng in (RNG, RNG, (RNG[0], RNG[1] + 1)))
    np.testing.assert_array_equal(first[0], again[0])
    assert np.abs(first[0] - other[0]).max() > 0
    mask = first[-1]
    assert mask.shape == (1, 5, 3, 4) and mask.dtype == bool and 0 < mask.mean() < 1
    projected = lstm(p=0.5, projection_size=3)
    assert run_kernel(projected, arrays(projected), rng=RNG)[-1].shape == (1, 5, 3, 3)


@pytest.mark.parametrize("projection", [None, 3])
def test_a_clipped_cell_state_stays_in_its_bounds(projection: int | None):
    bounds = {"lstm_state_clip_min": -0.01, "lstm_state_clip_max": 0.02}
    op = lstm(**bounds, state_outputs=True, projection_size=projection)
    cell = run_kernel(op, arrays(op))[2]
    assert cell.min() == np.float32(-0.01) and cell.max() == np.float32(0.02)


def test_nan_is_clipped_on_request_only():
    for numbers in (False, True):
        op = lstm(lstm_state_clip_min=-1, lstm_state_clip_max=1, lstm_state_clip_nan=numbers, state_outputs=True)
        inputs = arrays(op)
        inputs[3][:] = np.nan
        cell = run_kernel(op, inputs)[2]
        assert np.isnan(cell).any() != numbers


def test_the_size_of_the_parameters_follows_from_the_data():
    op = RNN.bind(mode="gru", state_size=4, num_layers=2, bidirectional=True)
    assert op.complete((5, 3, 6), None, None) == ((5, 3, 6), (2 * 12 * (6 + 6) + 2 * 12 * (8 + 6),), (4, 3, 4))
    assert op.complete((5, None, None), None, (4, 3, 4)) == ((5, 3, None), None, (4, 3, 4))
    assert op.complete(None, None, None) == (None, None, (4, None, 4))


@pytest.mark.parametrize("projection", [None, 3])
def test_empty_sequences_and_batches(projection):
    for steps, batch in ((0, 3), (5, 0)):
        op = lstm(state_outputs=True, projection_size=projection)
        inputs = arrays(op, steps, batch)
        y, h, c, *_ = outputs = run_kernel(op, inputs)
        assert y.shape == (steps, batch, projection or 4)
        np.testing.assert_array_equal(h, inputs[2])
        heads = [np.ones_like(item) for item in (y, h, c)]
        dx, dparameters, dh, _ = run_gradient(op, F, inputs, outputs, heads)
        assert dx.shape == inputs[0].shape and not dparameters.any()
        np.testing.assert_array_equal(dh, np.ones_like(dh))


@pytest.mark.parametrize(
    "attributes, text",
    [
        ({"mode": "gru", "projection_size": 3}, "projection_size needs mode='lstm'"),
        ({"projection_size": 0}, "projection_size=0"),
        ({"state_size": 0}, "state_size=0"),
        ({"p": 1.0}, "p=1.0"),
        ({"lstm_state_clip_min": 0.0}, "must be given together"),
        ({"mode": "gru", "lstm_state_clip_min": 0.0, "lstm_state_clip_max": 1.0}, "needs mode='lstm'"),
        ({"mode": "elman"}, "'elman' is not one of"),
    ],
)
def test_what_is_refused(attributes, text):
    with pytest.raises(AttributeSpecError, match=text):
        RNN.bind(**{"mode": "lstm", "state_size": 4, "num_layers": 1, **attributes})


def test_wrong_shapes_and_dtypes_are_named():
    op = lstm()
    shapes = tuple(item.shape for item in arrays(op))
    kinds = (np.dtype("float32"),) * 4
    with pytest.raises(ShapeError, match=r"parameters has shape \(7,\); data \(5, 3, 6\) needs \(352,\)"):
        infer(op, (shapes[0], (7,), *shapes[2:]), kinds)
    with pytest.raises(ShapeError, match=r"\(steps, batch, features\) is needed"):
        infer(op, ((5, 3), *shapes[1:]), kinds)
    with pytest.raises(DTypeError, match="state is float64"):
        infer(op, shapes, (*kinds[:2], np.dtype("float64"), kinds[3]))
    with pytest.raises(DTypeError, match="floating numbers are needed"):
        infer(op, shapes, (np.dtype("int32"),) * 4)


def test_nd_function():
    x = nd.ones((5, 3, 6))
    y = nd.RNN(x, nd.ones((48,)), nd.zeros((1, 3, 4)), state_size=4, num_layers=1, mode="rnn_relu")
    assert y.shape == (5, 3, 4)
