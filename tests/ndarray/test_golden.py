"""Arrays behave as MXNet's: every case of tests/golden/ndarray gives MXNet's answer, or a listed difference."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

import hybrid_lab as mx

_FOLDER = Path(__file__).parent.parent / "golden" / "ndarray"
_spec = importlib.util.spec_from_file_location("ndarray_cases", _FOLDER / "cases.py")
cases = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(cases)

GOLDEN = json.loads((_FOLDER / "behaviour.json").read_text())

#: Case -> our answer, where it is another one on purpose; docs/differences.md says why.
DIFFERENT = {"reshape: x.transpose(1, 0, 2).shape": [3, 2, 4]}


@pytest.mark.parametrize(("name", "program"), cases.all_cases(), ids=[name for name, _ in cases.all_cases()])
def test_behaves_as_mxnet(name, program):
    ours = cases.answer(program, mx, np)
    expected = DIFFERENT.get(name, GOLDEN[name])
    assert _close(ours, expected), f"{program}\nours:  {ours}\nMXNet: {GOLDEN[name]}"


def _close(ours, expected):
    if isinstance(ours, dict) and isinstance(expected, dict):
        same = ours["dtype"] == expected["dtype"] and ours["shape"] == expected["shape"]
        return same and np.allclose(ours["values"], expected["values"], rtol=1e-6, atol=1e-7, equal_nan=True)
    if isinstance(ours, list) and isinstance(expected, list):
        return len(ours) == len(expected) and all(map(_close, ours, expected))
    return ours == expected
