"""Random numbers of every distribution: moments, dependence on the seed alone, the same eagerly and in a graph."""

from __future__ import annotations

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, gluon, nd
from hybrid_lab.diagnostics.errors import HybridLabError, ShapeError
from hybrid_lab.ops.kernels import philox

COUNT = 40000

MOMENTS = [
    ("exponential", {"scale": 0.5}, 0.5, 0.25),
    ("gamma", {"alpha": 3.5, "beta": 2.0}, 7.0, 14.0),
    ("gamma", {"alpha": 0.3, "beta": 2.0}, 0.6, 1.2),
    ("poisson", {"lam": 4.0}, 4.0, 4.0),
    ("poisson", {"lam": 50.0}, 50.0, 50.0),
    ("negative_binomial", {"k": 3, "p": 0.4}, 4.5, 11.25),
    ("negative_binomial", {"k": 3, "p": 1.0}, 0.0, 0.0),
    ("generalized_negative_binomial", {"mu": 4.0, "alpha": 0.5}, 4.0, 12.0),
    ("generalized_negative_binomial", {"mu": 4.0, "alpha": 0.0}, 4.0, 4.0),
]


@pytest.mark.parametrize(("name", "parameters", "mean", "variance"), MOMENTS)
def test_mean_and_variance(name, parameters, mean, variance):
    mx.random.seed(3)
    x = getattr(nd.random, name)(shape=(COUNT,), **parameters).asnumpy().astype(np.float64)
    assert abs(x.mean() - mean) <= 5 * np.sqrt(variance / COUNT)
    assert abs(x.var() - variance) <= 0.06 * variance


@pytest.mark.parametrize(("name", "parameters"), [case[:2] for case in MOMENTS])
def test_the_seed_decides_and_the_number_of_elements_does_not(name, parameters):
    draw = getattr(nd.random, name)
    mx.random.seed(5)
    few = draw(shape=(7,), **parameters).asnumpy()
    mx.random.seed(5)
    np.testing.assert_array_equal(draw(shape=(3, 11), **parameters).asnumpy().reshape(-1)[:7], few)


def test_single_blocks_are_those_of_the_stream():
    numbers = np.array([0, 17, 5, 99], np.uint64)
    np.testing.assert_array_equal(
        philox.words_at(1 << 40, 6, numbers), philox.words(1 << 40, 6, 400).reshape(-1, 4)[numbers]
    )
    far = philox.words_at(1, 2, np.array([1 << 33], np.uint64))
    assert (far != philox.words_at(1, 2, np.array([0], np.uint64))).any()


@pytest.mark.parametrize("name", ["exponential", "gamma", "poisson", "negative_binomial"])
def test_the_same_numbers_in_a_graph(name):
    class Net(gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            return x + getattr(F.random, name)(shape=(4, 3)), F.random.gamma(x, x, shape=(2,))

    net, x = Net(), nd.ones((4, 3)) * 2
    mx.random.seed(11)
    expected = [item.asnumpy() for item in net(x)]
    net.hybridize()
    mx.random.seed(11)
    for found, wanted in zip(net(x), expected, strict=True):
        np.testing.assert_array_equal(found.asnumpy(), wanted)


@pytest.mark.parametrize("shape", [None, (2,), (2, 3)])
def test_located_numbers_are_the_same_in_a_graph_and_carry_gradients(shape):
    class Net(gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            return F.random.normal(x, 0.5, shape=shape), F.random.uniform(x, x + 2, shape=shape), F.random.randn(4, 2)

    net, found = Net(), []
    for hybrid in (False, True):
        if hybrid:
            net.hybridize()
        x = nd.array([[1.0, 10.0, 100.0]])
        x.attach_grad()
        mx.random.seed(4)
        with autograd.record():
            normal, uniform, plain = net(x)
            total = normal.sum() + uniform.sum()
        total.backward()
        found.append([item.asnumpy() for item in (normal, uniform, plain, x.grad)])
    for eager, compiled in zip(*found, strict=True):
        np.testing.assert_array_equal(eager, compiled)
    count = int(np.prod(shape or ()))
    np.testing.assert_array_equal(found[0][3], np.full((1, 3), 2.0 * count))
    assert found[0][0].shape == (1, 3, *(shape or ()))


def test_parameters_may_be_arrays():
    x = nd.random.poisson(nd.array([1.0, 100.0]), shape=(500,))
    assert x.shape == (2, 500) and x[0].mean().asscalar() < 2 < 90 < x[1].mean().asscalar()
    assert nd.random.gamma(nd.ones((2, 3)), 2.0).shape == (2, 3)
    assert nd.sample_exponential(nd.array([1.0, 2.0]), shape=4).shape == (2, 4)
    assert nd.random.uniform_like(nd.ones((2, 3)), low=5, high=6).asnumpy().min() >= 5
    with pytest.raises(ShapeError, match=r"the parameters have the shapes \(2,\) and \(3,\)"):
        nd.random.gamma(nd.ones(2), nd.ones(3))


def test_multinomial_follows_the_probabilities():
    mx.random.seed(1)
    probabilities = nd.array([[0.1, 0.0, 0.9], [0.5, 0.5, 0.0]])
    choices = nd.random.multinomial(probabilities, shape=5000).asnumpy()
    assert choices.shape == (2, 5000) and choices.dtype == np.int32
    for row, wanted in zip(choices, probabilities.asnumpy(), strict=True):
        np.testing.assert_allclose(np.bincount(row, minlength=3) / 5000, wanted, atol=0.03)


def test_a_gradient_goes_through_the_logarithm_of_the_probability():
    data = nd.array([0.25, 0.75])
    data.attach_grad()
    with autograd.record():
        choice, logarithm = nd.random.multinomial(data, get_prob=True)
    logarithm.backward()
    place = int(choice.asscalar())
    expected = np.zeros(2)
    expected[place] = 1 / data.asnumpy()[place]
    np.testing.assert_allclose(logarithm.asnumpy(), np.log(data.asnumpy()[place]), rtol=1e-6)
    np.testing.assert_allclose(data.grad.asnumpy(), expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "parameters", "text"),
    [
        ("gamma", {"alpha": [1.0, -1.0]}, "gamma: the parameters must be alpha > 0"),
        ("poisson", {"lam": [-1.0]}, "poisson: the parameters must be lam >= 0"),
        ("negative_binomial", {"p": [0.0]}, "negative_binomial: the parameters must be k > 0 and 0 < p <= 1"),
    ],
)
def test_parameters_outside_of_their_range(name, parameters, text):
    arrays = {key: nd.array(values) for key, values in parameters.items()}
    with pytest.raises(HybridLabError, match=text):
        getattr(nd.random, name)(**arrays)
