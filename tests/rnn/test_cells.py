"""mx.rnn: cells on Symbols beside gluon's cells with the same weights, weights of gates, checkpoints, sentences."""

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import nd
from hybrid_lab.diagnostics.errors import HybridLabError, ShapeError

X = nd.array(np.random.default_rng(5).normal(size=(2, 3, 4)))


def run(symbol, arguments, x=X):
    wanted = {name: arguments[name] for name in symbol.list_arguments() if name != "data"}
    return symbol.bind(mx.cpu(), {"data": x, **wanted}).forward()[0].asnumpy()


def gluon_twin(kind, prefix="c_"):
    cell = getattr(mx.gluon.rnn, kind)(5, prefix=prefix, input_size=4)
    cell.initialize(mx.init.Normal(0.5))
    return cell, {name: parameter.data() for name, parameter in cell.collect_params().items()}


@pytest.mark.parametrize("states", ["none", "zeros", "inputs"])
@pytest.mark.parametrize("kind", ["RNNCell", "LSTMCell", "GRUCell"])
def test_the_cells_compute_what_those_of_gluon_do(kind, states):
    twin, arguments = gluon_twin(kind)
    cell = getattr(mx.rnn, kind)(5, prefix="c_")
    begin = {"none": None, "zeros": cell.begin_state()}.get(states, cell.begin_state(func=mx.sym.var))
    outputs, _ = cell.unroll(3, mx.sym.var("data"), begin, merge_outputs=True)
    arguments = {**arguments, **{f"c_begin_state_{number}": nd.zeros((2, 5)) for number in range(4)}}
    expected = twin.unroll(3, X, merge_outputs=True)[0].asnumpy()
    np.testing.assert_allclose(run(outputs, arguments), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("layout", ["NTC", "TNC"])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("mode", ["rnn_relu", "rnn_tanh", "lstm", "gru"])
def test_a_fused_cell_equals_its_unfused_stack(mode, bidirectional, layout):
    fused = mx.rnn.FusedRNNCell(5, 2, mode, bidirectional=bidirectional)
    stack = fused.unfuse()
    whole, _ = fused.unroll(3, mx.sym.var("data"), layout=layout)
    parts, _ = stack.unroll(3, mx.sym.var("data"), layout=layout, merge_outputs=True)
    shapes, (shape,), _ = whole.infer_shape(data=(2, 3, 4) if layout == "NTC" else (3, 2, 4))
    assert shape == (*((2, 3) if layout == "NTC" else (3, 2)), 10 if bidirectional else 5)
    vector = nd.random.normal(shape=dict(zip(whole.list_arguments(), shapes, strict=True))[f"{mode}_parameters"])
    packed = {f"{mode}_parameters": vector}
    unpacked = fused.unpack_weights(packed)
    np.testing.assert_array_equal(fused.pack_weights(unpacked)[f"{mode}_parameters"].asnumpy(), vector.asnumpy())
    x = X if layout == "NTC" else X.transpose((1, 0, 2))
    np.testing.assert_allclose(run(whole, packed, x), run(parts, stack.pack_weights(unpacked), x), rtol=1e-5, atol=1e-5)


def test_the_states_of_a_fused_cell():
    cell = mx.rnn.FusedRNNCell(5, 2, "lstm", get_next_state=True)
    outputs, states = cell.unroll(3, mx.sym.var("data"), layout="TNC", merge_outputs=False)
    assert len(outputs) == 3
    assert mx.sym.Group(states).infer_shape(data=(3, 2, 4))[1] == [(2, 2, 5)] * 2
    with pytest.raises(NotImplementedError, match="unroll"):
        cell(None, [])
    with pytest.raises(ShapeError, match="17 packed parameters"):
        cell.unpack_weights({"lstm_parameters": nd.zeros((17,))})


def test_parameters_of_a_fused_cell_are_initialized_gate_by_gate():
    cell = mx.rnn.FusedRNNCell(5, 2, "lstm", forget_bias=3.0)
    outputs, _ = cell.unroll(3, mx.sym.var("data"), merge_outputs=True)
    module = mx.mod.Module(outputs, label_names=None)
    module.bind([("data", (2, 3, 4))], for_training=False)
    module.init_params(mx.init.One())
    parts = cell.unpack_weights(module.get_params()[0])
    assert {float(parts[f"lstm_l{layer}_i2h_f_bias"].asnumpy().mean()) for layer in (0, 1)} == {3.0}
    assert float(parts["lstm_l0_i2h_i_bias"].asnumpy().mean()) == 0.0
    assert float(parts["lstm_l1_h2h_o_weight"].asnumpy().mean()) == 1.0


def test_forget_bias_of_an_lstm_cell():
    outputs, _ = mx.rnn.LSTMCell(5, forget_bias=2.0).unroll(3, mx.sym.var("data"), merge_outputs=True)
    module = mx.mod.Module(outputs, label_names=None)
    module.bind([("data", (2, 3, 4))], for_training=False)
    module.init_params()
    bias = module.get_params()[0]["lstm_i2h_bias"].asnumpy()
    np.testing.assert_array_equal(bias, np.repeat([0.0, 2.0, 0.0, 0.0], 5))


def test_weights_of_gates():
    cell = mx.rnn.GRUCell(5, prefix="g_")
    _, arguments = gluon_twin("GRUCell", "g_")
    parts = cell.unpack_weights({**arguments, "other": nd.ones((1,))})
    np.testing.assert_array_equal(parts["g_i2h_z_weight"].asnumpy(), arguments["g_i2h_weight"].asnumpy()[5:10])
    assert len(parts) == 13
    again = cell.pack_weights(parts)
    assert again.keys() == {*arguments, "other"}
    np.testing.assert_array_equal(again["g_h2h_bias"].asnumpy(), arguments["g_h2h_bias"].asnumpy())


def test_modifiers():
    base = mx.rnn.RNNCell(4, prefix="c_")
    residual = mx.rnn.ResidualCell(base)
    twin = mx.gluon.rnn.RNNCell(4, prefix="c_", input_size=4)
    twin.initialize()
    arguments = {name: parameter.data() for name, parameter in twin.collect_params().items()}
    plain = twin.unroll(3, X, merge_outputs=True)[0].asnumpy()
    outputs, _ = residual.unroll(3, mx.sym.var("data"), merge_outputs=True)
    np.testing.assert_allclose(run(outputs, arguments), plain + X.asnumpy(), rtol=1e-5)
    with pytest.raises(HybridLabError, match="wrapped by a modifier cell"):
        base.begin_state()
    zoneout = mx.rnn.ZoneoutCell(mx.rnn.RNNCell(4, prefix="c_"), 0.5, 0.5)
    outputs, _ = zoneout.unroll(3, mx.sym.var("data"), merge_outputs=True)
    np.testing.assert_allclose(run(outputs, arguments), plain, rtol=1e-5)
    for whole in (mx.rnn.FusedRNNCell(4), mx.rnn.BidirectionalCell(mx.rnn.RNNCell(4), mx.rnn.RNNCell(4))):
        with pytest.raises(HybridLabError, match="no steps to zone out"):
            mx.rnn.ZoneoutCell(whole)


def test_both_directions_and_shared_parameters():
    shared = mx.rnn.RNNParams("c_")
    cells = [mx.rnn.RNNCell(5, prefix=f"{side}_", params=shared) for side in "lr"]
    outputs, states = mx.rnn.BidirectionalCell(*cells).unroll(3, mx.sym.var("data"), merge_outputs=True)
    twin, arguments = gluon_twin("RNNCell")
    forwards = twin.unroll(3, X, merge_outputs=True)[0].asnumpy()
    backwards = twin.unroll(3, X[:, ::-1], merge_outputs=True)[0].asnumpy()[:, ::-1]
    np.testing.assert_allclose(run(outputs, arguments), np.concatenate([forwards, backwards], 2), rtol=1e-5)
    assert [len(each) for each in states] == [1, 1]
    stack = mx.rnn.SequentialRNNCell(params=shared)
    with pytest.raises(HybridLabError, match="not to both"):
        stack.add(mx.rnn.RNNCell(5, params=mx.rnn.RNNParams("d_")))


def test_inputs_must_be_given():
    for cell in (mx.rnn.RNNCell(4), mx.rnn.FusedRNNCell(4), mx.rnn.SequentialRNNCell()):
        if isinstance(cell, mx.rnn.SequentialRNNCell):
            cell.add(mx.rnn.RNNCell(4))
        with pytest.raises(HybridLabError, match="needs inputs"):
            cell.unroll(3, None)


def test_checkpoints(tmp_path):
    fused = mx.rnn.FusedRNNCell(5, 1, "lstm", prefix="lstm_")
    outputs, _ = fused.unroll(3, mx.sym.var("data"))
    vector = nd.random.normal(shape=(4 * 5 * (4 + 5 + 2),))
    prefix = str(tmp_path / "net")
    mx.rnn.do_rnn_checkpoint(fused, prefix, period=2)(0, outputs, {"lstm_parameters": vector}, {})
    assert not list(tmp_path.iterdir())
    mx.rnn.do_rnn_checkpoint(fused, prefix, period=2)(1, outputs, {"lstm_parameters": vector}, {})
    symbol, arguments, _ = mx.rnn.load_rnn_checkpoint(fused, prefix, 2)
    np.testing.assert_array_equal(arguments["lstm_parameters"].asnumpy(), vector.asnumpy())
    assert symbol.list_arguments() == outputs.list_arguments()
    stack = fused.unfuse()
    _, arguments, _ = mx.rnn.load_rnn_checkpoint([stack], prefix, 2)
    parts, _ = stack.unroll(3, mx.sym.var("data"), merge_outputs=True)
    expected = run(outputs, {"lstm_parameters": vector})
    np.testing.assert_allclose(run(parts, arguments), expected, rtol=1e-5, atol=1e-6)


def test_sentences_as_numbers():
    sentences = [["a", "b"], ["b", "c", "d"]]
    assert mx.rnn.encode_sentences(sentences, invalid_label=0, start_label=0) == (
        [[1, 2], [2, 3, 4]],
        {"\n": 0, "a": 1, "b": 2, "c": 3, "d": 4},
    )
    with pytest.raises(HybridLabError, match="'d'"):
        mx.rnn.encode_sentences(sentences, {"a": 1, "b": 2, "c": 3})
    assert mx.rnn.encode_sentences(sentences, {"a": 1, "b": 2, "c": 3}, unknown_token="UNK")[0] == [[1, 2], [2, 3, 0]]


@pytest.mark.parametrize("layout", ["NT", "TN"])
def test_batches_of_sentences(layout, caplog):
    sentences = [[1, 2, 3], [4, 5], [6, 7, 8], [9], [1] * 9]
    batches = mx.rnn.BucketSentenceIter(sentences, 2, buckets=[2, 3], invalid_label=0, layout=layout)
    assert "1 sentences" in caplog.text
    assert batches.default_bucket_key == 3
    assert batches.provide_data[0].shape == ((2, 3) if layout == "NT" else (3, 2))
    found = list(batches)
    assert sorted(batch.bucket_key for batch in found) == [2, 3]
    for batch in found:
        data, label = (
            each[0].asnumpy() if layout == "NT" else each[0].asnumpy().T for each in (batch.data, batch.label)
        )
        assert data.shape == (2, batch.bucket_key)
        np.testing.assert_array_equal(label[:, :-1], data[:, 1:])
        assert (label[:, -1] == 0).all()
    batches.reset()
    assert len(list(batches)) == 2
    with pytest.raises(ShapeError, match="layout"):
        mx.rnn.BucketSentenceIter(sentences, 2, layout="N")


def test_a_language_model_is_trained_in_buckets():
    rng = np.random.default_rng(0)
    sentences = [list(1 + (rng.integers(4) + np.arange(length)) % 4) for length in rng.integers(2, 5, 40)]
    batches = mx.rnn.BucketSentenceIter(sentences, 4, buckets=[3, 4], invalid_label=0)
    stack = mx.rnn.SequentialRNNCell()
    stack.add(mx.rnn.LSTMCell(8, prefix="lstm_"))

    def network(length):
        embedded = mx.sym.Embedding(mx.sym.var("data"), input_dim=5, output_dim=6, name="embed")
        stack.reset()
        outputs, _ = stack.unroll(length, embedded, merge_outputs=True)
        scores = mx.sym.FullyConnected(outputs.reshape((-1, 8)), num_hidden=5, name="pred")
        label = mx.sym.var("softmax_label").reshape((-1,))
        return mx.sym.SoftmaxOutput(scores, label, name="softmax"), ("data",), ("softmax_label",)

    module = mx.mod.BucketingModule(network, default_bucket_key=batches.default_bucket_key)
    metric = mx.metric.Perplexity(0)
    module.fit(batches, eval_metric=metric, optimizer="adam", optimizer_params={"learning_rate": 0.05}, num_epoch=6)
    assert metric.get()[1] < 2.5
