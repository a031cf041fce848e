"""Losses with random settings against torch in float64: eagerly in float64 and float32, hybridized on every engine."""

import pytest

import hybrid_lab as mx
from tests.reference import torch_losses
from tests.reference.closeness import ENGINES, differences
from tests.reference.golden import loss_cases

SEEDS = 8 * len(loss_cases.ELEMENTWISE)


@pytest.mark.each_value
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", loss_cases.ELEMENTWISE)
def test_losses_equal_torch(name, engine, totals):
    wrong, compared = [], 0
    place, every = list(loss_cases.ELEMENTWISE).index(name), 1 if engine is None else 4
    for seed in range(place, SEEDS, len(loss_cases.ELEMENTWISE) * every):
        case = loss_cases.loss_case(seed)
        expected = torch_losses.run(case)
        for dtype, tolerance in (("float64", 1e-10), ("float32", 1e-4)):
            found = loss_cases.run_loss(mx, case, dtype, hybridize={"engine": engine} if engine else None)
            compared += 1
            names = differences(found, expected, tolerance)
            if names:
                wrong.append((case, dtype, names))
    assert not wrong, (len(wrong), wrong[:3])
    totals["losses compared with torch"] += compared
