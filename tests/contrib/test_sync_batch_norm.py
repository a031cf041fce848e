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
