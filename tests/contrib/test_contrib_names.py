"""mx.contrib has MXNet's older names of nd.contrib and sym.contrib."""

import pytest

import hybrid_lab as mx


@pytest.mark.parametrize(
    ("older", "newer"),
    [("nd", mx.nd.contrib), ("ndarray", mx.nd.contrib), ("sym", mx.sym.contrib), ("symbol", mx.sym.contrib)],
)
def test_older_names(older, newer):
    assert getattr(mx.contrib, older) is newer and older in dir(mx.contrib)
