"""Mixed precision is off again after each test."""

import pytest

from hybrid_lab.contrib import amp


@pytest.fixture(autouse=True)
def off_again():
    yield
    amp.disable()
