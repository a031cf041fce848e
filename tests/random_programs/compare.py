"""Holds a hybridized run against the eager one, and proves of a difference where it comes from - or that it is one."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.random_programs.run import Run, Seen, run_text

#: Relative to the largest reference value, in float32.
TOLERANCE = {"forward": 1e-5, "state": 1e-4, "gradient": 1e-4}
#: Rounding errors of a value that is computed in these dtypes, beside those of float32.
_HALF = {"float16": 2.0**-10, "bfloat16": 2.0**-7}
#: Below this size, values count as equal to zero as far as tolerances go.
_SMALLEST = 1e-2
#: Shifts of the inputs relative to their size: some units in the last place; how often they are tried; and by how much
#: a difference may exceed what such shifts lead to.
_SHIFT, _TRIALS, _FACTOR = 4e-7, 12, 16.0


@dataclass
class Verdict:
    """differences : what differs and is not explained; explained : reason -> how many observations; refused : the rule
    that the hybridized run was refused by, after which nothing is compared
    """

    differences: list[str]
    explained: dict[str, int]
    refused: str | None = None
    observations: int = 0

    def __str__(self) -> str:
        more = [f"and {len(self.differences) - 2} more", self.differences[-1]] if len(self.differences) > 2 else []
        return "; ".join([*self.differences[:2], *more])


def precision(text: str) -> float:
    """The rounding error of the least precise dtype that a program names."""
    return max([2.0**-23, *(error for name, error in _HALF.items() if name in text)])


def apart(found: Any, wanted: Any) -> float:
    """The largest difference; infinite for another shape, dtype, place of NaN or infinite value."""
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return float("inf")
    found, wanted = found.astype(np.float64), wanted.astype(np.float64)
    same = (found == wanted) | (np.isnan(found) & np.isnan(wanted))
    if same.all():
        return 0.0
    with np.errstate(invalid="ignore"):
        gap = np.abs(found - wanted)[~same]
    return float("inf") if np.isnan(gap).any() else float(gap.max())


def _tolerance(seen: Seen, text: str) -> float:
    dtype = str(seen.value.dtype)
    finite = seen.value.astype(np.float64)
    largest = np.abs(finite[np.isfinite(finite)]).max(initial=_SMALLEST)
    own = _HALF.get(dtype, 2.0**-23)
    return float(largest) * max(TOLERANCE[seen.kind], own * {"forward": 4}.get(seen.kind, 16))


def compare(text: str, engine: str, seed: int = 0, run: Callable[..., Run] = run_text) -> Verdict:
    """Run a text eagerly and with an engine, and compare all that was seen."""
    eager, hybrid = run(text, None), run(text, engine)
    return judge(text, eager, hybrid, run)


def judge(text: str, eager: Run, hybrid: Run, run: Callable[..., Run] = run_text) -> Verdict:
    verdict = Verdict([], {}, observations=len(eager.seen))
    shifted: list[list[Seen]] = []

    def moves(index: int) -> bool:
        """Whether eager's own value moves as much as it differs, where the inputs are shifted by some units."""
        wanted, gap = eager.seen[index], apart(hybrid.seen[index].value, eager.seen[index].value)
        for trial in range(_TRIALS):
            if len(shifted) <= trial:
                shifted.append(run(text, None, _SHIFT / 2.0**-23 * precision(text), trial).seen)
            others = shifted[trial]
            if index >= len(others) or others[index].label != wanted.label:
                return True  # eager itself takes another way
            value = others[index].value
            if not isinstance(value, np.ndarray) or not isinstance(wanted.value, np.ndarray):
                if value != wanted.value:
                    return True
                continue
            if gap <= _FACTOR * apart(value, wanted.value):
                return True
        return False

    for index, wanted in enumerate(eager.seen):
        if index >= len(hybrid.seen) or hybrid.seen[index].label != wanted.label:
            verdict.differences.append(
                f"{wanted.label}: not there, but {[s.label for s in hybrid.seen[index : index + 1]]}"
            )
            break
        found = hybrid.seen[index]
        if not isinstance(wanted.value, np.ndarray) or not isinstance(found.value, np.ndarray):
            if type(found.value) is type(wanted.value) and found.value == wanted.value:
                continue
            verdict.differences.append(f"{wanted.label}: {found.value!r} instead of {wanted.value!r}")
            if found.label.endswith(": error"):
                break
            continue
        gap = apart(found.value, wanted.value)
        if gap <= _tolerance(wanted, text):
            continue
        if moves(index):
            reason = "half precision" if precision(text) > 1e-6 else "moved by shifts of the inputs"
            verdict.explained[reason] = verdict.explained.get(reason, 0) + 1
            continue
        verdict.differences.append(
            f"{wanted.label}: differs by {gap:.1e} of {np.abs(wanted.value.astype(np.float64)).max(initial=0):.1e}"
        )
    if verdict.differences and (eager.errors or hybrid.errors):
        known = {str(error)[:60] for error in eager.errors}
        told = {
            f"{type(error).__name__}: {str(error)[:200]}": 0 for error in hybrid.errors if str(error)[:60] not in known
        }
        if told:
            verdict.differences.append("errors of the hybrid run alone: " + " | ".join(told))
    if (
        verdict.differences
        and any("do not follow from the inputs" in str(e) for e in hybrid.errors)
        and has_dead_code(text)
    ):
        verdict.refused, verdict.differences = "dead code", []
    if verdict.differences and hybrid.refused is not None:
        at = next(
            (i for i, s in enumerate(hybrid.seen) if s.label.endswith(": error") and "Hybridize" in str(s.value)), 0
        )
        first = next(
            (i for i, s in enumerate(eager.seen) if verdict.differences[0].startswith(s.label + ":")), len(eager.seen)
        )
        if first <= at and _is_documented(text, hybrid.refused):
            verdict.refused, verdict.differences = hybrid.refused.code, []
    return verdict


def has_dead_code(text: str) -> bool:
    """Whether a variable of a class is never read."""
    for kind in [node for node in ast.parse(text).body if isinstance(node, ast.ClassDef)]:
        names = [node for node in ast.walk(kind) if isinstance(node, ast.Name)]
        read = {node.id for node in names if isinstance(node.ctx, ast.Load)}
        if {node.id for node in names if isinstance(node.ctx, ast.Store)} - read - {"_", "i", "k", "block"}:
            return True
    return False


def _is_documented(text: str, error: Any) -> bool:
    """Whether a rule of the docs refuses this; where it is a rule of the source, whether lint tells it too."""
    from hybrid_lab import lint
    from hybrid_lab.diagnostics import rules

    return error.code in {finding.code for finding in lint.check(text)} or error.code in rules_at_trace(rules)


def rules_at_trace(rules: Any) -> set[str]:
    return {"HL101", "HL174", "HL175"}
