"""Recurrent layers and cells against the real MXNet (tests/golden/rnn): outputs, gradients, files."""

from __future__ import annotations

import pathlib

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, gluon, nd
from hybrid_lab.gluon import contrib, rnn

HERE = pathlib.Path(__file__).parents[2] / "golden" / "rnn"
ARRAYS = np.load(HERE / "rnn.npz")

LAYERS = {
    f"{name}{layers}{'b' if both else ''}{layout}": (
        name,
        {"hidden_size": 4, "num_layers": layers, "bidirectional": both, "layout": layout, **extra},
    )
    for name, extra in (("RNN", {"activation": "tanh"}), ("LSTM", {}), ("GRU", {}))
    for layers, both, layout in ((1, False, "TNC"), (2, False, "NTC"), (2, True, "TNC"))
} | {"relu": ("RNN", {"hidden_size": 4, "num_layers": 2, "activation": "relu"})}

CELLS = {
    "RNNCell": lambda: rnn.RNNCell(4),
    "LSTMCell": lambda: rnn.LSTMCell(4),
    "GRUCell": lambda: rnn.GRUCell(4),
    "LSTMP": lambda: contrib.rnn.LSTMPCell(5, 3),
    "Residual": lambda: rnn.ResidualCell(rnn.GRUCell(6)),
    "Bidirectional": lambda: rnn.BidirectionalCell(rnn.LSTMCell(4), rnn.LSTMCell(3)),
}


def golden(case: str) -> dict[str, np.ndarray]:
    start = case + "/"
    return {key[len(start) :]: ARRAYS[key] for key in ARRAYS.files if key.startswith(start)}


def heads(shape) -> np.ndarray:
    """The head gradients of make_rnn.py."""
    count = int(np.prod(shape))
    return (((np.arange(count) * 7919) % 41 - 20) / 16.0).reshape(shape).astype(np.float32)


def close(actual, wanted, tolerance) -> None:
    actual = actual.asnumpy() if hasattr(actual, "asnumpy") else actual
    assert actual.shape == wanted.shape
    np.testing.assert_allclose(actual, wanted, rtol=0, atol=tolerance * np.abs(wanted).max())


def check(net, facts, call, states) -> None:
    """Fill in MXNet's parameters, run, and compare outputs and all gradients."""
    arrays = {name: nd.array(facts[name]) for name in ("x", *states)}
    call(arrays["x"], [nd.array(facts[name]) for name in states])
    parameters = net._collect_params_with_prefix()
    assert {name for name in facts if f"d{name}" in facts} == {*parameters, *arrays}
    for path, parameter in parameters.items():
        parameter.set_data(facts[path])
    for array in arrays.values():
        array.attach_grad()
    with autograd.record():
        y, new = call(arrays["x"], [arrays[name] for name in states])
    outputs = [y, *new]
    autograd.backward(outputs, [nd.array(heads(item.shape)) for item in outputs])
    close(y, facts["y"], 1e-5)
    for index, state in enumerate(new):
        close(state, facts[f"new{index}"], 1e-5)
    for name, array in arrays.items():
        close(array.grad, facts[f"d{name}"], 1e-4)
    for path, parameter in parameters.items():
        close(parameter.grad(), facts[f"d{path}"], 1e-4)


@pytest.mark.parametrize("hybrid", [False, True])
@pytest.mark.parametrize("case", LAYERS)
def test_layers(case: str, hybrid: bool):
    name, keywords = LAYERS[case]
    facts = golden(case)
    net = getattr(rnn, name)(**keywords)
    net.initialize()
    if hybrid:
        net.hybridize(engine="numpy")
    check(net, facts, net, [key for key in facts if key.startswith("state")])


@pytest.mark.parametrize("hybrid", [False, True])
@pytest.mark.parametrize("lengths", [False, True])
@pytest.mark.parametrize("case", CELLS)
def test_unrolled_cells(case: str, lengths: bool, hybrid: bool):
    facts = golden(f"{case}+lengths" if lengths else case)
    valid = nd.array([5, 2, 3]) if lengths else None
    net = CELLS[case]()
    net.initialize()
    if hybrid:
        net.hybridize(engine="numpy")

    def call(x, states):
        return net.unroll(5, x, states, merge_outputs=True, valid_length=valid)

    check(net, facts, call, [key for key in facts if key.startswith("state")])


@pytest.mark.parametrize("hybrid", [False, True])
@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_convolutional_cells(kind: str, rank: int, hybrid: bool):
    case = f"Conv{rank}D{kind}Cell"
    facts = golden(case)
    shape = (2, 5, 4, 6)[: rank + 1]
    net = getattr(contrib.rnn, case)(shape, 3, i2h_kernel=3, h2h_kernel=3, i2h_pad=1, h2h_dilate=2)
    net.initialize()
    for path, parameter in net._collect_params_with_prefix().items():
        parameter.set_data(facts[path])
    if hybrid:
        net.hybridize(engine="numpy")
    y, states = net.unroll(3, nd.array(facts["x"]), layout="NTC" + "DHW"[3 - rank :], merge_outputs=True)
    close(y, facts["y"], 1e-5)
    for index, state in enumerate(states):
        close(state, facts[f"new{index}"], 1e-5)


def test_parameters_of_mxnet_are_loaded():
    net = rnn.LSTM(4, 2, bidirectional=True)
    net.load_parameters(HERE / "lstm.params")
    facts = golden("LSTM2bTNC")
    y, _ = net(nd.array(facts["x"]), [nd.array(facts["state0"]), nd.array(facts["state1"])])
    close(y, facts["y"], 1e-5)


def test_parameters_are_written_as_mxnet_writes_them(tmp_path):
    net = rnn.LSTM(4, 2, bidirectional=True)
    net.load_parameters(HERE / "lstm.params")
    net.save_parameters(tmp_path / "lstm.params")
    assert (tmp_path / "lstm.params").read_bytes() == (HERE / "lstm.params").read_bytes()


@pytest.mark.parametrize("engine", [None, "numpy", "onnxruntime"])
def test_an_exported_model_whose_states_begin_with_zeros_of_any_batch(engine):
    """The file has `_zeros` of shape (2, 0, 4): the batch follows from the data."""
    net = gluon.SymbolBlock.imports(str(HERE / "words-symbol.json"), ["data"], str(HERE / "words-0000.params"))
    if engine:
        pytest.importorskip(engine)
        net.hybridize(engine=engine)
    x = nd.array(ARRAYS["words/x"])
    close(net(x), ARRAYS["words/y"], 1e-5)
    close(net(x[:2]), ARRAYS["words/y"][:2], 1e-5)


def test_open_zeros_are_written_back_as_they_were(tmp_path):
    symbol = mx.sym.load(str(HERE / "words-symbol.json"))
    again = mx.sym.load_json(symbol.tojson())
    nodes = [node for node in again._nodes() if node.op.name == "_zeros"]
    assert [node.op.shape for node in nodes] == [(2, 0, 4)] * 2
    _, (shape,), _ = again.infer_shape(data=(3, 6))
    assert shape == (3, 6, 7)
