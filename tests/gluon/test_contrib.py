"""gluon.contrib: containers that run their children side by side, and the layers around them."""

import numpy as np
import pytest

from hybrid_lab import autograd, nd
from hybrid_lab.gluon import nn
from hybrid_lab.gluon.contrib import cnn
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


@pytest.mark.parametrize("kind", [cnn.DeformableConvolution, cnn.ModulatedDeformableConvolution])
def test_deformable_convolution_without_offsets_is_a_convolution(kind):
    net = kind(3, kernel_size=3, strides=2, padding=1, num_deformable_group=2)
    net.initialize()
    x = nd.random.normal(shape=(2, 4, 6, 5))
    y = net(x)  # the weights of the offsets are 0, and a mask of 0 weighs everything with 2 sigmoid(0) = 1
    weight, bias = net.deformable_conv_weight.data(), net.deformable_conv_bias.data()
    expected = nd.Convolution(x, weight, bias, kernel=(3, 3), stride=(2, 2), pad=(1, 1), num_filter=3)
    np.testing.assert_allclose(y.asnumpy(), expected.asnumpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", [cnn.DeformableConvolution, cnn.ModulatedDeformableConvolution])
def test_deformable_convolution_hybrid_equals_eager(kind):
    net = kind(3, kernel_size=(2, 3), padding=(1, 0), offset_weight_initializer="normal", activation="relu")
    net.initialize()
    x = nd.random.normal(shape=(2, 4, 6, 5))

    def results():
        with autograd.record():
            y = net(x)
        y.backward()
        return [y.asnumpy(), *(parameter.grad().asnumpy() for parameter in net.collect_params().values())]

    eager = results()
    net.hybridize()
    for found, expected in zip(results(), eager, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert "4 -> 3, kernel_size=(2, 3)" in repr(net)


def test_deformable_convolution_refuses_channels_last():
    with pytest.raises(ValueError, match="NCHW"):
        cnn.DeformableConvolution(3, layout="NHWC")
