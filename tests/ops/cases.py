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
from tests import quick
from tests.failures import Failures
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


#: A condition on samples.
Condition = Callable[[Case], object]


def by_record(condition: Condition = lambda case: True) -> dict[str, list[Case]]:
    """The samples that fulfil a condition, by the names of their records; for `make check` the first of each."""
    chosen = groupby(filter(condition, CASES), key=lambda case: case.record.name)
    return {name: list(cases)[: 1 if quick.QUICK else None] for name, cases in chosen}


def each_sample(condition: Condition = lambda case: True) -> Callable[[Any], Any]:
    """Run a test of one `case` for every sample that fulfils a condition: one item for each record, which runs all of
    the record's samples and names each that fails. It is skipped if all of its samples are.
    """
    groups = by_record(condition)

    def decorate(test: Any) -> Any:
        @functools.wraps(test)
        def run_samples(cases: list[Case], **arguments: Any) -> None:
            failures = Failures()
            for case in cases:
                same_random_numbers()
                with failures.of(f"the sample {case.id}, {case!r}"):
                    test(case=case, **arguments)
            failures.raise_all()

        parameters = inspect.signature(test).parameters.values()
        run_samples.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [one.replace(name="cases", annotation=list) if one.name == "case" else one for one in parameters]
        )
        return pytest.mark.parametrize("cases", groups.values(), ids=list(groups))(run_samples)

    return decorate


class Contract:
    """Checks that hold for every record: one item for each record runs all of them on all of its samples, and names
    each check and sample that fails.

        contract = Contract()

        @contract.each_sample(lambda case: case.record.view)
        def a_view_shares_memory(case): ...

        @contract.each_record()
        def it_is_documented(record): ...

        test_records = contract.test()

    Conditions are asked when the item runs. Random numbers start anew before each check of each sample.
    """

    def __init__(self) -> None:
        self.of_samples: list[tuple[Callable[[Case], None], Condition]] = []
        self.of_records: list[tuple[Callable[[Any], None], Callable[[Any], object]]] = []

    def each_sample(self, condition: Condition = lambda case: True) -> Callable[[Any], Any]:
        def decorate(check: Any) -> Any:
            self.of_samples.append((check, condition))
            return check

        return decorate

    def each_record(self, condition: Callable[[Any], object] = lambda record: True) -> Callable[[Any], Any]:
        def decorate(check: Any) -> Any:
            self.of_records.append((check, condition))
            return check

        return decorate

    def run(self, cases: list[Case]) -> None:
        """Run all checks on the samples of one record."""
        failures, record = Failures(), cases[0].record
        for check, condition in self.of_records:
            with failures.of(f"{check.__name__}, {record.name}"):
                if condition(record):
                    same_random_numbers()
                    check(record)
        for check, condition in self.of_samples:
            for case in cases:
                with failures.of(f"{check.__name__}, the sample {case.id}, {case!r}"):
                    if condition(case):
                        same_random_numbers()
                        check(case)
        failures.raise_all()

    def idle(self) -> list[str]:
        """The names of checks whose condition no record or sample fulfils."""
        return [check.__name__ for check, condition in self.of_records if not any(map(condition, RECORDS))] + [
            check.__name__ for check, condition in self.of_samples if not any(map(condition, CASES))
        ]

    def test(self, chosen: Condition = lambda case: True) -> Any:
        """The test; `chosen` leaves out records of which no check would run."""
        groups = by_record(chosen)

        @pytest.mark.parametrize("cases", groups.values(), ids=list(groups))
        def test_contract(cases: list[Case]) -> None:
            self.run(cases)

        return test_contract


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
