"""Pooling windows that ceil_mode puts behind the input: a mean of 0, on every engine."""

import numpy as np
import pytest

from hybrid_lab import autograd, gluon, nd
from hybrid_lab.diagnostics import DTypeError
from hybrid_lab.gluon import nn


class Pool(gluon.HybridBlock):
    """Windows of one element, the third of which begins behind six."""

    def __init__(self, counted, **kwargs):
        super().__init__(**kwargs)
        self.pool = nn.AvgPool2D((1, 1), strides=(3, 1), ceil_mode=True, count_include_pad=counted)

    def hybrid_forward(self, F, x):
        return self.pool(x * 2.0)


@pytest.mark.parametrize("engine", [None, "numpy", "onnxruntime", "torch", "triton"])
@pytest.mark.parametrize("counted", [True, False])
def test_the_mean_of_a_window_behind_the_input_is_0(engine, counted, monkeypatch):
    if engine in ("torch", "triton"):
        pytest.importorskip(engine)
    if engine == "triton":
        monkeypatch.setenv("HYBRID_LAB_TRITON", "interpret")
    net = Pool(counted)
    if engine is not None:
        net.hybridize(engine=engine)
    x = nd.array(np.arange(1, 7).reshape(1, 1, 6, 1), dtype="float32")
    x.attach_grad()
    for _ in range(2):
        with autograd.record():
            y = net(x)
        y.backward()
        assert y.asnumpy().ravel().tolist() == [2, 8, 0]
        assert x.grad.asnumpy().ravel().tolist() == [2, 0, 0, 2, 0, 0]


@pytest.mark.parametrize("engine", [None, "numpy"])
@pytest.mark.parametrize("kind", ["avg", "sum"])
def test_the_gradient_of_a_mean_of_whole_numbers_is_a_typed_error(engine, kind):
    net = nn.HybridLambda(lambda F, x: F.Pooling(x, kernel=(2,), pool_type=kind))
    if engine is not None:
        net.hybridize(engine=engine)
    x = nd.ones((1, 1, 4), dtype="int32")
    x.attach_grad()
    with pytest.raises(DTypeError, match="float"):
        with autograd.record():
            y = net(x)
        y.backward()


@pytest.mark.parametrize("engine", [None, "numpy", "onnxruntime", "torch"])
@pytest.mark.parametrize("whole", [True, False], ids=["global", "window"])
def test_means_of_float16_are_added_up_in_float32(engine, whole):
    """The sum would overflow; it would also lose a third of a per cent. As in MXNet."""
    if engine == "torch":
        pytest.importorskip("torch")
    net = nn.GlobalAvgPool1D() if whole else nn.AvgPool1D(2000)
    if engine is not None:
        net.hybridize(engine=engine)
    values = np.random.RandomState(0).uniform(0, 20000, (1, 1, 2000)).astype("float16")
    x = nd.array(values, dtype="float16")
    x.attach_grad()
    for _ in range(2):
        with autograd.record():
            y = net(x)
        y.backward()
        assert y.asnumpy().ravel()[0] == np.float16(values.astype("float64").mean())
        assert np.array_equal(x.grad.asnumpy(), np.full(values.shape, 1 / 2000, "float16"))
