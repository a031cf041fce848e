"""Reductions of many short rows give what they give row by row, in every dtype and layout."""

from __future__ import annotations

import numpy as np
import pytest

from hybrid_lab.ops import get
from hybrid_lab.ops.framework.run import run_kernel
from hybrid_lab.ops.kernels import short_rows

SHAPES = [(128, 2), (300, 10), (4000, 16), (40, 50, 3), (5000, 16)]
TOLERANCE = {"float16": 2e-3, "float32": 1e-6, "float64": 1e-14}


def test_which_rows_are_short():
    def short(shape, axis):
        return short_rows.are_short(np.empty(shape, "float32"), axis)

    assert short((256, 10), 1) and short((16, 16, 10), 2)
    assert not short((256, 10), 0) and not short((256, 100), 1) and not short((10, 10), 1)
    assert not short((256, 1), 1) and not short((0, 10), 1) and not short((10, 0), 1)


def test_blocks_hold_every_row_once():
    rows = np.arange(20000 * 3, dtype="float32").reshape(-1, 3)
    parts = [rows[part] for part in short_rows.blocks(rows)]
    assert len(parts) > 1 and max(part.nbytes for part in parts) <= 1 << 16
    np.testing.assert_array_equal(np.concatenate(parts), rows)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", ["sum", "mean", "max", "min"])
def test_reductions(name, shape, dtype):
    x = np.random.RandomState(0).uniform(-9, 9, shape).astype(dtype)
    wide = getattr(np, name)(x.astype("float64"), axis=-1, keepdims=True)
    wanted = np.trunc(wide) if dtype == "int32" else wide
    for seen in (x, np.asfortranarray(x)):
        for out in (None, (np.empty_like(wanted, dtype, order="F"),)):
            found = run_kernel(get(name).bind(axis=-1, keepdims=True), [seen], out=out)[0]
            assert found.dtype == dtype and (out is None or found is out[0])
            np.testing.assert_allclose(found, wanted, rtol=TOLERANCE.get(dtype, 0), atol=50 * TOLERANCE.get(dtype, 0))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", ["softmax", "softmin", "log_softmax"])
def test_the_softmax_family(name, shape, dtype):
    x = np.random.RandomState(0).uniform(-9, 9, shape).astype(dtype)
    op = get(name).bind(temperature=2.0)
    exponents = x.astype("float64") / (-2.0 if name == "softmin" else 2.0)
    shifted = exponents - exponents.max(axis=-1, keepdims=True)
    logarithm = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    wanted = logarithm if name == "log_softmax" else np.exp(logarithm)
    kept = x.copy()
    for seen in (x, np.asfortranarray(x)):
        np.testing.assert_allclose(run_kernel(op, [seen])[0], wanted, rtol=4 * TOLERANCE[dtype], atol=TOLERANCE[dtype])
        np.testing.assert_array_equal(x, kept)
    assert run_kernel(op, [x], out=(x,))[0] is x  # planners give it its input's memory
    np.testing.assert_allclose(x, wanted, rtol=4 * TOLERANCE[dtype], atol=TOLERANCE[dtype])


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_what_is_not_finite_stays_in_its_row():
    x = np.zeros((200, 4), "float32")
    x[3, 1], x[5, 2], x[7] = np.nan, -np.inf, -np.inf
    y = run_kernel(get("softmax").bind(), [x])[0]
    assert np.isnan(y[[3, 7]]).all() and np.isfinite(y[[0, 4, 6, 8]]).all()
    np.testing.assert_allclose(y[5], [1 / 3, 1 / 3, 0, 1 / 3], rtol=1e-6)
    np.testing.assert_array_equal(run_kernel(get("max").bind(axis=1), [x])[0][[3, 5, 7]], [np.nan, 0, -np.inf])
