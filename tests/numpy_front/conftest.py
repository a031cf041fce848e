import pytest

from hybrid_lab import npx


@pytest.fixture
def np_mode():
    """NumPy semantics for one test."""
    npx.set_np()
    yield
    npx.reset_np()
