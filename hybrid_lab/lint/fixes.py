"""Applying the automatic fixes of findings to source text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

from ..diagnostics.finding import Edit, Finding
from .source import read_notebook

_LINE_END = re.compile(r"\r\n|\r|\n")


def apply_fixes(source: str, findings: Iterable[Finding], unsafe: bool = False) -> str:
    """`source` with the fixes of the findings applied: the safe ones, and with `unsafe=True` all.

    Of fixes that touch the same text the first one wins: check again afterwards. The JSON text of a notebook is
    repaired cell by cell. A line of which nothing remains is removed.
    """
    chosen = [finding for finding in findings if finding.fix is not None and (unsafe or finding.fix.safe)]
    if not chosen:
        return source
    notebook = read_notebook(source)
    if notebook is None:
        return _apply(source, chosen)
    codes = [cell for cell in notebook["cells"] if cell.get("cell_type") == "code"]
    for number, cell in enumerate(codes, 1):
        here = [finding for finding in chosen if finding.cell == number]
        if here:
            text = cell["source"]
            fixed = _apply("".join(text) if isinstance(text, list) else text, here)
            cell["source"] = fixed.splitlines(keepends=True) if isinstance(text, list) else fixed
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def _apply(source: str, findings: list[Finding]) -> str:
    starts = [0, *(match.end() for match in _LINE_END.finditer(source))]

    def offsets(edit: Edit) -> tuple[int, int]:
        ends = [starts[line - 1] + col for line, col in ((edit.line, edit.col), (edit.end_line, edit.end_col))]
        return ends[0], ends[1]

    edits: list[tuple[int, int, str]] = []
    for finding in findings:
        assert finding.fix is not None
        try:
            wanted = [(*offsets(edit), edit.text) for edit in finding.fix.edits]
        except IndexError:  # a place outside this text: the finding is about an older version of it
            continue
        new = [edit for edit in wanted if edit not in edits]
        if not any(_overlap(a, b) for a in new for b in edits):
            edits += new
    for start, end, text in sorted(_merged(edits), reverse=True):
        if not text and end > start:
            start, end = _whole_lines(source, start, end)
        source = source[:start] + text + source[end:]
    return source


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
