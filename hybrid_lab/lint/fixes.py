"""Applying the automatic fixes of findings to source text."""

from __future__ import annotations

import json
import re
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable

from hybrid_lab.diagnostics.finding import Edit, Finding
from hybrid_lab.diagnostics.switches import check_switches

from .source import code_cells, read_notebook, text_of

_LINE_END = re.compile(r"\r\n|\r|\n")


def apply_fixes(source: str, findings: Iterable[Finding], unsafe: bool = False) -> str:
    """`source` with the fixes of the findings applied: the safe fixes, and with `unsafe=True` all.

    If fixes touch the same text the first one wins: check again afterwards. The JSON text of a notebook is repaired
    cell by cell. A line of which nothing remains is removed.
    """
    check_switches("apply_fixes", unsafe=unsafe)
    chosen = [finding for finding in findings if finding.fix is not None and (unsafe or finding.fix.safe)]
    if not chosen:
        return source
    notebook = read_notebook(source)
    if notebook is None:
        return _apply(source, chosen)
    of_cell: dict[int | None, list[Finding]] = {}
    for finding in chosen:
        of_cell.setdefault(finding.cell, []).append(finding)
    for number, cell in enumerate(code_cells(notebook), 1):
        if number in of_cell:
            text = cell["source"]
            fixed = _apply(text_of(text), of_cell[number])
            cell["source"] = fixed.splitlines(keepends=True) if isinstance(text, list) else fixed
    repaired = json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"
    try:
        repaired.encode()
    except UnicodeEncodeError:  # a text in it is no Unicode; unchanged, it is an escape sequence
        repaired = json.dumps(notebook, indent=1) + "\n"
    return repaired


def _apply(source: str, findings: list[Finding]) -> str:
    starts = [0, *(match.end() for match in _LINE_END.finditer(source))]

    def offsets(edit: Edit) -> tuple[int, int]:
        ends = [starts[line - 1] + col for line, col in ((edit.line, edit.col), (edit.end_line, edit.end_col))]
        return ends[0], ends[1]

    edits: list[tuple[int, int, str]] = []  # in their order in the text
    for finding in findings:
        assert finding.fix is not None
        try:
            wanted = [(*offsets(edit), edit.text) for edit in finding.fix.edits]
        except IndexError:  # a place outside this text: the finding is about an older version of it
            continue
        new = [edit for edit in wanted if edit not in _near(edit, edits)]
        if not any(_overlap(edit, other) for edit in new for other in _near(edit, edits)):
            for edit in new:
                insort(edits, edit, key=_place)
    parts: list[str] = []
    done = 0
    for start, end, text in sorted(_merged(edits)):
        if not text and end > start:
            start, end = _whole_lines(source, start, end)
        parts += [source[done : max(done, start)], text]
        done = max(done, end)
    return "".join([*parts, source[done:]])


def _place(edit: tuple[int, int, str]) -> tuple[int, int]:
    return edit[:2]


def _near(edit: tuple[int, int, str], edits: list[tuple[int, int, str]]) -> list[tuple[int, int, str]]:
    """The edits that may overlap with one edit, from ordered edits without overlaps."""
    first = bisect_left(edits, (edit[0], edit[0]), key=_place)
    while first and edits[first - 1][1] >= edit[0]:
        first -= 1
    return edits[first : bisect_right(edits, (edit[1], edit[1]), key=_place)]


def _merged(edits: list[tuple[int, int, str]]) -> list[tuple[int, int, str]]:
    """Insertions at one place become one edit, so that they keep their order."""
    merged: dict[tuple[int, int], str] = {}
    for start, end, text in edits:
        merged[start, end] = merged.get((start, end), "") + text
    return [(start, end, text) for (start, end), text in merged.items()]


def _overlap(a: tuple[int, int, str], b: tuple[int, int, str]) -> bool:
    return max(a[0], b[0]) < min(a[1], b[1]) or (a[:2] == b[:2] and a[0] != a[1])


def _whole_lines(source: str, start: int, end: int) -> tuple[int, int]:
    """A deletion that would leave an empty line takes the line with it."""
    line_start = max(source.rfind("\n", 0, start), source.rfind("\r", 0, start)) + 1
    match = _LINE_END.search(source, end)
    line_end = match.end() if match else len(source)
    alone = not source[line_start:start].strip() and not source[end : match.start() if match else line_end].strip()
    return (line_start, line_end) if alone else (start, end)
