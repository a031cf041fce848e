"""Line charts as script-free inline SVG: readable on a light and on a dark page, in a notebook without a kernel.

By hand, because they are drawn again and again while a cell trains: two curves of 200 points take 1.4 ms and 14 kB.
With matplotlib they take 33 ms and 37 kB, in colours of its own, after an import of 1.2 s of processor time.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterable, Sequence

from hybrid_lab.lab.messages.training import Curve, NotFinite
from hybrid_lab.lab.training.words import not_finite, short

COLORS = ("#2f7ed8", "#c76b15", "#2e9b57", "#a259d9")
"""Of the lines of one chart: each stands out from white and from a dark grey by 3 to 1."""
MANY_COLORS = (*COLORS, "#d0496b", "#1f9a9a", "#94861a", "#7f7f8c")
"""Of the runs of a comparison; beyond them lines are dashed."""
_DASHES = ("none", "6 3", "2 2", "8 2 2 2")
WIDTH, HEIGHT = 300, 150
_WIDE, _HIGH, _ROW, _LEGEND = 560, 250, 16, 96
"""Of a comparison: its size without the legend, the height of a row of the legend, and the characters of one."""
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 8, 20, 18
_EARLIER_POINTS = 60
"""Most points of the line of an earlier run."""
_RARE, _FAR = 50, 30
"""One bucket in so many may be left outside, where the range of all values is so many times that of the others."""
_OUTSIDE = 1000
"""Pixels beyond the border at which a line goes on where it leaves the chart."""
_LARGEST, _SMALLEST = 7e307, 1e-300
"""Between these, differences and quotients of values are numbers."""


def charts(curves: Sequence[Curve], earlier: Sequence[Sequence[Curve]] = ()) -> str:
    """One chart for each group of curves. earlier : curves of runs before; a curve of the same name is a faint line"""
    parts = []
    for group in grouped(curves):
        names = {curve["name"] for curve in group}
        faint = [[curve for curve in run if curve["name"] in names] for run in earlier]
        parts.append(_chart(group, [curve for run in faint for curve in run]))
    return "".join(parts)


def comparison(name: str, lines: Sequence[tuple[str, Curve]]) -> str:
    """One chart of the curves of several runs, each with a label. Its legend has the last value of each."""
    plot = _Plot([curve for _, curve in lines], _WIDE, _HIGH)
    parts, legend = [plot.axes()], []
    for place, (label, curve) in enumerate(lines):
        color, dash = MANY_COLORS[place % len(MANY_COLORS)], _DASHES[place // len(MANY_COLORS) % len(_DASHES)]
        stroke = f'stroke="{color}" stroke-width="1.6" stroke-dasharray="{dash}"'
        parts += plot.line(curve, color, 'fill-opacity=".12"', stroke)
        for span in curve["bad"]:
            title = f"<title>{html.escape(f'{label}: {not_finite([span], 0)}')}</title>"
            place_of = f"M{plot.x(span['first'])} {_TOP}V{_TOP + plot.up}"
            parts.append(f'<path d="{place_of}" stroke="{color}" stroke-dasharray="2 3">{title}</path>')
        row = _HIGH + 6 + _ROW * place
        bad = f", {bad_in_short(curve)}" if curve["bad"] else ""
        text = f"{label}: {curve['latest']} at step {curve['last_step']}{bad}"
        text = text if len(text) <= _LEGEND else text[: _LEGEND - 1] + "\N{HORIZONTAL ELLIPSIS}"
        legend.append(
            f'<path d="M{_LEFT} {row}h22" {stroke}/><text x="{_LEFT + 28}" y="{row + 4}">{html.escape(text)}</text>'
        )
    parts.append("</svg>")
    height = _HIGH + 8 + _ROW * len(lines)
    label = html.escape(f"{name}: " + "; ".join(f"{label}, {curve['text']}" for label, curve in lines), quote=True)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{label}" width="{_WIDE}" height="{height}" '
        f'viewBox="0 0 {_WIDE} {height}" font-family="system-ui,sans-serif" font-size="11" fill="currentColor" '
        f'style="max-width:100%"><text x="4" y="13" font-weight="bold">{html.escape(name)}</text>'
        f"{''.join(parts)}{''.join(legend)}</svg>"
    )


class _Plot:
    """The part of a chart inside of its axes.

    low, high, first, last : the values and steps that it spans; across, up : its size in pixels
    """

    def __init__(self, curves: Sequence[Curve], width: int, height: int) -> None:
        self.low, self.high = value_range(curves)
        self.first = min((curve["starts"][0] for curve in curves if curve["starts"]), default=0)
        self.last = max([curve["last_step"] for curve in curves] + [self.first + 1])
        self.across, self.up = width - _LEFT - _RIGHT, height - _TOP - _BOTTOM
        self._wide, self._tall = self.across / (self.last - self.first), self.up / (self.high - self.low)

    def x(self, step: float) -> float:
        """The place of a step, in pixels."""
        return round(_LEFT + (step - self.first) * self._wide, 1)

    def y(self, value: float) -> float:
        """The place of a value, in pixels."""
        top, bottom = _TOP - _OUTSIDE, _TOP + self.up + _OUTSIDE
        place = _TOP + (self.high - value) * self._tall
        return round(place, 1) if top < place < bottom else top if place < bottom else bottom

    def axes(self) -> str:
        """The axes with their texts, and the start of a nested svg, which cuts off what lies outside of them."""
        marks = [(self.y(tick), short(tick)) for tick in ticks(self.low, self.high)]
        bottom, right = _TOP + self.up, _LEFT + self.across
        lines = "".join(f"M{_LEFT} {place}H{right}" for place, _ in marks)
        texts = "".join(
            f'<text x="{_LEFT - 4}" y="{place + 3.5}" text-anchor="end">{text}</text>' for place, text in marks
        )
        return (
            f'<path d="{lines}" stroke="currentColor" stroke-opacity=".18"/>'
            f'<path d="M{_LEFT} {_TOP}V{bottom}H{right}" fill="none" stroke="currentColor" stroke-opacity=".5"/>'
            f'<g font-size="10" fill-opacity=".8">{texts}<text x="{_LEFT}" y="{bottom + 12}">step {self.first}</text>'
            f'<text x="{right}" y="{bottom + 12}" text-anchor="end">{self.last}</text></g>'
            f'<svg x="{_LEFT}" y="{_TOP}" width="{self.across}" height="{self.up}" '
            f'viewBox="{_LEFT} {_TOP} {self.across} {self.up}">'
        )

    def line(self, curve: Curve, color: str, band: str, stroke: str) -> list[str]:
        """The line of the means over the band of the values; band, stroke : attributes of band and line"""
        places, parts = [self.x(step) for step in curve["steps"]], []
        if curve["highs"] != curve["lows"]:
            border = list(zip(places, map(self.y, curve["highs"]), strict=True))
            border += list(zip(places, map(self.y, curve["lows"]), strict=True))[::-1]
            parts.append(f'<path d="{_path(border)}Z" fill="{color}" {band}/>')
        points = list(zip(places, map(self.y, curve["means"]), strict=True))
        if len(points) == 1:
            parts.append(f'<circle cx="{points[0][0]}" cy="{points[0][1]}" r="2.5" fill="{color}"/>')
        return [*parts, f'<path d="{_path(points)}" fill="none" {stroke}/>']


def grouped(curves: Iterable[Curve]) -> list[list[Curve]]:
    """Curves that share a chart: curves whose names end with the same word, such as `loss` and `val_loss`."""
    groups: dict[str, list[Curve]] = {}
    for curve in curves:
        word = re.split(r"[_/.-]+", curve["name"].strip())[-1].lower()
        key = word if word and not curve["unit"] and " " not in curve["name"] else curve["name"]
        groups.setdefault(key, []).append(curve)
    return list(groups.values())


def _chart(curves: list[Curve], earlier: list[Curve]) -> str:
    plot = _Plot(curves, WIDTH, HEIGHT)
    x, y, up = plot.x, plot.y, plot.up
    parts = [plot.axes()]
    for curve in earlier:
        thin = max(1, -(-len(curve["steps"]) // _EARLIER_POINTS))
        kept = list(zip(curve["steps"], curve["means"], strict=True))[::-thin][::-1]
        path = _path((x(step), y(value)) for step, value in kept)
        parts.append(f'<path d="{path}" fill="none" stroke="currentColor" stroke-opacity=".28"/>')
    for color, curve in zip(_colors(curves), curves, strict=True):
        band = f'fill-opacity=".2" stroke="{color}" stroke-opacity=".35" stroke-width=".7"'
        parts += plot.line(curve, color, band, f'stroke="{color}" stroke-width="1.6"')
        for step, low, high in zip(curve["steps"], curve["lows"], curve["highs"], strict=True):
            if high > plot.high:
                parts.append(f'<path d="M{x(step) - 3:g} {_TOP + 5}h6l-3 -5Z" fill="{color}"/>')
            if low < plot.low:
                parts.append(f'<path d="M{x(step) - 3:g} {_TOP + up - 5}h6l-3 5Z" fill="{color}"/>')
    parts += [_not_finite(span, x(span["first"]), x(span["last"]), up) for curve in curves for span in curve["bad"]]
    parts.append("</svg>")
    title = "  ".join(
        f'<tspan fill="{color}" font-weight="bold">{html.escape(curve["name"])}</tspan> {html.escape(curve["latest"])}'
        for color, curve in zip(_colors(curves), curves, strict=True)
    )
    label = html.escape("; ".join(curve["text"] for curve in curves), quote=True)
    below = "; ".join(filter(None, (bad_in_short(curve) or curve["note"] for curve in curves)))
    middle = (_LEFT + WIDTH - _RIGHT) / 2
    parts.append(
        f'<text x="{middle + 8}" y="{HEIGHT - _BOTTOM + 12}" text-anchor="middle" font-size="10" '
        f'fill-opacity=".8">{html.escape(below)}</text>'
        if below
        else ""
    )
    return (
        f'<svg role="img" aria-label="{label}" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="system-ui,sans-serif" font-size="11" fill="currentColor" style="max-width:100%">'
        f'<text x="4" y="13" xml:space="preserve">{title}</text>{"".join(parts)}</svg>'
    )


def _not_finite(span: NotFinite, left: float, right: float, up: int) -> str:
    """A dashed line at a value that was not finite; a band from the first to the last of several."""
    line = f'<path d="M{left} {_TOP}V{_TOP + up}" stroke="#d33" stroke-width="1.5" stroke-dasharray="3 2"/>'
    if right > left:
        line += f'<path d="M{left} {_TOP}H{right}V{_TOP + up}H{left}Z" fill="#d33" fill-opacity=".15"/>'
    return f"<g><title>{html.escape(not_finite([span], 0))}</title>{line}</g>"


def bad_in_short(curve: Curve) -> str:
    """`NaN at step 57 to 59`, or `5 not finite, first at step 57`; "" if all values are finite."""
    if len(curve["bad"]) > 1:
        return f"{curve['bad_count']:,} not finite, first at step {curve['bad'][0]['first']}"
    return curve["bad_text"]


def _colors(curves: Sequence[Curve]) -> list[str]:
    return [COLORS[place % len(COLORS)] for place in range(len(curves))]


def _path(points: Iterable[tuple[float, float]]) -> str:
    return "M" * bool(text := "L".join([f"{x:g} {y:g}" for x, y in points])) + text


def value_range(curves: Sequence[Curve]) -> tuple[float, float]:
    """The values that the chart spans. A few values far away from all others do not press the rest into a line: they
    are marked at the border.
    """
    lows = sorted(value for curve in curves for value in curve["lows"])
    highs = sorted(value for curve in curves for value in curve["highs"])
    if not lows:
        return _padded(0.0, 1.0)
    low, high = lows[0], highs[-1]
    rare = len(lows) // _RARE
    inner_low, inner_high = lows[rare], highs[-1 - rare]
    room = inner_high - inner_low
    if 0 < room < (high - low) / _FAR:
        low, high = max(low, inner_low - room), min(high, inner_high + room)
    return _padded(low, high)


def _padded(low: float, high: float) -> tuple[float, float]:
    """A range that is not empty, with some room at both ends."""
    low, high = (min(max(each, -_LARGEST), _LARGEST) for each in (low, high))
    room = max((high - low) * 0.04 or abs(high) * 0.1 or 1.0, _SMALLEST)
    return low - room, high + room


def ticks(low: float, high: float) -> list[float]:
    """Two to five round numbers within a range."""
    rough = (high - low) / 4
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    return [place * step for place in range(math.ceil(low / step), math.floor(high / step) + 1)]
