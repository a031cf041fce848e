"""A training run as text and as HTML without scripts: bars, curves and a table of their values."""

from __future__ import annotations

import html
from collections.abc import Sequence

from hybrid_lab.lab.messages.training import Curve, Loop, TrainingRun
from hybrid_lab.lab.training.chart import charts
from hybrid_lab.lab.training.words import short

_BAR = "display:inline-block;width:160px;height:9px;border:1px solid currentColor;border-radius:5px;overflow:hidden"
_CELL = "text-align:left;padding:1px 10px 1px 0"


def run_html(run: TrainingRun, earlier: Sequence[TrainingRun] = ()) -> str:
    """The run, with earlier ones as faint lines."""
    parts = []
    if run["earlier_loops"]:
        parts.append(f'<div style="opacity:.8">{run["earlier_loops"]} earlier loops</div>')
    parts += [_loop(loop) for loop in run["loops"]]
    if run["ended"]:
        parts.append(f"<div><b>{html.escape(run['ended'])}</b></div>")
    if run["curves"]:
        drawn = charts(run["curves"], [each["curves"] for each in earlier])
        parts.append(f'<div style="display:flex;flex-wrap:wrap;gap:8px;margin-top:4px">{drawn}</div>')
        parts.append(_table(run["curves"]))
    if run["note"]:
        parts.append(f"<div>{html.escape(run['note'])}</div>")
    return f'<div style="font-family:system-ui,sans-serif;font-size:13px;color:inherit">{"".join(parts)}</div>'


def run_text(run: TrainingRun) -> str:
    """The run in plain text."""
    lines = [f"{'  ' * loop['depth']}{_titled(loop)}{loop['text']}" for loop in run["loops"]]
    lines += [run["ended"]] if run["ended"] else []
    return "\n".join([*lines, *(curve["text"] for curve in run["curves"])])


def _titled(loop: Loop) -> str:
    return f"{loop['title']}: " if loop["title"] else ""


def _loop(loop: Loop) -> str:
    bar = ""
    if loop["total"]:
        share = min(1.0, loop["done"] / loop["total"])
        color = "#2f7ed8" if loop["state"] in ("running", "done") else "#c76b15"
        fill = f"display:block;height:100%;width:{100 * share:.1f}%;background:{color}"
        bar = f'<span style="{_BAR}"><span style="{fill}"></span></span> {100 * share:.0f}% '
    text = html.escape(loop["text"])
    title = html.escape(_titled(loop))
    return f'<div style="padding-left:{loop["depth"]}.5em;white-space:nowrap">{title}{bar}{text}</div>'


def _table(curves: Sequence[Curve]) -> str:
    titles = ("", "last", "at step", "smallest", "largest", "values")
    head = "".join(f'<th style="{_CELL}">{title}</th>' for title in titles)
    rows = "".join(_row(curve) for curve in curves)
    return (
        '<details><summary style="cursor:pointer">Values</summary>'
        f'<table style="border-collapse:collapse"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></details>'
    )


def _row(curve: Curve) -> str:
    cells = [curve["name"], curve["latest"], str(curve["last_step"])]
    cells += [short(min(curve["lows"])), short(max(curve["highs"]))] if curve["lows"] else ["", ""]
    cells.append(f"{curve['count']:,}")
    if curve["bad_text"] or curve["note"]:
        cells.append(", ".join(filter(None, [curve["bad_text"], curve["note"]])))
    return "<tr>" + "".join(f'<td style="{_CELL}">{html.escape(cell)}</td>' for cell in cells) + "</tr>"
