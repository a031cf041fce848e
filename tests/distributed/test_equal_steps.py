"""Several workers do the steps of one process that adds the gradients of the batch's parts."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

from tests.distributed.nets import NETS, OPTIMIZERS, train
from tests.distributed.workers import ALL, results

CASES = [
    (name, optimizer, hybrid)
    for name in NETS
    for optimizer in OPTIMIZERS
    for hybrid in (False, True)
    if ALL or (name != "resnet18" and hybrid == (optimizer == "adam"))
]
STEPS = 100 if ALL else 6
_BODY = """
return [nets.train(name, optimizer, hybrid, rank, size, {steps}) for name, optimizer, hybrid in {cases}]
"""


@pytest.mark.parametrize("size", [2, 4] if ALL else [2])
def test_workers_equal_one_process(size, tmp_path):
    body = _BODY.format(steps=STEPS, cases=CASES)
    everybody = results(size, body, tmp_path, timeout=3000)
    for number, case in enumerate(CASES):
        found = everybody[0][number]
        for other in everybody[1:]:
            assert all(np.array_equal(found[key], other[number][key]) for key in found), case
        expected = train(*case, 0, 1, STEPS, parts=size)
        largest = max(float(np.abs(found[key] - expected[key]).max()) for key in found)
        # Two numbers have one sum. Four are added in another order, whose rounding grows with the steps.
        assert largest <= (0 if size == 2 else 1e-6), (case, largest)
