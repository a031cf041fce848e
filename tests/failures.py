"""Several checks in one test: all of them run, and every one that fails is reported by its name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest


class Failures:
    """What failed in one test.

        failures = Failures()
        for case in cases:
            with failures.of(case):
                assert case.found == case.wanted
        failures.raise_all()

    A check that skips is counted in `skipped`; the others of the test run. What ends the whole test (an interrupt, its
    time limit) ends it at once.
    """

    def __init__(self) -> None:
        self.errors: list[Exception] = []
        self.skipped: list[Any] = []
        self.checks = 0

    @contextmanager
    def of(self, label: object) -> Iterator[None]:
        """Run one check; what it raises is reported with the label by `raise_all`."""
        self.checks += 1
        try:
            yield
        except pytest.skip.Exception as reason:
            self.skipped.append(reason)
        except pytest.fail.Exception as failure:
            if "pytest-timeout" in str(failure):
                raise
            error = AssertionError(str(failure)).with_traceback(failure.__traceback__)
            error.add_note(f"of {label}")
            self.errors.append(error)
        except Exception as error:
            error.add_note(f"of {label}")
            self.errors.append(error)

    def raise_all(self) -> None:
        """Raise the only error, or all of them as a group; skip the test if every check was skipped."""
        if len(self.errors) == 1:
            raise self.errors[0]
        if self.errors:
            names = "; ".join(error.__notes__[-1] for error in self.errors)
            raise ExceptionGroup(f"{len(self.errors)} of {self.checks} checks fail: {names}", self.errors)
        if self.skipped and len(self.skipped) == self.checks:
            raise self.skipped[0]
