"""The case of a seed, and the engine that it is hybridized with."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tests.oracle.gluon_cases import (
    initializer_case,
    layer_case,
    loss_case,
    metric_case,
    optimizer_case,
    recurrent_case,
    schedule_case,
)
from tests.oracle.numpy_cases import array_case, numpy_case
from tests.oracle.operators import operator_case
from tests.random_programs.writing import Chance

Writer = Callable[[Chance, int], dict[str, Any]]

#: Kinds of cases, and how many of a hundred there are.
KINDS: dict[str, tuple[Writer, int]] = {
    "operator": (operator_case, 50),
    "array": (array_case, 6),
    "layer": (layer_case, 11),
    "recurrent": (recurrent_case, 3),
    "loss": (loss_case, 7),
    "optimizer": (optimizer_case, 6),
    "metric": (metric_case, 4),
    "initializer": (initializer_case, 2),
    "schedule": (schedule_case, 1),
    "numpy": (numpy_case, 10),
}
_WHEEL = [kind for kind, (_, share) in KINDS.items() for _ in range(share)]


def case_of(seed: int, kind: str = "") -> dict[str, Any]:
    """The case of a seed, of this kind if one is named."""
    chance = Chance(seed)
    kind = kind or chance.one_of(_WHEEL)
    case: dict[str, Any] = json.loads(json.dumps(KINDS[kind][0](chance, seed)))
    return case


def engine_of(seed: int, case: dict[str, Any]) -> str | None:
    """The engine: NumPy's for every second case that can be hybridized, ONNX Runtime's and torch's now and then."""
    if (
        case["kind"] not in ("operator", "layer", "loss", "recurrent", "array")
        or case.get("eager")
        or not case["arrays"]
        or "out=" in case["text"]
    ):
        return None
    if seed % 2:
        return "numpy"
    return {0: "onnxruntime", 1: "torch"}.get(seed // 2 % 10)
