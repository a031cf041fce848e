"""Facets: an array's numbers, histogram and picture, as data for the lab and as script-free HTML for notebooks."""

from __future__ import annotations

import functools
import html
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from hybrid_lab.diagnostics.formatting import visible_lines
from hybrid_lab.gluon import access
from hybrid_lab.gluon.parameter import Parameter
from hybrid_lab.insight.heat_map import HeatMap, heat_map
from hybrid_lab.insight.summary import EXACT, Summary, number, summarize
from hybrid_lab.insight.table import CELL, CODE, FRAME, TABLE, folded
from hybrid_lab.ndarray.ndarray import NDArray

Item = TypeVar("Item")

_PRINTED = 1000
"""Values that are printed in full; of larger arrays the edges."""
_OPEN = 200
"""Arrays of at most this many values are shown with their text open."""

# Inline, because front ends drop style sheets from notebooks that are not trusted. Colours are inherited: dark themes.
_PART = "display:inline-block;vertical-align:top;margin:4px 24px 4px 0"
_BAR = "display:inline-block;vertical-align:bottom;width:5px;margin-right:1px;background:currentColor;opacity:.55"
_NOTE = "font-size:11px;opacity:.75"
_BARS_HEIGHT = 48


@dataclass(frozen=True)
class Facets:
    """A view of an array for people. title : its name; text : its values as NumPy prints them"""

    title: str
    context: str
    summary: Summary
    picture: HeatMap | None
    text: str

    @property
    def type(self) -> str:
        """`64 x 3 x 7 x 7, float32, cpu(0)`."""
        shape = " x ".join(map(str, self.summary.shape)) or "scalar"
        return f"{shape}, {self.summary.dtype}, {self.context}"

    def data(self) -> dict[str, Any]:
        """Everything as lists, strings and numbers: for the lab (`ValuesReply` of the protocol)."""
        summary, picture = self.summary, self.picture
        return {
            "title": self.title,
            "type": self.type,
            "facts": [{"name": name, "text": text} for name, text in summary.facts],
            "finite": summary.finite,
            "bars": list(summary.bins),
            "low": number(summary.minimum) if summary.minimum is not None else "",
            "high": number(summary.maximum) if summary.maximum is not None else "",
            "picture": picture.uri if picture is not None else "",
            "caption": picture.caption if picture is not None else "",
            "text": self.text,
        }

    def html(self) -> str:
        """The whole as HTML without scripts; text is escaped."""
        return f'<div style="{FRAME}">{self.part()}</div>'

    def part(self) -> str:
        """The HTML below a heading of its own."""
        text = f'<pre style="{CODE};margin:.3em 0;background:none;color:inherit">{say(self.text)}</pre>'
        small = self.summary.size <= _OPEN
        head = f"<div><b>{_name(self.title)}</b> {say(self.type)}</div>"
        numbers = "".join(
            f'<tr><th scope="row" style="{CELL};text-align:left;font-weight:normal;opacity:.75">{say(name)}</th>'
            f'<td style="{CELL};text-align:right{_strong(name)}">{say(value)}</td></tr>'
            for name, value in self.summary.facts
        )
        parts = [f'<table style="{TABLE}"><tbody>{numbers}</tbody></table>', self._histogram(), self._image()]
        shown = "".join(f'<div style="{_PART}">{part}</div>' for part in parts if part)
        if self.summary.size < 2:
            return head + text
        if small:
            return head + text + folded("numbers", shown)
        return head + f"<div>{shown}</div>" + (folded("values", text) if self.text else "")

    def _histogram(self) -> str:
        bins, summary = self.summary.bins, self.summary
        if len(bins) < 2 or summary.minimum is None or summary.maximum is None:
            return ""
        highest = max(bins)
        bars = "".join(f'<span style="{_BAR};height:{_height(item, highest)}px"></span>' for item in bins)
        low, high = number(summary.minimum), number(summary.maximum)
        label = f"histogram of the values from {low} to {high}"
        width = 6 * len(bins)
        return (
            f'<div role="img" aria-label="{say(label)}" title="{say(label)}" style="white-space:nowrap;'
            f'height:{_BARS_HEIGHT}px;line-height:{_BARS_HEIGHT}px;border-bottom:1px solid currentColor">{bars}</div>'
            f'<div style="{_NOTE};min-width:{width}px">{say(low)} <span style="float:right">{say(high)}</span></div>'
        )

    def _image(self) -> str:
        picture = self.picture
        if picture is None:
            return ""
        image = f'<img src="{picture.uri}" alt="heat map of the values: {say(picture.caption)}">'
        return f'{image}<div style="{_NOTE}">{say(picture.caption)}</div>'


def facets(array: NDArray | np.ndarray, title: str = "NDArray") -> Facets:
    """The numbers, histogram and picture of an array. Cheap for large arrays: see `summarize` and `heat_map`."""
    context = str(array.context) if isinstance(array, NDArray) else "cpu(0)"
    return Facets(title, context, summarize(array), heat_map(array), _printed(array))


def _printed(array: NDArray | np.ndarray) -> str:
    """The values as NumPy prints them; "" for a large array whose values are on a GPU."""
    if isinstance(array, NDArray):
        if array.size > EXACT and array.buffer.device is not None:
            return ""
        array = array.raw()
    with np.printoptions(threshold=min(np.get_printoptions()["threshold"], _PRINTED)):
        return str(array)


def _shown(html_of: Callable[[Item], str]) -> Callable[[Item], str | None]:
    """A `_repr_html_` that never raises: where the HTML cannot be made, the text is shown."""

    @functools.wraps(html_of)
    def safe(item: Item) -> str | None:
        try:
            return html_of(item)
        except Exception:  # of an array in any state, perhaps written to by another thread, on a GPU without memory
            return None

    return safe


@_shown
def array_html(array: NDArray) -> str:
    """The HTML of an NDArray: its values if they are few, else its numbers, histogram and picture; its gradient."""
    gradient = array.grad
    inner = "" if gradient is None else folded("gradient", facets(gradient, "gradient").part())
    return f'<div style="{FRAME}">{facets(array).part()}{inner}</div>'


@_shown
def parameter_html(parameter: Parameter) -> str:
    """The HTML of a Parameter: values and gradient."""
    arrays, name = access.arrays(parameter), f"{type(parameter).__name__} {parameter.name}"
    if not arrays:
        shape = "unknown shape" if parameter.shape is None else f"shape {parameter.shape}"
        rest = f"{shape}, {np.dtype(parameter.dtype).name}: no values yet"
        return f'<div style="{FRAME}"><b>{_name(name)}</b> {say(rest)}</div>'
    note = f"; also on {', '.join(str(array.context) for array in arrays[1:])}" if arrays[1:] else ""
    note = f"grad_req {parameter.grad_req}, lr_mult {parameter.lr_mult}, wd_mult {parameter.wd_mult}{note}"
    inner = f'<div style="{_NOTE}">{say(note)}</div>'
    gradient = arrays[0].grad
    if gradient is not None:
        inner += folded("gradient", facets(gradient, "gradient").part())
    return f'<div style="{FRAME}">{facets(arrays[0], name).part()}{inner}</div>'


def say(text: str) -> str:
    """A text in HTML; characters that are invisible or change the order of others as escapes."""
    return html.escape(visible_lines(text), quote=True)


def _name(text: str) -> str:
    """A name that may hold anything."""
    return f"<bdi>{say(text)}</bdi>"


def _height(item: int, highest: int) -> int:
    """Pixels of a bar; a bar that is not empty is visible."""
    return max(round(item / highest * _BARS_HEIGHT), 1) if item else 0


def _strong(name: str) -> str:
    return ";font-weight:bold" if name in ("NaN", "infinite") else ""
