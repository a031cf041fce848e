"""Random layers, losses, cells, optimizers, schedules and metrics against the real MXNet (tests/golden/reference)."""

import pytest

import hybrid_lab as mx
from tests.reference.golden import GOLDEN, kinds, sketch

DIFFERENT = {"layers": "nn.SELU", "metrics": "PearsonCorrelation"}
"""What differs on purpose: the gradient of SELU, the correlation over all batches (docs/differences.md)."""


@pytest.mark.parametrize("kind", kinds.KINDS)
def test_the_numbers_are_mxnets(kind, totals):
    draw, run, count, tolerance = kinds.KINDS[kind]
    compared, wrong = 0, []
    for seed in range(count):
        case, golden = draw(seed), GOLDEN[kind][str(seed)]
        name = case.get("layer") or case.get("metric")
        if golden is None or (name and name == DIFFERENT.get(kind)):
            continue
        found = {key: sketch.sketch(values) for key, values in run(mx, case).items()}
        assert set(found) == set(golden), case
        compared += 1
        wrong += [(case, key) for key in found if not sketch.close(found[key], golden[key], tolerance)]
    assert not wrong, wrong[:3]
    assert compared > 0.8 * count
    totals[f"{kind} compared with MXNet"] += compared
