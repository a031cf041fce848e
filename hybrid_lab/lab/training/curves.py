"""A training run as the protocol's data."""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterable

from hybrid_lab.lab.messages.training import Curve, NotFinite, TrainingRun
from hybrid_lab.lab.messages.training import Loop as LoopRow
from hybrid_lab.lab.training.run import Loop, Run
from hybrid_lab.lab.training.series import Series
from hybrid_lab.lab.training.words import described, how_it_ended, latest, loop_text, not_finite

GRADIENT_NORM = "gradient norm"
TRAINER_CURVES = ("learning rate", GRADIENT_NORM, "step time")
"""The curves that a Trainer gives, in the order in which they are shown."""
UNITS = {"step time": "ms"}


def run_data(run: Run) -> TrainingRun:
    """The protocol's TrainingRun. Any thread may ask."""
    with run.lock:
        run.take()
        return _run(run)


def exact_curves(run: Run) -> list[Curve]:
    """The curves of a run with all digits."""
    with run.lock:
        run.take()
        return _curves(run, exact=True)


def _run(run: Run) -> TrainingRun:
    return {
        "number": run.number,
        "label": run.label,
        "state": run.state,
        "ended": how_it_ended(run.state, run.reason),
        "seconds": run.seconds,
        "overhead": run.overhead,
        "note": run.note,
        "earlier_loops": run.earlier_loops,
        "loops": [_loop(loop) for loop in list(run.loops)],
        "curves": _curves(run),
    }


def _curves(run: Run, exact: bool = False) -> list[Curve]:
    curves = sorted(run.series.items(), key=_order)
    if exact:
        return [_curve(name, series, run.steps, exact) for name, series in curves]
    return [_recent(name, series, run.steps) for name, series in curves]


_known: weakref.WeakKeyDictionary[Series, tuple[int, int, Curve]] = weakref.WeakKeyDictionary()
"""The curve of a Series as it was asked for last, and the values and steps that it had then."""


def _recent(name: str, series: Series, steps: int) -> Curve:
    """The curve, made once for the cell, the pages, and later runs that are drawn over this one."""
    known = _known.get(series)
    if known is None or known[:2] != (series.count, steps):
        known = _known[series] = series.count, steps, _curve(name, series, steps, exact=False)
    return known[2]


def _loop(loop: Loop) -> LoopRow:
    seconds, running = loop.seconds, loop.ended is None
    rate = loop.rate if running else loop.done / seconds if seconds > 0 else 0.0
    left = (loop.total - loop.done) / rate if running and loop.total is not None and rate > 0 else None
    row: LoopRow = {
        "title": loop.title,
        "unit": loop.unit,
        "depth": loop.depth,
        "done": loop.done,
        "total": loop.total,
        "seconds": seconds,
        "rate": rate or None,
        "left": None if left is None else max(0.0, left),
        "state": loop.state,
        "text": "",
    }
    row["text"] = loop_text(row)
    return row


def _curve(name: str, series: Series, steps: int, exact: bool) -> Curve:
    """steps : of the Trainer; exact : with all digits"""
    digits = list if exact else _rounded
    last, unit = series.last if math.isfinite(series.last) else None, UNITS.get(name, "")
    starts, ends, counts, means, lows, highs, firsts, lasts = series.columns
    row: Curve = {
        "name": name,
        "unit": unit,
        "count": series.count,
        "starts": list(starts),
        "steps": list(ends),
        "counts": list(counts),
        "means": digits(means),
        "lows": list(lows),
        "highs": list(highs),
        "firsts": digits(firsts),
        "lasts": digits(lasts),
        "last": last,
        "last_step": series.last_step,
        "bad": [NotFinite(what=what, first=first, last=last, count=n) for what, first, last, n in series.spans],
        "bad_count": series.not_finite,
        "bad_text": "",
        "latest": latest(series.last, unit),
        "note": "",
        "text": "",
    }
    if name == GRADIENT_NORM and series.count < steps:
        row["note"] = f"measured at {series.count:,} of {steps:,} steps"
    row["bad_text"] = not_finite(row["bad"], series.unplaced)
    row["text"] = described(row)
    return row


def _order(item: tuple[str, Series]) -> int:
    """The user's own curves first, in the order in which they appeared; then the Trainer's."""
    return 1 + TRAINER_CURVES.index(item[0]) if item[0] in TRAINER_CURVES else 0


def _rounded(values: Iterable[float]) -> list[float]:
    """Six digits: more cannot be seen. The smallest and the largest values are sent as they are."""
    return [float(f"{value:.6g}") for value in values]
