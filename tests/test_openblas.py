"""OpenBLAS' kernels on AMD processors with AVX-512."""

from __future__ import annotations

import sys

import pytest

from hybrid_lab.system import openblas as _openblas

NEWER = """processor\t: 0
vendor_id\t: AuthenticAMD
flags\t\t: fpu avx2 avx512f avx512dq avx512bw avx512vl

processor\t: 1
"""


@pytest.fixture
def cpuinfo(tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, "numpy", raising=False)
    file = tmp_path / "cpuinfo"
    file.write_text(NEWER)
    return file


def test_the_wide_kernels_are_named_where_they_exist(cpuinfo):
    environment: dict[str, str] = {}
    _openblas.choose_kernels(environment, str(cpuinfo))
    assert environment == {"OPENBLAS_CORETYPE": "SkylakeX"}
    assert _openblas.advice(environment, str(cpuinfo)) == ""


@pytest.mark.parametrize("old, new", [("avx512f ", ""), ("AuthenticAMD", "GenuineIntel")])
def test_other_processors_are_left_alone(cpuinfo, old, new):
    cpuinfo.write_text(NEWER.replace(old, new))
    environment: dict[str, str] = {}
    _openblas.choose_kernels(environment, str(cpuinfo))
    assert environment == {} and _openblas.advice({}, str(cpuinfo)) == ""


def test_what_somebody_set_stays(cpuinfo):
    environment = {"OPENBLAS_CORETYPE": "Zen"}
    _openblas.choose_kernels(environment, str(cpuinfo))
    assert environment == {"OPENBLAS_CORETYPE": "Zen"}


def test_too_late_is_said(cpuinfo, monkeypatch):
    monkeypatch.setitem(sys.modules, "numpy", object())
    environment: dict[str, str] = {}
    _openblas.choose_kernels(environment, str(cpuinfo))
    assert environment == {}
    assert "set OPENBLAS_CORETYPE=SkylakeX before Python starts" in _openblas.advice(environment, str(cpuinfo))


def test_no_cpuinfo_is_no_error(tmp_path):
    _openblas.choose_kernels({}, str(tmp_path / "missing"))
