"""What the real MXNet 1.9.1 refuses is refused here with a type, and whole numbers are cut where MXNet cuts them."""

from __future__ import annotations

import numpy as np
import pytest

from hybrid_lab import autograd, nd
from hybrid_lab.diagnostics.errors import AttributeSpecError, DTypeError, ShapeError
from hybrid_lab.gluon import nn

ONES = np.ones((2, 3), np.float32)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda x: nd.sum(x, axis=(0, -2)), ShapeError, "names one axis twice; the input has 2 dimensions"),
        (lambda x: nd.max(x, axis=(1, 1)), ShapeError, "names one axis twice; the input has 2 dimensions"),
        (lambda x: nd.norm(x, axis=1, exclude=True), AttributeSpecError, "no attribute exclude"),
        (
            lambda x: nd.reshape_like(x, x, lhs_begin=0, lhs_end=3, rhs_begin=0, rhs_end=2),
            ShapeError,
            "no range of the dimensions",
        ),
        (lambda x: nd.multi_all_finite(x, x, num_arrays=3), ShapeError, "2 arrays were given"),
        (lambda x: nd.SoftmaxActivation(x, mode="channel"), ShapeError, "3 or more dimensions"),
        (
            lambda x: nd.Pooling(nd.ones((1, 1, 2, 2)), global_pool=True, kernel=(0, 2)),
            AttributeSpecError,
            "at least 1",
        ),
        (lambda x: nd.contrib.MultiBoxPrior(nd.ones((1, 1, 2, 2)), offsets=(0, 1.5)), AttributeSpecError, "must be in"),
        (
            lambda x: nd.Pooling(nd.ones((1, 1, 2), dtype="int32"), kernel=2, pool_type="lp", p_value=2),
            DTypeError,
            "needs floating numbers",
        ),
        (lambda x: nd.L2Normalization(x, mode="channel"), ShapeError, "needs more dimensions"),
        (
            lambda x: nd.Pooling_v1(nd.ones((1, 1, 2, 2)), global_pool=True, kernel=(1, 1), pooling_convention="same"),
            AttributeSpecError,
            "must be 'valid' or 'full'",
        ),
        (lambda x: nd.reverse(x, axis=(1, -1)), ShapeError, "twice"),
        (lambda x: nd.squeeze(nd.ones((1, 2, 3)), axis=(0, -3)), ShapeError, "twice"),
        (lambda x: nd.SoftmaxOutput(x, nd.zeros(2), smooth_alpha=1.5), AttributeSpecError, "must be in"),
        (lambda x: nd.ftml_update(x, x, x, x, x, lr=0.1, t=1, beta1=1.5), AttributeSpecError, "both must be in"),
        (
            lambda x: nd.contrib.ROIAlign(nd.ones((1, 1, 4, 4)), nd.zeros((1, 5)), pooled_size=(2, 2), spatial_scale=2),
            AttributeSpecError,
            "at most 1",
        ),
        (
            lambda x: nd.contrib.RROIAlign(
                nd.ones((1, 1, 4, 4)), nd.zeros((1, 6)), pooled_size=(2, 2), spatial_scale=2
            ),
            AttributeSpecError,
            "at most 1",
        ),
        (lambda x: nd.arange(3, repeat=0), AttributeSpecError, "at least 1 is needed"),
        (
            lambda x: nd.contrib.interleaved_matmul_selfatt_qk(nd.ones((2, 1, 6)), heads=0),
            AttributeSpecError,
            "heads=0",
        ),
    ],
)
def test_refusals(call, error, text):
    with pytest.raises(error, match=text):
        call(nd.array(ONES))


@pytest.mark.parametrize(
    ("low", "kind", "values", "dtype", "ends"),
    [
        (0.1, "auto", [0, 0, 158, 255], np.uint8, (0, 3)),
        (-0.1, "auto", [-128, 0, 79, 127], np.int8, (-3, 3)),
        (-0.1, "uint8", [0, 0, 158, 255], np.uint8, (0, 3)),
        (0.1, "int8", [-128, 0, 79, 127], np.int8, (-3, 3)),
    ],
)
def test_requantize_to_uint8(low, kind, values, dtype, ends):
    data = nd.array(np.array([-(2**31) + 1, 7, 10**9, 2**31 - 1]), dtype="int32")
    result, least, most = nd.contrib.requantize(
        data, nd.array([-4.0]), nd.array([4.0]), out_type=kind, min_calib_range=low, max_calib_range=3
    )
    assert result.dtype == dtype and result.asnumpy().tolist() == values
    assert (least.asscalar(), most.asscalar()) == ends


def test_arange_like_of_whole_numbers():
    """MXNet cuts start and step, not the results."""
    data = nd.array(np.zeros((3, 2)), dtype="int32")
    assert nd.contrib.arange_like(data, axis=0, start=-1.5, step=0.5).asnumpy().tolist() == [-1, -1, -1]
    assert nd.contrib.arange_like(data, axis=0, start=2.75, step=1.5).asnumpy().tolist() == [2, 3, 4]


def test_pooling_v1_sees_zeros_in_the_padding():
    """As MXNet computes it; Pooling sees nothing there."""
    data = nd.array([[[[-1.0, -2.0], [-3.0, -4.0]]]])
    result = nd.Pooling_v1(data, kernel=(2, 2), stride=(1, 1), pad=(1, 1), pool_type="max").asnumpy()
    assert result.tolist() == [[[[0, 0, 0], [0, -1, 0], [0, 0, 0]]]]


def test_multi_lars_with_a_negative_scale():
    """Whether a gradient counts follows from its norm, not from its scale."""
    numbers = [nd.array([value]) for value in (1.0, 4.0, 1.0, 0.0)]
    assert nd.multi_lars(*numbers, eta=0.01, eps=0.0, rescale_grad=-0.5).asscalar() == pytest.approx(-0.04)


def test_amp_cast_leaves_float64():
    data = nd.array(ONES, dtype="float64")
    assert nd.amp_cast(data, dtype="float16").dtype == np.float64
    assert nd.amp_cast(data.astype("float32"), dtype="float16").dtype == np.float16


@pytest.mark.parametrize("engine", [None, "numpy"])
def test_the_gradient_of_prelu_in_a_layer(engine):
    """The shape of the slopes is not known when the gradient is written."""
    layer = nn.PReLU()
    layer.initialize()
    if engine:
        layer.hybridize(engine=engine)
    data = nd.array([[1.0, -2.0]])
    data.attach_grad()
    with autograd.record():
        result = layer(data)
    result.backward()
    assert data.grad.asnumpy().tolist() == [[1.0, 0.25]] and layer.alpha.grad().asscalar() == -2.0
