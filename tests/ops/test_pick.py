"""pick and its gradient by flat positions: any layout in memory, axes of nothing."""

from __future__ import annotations

import numpy as np
import pytest

from hybrid_lab.ops import get
from hybrid_lab.ops.framework.run import run_kernel

SHAPE = (3, 4, 5)


def labels(axis: int, dtype: str) -> np.ndarray:
    shape = SHAPE[:axis] + SHAPE[axis + 1 :]
    return np.random.RandomState(axis).randint(-3, 9, shape).astype(dtype)


def within(index: np.ndarray, size: int, mode: str) -> np.ndarray:
    whole = index.astype(np.int64)
    return whole % size if mode == "wrap" else np.clip(whole, 0, size - 1)


@pytest.mark.parametrize("layout", ["contiguous", "transposed"])
@pytest.mark.parametrize("dtype", ["float32", "int64"])
@pytest.mark.parametrize("mode", ["clip", "wrap"])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_any_axis_and_any_layout(axis, mode, dtype, layout):
    data = np.random.RandomState(0).uniform(-1, 1, SHAPE).astype("float32")
    index = labels(axis, dtype)
    kept = index.copy()
    places = np.expand_dims(within(index, SHAPE[axis], mode), axis)
    wanted = np.take_along_axis(data, places, axis).squeeze(axis)
    seen = data if layout == "contiguous" else np.asfortranarray(data)
    np.testing.assert_array_equal(run_kernel(get("pick").bind(axis=axis, mode=mode), [seen, index])[0], wanted)

    gradient = np.zeros(SHAPE, "float32")
    np.put_along_axis(gradient, places, np.expand_dims(wanted, axis), axis)
    out = np.full(SHAPE, 7, "float32", order="C" if layout == "contiguous" else "F")
    op = get("_pick_grad").bind(axis=axis, mode=mode)
    assert run_kernel(op, [wanted, data, index], out=(out,))[0] is out
    np.testing.assert_array_equal(out, gradient)
    np.testing.assert_array_equal(run_kernel(op, [wanted, data, index])[0], gradient)
    np.testing.assert_array_equal(index, kept)


@pytest.mark.parametrize(("shape", "axis"), [((0, 4), 1), ((3, 0), 0), ((0, 0), 1), ((2, 3, 0), 1)])
def test_where_there_is_nothing_to_pick(shape, axis):
    data = np.empty(shape, "float32")
    index = np.empty(shape[:axis] + shape[axis + 1 :], "float32")
    assert run_kernel(get("pick").bind(axis=axis), [data, index])[0].shape == index.shape
    assert run_kernel(get("_pick_grad").bind(axis=axis), [index, data, index])[0].shape == shape
