"""Which engines there are and which one is taken."""

from __future__ import annotations

import logging
import subprocess
import sys
from importlib.util import find_spec

import pytest

from hybrid_lab import engines
from hybrid_lab.diagnostics.errors import EngineUnavailable, HybridLabError
from hybrid_lab.engines import libraries, registry
from hybrid_lab.engines.triton.run import availability

TORCH = ["torch"] if find_spec("torch") else []


def test_numpy_is_always_there():
    assert engines.get("numpy").missing() is None
    assert engines.get("numpy").where() == "NumPy on the CPU"


def test_an_unknown_name_lists_the_engines():
    with pytest.raises(HybridLabError, match="no engine 'cuda'; .*triton, onnxruntime, numpy"):
        engines.get("cuda")


class Missing(engines.Engine):
    name = "triton"

    def missing(self):
        return "no GPU; run on a machine with one"

    def compile(self, graph, **options):
        raise AssertionError


def test_an_engine_that_cannot_run_says_what_is_missing(monkeypatch):
    monkeypatch.setitem(registry._loaded, "triton", Missing())
    with pytest.raises(EngineUnavailable, match="'triton' .*no GPU"):
        engines.get("triton")
    assert engines.default() is None


@pytest.fixture(autouse=True)
def unpinned(monkeypatch):
    monkeypatch.delenv("HYBRID_LAB_CPU", raising=False)


def test_the_policy_chooses_among_all_engines_there(monkeypatch):
    monkeypatch.setitem(registry._loaded, "triton", Missing())
    assert engines.default() is None
    assert list(engines.cpu_engines()) == ["onnxruntime", "numpy", *TORCH]


def test_the_environment_pins_an_engine(monkeypatch):
    monkeypatch.setitem(registry._loaded, "triton", Missing())
    monkeypatch.setenv("HYBRID_LAB_CPU", "numpy")
    assert engines.default() is engines.get("numpy")
    monkeypatch.setenv("HYBRID_LAB_CPU", "cuda")
    with pytest.raises(HybridLabError, match="HYBRID_LAB_CPU=cuda: .*'cuda'"):
        engines.default()
    monkeypatch.setenv("HYBRID_LAB_CPU", "onnx")
    message = r"did you mean onnxruntime\? The variable takes onnxruntime, numpy, torch or auto$"
    with pytest.raises(HybridLabError, match=message):
        engines.default()


def test_without_onnxruntime_the_policy_has_the_others(monkeypatch):
    monkeypatch.setitem(registry._loaded, "triton", Missing())
    monkeypatch.setitem(registry._loaded, "onnxruntime", Missing())
    assert engines.default() is None
    assert list(engines.cpu_engines()) == ["numpy", *TORCH]


def test_nothing_heavy_is_imported_before_it_is_used():
    code = (
        "import sys; from hybrid_lab import engines; engines.get('numpy'); engines.names();"
        "print([name for name in ('onnxruntime', 'onnx', 'triton', 'torch') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_an_interpreter_that_cannot_run_is_not_replaced_in_silence(monkeypatch):
    monkeypatch.setitem(registry._loaded, "triton", Missing())
    monkeypatch.setenv("HYBRID_LAB_TRITON", "interpreter")
    with pytest.raises(EngineUnavailable, match="HYBRID_LAB_TRITON=interpreter: the variable takes interpret, or"):
        engines.default()
    monkeypatch.setenv("HYBRID_LAB_TRITON", "interpret")
    monkeypatch.setattr(availability, "missing", lambda: "torch is not installed; pip install torch")
    with pytest.raises(EngineUnavailable, match="HYBRID_LAB_TRITON=interpret: torch is not installed; pip install"):
        engines.default()


def test_a_gpu_that_is_there_and_not_used_is_told_once(monkeypatch, caplog):
    monkeypatch.delenv("HYBRID_LAB_TRITON", raising=False)
    monkeypatch.setitem(registry._loaded, "triton", Missing())
    monkeypatch.setattr(libraries, "driver_seen", lambda: True)
    monkeypatch.setattr(availability, "missing", lambda: "torch 2.9 (CPU build) reaches no GPU; install another")
    registry._tell_of_an_unused_gpu.cache_clear()
    logging.getLogger("hybrid_lab").addHandler(caplog.handler)
    try:
        monkeypatch.setenv("HYBRID_LAB_CPU", "auto")
        engines.default()
        assert not caplog.text
        monkeypatch.delenv("HYBRID_LAB_CPU")
        engines.default()
        engines.default()
    finally:
        logging.getLogger("hybrid_lab").removeHandler(caplog.handler)
        registry._tell_of_an_unused_gpu.cache_clear()
    assert caplog.text.count("the GPU of this machine is not used: torch 2.9 (CPU build) reaches no GPU") == 1
