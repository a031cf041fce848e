"""Layers with random settings against the same formulas in torch: float64, float32, hybridized, on every engine."""

import pytest

import hybrid_lab as mx
from tests.reference import torch_layers
from tests.reference.closeness import ENGINES, differences
from tests.reference.golden import layer_cases

SEEDS = 8 * len(layer_cases.LAYERS)


def parameters_of(case):
    """{short name: (float64 values, whether they are learned)}, as run_layer fills them in."""
    block = layer_cases.made(mx, case["layer"], case["arguments"])
    block.initialize()
    block.cast("float64")
    block(*(mx.nd.array(values, dtype="float64") for values in layer_cases.layer_inputs(case, 0)))
    layer_cases.fill(block, "float64")
    return {
        layer_cases.short(block, each): (each.data().asnumpy(), each.grad_req != "null")
        for each in block.collect_params().values()
    }


@pytest.mark.each_value
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("kind", sorted({layer.__name__ for layer in layer_cases.LAYERS}))
def test_layers_equal_torch(kind, engine, totals):
    wrong, compared = [], 0
    for seed in range(SEEDS):
        if layer_cases.LAYERS[seed % len(layer_cases.LAYERS)].__name__ != kind:
            continue
        if engine is not None and seed // len(layer_cases.LAYERS) % 4:
            continue
        case = layer_cases.layer_case(seed)
        expected = torch_layers.run(case, parameters_of(case))
        for dtype, tolerance in (("float64", 1e-10), ("float32", 2e-4)):
            found = layer_cases.run_layer(mx, case, dtype, hybridize={"engine": engine} if engine else None)
            compared += 1
            names = differences(found, expected, tolerance)
            if names:
                wrong.append((case, dtype, names))
    assert not wrong, (len(wrong), wrong[:3])
    totals["layers compared with torch"] += compared
