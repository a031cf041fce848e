"""A part of ONNX's cases for operators; `make test-onnx` runs all of them, hybridized too."""

from __future__ import annotations

import pytest

from hybrid_lab.onnx.errors import OnnxError

pytest.importorskip("onnx")

from tests.onnx import node_suite

EVERY = 4
"""One case of so many runs here."""
NAMES = sorted(node_suite.cases())
RUNNING = [name for name in NAMES if name not in node_suite.excluded()]


@pytest.mark.parametrize("name", RUNNING[::EVERY])
def test_case(name):
    node_suite.run(node_suite.cases()[name])


@pytest.mark.parametrize("name", RUNNING[1 :: 8 * EVERY])
def test_case_hybridized(name):
    node_suite.run(node_suite.cases()[name], hybridize=True)


@pytest.mark.parametrize("name", sorted(node_suite.excluded()))
def test_an_excluded_case_is_refused_by_a_typed_error(name):
    """A case that runs by now must leave the list."""
    reason, case = node_suite.excluded()[name], node_suite.cases().get(name)
    if case is None:
        pytest.skip("this version of onnx does not bring the case")
    with pytest.raises(node_suite.OTHERWISE.get(reason, OnnxError)):
        node_suite.run(case)


def test_most_cases_are_no_exceptions():
    assert len(RUNNING) >= 1500
