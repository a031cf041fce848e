"""Optimizers: the numbers are the real MXNet's (tests/golden/gluon/make_optimizers.py)."""

import json
import pathlib

import numpy as np
import pytest

from hybrid_lab import nd, optimizer

GOLDEN = np.load(pathlib.Path(__file__).parent / "golden" / "gluon" / "optimizers.npz")
CASES = json.loads(GOLDEN["cases"].tobytes())


@pytest.mark.parametrize("number", range(len(CASES)), ids=[f"{name}{number}" for number, (name, _) in enumerate(CASES)])
def test_six_steps_equal_mxnet(number):
    name, options = CASES[number]
    updater = optimizer.get_updater(optimizer.create(name, **options))
    weight = nd.array(GOLDEN["start"])
    for grad, expected in zip(GOLDEN["grads"], GOLDEN[f"case{number}"], strict=True):
        updater(0, nd.array(grad), weight)
        np.testing.assert_allclose(weight.asnumpy(), expected, rtol=2e-6, atol=2e-6)
