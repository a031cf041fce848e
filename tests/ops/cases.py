"""The samples of all records as test cases: parametrization, inputs, tolerances."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from itertools import groupby
from typing import Any

import numpy as np
import pytest

from hybrid_lab import ops
from hybrid_lab.ops.framework.run import run_kernel
from hybrid_lab.ops.framework.sample import Sample
from tests.seeds import same_random_numbers

RNG = (7, 3)


class Case:
    """One sample of one record, bound in training mode."""

    def __init__(self, record: Any, sample: Sample, number: int):
        self.record, self.sample, self.number = record, sample, number
        self.id = f"{record.name}-{number}"

    def __repr__(self) -> str:
        return f"{self.record.name}({self.sample})"

    @property
    def op(self) -> Any:
        return self.record.bind(**self.sample.attributes).bind_mode(True)

    def inputs(self, dtype: str | None = None) -> list[Any]:
        return self.sample.arrays(self.record.name, dtype)

    def outputs(self, inputs: list[Any] | None = None) -> tuple[np.ndarray, ...]:
        return run_kernel(self.op, self.inputs() if inputs is None else inputs, rng=RNG)


#: The records of this room; other rooms register a few of their own.
RECORDS = [record for record in ops.records() if record.__module__.startswith("hybrid_lab.ops.")]
CASES = [Case(record, sample, number) for record in RECORDS for number, sample in enumerate(record.samples)]


def each_sample(condition: Callable[[Case], object] = lambda case: True) -> Callable[[Any], Any]:
    """Run a test of one `case` for every sample that fulfils a condition: one test for each record, which runs all of
    the record's samples and stops at the first that fails. It is skipped if all of its samples are.
    """
    chosen = groupby(filter(condition, CASES), key=lambda case: case.record.name)
    groups = {name: list(cases) for name, cases in chosen}

    def decorate(test: Any) -> Any:
        @functools.wraps(test)
        def run_samples(cases: list[Case], **arguments: Any) -> None:
            skipped = []
            for case in cases:
                same_random_numbers()
                try:
                    test(case=case, **arguments)
                except pytest.skip.Exception as reason:
                    skipped.append(reason)
                except Exception as error:
                    error.add_note(f"of the sample {case.id}, {case!r}")
                    raise
            if len(skipped) == len(cases):
                raise skipped[0]

        parameters = inspect.signature(test).parameters.values()
        run_samples.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [one.replace(name="cases", annotation=list) if one.name == "case" else one for one in parameters]
        )
        return pytest.mark.parametrize("cases", groups.values(), ids=list(groups))(run_samples)

    return decorate


def close(actual: Any, expected: Any, tolerance: float = 1e-5) -> None:
    """Equal up to a tolerance relative to the largest expected value; float16 and bfloat16 up to their own rounding."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.shape == expected.shape
    if actual.dtype == np.float16 or expected.dtype == np.float16:
        tolerance = max(tolerance, 4e-3)
    if "bfloat16" in (actual.dtype.name, expected.dtype.name):
        tolerance = max(tolerance, 2.0**-7)
    actual, expected = actual.astype(np.float64), expected.astype(np.float64)
    np.testing.assert_array_equal(np.isnan(actual), np.isnan(expected))
    scale = max(np.max(np.abs(expected[np.isfinite(expected)]), initial=0.0), 1e-30)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance * max(scale, 1e-3))
