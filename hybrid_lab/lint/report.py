"""Findings as text, JSON, SARIF and the diagnostics of an editor."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any

from hybrid_lab._version import __version__
from hybrid_lab.diagnostics import rules
from hybrid_lab.diagnostics.finding import CallSite, Edit, Finding, Severity
from hybrid_lab.diagnostics.location import display_file
from hybrid_lab.diagnostics.switches import check_switches

_LSP_SEVERITY = {Severity.ERROR: 1, Severity.WARNING: 2, Severity.NOTE: 3}


def text(findings: Iterable[Finding], rewrites: bool = False) -> str:
    """One line a finding, `file:line:col: HL101 message`, with the calls that lead to it below, and a count.

    rewrites : with what to write instead
    """
    check_switches("text", rewrites=rewrites)
    lines = []
    counts: Counter[Severity] = Counter()
    for finding in findings:
        counts[finding.severity] += 1
        lines += with_calls(finding)
        if rewrites and finding.rewrite.strip():
            lines += [f"    instead: {line}" for line in finding.rewrite.splitlines()]
    total = ", ".join(f"{counts[s]} {s.value}{'s' * (counts[s] != 1)}" for s in Severity if counts[s])
    return "\n".join([*lines, total or "nothing found"])


def with_calls(finding: Finding) -> list[str]:
    """The line of a finding, and a line for each call that leads to it."""
    return [str(finding), *(f"    {call.place}: calls `{call.function}`" for call in finding.calls)]


def to_json(findings: Iterable[Finding], indent: int | None = 2) -> str:
    """A JSON list of the findings, with the field names of Finding."""
    return json.dumps([finding.to_json() for finding in findings], indent=indent, ensure_ascii=False)


def sarif(findings: Iterable[Finding]) -> dict[str, Any]:
    """A SARIF 2.1.0 log (dict of JSON values), as code hosts read it. Columns count from 1 there."""
    findings = list(findings)
    used = sorted({finding.code for finding in findings})
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "hybrid-lab",
                        "version": __version__,
                        "rules": [_sarif_rule(code) for code in used],
                    }
                },
                "columnKind": "unicodeCodePoints",
                "results": [_sarif_result(finding, used) for finding in findings],
            }
        ],
    }


def _sarif_rule(code: str) -> dict[str, object]:
    record = rules.get(code)
    return {
        "id": code,
        "name": record.name,
        "shortDescription": {"text": record.summary},
        "fullDescription": {"text": record.reason},
        "help": {"text": help_text(code)},
        "defaultConfiguration": {"level": record.severity.value},
    }


def _sarif_result(finding: Finding, used: list[str]) -> dict[str, object]:
    message = finding.message + (f" (block {finding.block})" if finding.block else "")
    result: dict[str, Any] = {
        "ruleId": finding.code,
        "ruleIndex": used.index(finding.code),
        "level": finding.severity.value,
        "message": {"text": message},
        "locations": [_sarif_location(finding)],
    }
    if finding.calls:
        result["relatedLocations"] = [
            {**_sarif_location(call), "message": {"text": finding.message_at(call)}} for call in finding.calls
        ]
    if finding.fix is not None:
        changes = [
            {"deletedRegion": _region(edit), "insertedContent": {"text": edit.text}} for edit in finding.fix.edits
        ]
        result["fixes"] = [
            {
                "description": {"text": finding.fix.title},
                "artifactChanges": [{"artifactLocation": {"uri": display_file(finding.file)}, "replacements": changes}],
            }
        ]
    return result


def _sarif_location(place: Finding | CallSite) -> dict[str, Any]:
    return {
        "physicalLocation": {"artifactLocation": {"uri": display_file(place.file)}, "region": _region(place)},
    }


def _region(place: Finding | CallSite | Edit) -> dict[str, int]:
    return {
        "startLine": place.line,
        "startColumn": place.col + 1,
        "endLine": place.end_line,
        "endColumn": place.end_col + 1,
    }


def help_text(code: str) -> str:
    """The text of a hover below the message: the reason, and the example beside its repaired form."""
    record = rules.get(code)
    parts = [record.reason]
    if record.bad:
        parts.append(f"Bad:\n\n{_indented(record.bad)}")
    if record.instead:
        parts.append(f"Instead:\n\n{_indented(record.instead)}")
    return "\n\n".join(part for part in parts if part)


def _indented(code: str) -> str:
    return "\n".join(f"    {line}" if line else "" for line in code.splitlines())


def jupyter(findings: Iterable[Finding], source: str | None = None) -> list[dict[str, Any]]:
    """Diagnostics in the Language Server Protocol's form, as Jupyter's editors take them.

    Lines and characters count from 0. With `source`, characters are UTF-16 code units, as that protocol wants them;
    without it, characters of the text (the same for all but rare scripts and emoji).
    """
    lines = source.split("\n") if source is not None else []

    def units(line: int, col: int, lines: list[str]) -> int:
        if not 0 < line <= len(lines):
            return col
        return len(lines[line - 1][:col].encode("utf-16-le")) // 2

    def place(item: Finding | CallSite | Edit, lines: list[str] = lines) -> dict[str, Any]:
        return {
            "start": {"line": item.line - 1, "character": units(item.line, item.col, lines)},
            "end": {"line": item.end_line - 1, "character": units(item.end_line, item.end_col, lines)},
        }

    def related(finding: Finding, call: CallSite) -> dict[str, Any]:
        here = (call.file, call.cell) == (finding.file, finding.cell)
        location = {"uri": display_file(call.file), "range": place(call, lines if here else [])}
        return {"location": location, "message": finding.message_at(call)}

    diagnostics = []
    for finding in findings:
        fix = finding.fix
        edits = [{"range": place(edit), "newText": edit.text} for edit in fix.edits] if fix is not None else []
        diagnostics.append(
            {
                "range": place(finding),
                "severity": _LSP_SEVERITY[finding.severity],
                "code": finding.code,
                "source": "hybrid-lab",
                "message": finding.message,
                "relatedInformation": [related(finding, call) for call in finding.calls],
                "data": {
                    "name": finding.name,
                    "help": help_text(finding.code),
                    "rewrite": finding.rewrite,
                    "tensor": finding.tensor,
                    "block": finding.block,
                    "cell": finding.cell,
                    "fix": {"title": fix.title, "safe": fix.safe, "edits": edits} if fix is not None else None,
                },
            }
        )
    return diagnostics
