"""Whether our gradient of a case is the derivative of its results: shown by differences in float64."""

from __future__ import annotations

from typing import Any

import numpy as np

import hybrid_lab
from tests.oracle.execute import answer, array, heads

_STEP = 1e-5
#: Elements whose derivative is computed.
_LOOKED_AT = 50


def is_derivative(case: dict[str, Any], name: str, places: np.ndarray | None = None) -> bool:
    """Whether the gradient `name`, as `da`, is the derivative of the outputs, weighted with the heads.

    places : flat numbers of the elements to look at, of which some are; None: all elements
    """
    if name[1:] not in case["arrays"]:
        return False
    case = {**case, "wide": True}
    found = answer(hybrid_lab, case)
    point = array(case["arrays"][name[1:]], case)
    if name not in found.values:
        return False
    chosen = np.random.RandomState(0).permutation(np.arange(point.size) if places is None else places)[:_LOOKED_AT]
    left, right = np.zeros(len(chosen)), np.zeros(len(chosen))
    middle = _weighted({**case, "grads": []})
    for number, place in enumerate(chosen):
        ends = []
        for step in (_STEP, -_STEP):
            moved = point.ravel().copy()
            moved[place] += step
            spec = {"shape": list(point.shape), "dtype": "float64", "data": moved.tolist()}
            ends.append(_weighted({**case, "arrays": {**case["arrays"], name[1:]: spec}, "grads": []}))
        right[number], left[number] = (ends[0] - middle) / _STEP, (middle - ends[1]) / _STEP
    middles = (left + right) / 2
    scale = np.abs(middles).max(initial=1e-6)
    given = found.values[name].ravel()[chosen]
    # At a kink any slope between those of both sides will do.
    kink = np.abs(left - right) > 1e-3 * scale
    between = (given >= np.minimum(left, right) - 1e-4 * scale) & (given <= np.maximum(left, right) + 1e-4 * scale)
    near = np.isclose(given, middles, rtol=1e-4, atol=1e-5 * scale)
    return bool(np.where(kink, between, near).all())


def _weighted(case: dict[str, Any]) -> float:
    values = answer(hybrid_lab, case).values
    outputs = [value for name, value in values.items() if name.startswith("y") and value.dtype.kind == "f"]
    return float(sum((value * heads(value, case, number)).sum() for number, value in enumerate(outputs)))
