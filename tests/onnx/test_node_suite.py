"""A part of ONNX's cases for operators; `make test-onnx` runs all of them, hybridized too."""

from __future__ import annotations

from functools import cache

import pytest

from hybrid_lab.onnx.errors import OnnxError
from tests import quick
from tests.failures import Failures
from tests.seeds import same_random_numbers

pytest.importorskip("onnx")

from tests.onnx import node_suite

EVERY = 4 if quick.ALL else 8
"""One case of so many runs here."""


@cache
def running() -> list[str]:
    """Cases are generated when a test asks for them, which takes seconds: in one process of many."""
    return [name for name in sorted(node_suite.cases()) if name not in node_suite.excluded()]


@pytest.mark.parametrize("hybridize", [False, True])
def test_cases(hybridize):
    failures = Failures()
    for name in running()[1 :: 8 * EVERY] if hybridize else running()[::EVERY]:
        with failures.of(name):
            same_random_numbers()
            node_suite.run(node_suite.cases()[name], hybridize)
    failures.raise_all()


def test_excluded_cases_are_refused_by_typed_errors():
    """A case that runs by now must leave the list; one that this version of onnx does not bring is passed over."""
    failures = Failures()
    for name, reason in node_suite.excluded().items():
        case = node_suite.cases().get(name)
        if case is not None:
            with failures.of(f"{name} ({reason})"), pytest.raises(node_suite.OTHERWISE.get(reason, OnnxError)):
                same_random_numbers()
                node_suite.run(case)
    failures.raise_all()


def test_most_cases_are_no_exceptions():
    assert len(running()) >= 1500
