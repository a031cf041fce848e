"""ModelDifference: what differs between two models, archives or graphs, Block by Block, as text, HTML and data."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from hybrid_lab.insight.graph_diff import Kind, OperatorDifference, with_context
from hybrid_lab.insight.report import InsightReport
from hybrid_lab.insight.table import code, count, folded, wrapped

MARKS: dict[str, str] = {"added": "+", "removed": "-", "changed": "~", "same": " "}
_SHOWN = 200
"""Lines that are printed at most of Blocks, and of tensors; `data()` has all of them."""
_PIECE = 1 << 20
"""Numbers that are compared at once."""
# Shades that are seen on white and on black; the mark before each row says the same without colour.
_SHADES = {
    "added": "background:rgba(46,160,67,.22)",
    "removed": "background:rgba(248,81,73,.22)",
    "changed": "background:rgba(210,153,34,.22)",
    "same": "opacity:.65",
}
_TABLE = "border-collapse:collapse;color:inherit;font-size:12px;width:100%;table-layout:fixed"
_CELL = "border:0;text-align:left;vertical-align:top;padding:1px 8px;white-space:pre-wrap;overflow-wrap:anywhere"
_CODE = "font-family:var(--jp-code-font-family,ui-monospace,monospace)"


@dataclass
class TensorDifference:
    """One parameter, or one array of a graph, that differs.

    first, second : dtype and shape, "" if it is missing; values : how many numbers it has
    changed : how many of them differ, bit for bit; largest : the largest absolute difference, None if there is no
    finite one; scale : the largest absolute value before
    first_name : its name in the first model, if different
    exchanged : the parameter that had these numbers in the first model, if Blocks changed places
    """

    kind: Kind
    name: str
    first: str
    second: str
    values: int
    changed: int
    largest: float | None = None
    scale: float | None = None
    first_name: str = ""
    exchanged: str = ""

    @property
    def text(self) -> str:
        """What differs, in words."""
        return self._change + (f"; before: {self.first_name}" if self.first_name else "")

    @property
    def _change(self) -> str:
        if self.kind != "changed":
            return f"{self.second or self.first}"
        if self.first != self.second:
            return f"{self.first} became {self.second}"
        if self.exchanged:
            return f"exchanged: the numbers of {self.exchanged}"
        scale = "" if self.scale is None else f" (largest value {self.scale:.3g})"
        apart = (
            "differs in what is not finite" if self.largest is None else f"differs by up to {self.largest:.3g}{scale}"
        )
        return f"{apart}, {self.changed:,} of {count(self.values, 'value')}"


@dataclass
class BlockDifference:
    """One Block that differs.

    kind : "same" if the Block is alike but not its operators or tensors; class_name : "Dense", "Dense -> Conv2D"
    changes : of the Block itself, one text each
    operators : of its graph, the changed operators with some equal operators around them
    move : how its place differs; first_path, second_path : its place in each model, None if it is missing
    exchange : in words, which Block of equal structure changed places with it, as the numbers say
    """

    kind: Kind
    path: str
    class_name: str
    changes: list[str] = field(default_factory=list)
    operators: list[OperatorDifference] = field(default_factory=list)
    tensors: list[TensorDifference] = field(default_factory=list)
    move: Literal["", "renamed", "moved"] = ""
    first_path: str | None = None
    second_path: str | None = None
    exchange: str = ""

    @property
    def differs(self) -> bool:
        """Whether there is anything to show."""
        return self.has_changed or bool(self.operators or self.tensors or self.exchange)

    @property
    def has_changed(self) -> bool:
        """Whether the Block itself differs, or where it is."""
        return self.kind != "same" or bool(self.changes or self.move)

    @property
    def all_changes(self) -> list[str]:
        """The changes of the Block itself, before them its place: `moved from encoder.2`, `exchanged with 3`."""
        places = [f"{self.move} from {self.first_path}"] * bool(self.move) + [self.exchange] * bool(self.exchange)
        return places + self.changes


@dataclass(repr=False)
class ModelDifference(InsightReport):
    """What differs between two models; empty, and so false in a condition, if nothing does.

    first, second : the compared models, in words; blocks : the Blocks that differ, parents first
    others : differences beside the Blocks, such as the state of a Trainer; notes : remarks that are no difference
    """

    first: str
    second: str
    blocks: list[BlockDifference] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:  # type: ignore[override]
        """Both names."""
        return f"{self.first} -> {self.second}"

    @property
    def operators(self) -> list[OperatorDifference]:
        """The operators that differ, of all Blocks."""
        return [row for block in self.blocks for row in block.operators if row.kind != "same"]

    @property
    def tensors(self) -> list[TensorDifference]:
        """The tensors that differ, of all Blocks."""
        return [tensor for block in self.blocks for tensor in block.tensors]

    @property
    def largest_changes(self) -> list[TensorDifference]:
        """The tensors ordered by their change: first tensors of another type or with a change that is not finite, last
        tensors of one side.
        """
        return sorted(self.tensors, key=lambda each: (each.kind != "changed", -_size(each)))

    @property
    def same_graphs(self) -> bool:
        """Whether Blocks and graphs are alike, so that at most numbers differ."""
        return not any(block.has_changed or block.operators for block in self.blocks)

    def by_load(self) -> ModelDifference:
        """The part that loading the second model into the first one changes: graphs, and values that are there."""
        blocks = []
        for block in self.blocks:
            changes = [text for text in block.changes if text.startswith("graph: ")]
            tensors = [
                tensor for tensor in block.tensors if tensor.kind == "changed" and "without" not in tensor.second
            ]
            blocks.append(replace(block, changes=changes, tensors=tensors, move=""))
        return replace(self, blocks=[block for block in blocks if block.differs], others=[], notes=[])

    def __len__(self) -> int:
        blocks = sum((block.kind != "same") + (block.move != "") + len(block.changes) for block in self.blocks)
        return blocks + len(self.operators) + len(self.tensors) + len(self.others)

    @property
    def summary(self) -> str:
        """`2 Blocks added, 1 operator changed, 3 tensors changed`, or `no differences`."""
        parts = []
        kinds = ("added", "removed", "changed")
        for kind in kinds:
            number = sum(block.kind == kind for block in self.blocks)
            parts += [f"{count(number, 'Block')} {kind}"] * bool(number)
        number = sum(" -> " in block.class_name for block in self.blocks)
        parts += [f"{count(number, 'Block')} replaced"] * bool(number)
        for move in ("moved", "renamed"):
            number = sum(block.move == move for block in self.blocks)
            parts += [f"{count(number, 'Block')} {move}"] * bool(number)
        number = sum(block.exchange != "" for block in self.blocks)
        parts += [f"{count(number, 'Block')} exchanged"] * bool(number)
        tensors = [tensor for tensor in self.tensors if not tensor.exchanged]
        for word, rows in (("operator", self.operators), ("tensor", tensors)):
            for kind in kinds:
                number = sum(row.kind == kind for row in rows)
                parts += [f"{count(number, word)} {kind}"] * bool(number)
        parts += [count(len(self.others), "other difference")] * bool(self.others)
        return ", ".join(parts) or ("no differences" if not len(self) else count(len(self), "difference"))

    @property
    def headline(self) -> str:
        """One line: the compared models, and how many Blocks, operators and tensors differ."""
        return f"{self.name}: {self.summary}"

    def data(self) -> dict[str, Any]:
        """Everything as dicts, lists, strings and numbers."""
        data = super().data()
        for rows, block in zip(data["blocks"], self.blocks, strict=True):
            rows["changes"] = block.all_changes
            for row, tensor in zip(rows["tensors"], block.tensors, strict=True):
                row["text"] = tensor.text
        return {"equal": not len(self), "summary": self.summary, **data}

    def _lines(self) -> list[str]:
        texts = [text for block in self._other_blocks() for text in _texts(block)]
        lines = _cut(texts)
        if self.tensors:
            lines += _cut([f"  {self._tensor_title()}", *(f"    {_text(tensor)}" for tensor in self.largest_changes)])
        lines += _cut([f"  {text}" for text in self.others])
        return lines + [line for note in self.notes for line in wrapped(f"note: {note}", "  ")]

    def _parts(self) -> list[str]:
        heads = (self.first, self.second)
        blocks = self._other_blocks()
        parts = [_html(block, heads, opened=place < 20) for place, block in enumerate(blocks[:400])]
        more = len(blocks) - 400
        if self.tensors:
            rows = [_tensor_html(tensor) for tensor in self.largest_changes[:1000]]
            hidden = len(self.tensors) - len(rows)
            rows += [code([f"and {count(hidden, 'tensor')} more"])] if hidden else []
            parts.append(folded(self._tensor_title(), "".join(rows), True))
        rest = [*self.others, *(f"note: {note}" for note in self.notes)]
        rest += [f"and {count(more, 'Block')} more"] if more > 0 else []
        return parts + ([code(rest)] if rest else [])

    def _other_blocks(self) -> list[BlockDifference]:
        """The Blocks that differ in more than their tensors."""
        return [block for block in self.blocks if block.has_changed or block.operators or block.exchange]

    def _tensor_title(self) -> str:
        number = len(self.tensors)
        return f"{number} tensors, largest change first" if number > 1 else "1 tensor"


def _size(tensor: TensorDifference) -> float:
    """The largest change; infinite if it is no number."""
    return math.inf if tensor.largest is None else tensor.largest


def _cut(texts: Sequence[str]) -> list[str]:
    """As lines; of many only the first."""
    lines = [line for text in texts for line in wrapped(text, "")]
    hidden = len(lines) - _SHOWN
    return lines if hidden < 2 else [*lines[:_SHOWN], f"  ... and {count(hidden, 'line')} more ..."]


def _title(block: BlockDifference) -> str:
    return f"{MARKS[block.kind]} {block.path or 'the model itself'} ({block.class_name})".lstrip()


def _texts(block: BlockDifference) -> Iterator[str]:
    """A Block as lines: its name, its changes, its operators."""
    kind = f": {block.kind}" if block.kind in ("added", "removed") else ""
    yield f"  {_title(block)}{kind}"
    yield from (f"    ~ {change}" for change in block.all_changes)
    for row in block.operators:
        if row.kind != "same":
            changes = f": {'; '.join(row.changes)}" if row.changes else ""
            operator = row.first.partition("(")[0] if row.kind == "changed" else row.second or row.first
            yield f"    {MARKS[row.kind]} operator {operator}{changes}"


def _text(tensor: TensorDifference) -> str:
    return f"{MARKS[tensor.kind]} tensor {tensor.name}: {tensor.text}"


def _html(block: BlockDifference, heads: Sequence[str], opened: bool) -> str:
    """A Block as a part that opens: its operators side by side."""
    inner = code(block.all_changes) if block.all_changes else ""
    if block.operators:
        head = "".join(f'<th style="{_CELL}">{html.escape(text)}</th>' for text in heads)
        rows = "".join(_operator_html(row) for row in block.operators)
        inner += f'<table style="{_TABLE}"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>'
    kind = f": {block.kind}" if block.kind != "same" else ""
    return folded(f"{_title(block)}{kind}", inner, opened)


def _tensor_html(tensor: TensorDifference) -> str:
    text = html.escape(f"{MARKS[tensor.kind]} {tensor.name}: {tensor.text}")
    return f'<div style="{_CELL};{_CODE};{_SHADES[tensor.kind]}">{text}</div>'


def _operator_html(row: OperatorDifference) -> str:
    cells = []
    for side, text in (("removed", row.first), ("added", row.second)):
        shade = "" if not text else _SHADES[row.kind]
        mark = MARKS[row.kind if row.kind in ("same", "changed") else side] if text else ""
        note = ""
        if row.kind == "changed" and side == "added":
            note = f'<div style="opacity:.85">{html.escape("; ".join(row.changes))}</div>'
        words = html.escape(f"{mark} {text}".strip(" ") if row.kind != "same" else text)
        cells.append(f'<td style="{_CELL};{_CODE};{shade}">{words}{note}</td>')
    return f"<tr>{''.join(cells)}</tr>"


# -- making one -------------------------------------------------------------------------------------------------------


def diff_tensors(name: str, first: np.ndarray | None, second: np.ndarray | None) -> TensorDifference | None:
    """What differs between two arrays, of which one may be missing; None if they are equal bit for bit."""
    old, new = _type(first), _type(second)
    values = max(0 if first is None else first.size, 0 if second is None else second.size)
    if first is None or second is None:
        if first is None and second is None:
            return None
        kind: Literal["added", "removed"] = "added" if first is None else "removed"
        return TensorDifference(kind, name, old, new, values, values)
    if old != new:
        return TensorDifference("changed", name, old, new, values, values)
    changed, largest, scale = _distance(first, second)
    return TensorDifference("changed", name, old, new, values, changed, largest, scale) if changed else None


def _type(array: np.ndarray | None) -> str:
    return "" if array is None else f"{array.dtype.name}[{', '.join(map(str, array.shape))}]"


def _distance(first: np.ndarray, second: np.ndarray) -> tuple[int, float | None, float | None]:
    """How many values differ, the largest absolute difference, and the largest absolute value of the first array."""
    one, two = np.ascontiguousarray(first).reshape(-1), np.ascontiguousarray(second).reshape(-1)
    size = one.dtype.itemsize
    if np.array_equal(one.view(np.uint8), two.view(np.uint8)):
        return 0, None, None
    changed, largest, scale = 0, None, None
    for start in range(0, one.size, _PIECE):
        old, new = one[start : start + _PIECE], two[start : start + _PIECE]
        bits = [part.view(np.uint8).reshape(-1, size) for part in (old, new)]
        differs = (bits[0] != bits[1]).any(axis=1)
        number = int(differs.sum())
        changed += number
        with np.errstate(all="ignore"):
            before = np.abs(old.astype(np.float64))
            gaps = np.abs(old[differs].astype(np.float64) - new[differs].astype(np.float64))
        scale = _larger(scale, before)
        largest = _larger(largest, gaps)
    return changed, largest, scale


def _larger(known: float | None, values: np.ndarray) -> float | None:
    finite = values[np.isfinite(values)]
    if not finite.size:
        return known
    return max(float(finite.max()), known or 0.0)


def by_block(
    rows: Sequence[OperatorDifference], block_of: Callable[[OperatorDifference], str] = lambda row: row.block
) -> dict[str, list[OperatorDifference]]:
    """The operators of each Block in which some differ, with some equal ones around them."""
    blocks: dict[str, list[OperatorDifference]] = {}
    for row in rows:
        blocks.setdefault(block_of(row), []).append(row)
    return {path: with_context(own) for path, own in blocks.items() if any(row.kind != "same" for row in own)}
