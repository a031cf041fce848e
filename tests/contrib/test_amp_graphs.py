"""Random graphs in mixed precision: the pass converts what eager calls convert, forward and gradient."""

from __future__ import annotations

import numpy as np
import pytest

from hybrid_lab import autograd, gluon, init, nd
from hybrid_lab.contrib import amp
from hybrid_lab.graph.specialize import specialize
from hybrid_lab.ndarray import tape
from hybrid_lab.ndarray.interpret import interpret
from hybrid_lab.ops.framework.precision import Precision
from tests.engines.random_graphs import random_case
from tests.engines.test_random_graphs import RNG, difference, engine_named, heads_of, run_compiled

COUNT, CHUNK = 48, 12


@pytest.fixture(autouse=True)
def mixed():
    amp.init()
    yield
    amp.disable()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("first", range(0, COUNT, CHUNK))
def test_the_compiled_graph_follows_eager_calls(first):
    equal = values = 0
    for seed in range(first, first + CHUNK):
        case = random_case(seed)
        arrays = [nd.array(array, dtype=array.dtype) for array in case.arrays]
        for index in case.wrt:
            arrays[index].attach_grad()
        with tape.Mode(True, True):
            outputs = interpret(case.graph, arrays, RNG)
        wanted = [output.asnumpy() for output in outputs]
        heads = heads_of(wanted)
        live = [(y, nd.array(head, dtype=head.dtype)) for y, head in zip(outputs, heads) if tape.link(y) is not None]
        if live:
            autograd.backward(*map(list, zip(*live)))
        wanted += [arrays[index].grad.asnumpy() for index in case.wrt]

        shapes, dtypes = [a.shape for a in case.arrays], [a.dtype for a in case.arrays]
        parts = specialize(case.graph, shapes, dtypes, True, case.wrt, precision=Precision())
        results, gradients = run_compiled(case, engine_named("numpy"), parts, heads, packed=False)
        found = [*results[: len(outputs)], *gradients]
        apart = [difference(np.asarray(y), expected) for y, expected in zip(found, wanted, strict=True)]
        # A sum in another order may round to the next number of float16.
        assert max(apart, default=0) <= 2e-3, f"seed {seed}: {apart}\n{case}"
        values, equal = values + len(apart), equal + sum(item == 0 for item in apart)
    assert equal > 0.95 * values


def test_the_random_graphs_hold_conversions():
    converted = 0
    for seed in range(COUNT):
        case = random_case(seed)
        shapes, dtypes = [a.shape for a in case.arrays], [a.dtype for a in case.arrays]
        forward = specialize(case.graph, shapes, dtypes, True, case.wrt, precision=Precision()).forward
        converted += sum(node.op.name == "Cast" for node in forward.operators)
    assert converted > 40


def test_statistics_are_updated_in_the_order_of_the_calls_where_only_the_first_is_converted():
    class Twice(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            self.dense, self.norm = gluon.nn.Dense(2, in_units=2), gluon.nn.BatchNorm(in_channels=2)

        def forward(self, x):
            return self.norm(self.dense(x)) + self.norm(x * 3)

    means = []
    for hybrid in (False, True):
        net = Twice()
        net.initialize(init.One())
        net.hybridize(hybrid, engine="numpy")
        with autograd.record():
            net(nd.array([[1, 2], [3, 5]]))
        means.append(net.norm.running_mean.data().asnumpy())
    np.testing.assert_allclose(means[1], means[0], rtol=1e-3)
