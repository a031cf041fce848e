"""What calls of a hybridized Block are told apart by: the answer is that of the eager call, without endless traces."""

from hybrid_lab import autograd, nd
from hybrid_lab.gluon import HybridBlock


def active(kind):
    net = kind()
    net.initialize()
    net.hybridize(engine="numpy")
    return net


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
