"""Findings as the protocol's Diagnostic data: of cells while typing, of a model's classes, and of failed traces."""

from __future__ import annotations

from typing import Any

from hybrid_lab.diagnostics.finding import Finding
from hybrid_lab.gluon.block import Block
from hybrid_lab.gluon.hybrid import HybridBlock
from hybrid_lab.insight.states import walk
from hybrid_lab.lab.tree import place
from hybrid_lab.lint import check
from hybrid_lab.lint.report import help_text
from hybrid_lab.lint.runner import check_cells


def diagnostic(finding: Finding, located: bool) -> dict[str, Any]:
    """located : give the place in the user's files too (findings of a model), not only within the cell"""
    fix = finding.fix
    return {
        "code": finding.code,
        "name": finding.name,
        "severity": str(getattr(finding.severity, "value", finding.severity)),
        "message": finding.message,
        "help": help_text(finding.code),
        "rewrite": finding.rewrite or "",
        "tensor": finding.tensor or "",
        "block": finding.block or "",
        "line": finding.line,
        "col": finding.col,
        "end_line": finding.end_line,
        "end_col": finding.end_col,
        "location": place(finding.file, finding.line, finding.col, finding.end_line, finding.end_col) if located else None,
        "fix": None
        if fix is None
        else {
            "title": fix.title,
            "safe": fix.safe,
            "edits": [
                {"line": edit.line, "col": edit.col, "end_line": edit.end_line, "end_col": edit.end_col, "text": edit.text}
                for edit in fix.edits
            ],
        },
    }


def lint_cells(cells: list[dict[str, str]], only: list[str]) -> dict[str, list[dict[str, Any]]]:
    """The reply of `lint`: cells are checked together, none is run; a cell that does not parse has no findings."""
    found = check_cells([cell["source"] for cell in cells])
    wanted = set(only)
    return {
        cell["id"]: [diagnostic(item, False) for item in findings if item.code != "HL001"]
        for cell, findings in zip(cells, found, strict=True)
        if not wanted or cell["id"] in wanted
    }


def model_findings(net: Block, name: str) -> list[dict[str, Any]]:
    """Lint of the classes of a model's Blocks, and what their last traces raised."""
    found = [item for item in check(net, name=name) if item.code != "HL001"]
    seen = {(item.code, item.file, item.line) for item in found}
    for path, _, block, before in walk(net):
        failure = block._graphs.failure if isinstance(block, HybridBlock) and before is None else None
        if failure is not None:
            item = failure.finding
            if (item.code, item.file, item.line) not in seen:
                seen.add((item.code, item.file, item.line))
                found.append(item)
    return [diagnostic(item, True) for item in found]


def findings_by_path(findings: list[dict[str, Any]], name: str) -> dict[str, int]:
    """Path of the Block in the tree -> number of its findings; findings carry paths that start with the model's name."""
    counts: dict[str, int] = {}
    for item in findings:
        block = item["block"]
        path = "" if block == name else block.removeprefix(name + ".")
        counts[path] = counts.get(path, 0) + 1
    return counts
