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
    # Two numbers have one sum. Four are added in another order, whose rounding grows with the steps: in a network with
    # many rectifiers, as soon as one of their inputs changes its sign.
    cases = [case for case in CASES if size == 2 or case[0] != "resnet18"]
    everybody = results(size, _BODY.format(steps=STEPS, cases=cases), tmp_path, timeout=3000)
    for number, case in enumerate(cases):
        found = everybody[0][number]
        for other in everybody[1:]:
            assert all(np.array_equal(found[key], other[number][key]) for key in found), case
        expected = train(*case, 0, 1, STEPS, parts=size)
        largest = max(float(np.abs(found[key] - expected[key]).max()) for key in found)
        assert largest <= (0 if size == 2 else 1e-6), (case, largest)


@pytest.mark.skipif(not ALL, reason="100 steps of a ResNet: make test-workers")
def test_each_step_of_four_workers_equals_that_of_one_process(tmp_path):
    cases = [case for case in CASES if case[0] == "resnet18"]
    body = f"return [nets.largest_difference_of_a_step(*case, rank, size, {STEPS}) for case in {cases}]"
    largest = results(4, body, tmp_path, timeout=3000)[0]
    assert max(largest) <= 1e-6, largest
