"""How a training run is told in words: its loops, its curves, its end."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hybrid_lab.diagnostics.formatting import count
from hybrid_lab.lab.messages.training import Curve, Loop, NotFinite, RunState


def how_it_ended(state: RunState, reason: str) -> str:
    """`failed: ValueError`, or "" for a run that is under way or came to its end."""
    if state in ("running", "done"):
        return ""
    return f"{state}: {reason}" if reason else state


def loop_text(loop: Loop) -> str:
    """`450 of 938, 12.3 steps/s, 0:40 left`; an ended loop says how long it took."""
    of = "" if loop["total"] is None else f" of {loop['total']}"
    rate = "" if loop["rate"] is None else f", {_per_second(loop)}"
    if loop["state"] == "running":
        left = "" if loop["left"] is None else f", {clock(loop['left'])} left"
        return f"{loop['done']}{of}{rate}{left}"
    if loop["state"] == "done":
        unit = loop["unit"] if loop["done"] == 1 else _plural(loop["unit"])
        return f"{loop['done']} {unit} in {clock(loop['seconds'])}{rate}"
    return f"{loop['state']} after {loop['done']}{of} {_plural(loop['unit'])}, {clock(loop['seconds'])}"


def clock(seconds: float) -> str:
    """`0:38`, `1:02:07`; below ten seconds with a decimal, `3.2 s`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _per_second(loop: Loop) -> str:
    rate, units = loop["rate"] or 0.0, _plural(loop["unit"])
    if rate < 1:
        return f"{1 / rate:.1f} s/{loop['unit']}"
    return f"{rate:,.0f} {units}/s" if rate >= 100 else f"{rate:.1f} {units}/s"


def _plural(unit: str) -> str:
    """`steps`, `batches`, `epochs`."""
    return unit + ("es" if unit.endswith(("s", "x", "tch", "sh")) else "s")


def short(value: float) -> str:
    """A number in few characters: `0.25`, `1.2e-05`, `940`."""
    return f"{value:.3g}" if value else "0"


def latest(value: float, unit: str) -> str:
    """`0.125 ms`: the last value of a curve; `NaN` or `inf`."""
    text = short(value) if math.isfinite(value) else "NaN" if value != value else str(value)
    return f"{text} {unit}".rstrip()


SPANS_IN_WORDS = 20
"""Most places of values that are not finite in a text."""


def not_finite(spans: Sequence[NotFinite], unplaced: int) -> str:
    """`NaN at step 57 to 59, 120; inf at step 7`, or ""."""
    parts: dict[str, list[str]] = {}
    for span in spans[:SPANS_IN_WORDS]:
        place = f"{span['first']}" if span["first"] == span["last"] else f"{span['first']} to {span['last']}"
        parts.setdefault(span["what"], []).append(place)
    text = "; ".join(f"{what} at step {', '.join(places)}" for what, places in parts.items())
    more = sum(span["count"] for span in spans[SPANS_IN_WORDS:]) + unplaced
    return f"{text}, and {count(more, 'value')} more" if more else text


def described(curve: Curve) -> str:
    """A curve in words, for who does not see it."""
    text = f"{curve['name']}: {curve['latest']} at step {curve['last_step']}"
    if curve["lows"]:
        text += f", smallest {short(min(curve['lows']))}, largest {short(max(curve['highs']))}"
    return ", ".join(filter(None, [text, curve["bad_text"], curve["note"]]))
