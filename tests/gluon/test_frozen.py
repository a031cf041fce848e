"""What a trace freezes silently is named when the graph is made; errors of code that is no graph."""

import numpy as np
import pytest

from hybrid_lab import gluon, nd
from hybrid_lab.diagnostics import HybridizeError, HybridLabError


class Noisy(gluon.HybridBlock):
    def hybrid_forward(self, F, x):
        return x * np.random.rand()


class TwoFaced(gluon.HybridBlock):
    def hybrid_forward(self, F, x):
        return x * 2 if F is nd else x * 3


@pytest.mark.parametrize("kind, code", [(Noisy, "HL172"), (TwoFaced, "HL176")])
def test_frozen_code_is_named_once(kind, code, capsys):
    for _ in range(2):
        net = kind()
        net.hybridize(engine="numpy")
        net(nd.ones((2,)))
    lines = [line for line in capsys.readouterr().err.splitlines() if code in line]
    assert len(lines) == 1
    assert "test_frozen.py" in lines[0]


class Nothing(gluon.HybridBlock):
    def hybrid_forward(self, F, x):
        return None


def test_an_output_without_tensors_is_a_hybridize_error():
    net = Nothing()
    net.hybridize(engine="numpy")
    with pytest.raises(HybridizeError, match="HL192.*None") as caught:
        net(nd.ones((2,)))
    assert "in Nothing.hybrid_forward" in str(caught.value)


class Untaken(gluon.HybridBlock):
    def __init__(self):
        super().__init__()
        self.scale = self.params.get("scale", shape=(1,))

    def hybrid_forward(self, F, x):
        return x


@pytest.mark.parametrize("hybrid", [False, True])
def test_a_parameter_missing_from_the_signature_is_named(hybrid):
    net = Untaken()
    net.initialize()
    if hybrid:
        net.hybridize(engine="numpy")
    with pytest.raises(HybridizeError, match="HL165.*scale"):
        net(nd.ones((1,)))


def test_a_call_without_an_array_says_so():
    net = gluon.nn.Dense(3)
    net.initialize()
    with pytest.raises(HybridLabError, match="called without an array"):
        net(None)
