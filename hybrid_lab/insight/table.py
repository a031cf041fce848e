"""Tables of the insight room: aligned text that fits a screen, and script-free HTML that fits light and dark themes."""

from __future__ import annotations

import html
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from hybrid_lab.diagnostics.formatting import count as count
from hybrid_lab.graph.node import Node
from hybrid_lab.graph.printer import format_type

T = TypeVar("T")

WIDTH = 120
"""Characters a printed line has at most."""

_NARROW = 12
"""Flexible columns are never made narrower."""

# Inline, because front ends drop style sheets from notebooks that are not trusted. Colours are inherited: dark themes.
FRAME = "color:inherit;font-size:13px;line-height:1.45"
CODE = "font-family:var(--jp-code-font-family,ui-monospace,monospace);white-space:pre"
TABLE = "border-collapse:collapse;color:inherit;font-size:12px"
CELL = "padding:1px 12px 1px 0;border:0;background:none;white-space:pre"
_CUT = "max-width:26em;overflow:hidden;text-overflow:ellipsis"
_BAR = "display:inline-block;height:.7em;background:currentColor;opacity:.35;margin-right:.5em"


@dataclass(frozen=True)
class Column:
    """title : its heading; right : aligned to the right, for numbers; flexible : shortened if lines become too long"""

    title: str
    right: bool = False
    flexible: bool = False


@dataclass
class Row:
    """One line. cells : a text per column; depth : levels it is indented; strong : stands out; share : 0 to 1, drawn as
    a bar in HTML, or None
    """

    cells: Sequence[str]
    depth: int = 0
    strong: bool = False
    share: float | None = None


@dataclass
class Table:
    """Rows under headings."""

    columns: Sequence[Column]
    rows: list[Row] = field(default_factory=list)

    def lines(self, indent: str = "  ", width: int = WIDTH) -> list[str]:
        """The table as lines of at most `width` characters; flexible columns are cut if they do not fit."""
        texts = [[column.title for column in self.columns]] + [self._texts(row) for row in self.rows]
        sizes = [max(len(row[index]) for row in texts) for index in range(len(self.columns))]
        over = len(indent) + sum(sizes) + 2 * (len(sizes) - 1) - width
        flexible = [index for index, column in enumerate(self.columns) if column.flexible]
        while over > 0 and flexible and max(sizes[index] for index in flexible) > _NARROW:
            widest = max(flexible, key=lambda index: sizes[index])
            sizes[widest] -= 1
            over -= 1
        return [indent + self._line(row, sizes) for row in texts]

    def _texts(self, row: Row) -> list[str]:
        first = next(index for index, column in enumerate(self.columns) if column.flexible or not column.right)
        return ["  " * row.depth * (index == first) + text for index, text in enumerate(row.cells)]

    def _line(self, texts: Sequence[str], sizes: Sequence[int]) -> str:
        parts = []
        for text, size, column in zip(texts, sizes, self.columns, strict=True):
            text = text if len(text) <= size else text[: size - 1] + "\N{HORIZONTAL ELLIPSIS}"
            parts.append(text.rjust(size) if column.right else text.ljust(size))
        return "  ".join(parts).rstrip()

    def html(self) -> str:
        """The table as HTML; text is escaped."""
        head = "".join(
            f'<th style="{CELL};text-align:{_side(column)}">{html.escape(column.title)}</th>' for column in self.columns
        )
        body = "".join(map(self._html_row, self.rows))
        return f'<table style="{TABLE}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'

    def _html_row(self, row: Row) -> str:
        cells = []
        first = next(index for index, column in enumerate(self.columns) if column.flexible or not column.right)
        for index, (text, column) in enumerate(zip(row.cells, self.columns, strict=True)):
            style = f"{CELL};text-align:{_side(column)}"
            if not column.right:
                style += f";{CODE}"
            if column.flexible:
                style += f";{_CUT}"
            if index == first and row.depth:
                style += f";padding-left:{1.2 * row.depth:.1f}em"
            if row.strong:
                style += ";font-weight:bold"
            bar = ""
            if column.title == "share" and row.share is not None:
                bar = f'<span style="{_BAR};width:{max(row.share, 0) * 5:.2f}em"></span>'
            title = f' title="{html.escape(text)}"' if column.flexible and text else ""
            cells.append(f'<td style="{style}"{title}>{bar}{html.escape(text)}</td>')
        return f"<tr>{''.join(cells)}</tr>"


def _side(column: Column) -> str:
    return "right" if column.right else "left"


def frame(headline: str, *parts: str) -> str:
    """HTML parts under a headline."""
    return f'<div style="{FRAME}"><b>{html.escape(headline)}</b>{"".join(parts)}</div>'


def folded(title: str, inner: str, opened: bool = False) -> str:
    """A part that opens on a click, without a script."""
    return (
        f'<details{" open" if opened else ""}><summary style="cursor:pointer">{html.escape(title)}</summary>'
        f"{inner}</details>"
    )


def code(lines: Iterable[str]) -> str:
    """Lines of text unchanged."""
    return f'<pre style="{CODE};margin:.3em 0;background:none;color:inherit">{html.escape(chr(10).join(lines))}</pre>'


def wrapped(text: str, indent: str) -> list[str]:
    """A sentence as lines of at most WIDTH characters; all but the first are indented further."""
    sentence = text.lstrip(" ")
    indent += " " * (len(text) - len(sentence))
    return textwrap.wrap(sentence, WIDTH, initial_indent=indent, subsequent_indent=indent + "  ") or [indent]


def operator_text(node: Node) -> str:
    """An operator with those attributes that differ from their defaults."""
    attributes = ", ".join(f"{key.lstrip('_')}={value!r}" for key, value in getattr(node.op, "changed", {}).items())
    return f"{node.op.name}({attributes})" if attributes else node.op.name


def types_text(node: Node) -> str:
    """The type of the first output, with dots if there are further visible outputs."""
    first = node.outputs[0]
    return format_type(first.shape, first.dtype) + (" ..." if node.op.signature.visible > 1 else "")


@dataclass
class OperatorRow:
    """An operator of a compiled program, as tables show it.

    part : "prologue", "forward" or "backward"; operator : with its attributes; type : of its outputs
    block, line : where it comes from; runs_on : the engine
    """

    part: str
    operator: str
    type: str
    block: str
    line: str
    runs_on: str


def row_of(part: str, node: Node, runs_on: str) -> tuple[str, str, str, str, str, str]:
    """The fields of the OperatorRow of a node."""
    line = str(node.location) if node.location is not None else ""
    return part, operator_text(node), types_text(node), node.scope, line, runs_on


def heaviest(items: Sequence[T], weight: Callable[[T], float], limit: int) -> tuple[list[T], int]:
    """The `limit` items that weigh most, in their order, and the number of the remaining items."""
    ranked = sorted(range(len(items)), key=lambda index: -weight(items[index]))
    chosen = sorted(ranked[:limit])
    return [items[index] for index in chosen], len(items) - len(chosen)


def short_line(line: str) -> str:
    """`net.py:12` of a whole path."""
    return line.replace("\\", "/").rpartition("/")[2]


def milliseconds(seconds: float) -> str:
    """0.0123 -> "12.3 ms", 0.0000123 -> "12.3 µs"."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.1f} µs"
    return f"{seconds * 1e3:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"
