"""Engines keep the digits of small numbers where eager calls do: results of inputs near 0, for all operators of one
floating input, and the recurrent layers.
"""

from __future__ import annotations

import warnings
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

from hybrid_lab import engines, nd
from hybrid_lab.gluon import HybridBlock, rnn
from hybrid_lab.ndarray.invoke import invoke
from tests.ops.cases import CASES, Case

ENGINES = ("numpy", "onnxruntime", *(["torch"] if find_spec("torch") else []))
UNARY = [case for case in CASES if len(case.sample.inputs) == case.op.signature.visible == 1 and not case.op.random]


@pytest.fixture(autouse=True)
def every_region_is_a_session(monkeypatch):
    monkeypatch.setattr(engines.get("onnxruntime"), "worth", lambda region: None)


class Call(HybridBlock):
    def __init__(self, op: Any):
        super().__init__()
        self.op = op

    def forward(self, x):
        return invoke(self.op, [x])


def _same(net: Any, x: Any) -> None:
    """One call eagerly and on every engine, relative to the largest result."""
    eager = net(x).asnumpy().astype(np.float64)
    for engine in ENGINES:
        net.hybridize(engine=engine)
        found = net(x).asnumpy()
        assert np.abs(found - eager).max() <= 1e-5 * np.abs(eager).max(), engine


@pytest.mark.parametrize("size", [1e-2, 1e-4])
@pytest.mark.parametrize("case", UNARY, ids=[case.id for case in UNARY])
def test_results_of_small_numbers(case: Case, size: float):
    x = case.inputs()[0]
    if np.asarray(x).dtype != np.float32:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        if np.isfinite(invoke(case.op, [nd.array(x * size)]).asnumpy()).all():
            _same(Call(case.op), nd.array(x * size))


@pytest.mark.parametrize("layer", [rnn.RNN, rnn.LSTM, rnn.GRU])
def test_recurrent_layers_of_small_numbers(layer: Any):
    net = layer(4, activation="tanh") if layer is rnn.RNN else layer(4)
    net.initialize()
    _same(net, nd.array(np.random.RandomState(1).uniform(-1e-4, 1e-4, (5, 4, 8))))
