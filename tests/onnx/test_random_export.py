"""Random programs exported to ONNX give their numbers in ONNX Runtime. `make test-onnx-programs` compares 2,000."""

from __future__ import annotations

import pytest

from tests.onnx.random_export import compare


@pytest.mark.parametrize("first", [0, 10, 20])
def test_random_programs(first, tmp_path):
    comparison = compare(range(first, first + 10), tmp_path)
    assert not comparison.differences
    assert comparison.outcomes["equal"] > 8, comparison.outcomes
