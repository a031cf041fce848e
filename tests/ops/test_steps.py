"""Recorded lowerings: a second call repeats the kernels of the first, and neither writes where others read."""

import numpy as np
import pytest

from hybrid_lab import ops
from hybrid_lab.ops.framework.lowering import draw_lowering, run_lowering
from hybrid_lab.ops.framework.namespace import Namespace
from hybrid_lab.ops.framework.run import apply_numpy, run_kernel

RNG = (3, 4)
TOLERANCE = {"float64": 1e-12, "float32": 2e-6, "float16": 2e-3}
LOWERED = [
    (record, number)
    for record in ops.records()
    if record.numpy in (run_lowering, draw_lowering)
    for number in range(len(record.samples))
]


def _directly(op, inputs):
    """The lowering without a recording."""
    results = op.lower(Namespace(lambda part, values: apply_numpy(part, values, rng=RNG)), *inputs)
    return results if isinstance(results, tuple) else (results,)


@pytest.mark.parametrize(("record", "number"), LOWERED, ids=lambda item: getattr(item, "name", item))
@pytest.mark.parametrize("workspace", [False, True])
def test_a_repeated_call_computes_what_the_lowering_says(record, number, workspace, monkeypatch):
    if workspace:  # where temporaries lie that are larger than those of samples
        monkeypatch.setattr("hybrid_lab.ops.framework.steps._LARGE", 1)
    sample = record.samples[number]
    op = record.bind(**sample.attributes)
    op.recordings.clear()
    first = sample.arrays(record.name)
    second = [item[::-1].copy() if isinstance(item, np.ndarray) and item.dtype.kind == "f" else item for item in first]
    copies = [np.copy(item) for item in second]
    before = [np.copy(item) for item in run_kernel(op, first, rng=RNG)]
    again = run_kernel(op, first, rng=RNG)
    other = run_kernel(op, second, rng=RNG)
    for left, right in zip(again, before, strict=True):  # also after the third call
        np.testing.assert_array_equal(left, right)
    for result, wanted in zip(other, _directly(op, second), strict=True):
        assert (result.dtype, result.shape) == (wanted.dtype, wanted.shape)
        within = TOLERANCE.get(result.dtype.name, 0)
        np.testing.assert_allclose(result, wanted, rtol=within, atol=within)
    for item, copy in zip(second, copies, strict=True):
        np.testing.assert_array_equal(item, copy)
        assert not any(np.may_share_memory(item, result) for result in other if isinstance(item, np.ndarray))
    op.recordings.clear()


def test_recordings_do_not_grow_without_end(monkeypatch):
    monkeypatch.setattr("hybrid_lab.ops.framework.steps._KEPT", 4)
    op = ops.get("add_n").bind()
    op.recordings.clear()
    for size in range(1, 20):
        np.testing.assert_array_equal(op.numpy(np.ones(size), np.ones(size)), np.full(size, 2.0))
        assert len(op.recordings) <= 4
