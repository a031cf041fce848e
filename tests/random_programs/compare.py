"""Holds a hybridized run against the eager one, and proves of a difference where it comes from - or that it is one."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from hybrid_lab import HybridizeError, lint
from hybrid_lab.diagnostics import (
    ArrayIndexError,
    AutogradError,
    DeferredInitializationError,
    MissingGraphError,
    ShapeError,
)
from hybrid_lab.gluon.trainer import StaleGradientError
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
_TRIALS, _FACTOR = 48, 4.0


def has_dead_code(text: str) -> bool:
    """Whether a variable of a class is never read."""
    for kind in [node for node in ast.parse(text).body if isinstance(node, ast.ClassDef)]:
        names = [node for node in ast.walk(kind) if isinstance(node, ast.Name)]
        read = {node.id for node in names if isinstance(node.ctx, ast.Load)}
        if {node.id for node in names if isinstance(node.ctx, ast.Store)} - read - {"_", "i", "k", "block"}:
            return True
    return False


def without_dead_code(text: str) -> str:
    """The program without what its methods assign to variables that they never read."""
    tree = ast.parse(text)
    methods = [
        method
        for kind in tree.body
        if isinstance(kind, ast.ClassDef)
        for method in kind.body
        if isinstance(method, ast.FunctionDef)
    ]
    for method in methods:
        count = -1
        while count != len(method.body):
            count = len(method.body)
            read = {
                node.id for node in ast.walk(method) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
            }
            method.body = [part for part in method.body if not _is_unread(part, read)]
    return ast.unparse(tree)


def _is_unread(statement: ast.stmt, read: set[str]) -> bool:
    """Whether a statement assigns to variables alone, none of which is read."""
    if not isinstance(statement, ast.Assign):
        return False
    targets = [node for target in statement.targets for node in ast.walk(target)]
    names = {node.id for node in targets if isinstance(node, ast.Name)}
    return (
        bool(names)
        and not names & read
        and all(isinstance(node, (ast.Name, ast.Tuple, ast.List, ast.expr_context)) for node in targets)
    )


#: What an eager run says where a loop or a branch did not read an array in this call, for which a graph gives zeros.
_NOT_READ = re.compile("not in a computational graph|the heads do not depend on it")
_LOOP = re.compile(r"\b(foreach|while_loop|cond)\(")

#: A parameter without elements, as its error tells of it.
_NO_ELEMENTS = re.compile(r"its shape \((\d+, )*0\b[\d, ]*\) is not known")

#: Rules about what a trace meets, and what the method that they name must hold; lint tells other rules from the source.
_AT_TRACE = {"HL101": r"\.(shape|ndim)\b", "HL142": r"\bxs\b", "HL174": "is_training", "HL175": "is_recording"}


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

    def __init__(self, run: Callable[[], Run]):
        self.run = run
        self.runs: list[list[Seen]] = []

    def moves(self, index: int, wanted: Seen, gap: float) -> bool:
        """Whether other roundings move this observation about as much as `gap`, or the program takes another way."""
        for trial in range(_TRIALS):
            if len(self.runs) == trial:
                with other_rounding(trial):
                    self.runs.append(self.run().seen)
            seen = self.runs[trial]
            if index >= len(seen) or seen[index].label != wanted.label:
                return True
            if gap <= _FACTOR * apart(seen[index].value, wanted.value):
                return True
        return False


def _gap_to_zeros(text: str, run: Callable[..., Run], written: list[list[int]]) -> Callable[[int, Seen], float]:
    """How far an observation is from an eager run in which the gradients that the hybridized run wrote are zero before
    each backward.

    A loop or a branch gives zeros to what it reads and does not use in a call, where eagerly an older gradient stays,
    which a Trainer does not apply.
    """
    seen: list[Seen] | None = None if _LOOP.search(text) else []

    def gap(index: int, found: Seen) -> float:
        nonlocal seen
        if seen is None:
            seen = run(zeros=written).seen
        same = index < len(seen) and seen[index].label == found.label
        return apart(found.value, seen[index].value) if same else float("inf")

    return gap


def _step_of(seen: Seen) -> tuple[str, str]:
    return seen.label.partition(": ")[0], seen.kind


def compare(text: str, engine: str) -> Verdict:
    """Run a text eagerly and with an engine, and compare all that was seen."""
    eager, hybrid = run_text(text), run_text(text, engine)
    verdict = Verdict(len(eager.seen))
    alike = _documented_alike(text, eager, hybrid)
    if alike:
        eager = run_text(text, **alike)
        verdict.explained[f"programs whose eager run {' and '.join(_ALIKE[name] for name in alike)}"] += 1
    rounded = _Rounded(partial(run_text, text, **alike))
    gap_to_zeros = _gap_to_zeros(text, partial(run_text, text, **alike), hybrid.written)
    largest: Counter[tuple[str, str]] = Counter()
    for seen in eager.seen:
        if isinstance(seen.value, np.ndarray):
            largest[_step_of(seen)] = max(largest[_step_of(seen)], min(_largest(seen.value, 0.0), 1.0))
    for index, wanted in enumerate(eager.seen):
        found = hybrid.seen[index] if index < len(hybrid.seen) else Seen("nothing", "fact", None)
        gap = apart(found.value, wanted.value) if found.label == wanted.label else float("inf")
        tolerance = _tolerance(wanted, largest[_step_of(wanted)])
        if gap <= tolerance:
            continue
        if _is_another_of_several(eager.said.get(index), hybrid.said.get(index), [*eager.said.values()]):
            verdict.explained["another of several errors"] += 1
            continue
        if _is_the_same_of_inputs_with_rows(text, engine, wanted, eager.said.get(index), hybrid.said.get(index)):
            verdict.explained["another of several errors"] += 1
            continue
        arrays = isinstance(wanted.value, np.ndarray) and isinstance(found.value, np.ndarray)
        if found.label == wanted.label and arrays:
            if rounded.moves(index, wanted, gap):
                verdict.explained["moved by other roundings"] += 1
            elif gap_to_zeros(index, found) <= tolerance:
                verdict.explained["zeros for what a loop or a branch does not use"] += 1
            else:
                verdict.differences.append(f"{wanted.label}: differs by {gap:.1e} of {_largest(wanted.value, 0.0):.1e}")
            continue
        verdict.refused = _documented(text, eager, hybrid, index)
        if verdict.refused:  # the two runs are in different states from here on
            break
        if found.label == wanted.label:
            verdict.differences.append(f"{wanted.label}: {found.value!r} instead of {wanted.value!r}")
        else:
            verdict.differences.append(f"{wanted.label}: not there, but {found.label!r}")
        if found.label != wanted.label or found.label.endswith(": error"):
            break
    if verdict.differences:
        verdict.errors = _errors(eager, hybrid)
    return verdict


#: What an eager run does that takes part in a documented difference.
_ALIKE = {
    "waits": "forgets the parameters that a call initialized before it raised",
    "zeros": "gives a Trainer the zeros that a loop or a branch gives",
    "skips": "takes what a loop or a branch gives for a part of the graph",
}


def _documented_alike(text: str, eager: Run, hybrid: Run) -> dict[str, Any]:
    """With which options of `Run` an eager run has, from the beginning, the documented differences that later steps
    show in ways of their own: as other errors, or as other values.
    """
    options: dict[str, Any] = {}
    if any(set(waiting) - set(own) for waiting, own in zip(hybrid.waiting, eager.waiting, strict=False)):
        options["waits"] = hybrid.waiting
    stale = [index for index, error in eager.said.items() if isinstance(error, StaleGradientError)]
    if _LOOP.search(text) and any(not isinstance(hybrid.said.get(index), StaleGradientError) for index in stale):
        options["zeros"] = hybrid.written
    apart = [index for index, error in eager.said.items() if isinstance(error, AutogradError)]
    if _LOOP.search(text) and any(_NOT_READ.search(str(eager.said[index])) for index in set(apart) - set(hybrid.said)):
        options |= {"skips": hybrid.done, "zeros": hybrid.written}
    return options


def _is_another_of_several(eager: Exception | None, hybrid: Exception | None, others: list[Exception]) -> bool:
    """Whether an input without elements is two errors, of which each run meets another one first: a layer gets a
    parameter without elements, which cannot be initialized, and an operator needs an element. An eager call stops at
    the one that comes first in the code. A hybridized one infers the shapes of all operators before it initializes the
    first parameter, and its error names the place of the operator. Or it meets what is wrong in the code with any
    input, as the eager run shows elsewhere. others : the errors of the eager run
    """
    if not isinstance(eager, DeferredInitializationError) or not _NO_ELEMENTS.search(str(eager)) or hybrid is None:
        return False
    if any(type(hybrid) is type(other) and _first_line(hybrid) == _first_line(other) for other in others):
        return True
    return isinstance(hybrid, (ShapeError, ArrayIndexError)) and bool(re.search(r"\b0\b.*\n  .*line \d+", str(hybrid)))


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _is_the_same_of_inputs_with_rows(
    text: str, engine: str, wanted: Seen, eager: Exception | None, hybrid: Exception | None
) -> bool:
    """Whether an input without elements is an error of its own, which a hybridized call meets before the eager one's,
    as it infers shapes before dtypes: where the input has a row, both runs raise the eager one's error in this step.
    """
    if eager is None or not isinstance(hybrid, (ShapeError, ArrayIndexError)) or not re.search(r"\b0\b", str(hybrid)):
        return False
    step = _step_of(wanted)[0].partition(" ")[2]
    for other in (None, engine):
        seen = run_text(text, other, rows=1).seen
        raised = [one.value for one in seen if one.label.partition(" ")[2] == f"{step}: error"]
        if raised != [wanted.value]:
            return False
    return True


def _documented(text: str, eager: Run, hybrid: Run, index: int) -> str | None:
    """The documented reason, if it is one, why only one of two runs raised an error or initialized a parameter."""
    found, wanted = (run.seen[min(index, len(run.seen) - 1)] for run in (hybrid, eager))
    error = hybrid.said.get(index)
    step = _step_of(found)[0].partition(" ")[2]  # the number of observations before it stands first
    before, _, after = text.partition(f"run.step({step!r})")
    if isinstance(error, MissingGraphError):
        if "run.replaced(" in before:
            return "no graph for this call in an archive opened without its code"
        if "run.pinned(" in before + after.partition("run.step(")[0]:
            return "no graph for this call in an archive whose graphs win over the code"
        if isinstance(error.__cause__, HybridizeError) and _tells_its_place(error.__cause__, text):
            return error.__cause__.code
    if str(found.value) == "DeferredInitializationError" or "not initialized" in (str(found.value), str(wanted.value)):
        if eager.errors and not any(seen.kind == "forward" for seen in eager.seen[:index]):  # no call came back
            return "initialized by calls that raised"
        return None
    if str(found.value).startswith("Hybridize") and found.label.endswith(": error") and hybrid.refused is not None:
        return hybrid.refused.code if _tells_its_place(hybrid.refused, text) else None
    if wanted.label.endswith(": error") and not found.label.endswith(": error") and has_dead_code(text):
        seen = run_text(without_dead_code(text)).seen
        if step == _step_of(wanted)[0].partition(" ")[2] and not any(
            one.label.partition(" ")[2] == f"{step}: error" for one in seen
        ):
            return "raised by code whose result is not used"
    for run, other in ((eager, hybrid), (hybrid, eager)):
        if run.seen[min(index, len(run.seen) - 1)].label.endswith(": error") and _gives_what_a_late_write_gives(
            text, run, other, index
        ):
            return "written before backward"
    return None


def _tells_its_place(error: HybridizeError, text: str) -> bool:
    """Whether a refusal names a method that holds what its rule is about."""
    place = error.location
    if place is None:
        return False
    for method in [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]:
        lines = range(method.lineno, (method.end_lineno or method.lineno) + 1)
        if place.line in lines:
            if error.code in _AT_TRACE:
                return re.search(_AT_TRACE[error.code], ast.unparse(method)) is not None
            return any(finding.code == error.code and finding.line in lines for finding in lint.check(text))
    return False


def _gives_what_a_late_write_gives(text: str, raised: Run, other: Run, index: int) -> bool:
    """Whether one run raised because an array was written to between a call and its backward, and the other one shows
    in this step what an eager run shows that writes after the backward: its gradient does not read that array.
    """
    if not any("it has been written to since" in str(error) for error in raised.errors):
        return False
    step = _step_of(other.seen[index])[0]
    late = run_text(text, late=step).seen
    for found, wanted in zip(other.seen[index:], late[index:], strict=False):
        if _step_of(found)[0] != step:
            return True
        if found.label != wanted.label or apart(found.value, wanted.value) > 10 * _tolerance(wanted, 1.0):
            return False
    return True


def _errors(eager: Run, hybrid: Run) -> str:
    """The errors that only one of two runs raised, in a line."""
    text = ""
    for who, run, other in (("hybrid", hybrid, eager), ("eager", eager, hybrid)):
        known = {(type(error), str(error)[:40]) for error in other.errors}
        alone = {
            type(e).__name__: str(e).split("\n")[0][:200] for e in run.errors if (type(e), str(e)[:40]) not in known
        }
        text += "".join(f"; {who} alone {name}: {said}" for name, said in alone.items())
    return text
