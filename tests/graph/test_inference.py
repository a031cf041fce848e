"""Everything that inference does to a graph, on random graphs: the prologue and the rest give what the graph gives."""

from __future__ import annotations

import numpy as np
import pytest

from hybrid_lab.graph.passes.bind_mode import bind_mode
from hybrid_lab.graph.passes.infer import infer
from hybrid_lab.graph.specialize import specialize
from tests.engines.random_graphs import random_case
from tests.graph.building import evaluate

RNG = (5, 11)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_random_graphs_in_prediction():
    hoisted = 0
    for seed in range(150):
        case = random_case(seed)
        shapes, dtypes = [array.shape for array in case.arrays], [array.dtype for array in case.arrays]
        inputs = case.graph.inputs
        whole = infer(case.graph, dict(zip(inputs, shapes)), dict(zip(inputs, dtypes)))
        wanted = evaluate(bind_mode(whole, False), case.arrays, RNG)
        found = specialize(case.graph, shapes, dtypes, False)
        held: list[np.ndarray] = []
        if found.prologue is not None:
            hoisted += 1
            held = evaluate(found.prologue, [case.arrays[index] for index in found.prologue_sources])
        operands = [(case.arrays if kind == "input" else held)[index] for kind, index in found.forward_sources]
        for one, two in zip(evaluate(found.forward, operands, RNG), wanted, strict=True):
            assert (one.shape, one.dtype) == (two.shape, two.dtype)
            if two.dtype.kind != "f":
                assert np.array_equal(one, two)
                continue
            scale = np.abs(two[np.isfinite(two)]).max(initial=1e-3)
            tolerance = 1e-2 if two.dtype == np.float16 else 1e-4
            np.testing.assert_allclose(one, two, rtol=tolerance, atol=tolerance * scale, err_msg=f"seed {seed}")
    assert hoisted
