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
from tests.failures import Failures
from tests.ops.cases import Case, each_sample

ENGINES = ("numpy", "onnxruntime", *(["torch"] if find_spec("torch") else []))


@pytest.fixture(autouse=True)
def every_region_is_a_session(monkeypatch):
    monkeypatch.setattr(engines.get("onnxruntime"), "worth", lambda region: None)


class Call(HybridBlock):
    def __init__(self, op: Any):
        super().__init__()
        self.op = op

    def forward(self, x):
        return invoke(self.op, [x])


def _same(net: Any, *inputs: Any) -> None:
    """Calls eagerly and on every engine, relative to the largest result of each."""
    eager = [net(x).asnumpy().astype(np.float64) for x in inputs]
    failures = Failures()
    for engine in ENGINES:
        with failures.of(engine):
            net.hybridize(engine=engine)
            for x, wanted in zip(inputs, eager, strict=True):
                assert np.abs(net(x).asnumpy() - wanted).max() <= 1e-5 * np.abs(wanted).max()
    failures.raise_all()


@each_sample(lambda case: len(case.sample.inputs) == case.op.signature.visible == 1 and not case.op.random)
def test_results_of_small_numbers(case: Case):
    x = case.inputs()[0]
    if np.asarray(x).dtype != np.float32:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        given = [nd.array(x * size) for size in (1e-2, 1e-4)]
        given = [item for item in given if np.isfinite(invoke(case.op, [item]).asnumpy()).all()]
        if given:
            _same(Call(case.op), *given)


@pytest.mark.parametrize("layer", [rnn.RNN, rnn.LSTM, rnn.GRU])
def test_recurrent_layers_of_small_numbers(layer: Any):
    net = layer(4, activation="tanh") if layer is rnn.RNN else layer(4)
    net.initialize()
    _same(net, nd.array(np.random.RandomState(1).uniform(-1e-4, 1e-4, (5, 4, 8))))
