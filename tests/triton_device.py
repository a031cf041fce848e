"""Where tests run Triton's kernels: in its interpreter, or on the GPU of `make test-gpu`."""

import os

import pytest

#: Set by `make test-gpu`.
ON_GPU = os.environ.get("HYBRID_LAB_TEST_GPU") == "1"


def use_triton(monkeypatch):
    """Make the Triton engine usable for the rest of a test."""
    pytest.importorskip("torch")
    pytest.importorskip("triton")
    if not ON_GPU:
        monkeypatch.setenv("HYBRID_LAB_TRITON", "interpret")
