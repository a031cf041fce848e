"""Numbers of 8 bits: ranges, roundings at the ends, refusals."""

from __future__ import annotations

import numpy as np
import pytest

from hybrid_lab import nd
from hybrid_lab.diagnostics.errors import DTypeError, ShapeError
from hybrid_lab.ops.elementwise.quantize import STEPS
from hybrid_lab.ops.layers.quantized import scale_of


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_dequantize_undoes_quantize_up_to_half_a_step(dtype):
    x = nd.array(np.linspace(0 if dtype == "uint8" else -2, 2, 50))
    made = nd.contrib.quantize_v2(x, out_type=dtype)
    assert made[0].dtype == np.dtype(dtype)
    step = 2 / (127.5 if dtype == "int8" else 255.5)
    np.testing.assert_allclose(nd.contrib.dequantize(*made).asnumpy(), x.asnumpy(), atol=step / 2 + 1e-6)


def test_auto_is_uint8_where_nothing_is_below_zero():
    x = nd.array([-1.0, 0.5, 3.0])
    made = nd.contrib.quantize_v2(x, out_type="auto", min_calib_range=0.0, max_calib_range=1.0)
    np.testing.assert_array_equal(made[0].asnumpy(), [0, 128, 255])
    signed = nd.contrib.quantize_v2(x, out_type="auto", min_calib_range=-1.0, max_calib_range=1.0)
    np.testing.assert_array_equal(signed[0].asnumpy(), [-128, 64, 127])


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("low, high", [(-4.0, 2.0), (0.0, 0.25), (-1.0, 1.0)])
def test_the_scale_takes_the_larger_end_of_a_range_to_the_end_of_the_dtype(low, high, dtype):
    assert scale_of(dtype, low, high) == np.float32(STEPS[dtype]) / np.float32(max(-low, high))


def test_refusals():
    with pytest.raises(DTypeError, match="data must be float32 or int8, it is float64"):
        nd.contrib.quantize_v2(nd.ones((2,), dtype="float64"))
    with pytest.raises(ShapeError, match="it has no range"):
        nd.contrib.quantize_v2(nd.zeros((0, 3)))
    with pytest.raises(ShapeError, match="odd number of bins"):
        nd.contrib.calibrate_entropy(nd.ones((4,)), nd.ones((5,)), num_quantized_bins=3)


def test_calibrate_entropy_cuts_off_what_is_rare():
    x = np.random.RandomState(0).normal(size=20000)
    x[0] = 9  # far away from all others
    counts, edges = np.histogram(x, bins=1001, range=(-10, 10))
    threshold, divergence = nd.contrib.calibrate_entropy(nd.array(counts), nd.array(edges), num_quantized_bins=31)
    np.testing.assert_allclose([threshold.asscalar(), divergence.asscalar()], [3.6663337, 0.00825983], rtol=1e-4)
