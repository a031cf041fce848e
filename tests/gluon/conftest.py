"""Fixtures of the tests of Blocks."""

from __future__ import annotations

import pytest

from hybrid_lab.gluon import nn


@pytest.fixture
def registered(request, monkeypatch):
    """MyModel is the class of the test's own file, whichever other file has registered one of that name."""
    monkeypatch.setattr(nn.registry, "_classes", {**nn.registry._classes, "MyModel": request.module.MyModel})
