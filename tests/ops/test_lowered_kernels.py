"""Kernels that run the lowering of their record: they leave their inputs alone, and give what the record infers."""

from itertools import product

import numpy as np
import pytest

from hybrid_lab import ops
from hybrid_lab.diagnostics.errors import DTypeError
from hybrid_lab.ops.framework.lowering import draw_lowering, run_lowering
from hybrid_lab.ops.framework.run import infer, run_kernel
from hybrid_lab.ops.linalg.linalg_solve import Solver
from tests.failures import Failures
from tests.seeds import same_random_numbers

RNG = (3, 4)
LOWERED = [record for record in ops.records() if record.numpy in (run_lowering, draw_lowering)]


def _infer(op, inputs):
    return infer(
        op,
        tuple(item.shape if isinstance(item, np.ndarray) else () for item in inputs),
        tuple(item.dtype if isinstance(item, np.ndarray) else None for item in inputs),
    )


@pytest.mark.parametrize("record", LOWERED, ids=lambda record: record.name)
def test_results_are_what_is_inferred_and_lie_in_memory_of_their_own(record):
    failures = Failures()
    for (number, sample), dtype in product(enumerate(record.samples), ["float16", "float32", "float64"]):
        with failures.of(f"sample {number} in {dtype}, {sample}"):
            same_random_numbers()
            check(record, sample, dtype)
    failures.raise_all()


def check(record, sample, dtype):
    op = record.bind(**sample.attributes)
    inputs = [
        item.astype(dtype) if isinstance(item, np.ndarray) and item.dtype.kind == "f" else item
        for item in sample.arrays(record.name)
    ]
    copies = [np.copy(item) for item in inputs]
    if dtype == "float16" and issubclass(record, Solver):
        with pytest.raises(DTypeError, match="float32 or float64 is needed"):
            _infer(op, inputs)
        return
    shapes, dtypes = _infer(op, inputs)
    results = run_kernel(op, inputs, rng=RNG)
    for result, shape, kind in zip(results, shapes, dtypes, strict=True):
        assert (result.shape, result.dtype) == (tuple(shape), kind)
    for item, copy in zip(inputs, copies, strict=True):
        np.testing.assert_array_equal(item, copy)
        assert not any(np.may_share_memory(item, result) for result in results)
