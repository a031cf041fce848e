"""What is recorded of compiles and refusals: seconds within those of the call, and nothing of code that was mended."""

import time

from hybrid_lab import autograd, gluon, nd
from hybrid_lab.hybridize.structure import flatten


class Two(gluon.HybridBlock):
    def hybrid_forward(self, F, x):
        return x * x * x, F.exp(x)


def test_the_seconds_of_a_compile_lie_within_those_of_the_call():
    net, x = Two(), nd.ones((2, 3))
    net.hybridize(engine="numpy")
    x.attach_grad()
    started = time.perf_counter()
    with autograd.record():
        cubes, _ = net(x)
    cubes.backward()
    with autograd.record():
        cubes, _ = net(x)
        (slope,) = autograd.grad(cubes, [x], create_graph=True)
    slope.backward()
    elapsed = time.perf_counter() - started
    seconds = {each.kind: each.seconds for each in net._graph_calls.compilations}
    assert {"first", "heads", "second"} <= seconds.keys()
    assert all(0 < each <= elapsed for each in seconds.values())


def test_calls_that_were_refused_run_compiled_after_hybridize_where_others_are_refused():
    class Masked(gluon.HybridBlock):
        def hybrid_forward(self, F, x, mask=None):
            return F.contrib.boolean_mask(x, x)

    net, x = Masked(), nd.array([1.0, 0.0])
    net.hybridize(engine="numpy")
    assert net(x).shape == (1,)

    def mended(self, F, x, mask=None):
        return x * 2 if mask is None else F.contrib.boolean_mask(x, mask)

    Masked.hybrid_forward = mended
    net.hybridize(engine="numpy")
    assert net(x).asnumpy().tolist() == [2, 0] and net(x, x).asnumpy().tolist() == [1]
    failures = net._graph_calls.failures
    assert failures.run_eagerly(flatten((x, x))[1]) and not failures.run_eagerly(flatten((x,))[1])


class Scaled(gluon.HybridBlock):
    def __init__(self):
        super().__init__()
        self.scale = 2.0

    def hybrid_forward(self, F, x):
        return x * 1


class Middle(gluon.HybridBlock):
    def __init__(self):
        super().__init__()
        self.inner = Scaled()

    def hybrid_forward(self, F, x):
        return self.inner(x)


class Outer(gluon.HybridBlock):
    def __init__(self):
        super().__init__()
        self.middle = Middle()

    def hybrid_forward(self, F, x):
        return self.middle(x) * self.middle.inner.scale


def test_an_attribute_that_a_block_two_levels_above_reads():
    net = Outer()
    net.hybridize(engine="numpy")
    assert net(nd.ones(1)).asscalar() == 2
    net.middle.inner.scale = 3.0
    assert net(nd.ones(1)).asscalar() == 3
