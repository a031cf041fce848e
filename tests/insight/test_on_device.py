"""Facets, captures and watches of arrays on a GPU: Triton's interpreter, or the GPU of `make test-gpu`."""

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, gluon, nd
from hybrid_lab.diagnostics import NonFiniteError
from hybrid_lab.engines.memory import copies
from hybrid_lab.gluon import nn
from hybrid_lab.insight import facets, summaries
from hybrid_lab.insight.summary import EXACT, SAMPLE
from tests.triton_device import use_triton


@pytest.fixture
def context(monkeypatch):
    use_triton(monkeypatch)
    return mx.gpu(0)


def test_of_a_large_array_only_a_sample_is_copied(context):
    array = nd.ones((EXACT + 5,), ctx=context) * 2
    before = copies.snapshot()
    shown = facets(array)
    assert (shown.summary.looked, shown.summary.mean, shown.text) == (SAMPLE, 2.0, "")
    assert copies.to_host_bytes - before["to_host_bytes"] < 2 * 4 * SAMPLE
    assert "gpu(0)" in array._repr_html_() and "[1. 1.]" in nd.ones((2,), ctx=context)._repr_html_()


class Root(gluon.HybridBlock):
    def hybrid_forward(self, F, x):
        return F.sqrt(F.relu(x))


def test_of_many_arrays_only_samples_are_copied(context):
    arrays = [nd.ones((100, 100), ctx=context) * number for number in (1, 2)]
    before = copies.to_host_bytes
    table = summaries.summary_table(arrays)
    assert table[:, 7].tolist() == [1, 2] and copies.to_host_bytes - before == 2 * 4 * summaries.SAMPLE


@pytest.mark.parametrize("hybridized", [False, True])
def test_captures_and_watches(context, hybridized):
    net = nn.HybridSequential()
    net.add(nn.Dense(3), Root())
    net.initialize(mx.init.Constant(0.5), ctx=context)
    x = nd.array([[1, 2], [3, 4]], ctx=context)
    net(x)
    net.hybridize(hybridized, engine="triton")
    with mx.watch_nan(net):
        with mx.capture(net, "0", grad=True) as seen:
            with autograd.record():
                y = net(x)
            y.backward()
        np.testing.assert_allclose(seen["0"].asnumpy(), [[1.5] * 3, [3.5] * 3], rtol=1e-6)
        np.testing.assert_allclose(seen["0"].grad.asnumpy(), 0.5 / np.sqrt(seen["0"].asnumpy()), rtol=1e-5)
        with autograd.record():
            y = net(-x)
        with pytest.raises(NonFiniteError) as raised:
            y.backward()
        assert (raised.value.operator, raised.value.block) == ("sqrt", "1")
        with pytest.raises(NonFiniteError, match="holds 2 NaN among 4 values before the call"):
            net(nd.array([[np.nan, 1], [1, np.nan]], ctx=context))
