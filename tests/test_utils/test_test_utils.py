"""mx.test_utils: comparisons, random data, statistics of generators, environment, optimizers."""

import os

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import gluon, test_utils
from hybrid_lab.gluon import nn
from hybrid_lab.test_utils import *  # noqa: F403  # as MXNet's tests do
from hybrid_lab.test_utils import assert_almost_equal, assert_almost_equal_with_err, collapse_sum_like


def test_star_import_has_what_tests_of_mxnet_use():
    for name in ("np", "rnd", "default_context", "check_numeric_gradient", "same", "Context", "array", "DummyIter"):
        assert name in globals()


def test_tolerances_follow_from_the_wider_dtype_of_both():
    half, single = mx.nd.ones((2,), dtype="float16"), np.ones(2, "float32")
    assert test_utils.get_tols(half, single, None, None) == (1e-2, 1e-1)
    assert test_utils.get_tols(single, 1.0, None, None) == (1e-4, 1e-3)
    assert test_utils.get_tols(single, single, {np.dtype("float32"): 0.5}, 0.25) == (0.5, 0.25)


def test_a_difference_is_an_error_that_names_the_largest():
    a, b = np.ones((2, 3), "float32"), np.ones((2, 3), "float32")
    assert_almost_equal(mx.nd.array(a), b)
    b[1, 2], b[0, 0] = 2, 1.5
    with pytest.raises(AssertionError, match=r"2 of 6 elements.*\n.*\(1, 2\), got=1.0+, wanted=2.0+\n.*\(0, 0\)"):
        assert_almost_equal(mx.nd.array(a), b, names=("got", "wanted"))
    assert_almost_equal_with_err(a, b, etol=0.5)
    with pytest.raises(AssertionError):
        assert_almost_equal_with_err(a, b, etol=0.3)
    with pytest.raises(AssertionError, match="not equal"):
        assert_almost_equal(a, a[:1], use_broadcast=False)


def test_nan():
    values = np.array([1, np.nan, np.inf])
    assert_almost_equal(values, values, equal_nan=True)
    with pytest.raises(AssertionError):
        assert_almost_equal(values, values)
    test_utils.assert_almost_equal_ignore_nan(values, np.array([1, 5, np.inf]))
    test_utils.assert_allclose(values, values)


def test_booleans_are_compared_exactly():
    assert_almost_equal(np.array([True]), np.array([True]))
    with pytest.raises(AssertionError):
        assert_almost_equal(np.array([True]), np.array([False]))


def test_same_array_is_about_memory():
    x = mx.nd.ones((3,))
    assert test_utils.same_array(x, x[:]) and not test_utils.same_array(x, x.copy())
    assert x.asnumpy().tolist() == [1, 1, 1]


@pytest.mark.parametrize("shape", [(4, 3, 2), (4, 1, 2), (1, 1, 1), (3, 2), (1, 2), (2,), (1,), ()])
def test_collapse_sum_like(shape):
    """The sum over the axes that broadcasting repeats, as NumPy's own broadcasting finds them."""
    a = np.random.randn(4, 3, 2)
    collapsed = collapse_sum_like(a, shape)
    assert collapsed.shape == shape
    weights = np.random.randn(*shape)
    assert (weights * collapsed).sum() == pytest.approx((weights * a).sum())
    with pytest.raises(ValueError, match="broadcast"):
        collapse_sum_like(a, (3, 1, 2))


def test_random_data():
    shape = test_utils.rand_shape_nd(4, 3)
    assert len(shape) == 4 and all(1 <= size <= 3 for size in shape)
    assert len(test_utils.rand_shape_2d()) == 2 and len(test_utils.rand_shape_3d(2, 3, 4)) == 3
    assert test_utils.rand_ndarray((2, 3), dtype="float64").dtype == np.float64
    assert test_utils.rand_ndarray((2, 3), "row_sparse").stype == "row_sparse"
    first, second = test_utils.random_arrays((2,), (3, 4))
    assert first.shape == (2,) and second.dtype == np.float32
    assert sorted(test_utils.random_sample([1, 2, 3], 3)) == [1, 2, 3]
    matrix = test_utils.new_sym_matrix_with_real_eigvals_nd((2, 4, 4))
    assert_almost_equal(matrix, matrix.transpose(0, 2, 1))
    assert np.isrealobj(np.linalg.eigvals(test_utils.new_matrix_with_real_eigvals_2d(3)).real)
    assert test_utils.np_reduce(np.ones((2, 3, 4)), (0, 2), True, np.sum).shape == (1, 3, 1)
    assert test_utils.assign_each(np.arange(3.0), lambda x: x * 2).tolist() == [0, 2, 4]


def test_generators():
    pytest.importorskip("scipy")
    buckets, probs = test_utils.gen_buckets_probs_with_ppf(lambda p: p, 5)
    uniform = lambda n: np.random.uniform(size=n)
    test_utils.verify_generator(uniform, buckets, probs, nsamples=10000)
    with pytest.raises(AssertionError, match="distribution"):
        test_utils.verify_generator(lambda n: np.random.uniform(size=n) ** 2, buckets, probs, nsamples=10000)
    dice = lambda n: np.random.randint(1, 7, n)
    test_utils.verify_generator(dice, list(range(1, 7)), [1 / 6] * 6, nsamples=10000)
    assert test_utils.mean_check(lambda n: np.zeros(n), 0, 1, 100)
    assert not test_utils.mean_check(lambda n: np.ones(n), 0, 1, 100)
    assert not test_utils.var_check(lambda n: np.zeros(n), 1, 100)


def test_environment_is_restored():
    os.environ.pop("HYBRID_LAB_TEST_VALUE", None)
    with test_utils.environment("HYBRID_LAB_TEST_VALUE", "1"):
        assert os.environ["HYBRID_LAB_TEST_VALUE"] == "1"
        with test_utils.environment({"HYBRID_LAB_TEST_VALUE": None}):
            assert "HYBRID_LAB_TEST_VALUE" not in os.environ
        assert os.environ["HYBRID_LAB_TEST_VALUE"] == "1"
    assert "HYBRID_LAB_TEST_VALUE" not in os.environ


def test_contexts():
    assert test_utils.default_context() == mx.cpu()
    try:
        test_utils.set_default_context(mx.cpu(1))
        assert mx.nd.zeros((1,)).context == mx.cpu(1) == test_utils.default_context()
    finally:
        test_utils.set_default_context(mx.cpu())


def test_retry_and_assert_exception():
    runs = []

    @test_utils.retry(3)
    def flaky():
        runs.append(1)
        assert len(runs) == 3

    flaky()
    test_utils.assert_exception(mx.nd.dot, mx.MXNetError, mx.nd.ones((2,)), mx.nd.ones((3,)))
    with pytest.raises(AssertionError, match="did not raise"):
        test_utils.assert_exception(len, TypeError, ())


def test_optimizers_and_blocks():
    test_utils.compare_optimizer(mx.optimizer.SGD(momentum=0.9), mx.optimizer.SGD(momentum=0.9), (3, 4), "float32")
    with pytest.raises(AssertionError):
        test_utils.compare_optimizer(mx.optimizer.SGD(), mx.optimizer.Adam(), (3, 4), "float32")
    data = [mx.nd.random.normal(shape=(2, 3))]
    test_utils.check_gluon_hybridize_consistency(lambda prefix: nn.Dense(4, prefix=prefix), data)

    class Wrong(gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            return x * 2 if F is mx.nd else x * 3

    with pytest.raises(AssertionError):
        test_utils.check_gluon_hybridize_consistency(Wrong, data)


def test_dummy_iter():
    real = mx.io.NDArrayIter(np.arange(4), batch_size=2)
    dummy = test_utils.DummyIter(real)
    assert next(dummy) is next(dummy) and dummy.provide_data == real.provide_data
