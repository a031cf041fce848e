"""Warnings of NumPy name the line of the user's code, not a file of this package."""

import threading
import warnings

import pytest

import hybrid_lab as mx
from hybrid_lab.gluon import nn
from hybrid_lab.lab.kernel.numpy_warnings import UserLines


class Ratio(nn.HybridBlock):
    def hybrid_forward(self, F, x):
        return x / x


@pytest.fixture
def shown(monkeypatch):
    """(file, line of code) of each warning that is shown."""
    places = []

    def show(message, category, filename, lineno, file=None, line=None):
        with open(filename) as code:
            places.append((filename, code.read().splitlines()[lineno - 1].strip()))

    monkeypatch.setattr(warnings, "showwarning", show)
    lines = UserLines()
    lines.install()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        yield places
    lines.remove()
    assert warnings.showwarning is show


def test_an_operator_and_a_block(shown):
    zero = mx.nd.zeros((2,))
    (zero / zero).asnumpy()
    Ratio()(zero)
    assert shown == [(__file__, "(zero / zero).asnumpy()"), (__file__, "return x / x")]


def test_a_compiled_program(shown):
    net, zero = Ratio(), mx.nd.zeros((2,))
    net.hybridize(engine="numpy")
    net(zero)
    assert shown == [(__file__, "net(zero)")]


def test_other_warnings_stay_as_they_are(shown):
    warnings.warn("mine", stacklevel=1)
    zero = mx.nd.zeros((2,))
    thread = threading.Thread(target=lambda: zero / zero)  # its stack has no line of a cell to name
    thread.start()
    thread.join()
    assert shown[0] == (__file__, 'warnings.warn("mine", stacklevel=1)')
    assert [file == __file__ for file, _ in shown] == [True, False]
