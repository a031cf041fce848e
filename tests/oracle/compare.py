"""One case in MXNet, in Hybrid Lab eagerly and hybridized: what differs, and whether a rule explains it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

import hybrid_lab
from tests.oracle.execute import Answer, answer
from tests.oracle.oracle import Oracle

#: What two results may differ by, relative to their size.
_TOLERANCE = {2: 4e-3, 4: 2e-5, 8: 1e-10}
#: Runs with rounding errors in the inputs, which show how much a result is off by rounding.
_JITTERS = (1, 2, 3)
#: Errors that MXNet raises for wrong arguments, and that may be raised here, too.
_PLAIN = {
    "TypeError",
    "ValueError",
    "IndexError",
    "KeyError",
    "AttributeError",
    "NotImplementedError",
    "AssertionError",
}


@dataclass(frozen=True)
class Difference:
    """kind : "theirs raises", "ours raises", "untyped", "missing", "shape", "dtype" or "value"; name : of the value"""

    kind: str
    name: str
    text: str


@dataclass
class Comparison:
    """A case with its answers. ours : eager, or hybridized with `engine`"""

    case: dict[str, Any]
    ours: Answer
    theirs: Answer
    oracle: Oracle
    engine: str | None = None
    eager: Answer | None = None
    differences: list[Difference] = field(default_factory=list)
    explained: list[str] = field(default_factory=list)

    @property
    def outcome(self) -> str:
        """ "equal", "both refuse", "explained" or "different"."""
        if self.differences:
            return "different"
        if self.explained:
            return "explained"
        return "both refuse" if self.ours.error and self.theirs.error else "equal"

    @cached_property
    def jittered(self) -> list[Answer]:
        """Our eager answers for inputs that are off by rounding errors."""
        return [answer(hybrid_lab, {**self.case, "jitter": number}) for number in _JITTERS]

    @cached_property
    def wide(self) -> Answer:
        """Our eager answer in float64."""
        return answer(hybrid_lab, {**self.case, "wide": True})

    @cached_property
    def their_wide(self) -> Answer:
        """MXNet's answer in float64."""
        return self.oracle.answer({**self.case, "wide": True})

    def uncertainty(self, name: str) -> np.ndarray | float:
        """How much our value is off by rounding, element by element: infinite where it jumps."""
        ours = self.ours.values[name].astype(np.float64)
        spread = np.zeros(ours.shape)
        for other in [*self.jittered, self.wide]:
            if name not in other.values or other.values[name].shape != ours.shape:
                continue
            near = other.values[name].astype(np.float64)
            gap = np.where(ours == near, 0.0, np.abs(ours - near))
            gap[np.isnan(ours) & np.isnan(near)] = 0.0
            spread = np.maximum(spread, np.where(np.isnan(gap), np.inf, gap))
        return spread


def compare(case: dict[str, Any], oracle: Oracle, engine: str | None = None) -> list[Comparison]:
    """The eager comparison, and with an engine the hybridized one."""
    theirs = oracle.answer(case)
    first = _compared(Comparison(case, answer(hybrid_lab, case), theirs, oracle))
    if first.differences and theirs.error != ("Crash",):
        # Earlier cases of the process may have overwritten its memory.
        again = oracle.answer(case, fresh=True)
        first = _compared(Comparison(case, first.ours, again, oracle))
    if engine is None:
        return [first]
    eager = first.ours
    second = Comparison(case, answer(hybrid_lab, case, engine), first.theirs, oracle, engine, eager)
    return [first, _compared(second)]


def _compared(item: Comparison) -> Comparison:
    from tests.oracle.rules import explanation

    for difference in differences(item):
        reason = explanation(item, difference)
        if reason is None:
            item.differences.append(difference)
        else:
            item.explained.append(reason)
    return item


def differences(item: Comparison) -> list[Difference]:
    """All that differs, before rules."""
    ours, theirs = item.ours, item.theirs
    found = []
    if theirs.error and not ours.error:
        found.append(Difference("theirs raises", theirs.at, f"{theirs.error[0]}: {brief(theirs.text)}"))
    elif ours.error and not theirs.error:
        found.append(Difference("ours raises", ours.at, f"{ours.error[0]}: {brief(ours.text)}"))
    if ours.error and not _typed(ours, theirs):
        found.append(Difference("untyped", ours.at, f"{ours.error[0]}: {brief(ours.text)}"))
    for name in theirs.values:
        if name not in ours.values:
            if not ours.error and not (name.startswith("after ") and item.engine):
                found.append(Difference("missing", name, "only MXNet has it"))
        elif (line := _value(item, name)) is not None:
            found.append(line)
    if not theirs.error:
        found += [
            Difference("missing", name, "only Hybrid Lab has it") for name in ours.values if name not in theirs.values
        ]
    return found


def brief(text: str) -> str:
    """The line of an error that says what is wrong."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    told = [line for line in lines if "Error:" in line or "Check failed" in line]
    return (told[-1] if told else lines[-1] if lines else "")[-300:]


def _typed(ours: Answer, theirs: Answer) -> bool:
    if {"MXNetError", "HybridLabError"} & set(ours.error):
        return True
    if theirs.error and "AxisError" in ours.error:  # NumPy's own, of functions that run there
        return True
    return bool(theirs.error) and bool(_PLAIN & set(ours.error) & set(theirs.error))


def _value(item: Comparison, name: str) -> Difference | None:
    ours, theirs = item.ours.values[name], item.theirs.values[name]
    if ours.shape != theirs.shape:
        return Difference("shape", name, f"{ours.shape}, MXNet {theirs.shape}")
    if ours.dtype != theirs.dtype and "U" not in (ours.dtype.kind, theirs.dtype.kind):
        return Difference("dtype", name, f"{ours.dtype}, MXNet {theirs.dtype}")
    if ours.dtype.kind == "U" or theirs.dtype.kind == "U":
        return None if str(ours) == str(theirs) else Difference("value", name, f"{ours}, MXNet {theirs}")
    if name == "spread":
        return None if np.allclose(ours, theirs, rtol=0.2) else Difference("value", name, f"{ours}, MXNet {theirs}")
    wrong = apart(ours, theirs)
    if wrong.any():
        wrong = wrong & apart(ours, theirs, item.uncertainty(name))
    if not wrong.any():
        return None
    places = np.argwhere(wrong)
    shown = "; ".join(
        f"{tuple(place.tolist())}: {ours[tuple(place)]!s}, MXNet {theirs[tuple(place)]!s}" for place in places[:3]
    )
    return Difference("value", name, f"{len(places)} of {wrong.size}: {shown}")


def apart(ours: np.ndarray, theirs: np.ndarray, uncertainty: Any = 0.0) -> np.ndarray:
    """Which elements differ by more than rounding. uncertainty : of ours, by element"""
    if ours.dtype.kind != "f":
        return (ours != theirs) & (np.broadcast_to(uncertainty, ours.shape) == 0)
    tolerance = _TOLERANCE[min(ours.dtype.itemsize, theirs.dtype.itemsize)]
    first, second = ours.astype(np.float64), theirs.astype(np.float64)
    finite = np.abs(second[np.isfinite(second)])
    scale = float(finite.max()) if finite.size else 0.0
    with np.errstate(invalid="ignore", over="ignore"):
        limit = tolerance * (np.abs(second) + 0.02 * scale + 0.02) + 10 * np.asarray(uncertainty)
        near = (first == second) | (np.abs(first - second) <= limit) | (np.isnan(first) & np.isnan(second))
        return ~(near | np.isinf(limit))
