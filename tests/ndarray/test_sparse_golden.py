"""Sparse arrays behave as MXNet's: every case of tests/golden/sparse gives MXNet's answer, or a listed difference."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

import hybrid_lab as mx

_FOLDER = Path(__file__).parent.parent / "golden" / "sparse"
_spec = importlib.util.spec_from_file_location("sparse_cases", _FOLDER / "cases.py")
cases = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(cases)

CASES = cases.all_cases()
GOLDEN = json.loads((_FOLDER / "sparse.json").read_text())

#: What MXNet refuses and this package computes: the storage type and the values, as of dense arrays.
ACCEPTED = {
    "nd.clip(c, 0.25, 1.0)": ("default", "nd.clip(x, 0.25, 1.0)"),
    "nd.clip(r, 0.25, 1.0)": ("default", "nd.clip(x, 0.25, 1.0)"),
    "assign sparse to dense": ("default", "x"),
    "gradients that add up": ("row_sparse", "2 * nd.dot(x.T, nd.ones((4, 2)))"),
}


@pytest.mark.parametrize("name", CASES)
def test_behaves_as_mxnet(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ours, theirs = cases.answer(CASES[name], mx, np), GOLDEN[name]
    if name in ACCEPTED:
        stype, same = ACCEPTED[name]
        assert theirs == "error" and ours["stype"] == stype
        assert np.allclose(ours["values"], cases.answer(f"result = {same}", mx, np)["values"])
        return
    assert close(ours, theirs), f"{CASES[name]}\nours:  {ours}\nMXNet: {theirs}"


def close(ours, theirs):
    if isinstance(ours, dict) and isinstance(theirs, dict):
        kind = [key for key in theirs if key != "values"]
        same = [ours.get(key) for key in kind] == [theirs[key] for key in kind]
        return same and np.allclose(ours["values"], theirs["values"], rtol=2e-5, atol=1e-6, equal_nan=True)
    if isinstance(ours, list) and isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(close, ours, theirs))
    return ours == (pytest.approx(theirs, rel=1e-5) if isinstance(theirs, float) else theirs)
