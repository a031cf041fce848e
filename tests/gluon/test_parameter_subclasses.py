"""Subclasses of Parameter with a `data()` of their own, as GluonNLP's WeightDropParameter: graphs do not call it."""

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, gluon, nd
from hybrid_lab.diagnostics import HybridizeError
from hybrid_lab.gluon import nn


class Dropped(gluon.Parameter):
    """Written as a library writes it for MXNet, with the attributes that it takes from the other Parameter."""

    def __init__(self, parameter, rate):
        p = parameter
        super().__init__(
            name=p.name, grad_req=p.grad_req, shape=p._shape, dtype=p.dtype, lr_mult=p.lr_mult, wd_mult=p.wd_mult,
            init=p.init, allow_deferred_init=p._allow_deferred_init, differentiable=p._differentiable,
        )  # fmt: skip
        self._rate, self._var, self._data, self._grad = rate, p._var, p._data, p._grad
        self._ctx_list, self._ctx_map, self._trainer = p._ctx_list, p._ctx_map, p._trainer

    def data(self, ctx=None):
        return nd.Dropout(self._check_and_get(self._data, ctx), self._rate)


def network(drop, known=True):
    net = nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(nn.Dense(16, in_units=8 * known, activation="relu"), nn.Dense(4, in_units=16 * known))
    if drop:
        dense = net[0]
        dropped = Dropped(dense.weight, 0.5)
        dense.params._params[dropped.name] = dense._reg_params["weight"] = dropped
    mx.random.seed(1)
    net.initialize(mx.init.Xavier())
    return net


def trained(net, x):
    mx.random.seed(5)
    with autograd.record():
        loss = (net(x) ** 2).sum()
    loss.backward()
    return [loss.asscalar(), *(p.grad().asnumpy() for p in net.collect_params().values())]


def test_such_a_block_runs_eagerly_and_the_others_are_compiled(caplog):
    x = nd.array(np.random.RandomState(0).randn(3, 8))
    net, plain = network(True), network(False)
    eager, prediction = trained(net, x), net(x).asnumpy()
    np.testing.assert_array_equal(prediction, plain(x).asnumpy())
    assert trained(plain, x)[0] != eager[0]
    net.hybridize(engine="numpy")
    for one, other in zip(trained(net, x), eager, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(net(x).asnumpy(), prediction, rtol=1e-6)
    assert net[1]._graphs.count == 1 and not net[0]._graphs.count
    said = [record.getMessage() for record in caplog.records if "HL164" in record.getMessage()]
    named = "Dropped.data() makes the values of the parameter 'net_dense0_weight'"
    assert len(said) == 2 and all(named in each for each in said)
    net.hybridize(engine="numpy", strict=True)
    with pytest.raises(HybridizeError, match=r"HL164.*Dropped\.data\(\)"):
        net(x)


def test_their_shapes_are_inferred():
    x = nd.array(np.random.RandomState(0).randn(3, 8))
    eager, hybrid, known = network(True, known=False), network(True, known=False), network(True)
    hybrid.hybridize(engine="numpy")
    wanted = [*map(np.shape, trained(known, x))]
    assert [*map(np.shape, trained(eager, x))] == wanted
    np.testing.assert_allclose(eager(x).asnumpy(), known(x).asnumpy(), rtol=1e-6)
    assert [*map(np.shape, trained(hybrid, x))] == wanted
    np.testing.assert_allclose(hybrid(x).asnumpy(), known(x).asnumpy(), rtol=1e-6)
    network(True, known=False).infer_shape(x)
