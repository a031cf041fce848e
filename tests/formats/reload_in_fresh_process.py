"""Run by the tests in a new process: loads an archive, with or without the model's code, and compares with an .npz."""

import sys

import numpy as np

import hybrid_lab as mx
from hybrid_lab import gluon

how, archive, expected = sys.argv[1:]
golden = np.load(expected)


def close(ours, theirs):
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)


def same(call, parameters, suffix):
    x = mx.nd.array(golden[f"x{suffix}"])
    with mx.autograd.record(train_mode=False):
        y = call(x)
        loss = (y * mx.nd.array([[1.0, 2.0, -1.0]])).sum()
    loss.backward()
    close(y.asnumpy(), golden[f"y{suffix}"])
    for name in golden.files:
        if name.startswith(f"grad{suffix}:"):
            close(parameters[name.split(":", 1)[1]].grad().asnumpy(), golden[name])


if how == "without code":
    net = gluon.load(archive)
    assert "rfc_model" not in sys.modules

    def call(x):
        features = net.drop(net.body(x))
        return net.head((features, features * 2), None)["scores"]

    assert net.shared is net.body.shared is net.head.shared
    assert list(net._children) == ["shared", "body", "drop", "head", "unused"]
    try:
        net(mx.nd.array(golden["x"]))
    except NotImplementedError as error:
        assert "Net" in str(error) and ".body" in str(error)
    else:
        raise AssertionError("the plain Block has no code here")
else:
    import rfc_model

    assert rfc_model.BROKEN
    net = call = rfc_model.Net()
    report = net.load(archive, graphs="file")
    assert report.graphs == 9, report

for active in (False, True):
    net.hybridize(active, engine="numpy") if active else net.hybridize(False)
    parameters = net._collect_params_with_prefix()
    same(call, parameters, "")
    same(call, parameters, "_big")
print("ok")
