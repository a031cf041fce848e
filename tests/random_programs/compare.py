"""Holds a hybridized run against the eager one, and proves of a difference where it comes from - or that it is one."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hybrid_lab import lint
from tests.random_programs.rounding import other_rounding
from tests.random_programs.run import Run, Seen, run_text

#: Relative to the largest reference value, in float32.
TOLERANCE = {"forward": 1e-5, "state": 1e-4, "gradient": 1e-4}
#: Rounding errors of float32 and of the dtypes below, and how many of them a value of such a dtype may be off.
_SINGLE, _HALF = 2.0**-23, {"float16": 2.0**-10, "bfloat16": 2.0**-7}
_ROUNDINGS = {"forward": 4, "state": 16, "gradient": 16}
#: Tolerances are relative to the largest value of an array, and at least to this size.
_SMALLEST = 1e-2
#: They are also relative to at least this share of the largest value, capped at 1, that the same step shows of the same
#: kind: a smaller value may be a sum of such values that cancel, exactly so in one mode only.
_BESIDE = 0.1
#: How many runs with other roundings there are at most, and by how much a difference may exceed what they differ by.
_TRIALS, _FACTOR = 12, 4.0


def has_dead_code(text: str) -> bool:
    """Whether a variable of a class is never read."""
    for kind in [node for node in ast.parse(text).body if isinstance(node, ast.ClassDef)]:
        names = [node for node in ast.walk(kind) if isinstance(node, ast.Name)]
        read = {node.id for node in names if isinstance(node.ctx, ast.Load)}
        if {node.id for node in names if isinstance(node.ctx, ast.Store)} - read - {"_", "i", "k", "block"}:
            return True
    return False


#: What docs/differences.md says of hybridized calls: a name, words of the error, and what a program must have.
_ON_PURPOSE: list[tuple[str, str, Callable[[str], bool]]] = [
    ("dead code", "do not follow from the inputs", has_dead_code),
    ("dead code", "has no values yet", has_dead_code),
    ("written before backward", "it has been written to since", lambda text: "[:] =" in text),
    ("changed arguments", "changes a list or dict that it was called with", lambda text: "xs[0] =" in text),
    ("archives hold graphs", "the loaded graph takes", lambda text: "run.reopened" in text),
]

#: What a hybridized call refuses with where an eager one refuses, too: the code runs on Symbols, which have no length
#: to unpack; and the shapes of the whole graph are looked at before the first parameter gets its own.
_SEVERAL_ERRORS = {("HybridizeTypeError", "ValueError"), ("ShapeError", "DeferredInitializationError")}

#: Rules about what a trace meets, which lint cannot tell from the source alone.
_AT_TRACE = {"HL101", "HL174", "HL175"}


@dataclass
class Verdict:
    """differences : what differs and is not explained; explained : reason -> how many observations
    refused : the documented reason for which the hybridized run stopped, after which nothing is compared
    """

    observations: int
    differences: list[str] = field(default_factory=list)
    explained: Counter[str] = field(default_factory=Counter)
    refused: str | None = None
    errors: str = ""

    def __str__(self) -> str:
        more = f" and {len(self.differences) - 1} more" if len(self.differences) > 1 else ""
        return f"{self.differences[0]}{more}{self.errors}" if self.differences else "equal"

    def kind(self) -> str:
        """The first difference and the errors without names and numbers, to tell programs that fail alike."""
        return (
            re.sub(r"\d+|c\d+\.|\b[a-z]+\d[\w.]*", "", str(self).partition(": ")[2])[:160] if self.differences else ""
        )


def apart(found: Any, wanted: Any) -> float:
    """The largest difference; infinite for another shape, dtype, place of NaN or infinite value."""
    if not isinstance(found, np.ndarray) or not isinstance(wanted, np.ndarray):
        return 0.0 if type(found) is type(wanted) and found == wanted else float("inf")
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return float("inf")
    found, wanted = found.astype(np.float64), wanted.astype(np.float64)
    other = ~((found == wanted) | (np.isnan(found) & np.isnan(wanted)))
    with np.errstate(invalid="ignore"):
        gap = np.abs(found - wanted)[other]
    return float("inf") if np.isnan(gap).any() else float(gap.max(initial=0.0))


def _largest(value: Any, least: float) -> float:
    finite = value.astype(np.float64)
    return float(np.abs(finite[np.isfinite(finite)]).max(initial=least))


def _tolerance(seen: Seen, beside: float) -> float:
    """beside : the largest value of this kind that the same step shows"""
    if not isinstance(seen.value, np.ndarray):
        return 0.0
    own = _HALF.get(str(seen.value.dtype), _SINGLE)
    return _largest(seen.value, max(_SMALLEST, _BESIDE * beside)) * max(
        TOLERANCE[seen.kind], own * _ROUNDINGS[seen.kind]
    )


class _Rounded:
    """Eager runs of a program, each with other roundings, made when asked for."""

    def __init__(self, text: str):
        self.text = text
        self.runs: list[list[Seen]] = []

    def moves(self, index: int, wanted: Seen, gap: float) -> bool:
        """Whether other roundings move this observation about as much as `gap`, or the program takes another way."""
        for trial in range(_TRIALS):
            if len(self.runs) == trial:
                with other_rounding(trial):
                    self.runs.append(run_text(self.text).seen)
            seen = self.runs[trial]
            if index >= len(seen) or seen[index].label != wanted.label:
                return True
            if gap <= _FACTOR * apart(seen[index].value, wanted.value):
                return True
        return False


def _step_of(seen: Seen) -> tuple[str, str]:
    return seen.label.partition(": ")[0], seen.kind


def compare(text: str, engine: str) -> Verdict:
    """Run a text eagerly and with an engine, and compare all that was seen."""
    eager, hybrid = run_text(text), run_text(text, engine)
    verdict = Verdict(len(eager.seen))
    rounded = _Rounded(text)
    largest: Counter[tuple[str, str]] = Counter()
    for seen in eager.seen:
        if isinstance(seen.value, np.ndarray):
            largest[_step_of(seen)] = max(largest[_step_of(seen)], min(_largest(seen.value, 0.0), 1.0))
    for index, wanted in enumerate(eager.seen):
        if index >= len(hybrid.seen) or hybrid.seen[index].label != wanted.label:
            instead = [seen.label for seen in hybrid.seen[index : index + 1]]
            verdict.differences.append(f"{wanted.label}: not there, but {instead}")
            break
        found = hybrid.seen[index]
        gap = apart(found.value, wanted.value)
        if gap <= _tolerance(wanted, largest[_step_of(wanted)]):
            continue
        if wanted.label.endswith(": error") and (found.value, wanted.value) in _SEVERAL_ERRORS:
            verdict.explained["another of several errors"] += 1
            continue
        uninitialized = isinstance(found.value, str) and found.value == "not initialized"
        if uninitialized and eager.errors and not any(seen.kind == "forward" for seen in eager.seen[:index]):
            verdict.refused = "initialized by calls that raised"  # none came back
            break
        if uninitialized and has_dead_code(text):
            verdict.refused = "dead code"
            break
        if not isinstance(wanted.value, np.ndarray) or not isinstance(found.value, np.ndarray):
            verdict.differences.append(f"{wanted.label}: {found.value!r} instead of {wanted.value!r}")
            if found.label.endswith(": error"):
                break
        elif rounded.moves(index, wanted, gap):
            verdict.explained["moved by other roundings"] += 1
        else:
            verdict.differences.append(f"{wanted.label}: differs by {gap:.1e} of {_largest(wanted.value, 0.0):.1e}")
    _judge_errors(verdict, text, eager, hybrid)
    return verdict


def _judge_errors(verdict: Verdict, text: str, eager: Run, hybrid: Run) -> None:
    """Look at the errors of both runs, where there are differences: a documented refusal is none."""
    if not verdict.differences:
        return
    if "running_" in verdict.differences[0] and has_dead_code(text):
        verdict.refused, verdict.differences = "dead code", []
        return
    for reason, words, holds in _ON_PURPOSE:
        if any(words in str(error) for error in hybrid.errors) and holds(text):
            verdict.refused, verdict.differences = reason, []
            return
    if hybrid.refused is not None:
        told = _AT_TRACE | {finding.code for finding in lint.check(text)}
        reached = next((i for i, seen in enumerate(hybrid.seen) if "Hybridize" in str(seen.value)), 0)
        labels = [seen.label for seen in eager.seen]
        first = next((i for i, label in enumerate(labels) if verdict.differences[0].startswith(f"{label}: ")), 0)
        if hybrid.refused.code in told and first <= reached:
            verdict.refused, verdict.differences = hybrid.refused.code, []
            return
    for who, run, other in (("hybrid", hybrid, eager), ("eager", eager, hybrid)):
        known = {(type(error), str(error)[:40]) for error in other.errors}
        alone = {
            type(e).__name__: str(e).split("\n")[0][:200] for e in run.errors if (type(e), str(e)[:40]) not in known
        }
        verdict.errors += "".join(f"; {who} alone {name}: {said}" for name, said in alone.items())
