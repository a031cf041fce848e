"""What calls of a hybridized Block are told apart by: the answer is that of the eager call, without endless traces."""

from typing import Any, NamedTuple

import numpy as np
import pytest

from hybrid_lab import autograd, nd
from hybrid_lab.gluon import HybridBlock, load


def active(kind):
    net = kind()
    net.initialize()
    net.hybridize(engine="numpy")
    return net


class Times(HybridBlock):
    def hybrid_forward(self, F, x, number):
        return x * number


def test_zero_and_minus_zero_are_different_arguments():
    net, x = active(Times), nd.ones((1,))
    signs = [bool(np.signbit(net(x, number).asscalar())) for number in (0.0, -0.0, 0.0)]
    assert signs == [False, True, False]


def test_nan_is_one_argument():
    net, x = active(Times), nd.ones((1,))
    for _ in range(3):
        assert np.isnan(net(x, float("nan")).asscalar())
    assert len(net._graphs.graphs()) == 1


def test_numbers_that_are_not_finite_are_kept_in_files(tmp_path):
    net, x = active(Times), nd.ones((1,))
    numbers = (float("nan"), float("inf"), -float("inf"), -0.0)
    for number in numbers:
        net(x, number)
    loaded = load(net.save(tmp_path / "m"))
    for number in numbers:
        assert repr(loaded(x, number).asscalar()) == repr(net(x, number).asscalar())


class Pair(NamedTuple):
    u: Any
    v: Any


class Swapped(HybridBlock):
    def hybrid_forward(self, F, p):
        return Pair(p.v, p.u + p.v)


class SwappedArrays(HybridBlock):
    def forward(self, p):
        return Pair(p.v.reshape(p.v.shape), p.u + p.v)


@pytest.mark.parametrize("kind", [Swapped, SwappedArrays])
def test_named_tuples_keep_their_type(kind, tmp_path):
    net, given = active(kind), Pair(nd.ones((1,)), nd.zeros((1,)))
    result = net(given)
    assert type(result) is Pair and result.u.asscalar() == 0 and result.v.asscalar() == 1
    loaded = load(net.save(tmp_path / "m"))
    assert [item.asscalar() for item in loaded(given)] == [0, 1]  # a file knows no classes
    again = kind()
    again.load(tmp_path / "m")
    assert [item.asscalar() for item in again(given)] == [0, 1]


def test_code_that_asks_whether_calls_are_recorded():
    class Asking(HybridBlock):
        def hybrid_forward(self, F, x):
            return x * 2 if autograd.is_recording() else x * 3

    x = nd.ones((1,))
    x.attach_grad()
    for mode in (autograd.train_mode, autograd.predict_mode):
        net = active(Asking)
        with mode():
            assert net(x).asscalar() == 3
        with autograd.record(train_mode=mode is autograd.train_mode):
            assert net(x).asscalar() == 2
        with mode():
            assert net(x).asscalar() == 3
        assert len(net._graphs.graphs()) == 2
