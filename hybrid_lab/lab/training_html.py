"""A training run as text and as HTML without scripts: bars, curves and a table of their values."""

from __future__ import annotations

import html
from collections.abc import Sequence

from hybrid_lab.lab.chart import charts, described, latest, short
from hybrid_lab.lab.messages import Curve, Loop, TrainingRun

_BAR = "display:inline-block;width:160px;height:9px;border:1px solid currentColor;border-radius:5px;overflow:hidden"
_CELL = "text-align:left;padding:1px 10px 1px 0"


def run_html(run: TrainingRun, earlier: Sequence[TrainingRun] = ()) -> str:
    """The run, with earlier ones as faint lines."""
    parts = []
    if run["earlier_loops"]:
        parts.append(f'<div style="opacity:.8">{run["earlier_loops"]} earlier loops</div>')
    parts += [_loop(loop) for loop in run["loops"]]
    if ended := how_it_ended(run):
        parts.append(f"<div><b>{html.escape(ended)}</b></div>")
    if run["curves"]:
        drawn = charts(run["curves"], [each["curves"] for each in earlier])
        parts.append(f'<div style="display:flex;flex-wrap:wrap;gap:8px;margin-top:4px">{drawn}</div>')
        parts.append(_table(run["curves"]))
    if run["note"]:
        parts.append(f"<div>{html.escape(run['note'])}</div>")
    return f'<div style="font-family:system-ui,sans-serif;font-size:13px;color:inherit">{"".join(parts)}</div>'


def run_text(run: TrainingRun) -> str:
    """The run in plain text."""
    lines = [f"{'  ' * loop['depth']}{_titled(loop)}{loop_text(loop)}" for loop in run["loops"]]
    if ended := how_it_ended(run):
        lines.append(ended)
    return "\n".join([*lines, *(described(curve) for curve in run["curves"])])


def how_it_ended(run: TrainingRun) -> str:
    """`failed: ValueError`, or "" for a run that is under way or came to its end."""
    if run["state"] in ("running", "done"):
        return ""
    return f"{run['state']}: {run['reason']}" if run["reason"] else run["state"]


def loop_text(loop: Loop) -> str:
    """`450 of 938, 12.3 steps/s, 0:40 left`; an ended loop says how long it took."""
    of = "" if loop["total"] is None else f" of {loop['total']}"
    rate = "" if loop["rate"] is None else f", {_per_second(loop)}"
    if loop["state"] == "running":
        left = "" if loop["left"] is None else f", {clock(loop['left'])} left"
        return f"{loop['done']}{of}{rate}{left}"
    if loop["state"] == "done":
        return f"{loop['done']} {loop['unit']}{'' if loop['done'] == 1 else 's'} in {clock(loop['seconds'])}{rate}"
    return f"{loop['state']} after {loop['done']}{of} {loop['unit']}s, {clock(loop['seconds'])}"


def clock(seconds: float) -> str:
    """`0:38`, `1:02:07`; below ten seconds with a decimal, `3.2 s`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _per_second(loop: Loop) -> str:
    rate, unit = loop["rate"] or 0.0, loop["unit"]
    if rate < 1:
        return f"{1 / rate:.1f} s/{unit}"
    return f"{rate:,.0f} {unit}s/s" if rate >= 100 else f"{rate:.1f} {unit}s/s"


def _titled(loop: Loop) -> str:
    return f"{loop['title']}: " if loop["title"] else ""


def _loop(loop: Loop) -> str:
    bar = ""
    if loop["total"]:
        share = min(1.0, loop["done"] / loop["total"])
        color = "#2f7ed8" if loop["state"] in ("running", "done") else "#c76b15"
        fill = f"display:block;height:100%;width:{100 * share:.1f}%;background:{color}"
        bar = f'<span style="{_BAR}"><span style="{fill}"></span></span> {100 * share:.0f}% '
    text = html.escape(loop_text(loop))
    title = html.escape(_titled(loop))
    return f'<div style="padding-left:{loop["depth"]}.5em;white-space:nowrap">{title}{bar}{text}</div>'


def _table(curves: Sequence[Curve]) -> str:
    head = "".join(f'<th style="{_CELL}">{name}</th>' for name in ("", "last", "at step", "smallest", "largest"))
    rows = "".join(_row(curve) for curve in curves)
    return (
        '<details><summary style="cursor:pointer">Values</summary>'
        f'<table style="border-collapse:collapse"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></details>'
    )


def _row(curve: Curve) -> str:
    cells = [curve["name"], latest(curve), str(curve["last_step"])]
    cells += [short(min(curve["lows"])), short(max(curve["highs"]))] if curve["lows"] else ["", ""]
    if curve["bad"] is not None:
        cells.append(f"NaN or infinite first at step {curve['bad']}")
    return "<tr>" + "".join(f'<td style="{_CELL}">{html.escape(cell)}</td>' for cell in cells) + "</tr>"
