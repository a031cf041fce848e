"""Which records can be part of random graphs, and where: at points where rounding errors stay rounding errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from hybrid_lab import ops
from hybrid_lab.diagnostics.errors import AutogradError
from hybrid_lab.ops.framework.namespace import F
from hybrid_lab.ops.framework.operator import Operator
from hybrid_lab.ops.framework.run import run_gradient, run_kernel
from hybrid_lab.ops.framework.sample import Sample

RNG = (7, 3)
_NUDGE = 1e-5
"""What inputs are changed by, relative to the largest, to see whether results jump."""


@dataclass(frozen=True)
class Member:
    """A record with those of its samples that can stand in a graph of float32 numbers."""

    record: type[Operator]
    samples: tuple[Sample, ...]


@cache
def sorted_out() -> tuple[tuple[Member, ...], dict[str, str]]:
    """The records that take part, and name -> why another does not."""
    found, refused = [], {}
    for record in ops.records():
        if not record.__module__.startswith("hybrid_lab.ops."):
            continue
        reasons = {sample: _refusal(record, sample) for sample in map(_Key, record.samples)}
        samples = tuple(key.sample for key, reason in reasons.items() if reason is None)
        if samples:
            found.append(Member(record, samples))
        else:
            refused[record.name] = next((reason for reason in reasons.values() if reason), "it has no samples")
    return tuple(found), refused


def members() -> tuple[Member, ...]:
    """The records that take part."""
    return sorted_out()[0]


class _Key:
    """Samples hold dicts and arrays; this makes them keys by identity."""

    def __init__(self, sample: Sample):
        self.sample = sample


def _refusal(record: type[Operator], key: _Key) -> str | None:
    """Why a sample cannot take part, or None."""
    sample = key.sample
    if sample.dtype != "float32":
        return f"its samples are {sample.dtype}"
    if not sample.smooth:
        return "ties: the gradient is a convention there"
    arrays = sample.arrays(record.name)
    if any(isinstance(item, np.ndarray) and item.dtype == np.float16 for item in arrays):
        return "float16 among its inputs"
    op = record.bind(**sample.attributes).bind_mode(True)
    results = run_kernel(op, arrays, rng=RNG)
    visible = [np.asarray(item) for item in results[: op.signature.visible]]
    if any(item.dtype == np.float16 for item in visible):
        return "its result is float16"
    if any(item.dtype.kind == "f" and not np.isfinite(item).all() for item in visible):
        return "its result is not finite"
    if any(isinstance(item, np.ndarray) and not item.size for item in (*arrays, *visible)):
        return "arrays without elements"
    if op.differentiable and arrays:
        try:
            with np.errstate(all="ignore"):
                run_gradient(op, F, arrays, results, visible)
        except AutogradError as error:
            return f"it says that it has no gradient: {error}"
    return None


def is_steady(
    op: Operator,
    operands: Sequence[Any],
    computed: Sequence[bool],
    results: Sequence[Any],
    rng: tuple[int, int] | None,
) -> bool:
    """Whether a small change of the computed inputs changes the results and the gradients little.

    computed : which operands come from other operators, and so with rounding errors
    """
    visible = [np.asarray(item) for item in results[: op.signature.visible]]
    if any(item.dtype.kind == "f" and not np.isfinite(item).all() for item in visible):
        return False
    random = np.random.RandomState(1)
    nudged = [
        _nudged(item, random) if moved and isinstance(item, np.ndarray) and item.dtype.kind == "f" else item
        for item, moved in zip(operands, computed, strict=False)
    ]
    with np.errstate(all="ignore"):
        others = run_kernel(op, nudged, rng=rng)
        if not all(_near(a, b) for a, b in zip(visible, others, strict=False)):
            return False
        if not op.differentiable or not operands:
            return True
        heads = [random.uniform(-1, 1, item.shape).astype(item.dtype) for item in visible]
        here = run_gradient(op, F, operands, results, heads)
        there = run_gradient(op, F, nudged, others, heads)
        return all(a is None or (_tame(a) and _near(a, b)) for a, b in zip(here, there, strict=True))


def _nudged(array: np.ndarray, random: np.random.RandomState) -> np.ndarray:
    scale = _NUDGE * max(float(np.abs(array).max(initial=0)), 1e-2)
    return (array + random.uniform(-scale, scale, array.shape)).astype(array.dtype)


def _near(a: Any, b: Any) -> bool:
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    scale = max(float(np.abs(a).max(initial=0)), 1e-2)
    return a.shape == b.shape and bool(np.abs(a - b).max(initial=0) <= 100 * _NUDGE * scale)


def _tame(gradient: Any) -> bool:
    gradient = np.asarray(gradient)
    return bool(np.isfinite(gradient).all() and np.abs(gradient).max(initial=0) < 1e3)
