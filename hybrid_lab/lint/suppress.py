"""Comments that silence findings, `# hl: ignore[HL101] reason`, and the finding about comments that silence nothing."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, field, replace
from itertools import chain

from hybrid_lab.diagnostics import rules
from hybrid_lab.diagnostics.finding import CallSite, Edit, Finding, Fix

from .source import Source

_IGNORE = re.compile(r"#\s*hl:\s*ignore(?:\[(?P<codes>[^\]]*)\])?(?P<reason>.*)", re.IGNORECASE)


@dataclass
class Suppression:
    """One comment. line : the line it silences, counted as in its source; codes : empty for all."""

    line: int
    comment_line: int
    col: int
    end_col: int
    codes: tuple[str, ...]
    used: set[str] = field(default_factory=set)

    def covers(self, code: str, line: int, end_line: int) -> bool:
        """Whether it silences a finding of this rule on these lines."""
        return (not self.codes or code in self.codes) and self.line in (line, end_line)


OfSource = dict[int, list[Suppression]]
"""The comments of one source, by the line that they silence."""

Comments = dict[tuple[str, int | None], OfSource]
"""The comments of each source, by file and cell."""


def suppressions(source: Source) -> OfSource:
    """All ignore comments of a source. A comment on a line without code is about the next line of code."""
    comments: OfSource = {}
    if "hl:" not in source.text or source.unchecked is not None:
        return comments
    with_code = [
        number for number, line in enumerate(source.lines, 1) if (text := line.strip()) and not text.startswith("#")
    ]
    for line, col, text in source.comments():
        if match := _IGNORE.search(text):
            codes = tuple(code.strip().upper() for code in (match["codes"] or "").split(",") if code.strip())
            alone = not source.lines[line - 1][:col].strip()
            below = bisect_right(with_code, line)
            silenced = with_code[below] if alone and below < len(with_code) else line
            start = col + match.start()
            comment = Suppression(silenced, line, start, col + len(text), codes)
            comments.setdefault(silenced, []).append(comment)
    return comments


def silence(finding: Finding, comments: Comments) -> Finding | None:
    """The finding without the calls that a comment silences; None if one silences the finding itself.

    The comments remember the findings that they silenced.
    """
    calls = tuple(call for call in finding.calls if not _silenced(finding.code, call, comments))
    if _silenced(finding.code, finding, comments):
        return None
    return finding if len(calls) == len(finding.calls) else replace(finding, calls=calls)


def _silenced(code: str, place: Finding | CallSite, comments: Comments) -> bool:
    here = comments.get((place.file, place.cell), {})
    near = [comment for line in {place.line, place.end_line} for comment in here.get(line, ())]
    covering = [comment for comment in near if comment.covers(code, place.line, place.end_line)]
    for comment in covering:
        comment.used.add(code)
    return bool(covering)


def stale(source: Source, comments: OfSource) -> list[Finding]:
    """HL190 for every comment, or code in one, that silenced nothing."""
    record = rules.get("HL190")
    findings = []
    for comment in chain.from_iterable(comments.values()):
        idle = [code for code in comment.codes if code not in comment.used and code != "HL190"]
        if not idle and (comment.codes or comment.used):
            continue
        codes = ", ".join(idle)
        text = source.lines[comment.comment_line - 1]
        used = [code for code in comment.codes if code in comment.used]
        line = comment.comment_line
        if used:
            inner = text.index("[", comment.col)
            edit = Edit(line, inner + 1, line, text.index("]", inner), ", ".join(used))
        else:
            start = len(text[: comment.col].rstrip())
            edit = Edit(line, start, line, comment.end_col, "")
        message = record.message_for(codes=codes) if codes else "`# hl: ignore` silences nothing on this line."
        fix = Fix("delete what silences nothing", (edit,), safe=True)
        place = (line, comment.col, line, comment.end_col)
        findings.append(source.finding(record, message, place, fix=fix, rewrite=record.rewrite))
    return findings
