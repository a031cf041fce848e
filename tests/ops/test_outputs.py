"""Output layers of the Symbol API: labels are found by inference, gradients are the loss's, and graphs agree."""

from __future__ import annotations

import numpy as np
import pytest

from hybrid_lab import autograd, gluon, nd, sym
from hybrid_lab.diagnostics.errors import HybridLabError, ShapeError

X = np.random.RandomState(0).uniform(-1, 1, (4, 5)).astype("float32")
LABELS = np.array([0, 3, 4, 1], "float32")


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def test_the_label_is_a_variable_whose_shape_follows():
    net = sym.SoftmaxOutput(sym.FullyConnected(sym.var("data"), num_hidden=5, name="fc"), name="softmax")
    assert net.list_arguments() == ["data", "fc_weight", "fc_bias", "softmax_label"]
    arguments, outputs, _ = net.infer_shape(data=(4, 3))
    assert arguments == [(4, 3), (5, 3), (5,), (4,)] and outputs == [(4, 5)]
    assert sym.load_json(net.tojson()).list_arguments() == net.list_arguments()


def test_the_gradient_is_that_of_cross_entropy_whatever_arrives():
    x = nd.array(X)
    x.attach_grad()
    with autograd.record():
        y = nd.SoftmaxOutput(x, nd.array(LABELS))
        (y * 7).backward()
    np.testing.assert_allclose(y.asnumpy(), softmax(X), rtol=1e-5)
    np.testing.assert_allclose(x.grad.asnumpy(), softmax(X) - np.eye(5)[LABELS.astype(int)], atol=1e-6)


@pytest.mark.parametrize("name", ["SoftmaxOutput", "LinearRegressionOutput", "LogisticRegressionOutput", "SVMOutput"])
def test_a_graph_gives_the_same_gradient(name):
    label = nd.array(X if "Regression" in name else LABELS)

    class Net(gluon.HybridBlock):
        def hybrid_forward(self, F, x, label):
            return getattr(F, name)(x * 2, label)

    net, found = Net(), []
    for hybrid in (False, True):
        if hybrid:
            net.hybridize()
        x = nd.array(X)
        x.attach_grad()
        with autograd.record():
            y = net(x, label)
        y.backward()
        found.append((y.asnumpy(), x.grad.asnumpy()))
    for eager, compiled in zip(*found, strict=True):
        np.testing.assert_allclose(eager, compiled, rtol=1e-5, atol=1e-6)
    assert found[0][1].any()


def test_labels_that_do_not_fit():
    with pytest.raises(ShapeError, match=r"SoftmaxOutput: label has shape \(3,\); data \(4, 5\) needs \(4,\)"):
        nd.SoftmaxOutput(nd.array(X), nd.ones(3))
    with pytest.raises(ShapeError, match="multi_output=True takes axis 1"):
        nd.SoftmaxOutput(nd.ones((2, 3, 4)), nd.ones((2, 4)))
    with pytest.raises(HybridLabError, match="CTCLoss: lengths outside of data"):
        nd.CTCLoss(nd.ones((3, 1, 4)), nd.ones((1, 2)), nd.array([9]), use_data_lengths=True)
    with pytest.raises(HybridLabError, match="CTCLoss: a label outside of 4 classes"):
        nd.CTCLoss(nd.ones((3, 1, 4)), nd.array([[1, 7]]))


def test_ctc_of_one_label_and_two_steps_by_hand():
    """The ways to say `a` in two steps: aa, a-, -a."""
    p = softmax(X[:2, :3])
    loss = nd.CTCLoss(nd.array(X[:2, :3].reshape(2, 1, 3)), nd.array([[1]]))
    expected = p[0, 1] * p[1, 1] + p[0, 1] * p[1, 0] + p[0, 0] * p[1, 1]
    np.testing.assert_allclose(loss.asnumpy(), [-np.log(expected)], rtol=1e-5)
