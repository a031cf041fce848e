"""contrib.SyncBatchNorm is BatchNorm in one process."""

from __future__ import annotations

import numpy as np

import hybrid_lab as mx


def test_it_is_batch_norm():
    inputs = [mx.nd.random.normal(shape=(2, 3, 4)), *(mx.nd.random.uniform(1, 2, shape=(3,)) for _ in range(4))]
    together = mx.nd.contrib.SyncBatchNorm(*inputs, key="norm", ndev=4, eps=1e-3, fix_gamma=False)
    np.testing.assert_array_equal(together.asnumpy(), mx.nd.BatchNorm(*inputs, eps=1e-3, fix_gamma=False).asnumpy())
    symbol = mx.sym.contrib.SyncBatchNorm(mx.sym.var("x"), key="norm", ndev=4, name="norm")
    assert symbol.list_arguments() == ["x", "norm_gamma", "norm_beta"]
    assert symbol.list_auxiliary_states() == ["norm_moving_mean", "norm_moving_var"]


def test_its_third_output_is_the_variance():
    x = np.random.RandomState(0).rand(4, 2, 3).astype("float32")
    gamma, beta, mean, var = (mx.nd.array([value] * 2) for value in (1, 0, 0, 1))
    options = {"key": "norm", "eps": 1e-3, "fix_gamma": False, "output_mean_var": True}
    with mx.autograd.record():
        made = mx.nd.contrib.SyncBatchNorm(mx.nd.array(x), gamma, beta, mean, var, **options)
    inputs = {"x": mx.nd.array(x), "norm_gamma": gamma, "norm_beta": beta}
    symbol = mx.sym.contrib.SyncBatchNorm(mx.sym.var("x"), name="norm", **options)
    executor = symbol.bind(mx.cpu(), inputs, aux_states={"norm_moving_mean": mean, "norm_moving_var": var})
    for outputs in (made, executor.forward(is_train=True)):
        np.testing.assert_allclose(outputs[1].asnumpy(), x.mean((0, 2)), rtol=1e-5)
        np.testing.assert_allclose(outputs[2].asnumpy(), x.var((0, 2)), rtol=1e-4)
