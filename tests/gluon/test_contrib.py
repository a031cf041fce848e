"""gluon.contrib: containers that run their children side by side, and the layers around them."""

import numpy as np
import pytest

from hybrid_lab import nd
from hybrid_lab.gluon import nn
from hybrid_lab.gluon.contrib import nn as contrib


@pytest.mark.parametrize("hybrid", [False, True])
def test_concurrent_joins_what_its_children_give(hybrid):
    net = contrib.HybridConcurrent(axis=1)
    net.add(contrib.Identity(), nn.Activation("relu"))
    if hybrid:
        net.hybridize()
    x = nd.array([[-1.0, 2.0]])
    np.testing.assert_array_equal(net(x).asnumpy(), [[-1, 2, 0, 2]])
    plain = contrib.Concurrent(axis=0)
    plain.add(contrib.Identity(), nn.Activation("relu"))
    np.testing.assert_array_equal(plain(x).asnumpy(), [[-1, 2], [0, 2]])


def shuffled(x, factors):
    """The formula: pixel (d f + i) of channel c comes from channel c * f1 * .. + i."""
    n, rank = x.shape[0], len(factors)
    parts = x.reshape(n, -1, *factors, *x.shape[2:])
    order = [0, 1] + [axis for k in range(rank) for axis in (2 + rank + k, 2 + k)]
    sizes = [size * factor for size, factor in zip(x.shape[2:], factors, strict=True)]
    return parts.transpose(order).reshape(n, -1, *sizes)


@pytest.mark.parametrize("hybrid", [False, True])
@pytest.mark.parametrize(
    ("layer", "shape", "factors"),
    [
        (contrib.PixelShuffle1D(2), (2, 6, 3), (2,)),
        (contrib.PixelShuffle2D((2, 3)), (2, 12, 3, 2), (2, 3)),
        (contrib.PixelShuffle3D((2, 1, 3)), (1, 12, 2, 3, 2), (2, 1, 3)),
    ],
)
def test_pixel_shuffle(layer, shape, factors, hybrid):
    layer.hybridize(hybrid)
    x = np.arange(np.prod(shape), dtype="float32").reshape(shape)
    np.testing.assert_array_equal(layer(nd.array(x)).asnumpy(), shuffled(x, factors))


def test_sync_batch_norm_is_batch_norm_here():
    layer = contrib.SyncBatchNorm(num_devices=2)
    layer.initialize()
    x = nd.array(np.random.RandomState(0).randn(4, 3, 2))
    assert layer(x).shape == (4, 3, 2)
    assert layer.gamma.shape == (3,)
