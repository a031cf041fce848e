"""mx.model.FeedForward beside the numbers of MXNet 1.9.1."""

from __future__ import annotations

import logging
import pickle

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import nd
from hybrid_lab.diagnostics.errors import SettingError

pytestmark = pytest.mark.filterwarnings("ignore:FeedForward is deprecated")

#: Options -> norms of parameters and states, calls of the callbacks, sum of squares of a prediction, accuracy,
#: cross entropy of two batches in MXNet 1.9.1.
MXNET = {
    "plain": (
        [1.0096, 2.00593, 3.04841, 4.82285, 1.30758, 4.71004],
        [2.62951, 7.35303],
        (18, 15.3864, 0.9, 0.1146286),
    ),
    "epoch_size": (
        [0.97738, 1.83451, 3.04841, 4.6128, 1.29627, 4.48439],
        [1.98498, 6.01875],
        (12, 14.59964, 0.85, 0.1733543),
    ),
    "contexts": (
        [0.99096, 1.83884, 3.04841, 4.56964, 1.23743, 4.27812],
        [2.68785, 4.60625],
        (18, 11.03703, 0.85, 0.3121199),
    ),
}
OPTIONS = {"plain": {}, "epoch_size": {"epoch_size": 3}, "contexts": {"ctx": [mx.cpu(0), mx.cpu(1)]}}


def _network():
    hidden = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=5, name="fc1")
    hidden = mx.sym.Activation(mx.sym.BatchNorm(hidden, name="bn", fix_gamma=False), act_type="tanh")
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(hidden, num_hidden=2, name="fc2"), name="softmax")


def _problem():
    numbers = np.random.RandomState(0)
    data = numbers.randn(20, 4).astype(np.float32)
    label = (data[:, 0] > 0).astype(np.float32)
    drawn = {
        "fc1_weight": numbers.randn(5, 4),
        "fc1_bias": numbers.randn(5),
        "fc2_weight": numbers.randn(2, 5),
        "fc2_bias": numbers.randn(2),
        "bn_gamma": numbers.rand(5),
        "bn_beta": numbers.randn(5),
    }
    return data, label, {name: nd.array(array) for name, array in drawn.items()}


def _norms(arrays):
    return [arrays[name].norm().asscalar() for name in sorted(arrays)]


@pytest.mark.parametrize("case", MXNET)
def test_training_and_predictions_are_those_of_mxnet(case):
    data, label, start = _problem()
    model = mx.model.FeedForward(
        _network(), num_epoch=3, learning_rate=0.2, momentum=0.9, arg_params=start, **OPTIONS[case]
    )
    calls = []
    model.fit(
        mx.io.NDArrayIter(data, label, 4),
        eval_data=mx.io.NDArrayIter(data, label, 4),
        epoch_end_callback=lambda epoch, symbol, arguments, states: calls.append(epoch),
        batch_end_callback=lambda param: calls.append((param.epoch, param.nbatch)),
    )
    parameters, states, (count, squares, accuracy, entropy) = MXNET[case]
    np.testing.assert_allclose(_norms(model.arg_params), parameters, rtol=1e-4)
    np.testing.assert_allclose(_norms(model.aux_params), states, rtol=1e-4)
    assert (len(calls), calls[:3]) == (count, [(0, 1), (0, 2), (0, 3)])
    rows = mx.io.NDArrayIter(data[:18], label[:18], 4)
    predicted = model.predict(rows)
    assert predicted.shape == (18, 2)
    np.testing.assert_allclose((predicted**2).sum(), squares, rtol=1e-4)
    outputs, seen, labels = model.predict(rows, num_batch=2, return_data=True)
    assert (outputs.shape, seen.shape, labels.shape) == ((8, 2), (8, 4), (8,))
    iterator = mx.io.NDArrayIter(data, label, 4)
    np.testing.assert_allclose(model.score(iterator), accuracy, rtol=1e-6)
    seen = []
    np.testing.assert_allclose(model.score(iterator, "ce", 2, seen.append), entropy, rtol=1e-4)
    assert [param.nbatch for param in seen] == [0, 1]


def test_files_pickles_and_a_model_from_arrays(tmp_path, caplog):
    data, label, _ = _problem()
    caplog.set_level(logging.INFO)
    model = mx.model.FeedForward.create(
        _network(),
        data,
        label.reshape(20, 1),
        num_epoch=4,
        learning_rate=0.3,
        numpy_batch_size=5,
        initializer=mx.init.Xavier(),
        eval_data=(data, label.tolist()),
    )
    assert "Epoch[3] Validation-accuracy" in caplog.text
    expected = model.predict(data)
    model.save(str(tmp_path / "model"))
    again = mx.model.FeedForward.load(str(tmp_path / "model"), 4, num_epoch=5, learning_rate=0.3)
    np.testing.assert_array_equal(again.predict(nd.array(data)), expected)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(data), expected)
    caplog.clear()
    again.fit(data, label)
    assert "Epoch[4] Train-accuracy" in caplog.text
    assert "Epoch[3]" not in caplog.text
    assert (again.predict(data) != expected).any()  # of the parameters as they are now


def test_buckets():
    def network(length):
        embedded = mx.sym.Embedding(mx.sym.var("data"), input_dim=7, output_dim=3, name="embedding")
        return mx.sym.SoftmaxOutput(
            mx.sym.FullyConnected(mx.sym.sum(embedded, axis=1), num_hidden=7, name="fc"), name="softmax"
        )

    sentences = [[1, 2, 3], [2, 3, 4], [1, 2], [4, 5]] * 4
    buckets = mx.rnn.BucketSentenceIter(sentences, 4, buckets=[2, 3], invalid_label=0)
    for name in ("data", "label"):
        assert hasattr(buckets, f"provide_{name}")

    class Firsts:
        """The first label of each sentence is that of the whole."""

        batch_size, default_bucket_key = 4, 3
        provide_data = buckets.provide_data
        provide_label = [mx.io.DataDesc("softmax_label", (4,))]
        reset = staticmethod(buckets.reset)

        def __iter__(self):
            for batch in buckets:
                batch.label = [batch.label[0][:, 0]]
                batch.provide_label = self.provide_label
                yield batch

    model = mx.model.FeedForward(network, num_epoch=2, learning_rate=0.1)
    model.fit(Firsts())
    assert model.symbol.list_outputs() == ["softmax_output"]
    assert set(model.arg_params) == {"embedding_weight", "fc_weight", "fc_bias"}


def test_wrong_calls_say_so():
    data, label, start = _problem()
    with pytest.warns(DeprecationWarning, match="use mx.mod.Module"):
        model = mx.model.FeedForward(_network(), arg_params={**start, "more": nd.ones((1,))}, allow_extra_params=True)
    assert set(model.arg_params) == set(start)
    model.arg_params = None
    for call, text in (
        (lambda: model.predict(data), "the model has no parameters yet"),
        (lambda: model.fit(data), "y must be given"),
        (lambda: model.fit(data, label[:3]), r"y has the shape \(3,\)"),
        (lambda: model.fit([1]), "X is an iterator or an array, not list"),
        (lambda: model.fit(data, label), "num_epoch="),
        (lambda: model.save("x"), "the model has no num_epoch"),
    ):
        with pytest.raises(SettingError, match=text):
            call()
    with pytest.raises(AttributeError, match="did you mean FeedForward"):
        getattr(mx.model, "FeedForwards")  # noqa: B009


def test_what_mxnet_ignores_in_silence_is_a_warning(caplog):
    """The results are those of MXNet: labels of zeros, and parameters without the unknown one."""
    data, label, start = _problem()
    options = {"num_epoch": 1, "numpy_batch_size": 10, "aux_params": {"lost": nd.ones((1,))}}
    model = mx.model.FeedForward(_network(), arg_params={**start, "more": nd.ones((1,))}, **options)
    model.fit(data, label)
    assert "fit: the Symbol has no more, lost; these parameters are dropped" in caplog.text
    assert set(model.arg_params) == set(start)
    caplog.clear()
    zeros = mx.io.NDArrayIter(data, np.zeros(20, np.float32), 10)
    expected = model.score(zeros)
    assert not caplog.text
    assert model.score(data) == expected
    assert "score: an array has no labels, so the metric compares with zeros" in caplog.text
