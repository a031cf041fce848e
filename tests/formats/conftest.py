"""The RFC's model, called once and saved once, for the tests of archives."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from hybrid_lab import npx

# The model lies beside the tests, as a user's would, and processes that the tests start import it by this name.
sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def quick_disk(monkeypatch):
    """Files are not forced to the disk: for tests that write thousands of them."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture
def np_mode():
    """NumPy semantics for one test."""
    npx.set_np()
    yield
    npx.reset_np()


@pytest.fixture(scope="module")
def net():
    import rfc_model

    return rfc_model.called_net()


@pytest.fixture(scope="module")
def saved(net, tmp_path_factory):
    return Path(net.save(tmp_path_factory.mktemp("saved") / "rfc"))
