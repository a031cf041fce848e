"""Line charts as script-free inline SVG: readable on a light and on a dark page, in a notebook without a kernel."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterable, Sequence

from hybrid_lab.lab.messages.training import Curve
from hybrid_lab.lab.training_words import short

COLORS = ("#2f7ed8", "#c76b15", "#2e9b57", "#a259d9")
"""Of the lines of one chart: each stands out from white and from a dark grey by 3 to 1."""
WIDTH, HEIGHT = 300, 150
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 8, 20, 18
_EARLIER_POINTS = 60
"""Most points of the line of an earlier run."""


def charts(curves: Sequence[Curve], earlier: Sequence[Sequence[Curve]] = ()) -> str:
    """One chart for each group of curves. earlier : curves of runs before; those of the same names are faint lines"""
    parts = []
    for group in grouped(curves):
        names = {curve["name"] for curve in group}
        faint = [[curve for curve in run if curve["name"] in names] for run in earlier]
        parts.append(_chart(group, [curve for run in faint for curve in run]))
    return "".join(parts)


def grouped(curves: Iterable[Curve]) -> list[list[Curve]]:
    """Curves that share a chart: those whose names end with the same word, such as `loss` and `val_loss`."""
    groups: dict[str, list[Curve]] = {}
    for curve in curves:
        word = re.split(r"[_/.-]+", curve["name"].strip())[-1].lower()
        key = word if word and not curve["unit"] and " " not in curve["name"] else curve["name"]
        groups.setdefault(key, []).append(curve)
    return list(groups.values())


def _chart(curves: list[Curve], earlier: list[Curve]) -> str:
    lows = [value for curve in curves for value in curve["lows"]]
    highs = [value for curve in curves for value in curve["highs"]]
    low, high = _padded(min(lows, default=0.0), max(highs, default=1.0))
    first = min((curve["steps"][0] for curve in curves if curve["steps"]), default=0)
    last = max([curve["last_step"] for curve in curves] + [first + 1])
    across, up = WIDTH - _LEFT - _RIGHT, HEIGHT - _TOP - _BOTTOM

    def x(step: float) -> float:
        return round(_LEFT + (step - first) / (last - first) * across, 1)

    def y(value: float) -> float:
        return round(_TOP + (high - value) / (high - low) * up, 1)

    parts = [_axes([(y(tick), short(tick)) for tick in ticks(low, high)], str(first), str(last))]
    # A nested svg cuts off what an earlier run has outside of this one's range.
    parts.append(f'<svg x="{_LEFT}" y="{_TOP}" width="{across}" height="{up}" viewBox="{_LEFT} {_TOP} {across} {up}">')
    for curve in earlier:
        thin = max(1, -(-len(curve["steps"]) // _EARLIER_POINTS))
        kept = list(zip(curve["steps"], curve["means"], strict=True))[::-thin][::-1]
        path = _path((x(step), y(value)) for step, value in kept)
        parts.append(f'<path d="{path}" fill="none" stroke="currentColor" stroke-opacity=".28"/>')
    for color, curve in zip(_colors(curves), curves, strict=True):
        band = [(x(step), y(value)) for step, value in zip(curve["steps"], curve["highs"], strict=True)]
        band += [(x(step), y(value)) for step, value in zip(curve["steps"], curve["lows"], strict=True)][::-1]
        if curve["highs"] != curve["lows"]:
            parts.append(f'<path d="{_path(band)}Z" fill="{color}" fill-opacity=".2"/>')
        points = [(x(step), y(value)) for step, value in zip(curve["steps"], curve["means"], strict=True)]
        if len(points) == 1:
            parts.append(f'<circle cx="{points[0][0]}" cy="{points[0][1]}" r="2.5" fill="{color}"/>')
        parts.append(f'<path d="{_path(points)}" fill="none" stroke="{color}" stroke-width="1.6"/>')
        if curve["bad"] is not None:
            place = x(curve["bad"])
            parts.append(
                f'<path d="M{place} {_TOP}V{_TOP + up}" stroke="#d33" stroke-width="1.5" stroke-dasharray="3 2"/>'
            )
    parts.append("</svg>")
    title = "  ".join(
        f'<tspan fill="{color}" font-weight="bold">{html.escape(curve["name"])}</tspan> {html.escape(curve["latest"])}'
        for color, curve in zip(_colors(curves), curves, strict=True)
    )
    label = html.escape("; ".join(curve["text"] for curve in curves), quote=True)
    return (
        f'<svg role="img" aria-label="{label}" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="system-ui,sans-serif" font-size="11" fill="currentColor" style="max-width:100%">'
        f'<text x="4" y="13" xml:space="preserve">{title}</text>{"".join(parts)}</svg>'
    )


def _axes(marks: list[tuple[float, str]], first: str, last: str) -> str:
    bottom, right = HEIGHT - _BOTTOM, WIDTH - _RIGHT
    lines = "".join(f"M{_LEFT} {place}H{right}" for place, _ in marks)
    texts = "".join(f'<text x="{_LEFT - 4}" y="{place + 3.5}" text-anchor="end">{text}</text>' for place, text in marks)
    return (
        f'<path d="{lines}" stroke="currentColor" stroke-opacity=".18"/>'
        f'<path d="M{_LEFT} {_TOP}V{bottom}H{right}" fill="none" stroke="currentColor" stroke-opacity=".5"/>'
        f'<g font-size="10" fill-opacity=".8">{texts}<text x="{_LEFT}" y="{bottom + 12}">step {first}</text>'
        f'<text x="{right}" y="{bottom + 12}" text-anchor="end">{last}</text></g>'
    )


def _colors(curves: Sequence[Curve]) -> list[str]:
    return [COLORS[place % len(COLORS)] for place in range(len(curves))]


def _path(points: Iterable[tuple[float, float]]) -> str:
    return "".join(f"{'L' if place else 'M'}{x:g} {y:g}" for place, (x, y) in enumerate(points))


def _padded(low: float, high: float) -> tuple[float, float]:
    """A range that is not empty, with some room at both ends."""
    room = (high - low) * 0.04 or abs(high) * 0.1 or 1.0
    return low - room, high + room


def ticks(low: float, high: float) -> list[float]:
    """Two to five round numbers within a range."""
    rough = (high - low) / 4
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    return [place * step for place in range(math.ceil(low / step), math.floor(high / step) + 1)]
