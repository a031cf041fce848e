"""gluon.rnn.LSTM with projection_size: against the real MXNet (tests/golden/rnn/make_projected.py), engines, files."""

from __future__ import annotations

import os
import subprocess

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, gluon, nd
from hybrid_lab.diagnostics.errors import AttributeSpecError, HybridLabError, ShapeError
from hybrid_lab.gluon import nn, rnn
from tests.formats.mxnet.test_mxnet_files_of_blocks import ORACLE
from tests.gluon.rnn.test_rnn_golden import HERE, check, close

ARRAYS = np.load(HERE / "projected.npz")
#: Those of make_projected.py.
CASES = {
    "1TNC": {"num_layers": 1},
    "2bTNC": {"num_layers": 2, "bidirectional": True},
    "2NTC": {"num_layers": 2, "layout": "NTC"},
    "wide": {"num_layers": 1, "bidirectional": True, "projection_size": 7},
}
ENGINES = ["numpy", "onnxruntime", "torch"]


def layer(case: str, **more) -> rnn.LSTM:
    return rnn.LSTM(5, **{"projection_size": 3, "prefix": "lstm_", **CASES[case], **more})


def golden(case: str) -> dict[str, np.ndarray]:
    return {key.removeprefix(f"{case}/"): ARRAYS[key] for key in ARRAYS.files if key.startswith(f"{case}/")}


@pytest.mark.parametrize("hybrid", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_outputs_and_gradients_are_those_of_mxnet(case: str, hybrid: bool):
    net, facts = layer(case), golden(case)
    assert list(net.collect_params()) == list(facts.pop("names"))
    batch = facts["x"].shape[1 if net._layout == "TNC" else 0]
    assert [state.shape for state in net.begin_state(batch)] == [tuple(shape) for shape in facts.pop("shapes")]
    net.initialize()
    if hybrid:
        net.hybridize(engine="numpy")
    check(net, facts, net, ["state0", "state1"])


def network() -> nn.HybridSequential:
    """The network of make_projected.py with parameters of its own."""
    net = nn.HybridSequential(prefix="projected_")
    with net.name_scope():
        net.add(rnn.LSTM(5, 2, bidirectional=True, projection_size=3, layout="NTC"), nn.Dense(2, flatten=False))
    net.initialize(mx.init.Uniform(0.6))
    return net


def sequences(*shape: int, seed: int = 0) -> nd.NDArray:
    return nd.array(np.random.RandomState(seed).uniform(-1, 1, shape).astype("float32"))


@pytest.mark.parametrize("engine", [None, *ENGINES])
def test_a_file_of_mxnet(engine: str | None):
    """The states that its `_zeros` make have two widths and an open batch."""
    net = gluon.SymbolBlock.imports(str(HERE / "projected-symbol.json"), ["data"], str(HERE / "projected-0000.params"))
    if engine:
        net.hybridize(engine=engine)
    facts = golden("network")
    close(net(nd.array(facts["x"])), facts["y"], 1e-5)
    close(net(nd.array(facts["x"][:2])), facts["y"][:2], 1e-5)


def trained(net: gluon.HybridBlock, x: nd.NDArray) -> list[np.ndarray]:
    """The output of a recorded call, and all gradients."""
    x.attach_grad()
    with autograd.record():
        y = net(x)
        loss = (y * y).sum()
    loss.backward()
    return [array.asnumpy() for array in (y, x.grad, *(item.grad() for item in net.collect_params().values()))]


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("engine", ENGINES)
def test_hybrid_equals_eager(engine: str, dtype: str):
    net = network()
    net.cast(dtype)
    tolerance = 1e-5 if dtype == "float32" else 4e-3
    batches = [sequences(3, 4, 6).astype(dtype), sequences(2, 5, 6, seed=1).astype(dtype)]
    wanted = [(net(x).asnumpy(), trained(net, x)) for x in batches]
    net.hybridize(engine=engine)
    for x, (y, results) in zip(batches, wanted, strict=True):
        close(net(x), y, tolerance)
        for found, each in zip(trained(net, x), results, strict=True):
            close(found, each, tolerance)


def test_a_cast_layer_makes_states_of_its_dtype():
    net = network()[0]
    net.cast("float16")
    assert {info["dtype"] for info in net.state_info(3)} == {"float16"}  # as in MXNet
    y, states = net(sequences(3, 4, 6).astype("float16"), net.begin_state(3))
    assert {array.dtype for array in (y, *states)} == {np.float16}


def test_dropout_lies_between_the_layers():
    net = layer("2bTNC", dropout=0.5)
    net.initialize()
    x = sequences(4, 3, 6)
    y = net(x).asnumpy()
    with autograd.train_mode():
        assert np.abs(net(x).asnumpy() - y).max() > 0
    eager = trained(net, x)
    assert all(np.isfinite(array).all() for array in eager)
    net.hybridize(engine="numpy")
    assert [array.shape for array in trained(net, x)] == [array.shape for array in eager]


def test_lengths_of_sequences():
    net = layer("2bTNC", use_sequence_length=True)
    net.initialize()
    x, lengths = sequences(4, 3, 6), nd.array([2, 4, 1])
    y, (h, c) = net(x, net.begin_state(3), lengths)
    for number, length in enumerate((2, 4, 1)):
        alone, (own_h, own_c) = net(x[:length, number : number + 1], net.begin_state(1), nd.array([length]))
        close(y[:length, number : number + 1], alone.asnumpy(), 1e-5)
        assert not y[length:, number].asnumpy().any()
        close(h[:, number : number + 1], own_h.asnumpy(), 1e-5)
        close(c[:, number : number + 1], own_c.asnumpy(), 1e-5)
    net.hybridize(engine="numpy")
    np.testing.assert_array_equal(net(x, net.begin_state(3), lengths)[0].asnumpy(), y.asnumpy())


def test_archives_and_parameters(tmp_path):
    net, x = network(), sequences(3, 4, 6)
    net.hybridize()
    y = net(x).asnumpy()
    mx.save_cached_graphs(net, str(tmp_path / "net.hlab"))
    close(gluon.load(str(tmp_path / "net.hlab"))(x), y, 1e-6)
    net.save_parameters(str(tmp_path / "net.params"))
    again = network()
    again.load_parameters(str(tmp_path / "net.params"))
    close(again(x), y, 1e-6)
    paths = list(again[0]._collect_params_with_prefix())
    assert "_unfused.1.r_cell.h2r_weight" in paths and len(paths) == 20


@pytest.mark.parametrize("from_mxnet", [True, False], ids=["file of MXNet", "own file"])
def test_export_and_import(from_mxnet: bool, tmp_path):
    net, facts = network(), golden("network")
    if from_mxnet:
        net = gluon.SymbolBlock.imports(
            str(HERE / "projected-symbol.json"), ["data"], str(HERE / "projected-0000.params")
        )
    net.hybridize()
    x = nd.array(facts["x"])
    y = net(x).asnumpy()
    net.export(str(tmp_path / "net"))
    again = gluon.SymbolBlock.imports(str(tmp_path / "net-symbol.json"), ["data"], str(tmp_path / "net-0000.params"))
    close(again(x), y, 1e-6)
    if not ORACLE.exists():
        pytest.skip("the real MXNet is not installed in .oracle")
    np.savez(tmp_path / "net.npz", data=facts["x"])
    script = HERE.parents[1] / "formats" / "mxnet" / "run_blocks_in_mxnet.py"
    environment = {**os.environ, "MXNET_MKLDNN_ENABLED": "1"}
    subprocess.run([ORACLE, script, tmp_path], check=True, env=environment, capture_output=True, timeout=300)
    close(np.load(tmp_path / "net.out.npz")["0"], y, 1e-5)


def test_what_is_refused(tmp_path):
    with pytest.raises(AttributeSpecError, match="projection_size=-1"):
        rnn.LSTM(4, projection_size=-1)
    with pytest.raises(TypeError, match="projection_size"):
        rnn.GRU(4, projection_size=2)
    net = layer("1TNC")
    net.initialize()
    with pytest.raises(AttributeSpecError, match="LSTMPCell has one"):
        net._unfuse()
    x = sequences(4, 3, 6)
    net(x)
    with pytest.raises(ShapeError, match=r"a state has shape \(1, 3, 5\)"):
        net(x, [nd.zeros((1, 3, 5))] * 2)
    net.hybridize()
    net(x)
    with pytest.raises(HybridLabError, match="ONNX' LSTM has none; unroll a gluon.contrib.rnn.LSTMPCell"):
        mx.onnx.export(net, tmp_path / "net.onnx")


def test_a_projection_to_0_units_is_none():
    net = rnn.LSTM(4, projection_size=0, input_size=3)
    assert net.l0_h2h_weight.shape == (16, 4) and not hasattr(net, "l0_h2r_weight")
    net = rnn.LSTM(4, projection_size=2, h2r_weight_initializer="ones")
    net.initialize()
    net(sequences(4, 3, 6))
    assert net.l0_i2h_weight.shape == (16, 6) and (net.l0_h2r_weight.data().asnumpy() == np.ones((2, 4))).all()
