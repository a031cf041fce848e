"""split_v2, histogram, reset_arrays and boolean_mask: what MXNet has as Python functions."""

from __future__ import annotations

import numpy as np
import pytest

from hybrid_lab import autograd, gluon, nd, sym
from hybrid_lab.diagnostics.errors import ShapeError
from hybrid_lab.diagnostics.hybridize_error import HybridizeError

X = np.arange(12, dtype=np.float32).reshape(4, 3)


def test_split_v2_at_places_and_into_sections():
    parts = nd.split_v2(nd.array(X), (1, 3))
    assert [part.shape for part in parts] == [(1, 3), (2, 3), (1, 3)]
    np.testing.assert_array_equal(parts[1].asnumpy(), X[1:3])
    columns = nd.split_v2(nd.array(X), 3, axis=1, squeeze_axis=True)
    np.testing.assert_array_equal(columns[2].asnumpy(), X[:, 2])
    with pytest.raises(ShapeError, match="an axis of 4 cannot be cut into 3 equal parts"):
        nd.split_v2(nd.array(X), 3)


def test_split_v2_in_a_graph():
    class Net(gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            first, *_, last = F.split_v2(x, (1, 3))
            return first + last

    net = Net()
    expected = net(nd.array(X)).asnumpy()
    net.hybridize()
    np.testing.assert_array_equal(net(nd.array(X)).asnumpy(), expected)


def test_histogram_counts_like_numpy():
    for given in ({"bins": 5}, {"bins": 4, "range": (0.0, 8.0)}):
        counts, edges = nd.histogram(nd.array(X), **given)
        wanted, wanted_edges = np.histogram(X, **given)
        np.testing.assert_array_equal(counts.asnumpy(), wanted)
        np.testing.assert_allclose(edges.asnumpy(), wanted_edges, rtol=1e-6)
    counts, _ = nd.histogram(nd.array(X), nd.array([0, 2, 11]))
    assert counts.asnumpy().tolist() == [2, 10]
    with pytest.raises(ShapeError, match="an empty array has no range"):
        nd.histogram(nd.zeros((0,)))


def test_reset_arrays_writes_zeros():
    a, b = nd.array(X), nd.ones(2)
    nd.reset_arrays(a, b, num_arrays=2)
    assert not a.asnumpy().any() and not b.asnumpy().any()


def test_boolean_mask_chooses_and_its_gradient_comes_back():
    x, mask = nd.array(X), nd.array([1, 0, 0, 1])
    x.attach_grad()
    with autograd.record():
        y = nd.contrib.boolean_mask(x, mask)
    y.backward()
    np.testing.assert_array_equal(y.asnumpy(), X[[0, 3]])
    np.testing.assert_array_equal(x.grad.asnumpy(), np.outer([1, 0, 0, 1], [1, 1, 1]))
    assert nd.contrib.boolean_mask(x, nd.array([0, 1, 0]), axis=1).shape == (4, 1)
    with pytest.raises(ShapeError, match=r"index has shape \(3,\), which does not match axis 0 of data \(4, 3\)"):
        nd.contrib.boolean_mask(x, nd.ones(3))


class Masked(gluon.HybridBlock):
    """Rows of x that a mask chooses, through a layer."""

    def __init__(self):
        super().__init__()
        self.body, self.head = gluon.nn.Dense(3, flatten=False), gluon.nn.Dense(2)

    def hybrid_forward(self, F, x, mask):
        return self.head(F.contrib.boolean_mask(self.body(x), mask))


def test_a_block_with_boolean_mask_runs_eagerly(caplog):
    net, mask, results = Masked(), nd.array([1, 0, 0, 1]), []
    net.initialize()
    for hybridized in (False, True):
        net.hybridize(hybridized)
        for rows in ([1, 0, 0, 1], [1, 1, 1, 0]):
            x, mask = nd.array(X), nd.array(rows)
            x.attach_grad()
            with autograd.record():
                y = net(x, mask)
            y.backward()
            results.append((y.asnumpy(), x.grad.asnumpy(), net.body.weight.grad().asnumpy()))
    for eager, hybrid in zip(results[:2], results[2:], strict=True):
        for one, other in zip(eager, hybrid, strict=True):
            np.testing.assert_allclose(other, one, rtol=1e-6, atol=1e-7)
    said = [record.getMessage() for record in caplog.records if "boolean_mask" in record.getMessage()]
    assert len(said) == 1 and "Its calls run eagerly; Blocks below it are compiled" in said[0]
    assert net.body._graphs.count == net.head._graphs.count == 1 and not net._graphs.count


def test_where_a_graph_is_asked_for_boolean_mask_is_refused():
    with pytest.raises(HybridizeError, match="HL133: .*boolean_mask"):
        sym.contrib.boolean_mask(sym.var("x"), sym.var("mask"))
    net = Masked()
    net.initialize()
    net.hybridize(strict=True)
    with pytest.raises(HybridizeError, match=r"nd.contrib.boolean_mask\(x, mask\) in a plain Block"):
        net(nd.array(X), nd.array([1, 0, 0, 1]))
