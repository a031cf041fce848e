"""Makes a case that differs smaller: smaller arrays, plainer numbers, no gradients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.oracle.compare import Comparison, compare
from tests.oracle.oracle import Oracle


def shrink(item: Comparison, oracle: Oracle, tries: int = 200) -> dict[str, Any]:
    """The smallest case that differs as this comparison does: in the same kinds of values."""
    wanted = _signs(item)
    case, progress = item.case, True
    while progress and tries > 0:
        progress = False
        for smaller in _smaller(case):
            tries -= 1
            found = compare(smaller, oracle, item.engine)[-1]
            if _signs(found) == wanted:
                case, progress = smaller, True
                break
            if tries <= 0:
                break
    return case


def _signs(item: Comparison) -> set[tuple[str, str]]:
    return {(line.kind, line.name[:1]) for line in item.differences}


def _smaller(case: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if case.get("grads"):
        yield {**case, "grads": []}
        for name in case["grads"]:
            yield {**case, "grads": [each for each in case["grads"] if each != name]}
    for name, spec in case["arrays"].items():
        if "data" in spec:
            continue
        for change in _plainer(spec):
            yield {**case, "arrays": {**case["arrays"], name: {**spec, **change}}}
    sizes = sorted(
        {size for spec in case["arrays"].values() if "data" not in spec for size in spec["shape"] if size > 1}
    )
    for size in sizes:
        for less in {1, 2, size - 1} - {size}:
            yield {**case, "arrays": {name: _resized(spec, size, less) for name, spec in case["arrays"].items()}}


def _plainer(spec: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if spec["values"] in ("special", "whole"):
        yield {"values": "plain"}
    if spec["dtype"] in ("float64", "float16"):
        yield {"dtype": "float32"}


def _resized(spec: dict[str, Any], size: int, less: int) -> dict[str, Any]:
    if "data" in spec:
        return spec
    return {**spec, "shape": [less if each == size else each for each in spec["shape"]]}
