"""Findings as the protocol's Diagnostic data: of cells while typing, of a model's classes, and of failed traces."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from types import CodeType
from typing import cast

from hybrid_lab.diagnostics import rules
from hybrid_lab.diagnostics.finding import CallSite, Finding
from hybrid_lab.gluon import access
from hybrid_lab.gluon.block import Block
from hybrid_lab.gluon.hybrid import HybridBlock
from hybrid_lab.hybridize.failures import Failure
from hybrid_lab.hybridize.stale.code import code_of
from hybrid_lab.lab.messages.common import Location
from hybrid_lab.lab.messages.findings import Diagnostic, Edit, LintRequest
from hybrid_lab.lab.models.rows import Row
from hybrid_lab.lab.places import place
from hybrid_lab.lint.report import help_text
from hybrid_lab.lint.runner import check_blocks, check_cells, ordered
from hybrid_lab.system.logger import logger

_UNREADABLE = "HL001"
"""The rule about source that does not parse. It is not reported: Python does so when the cell runs."""

_MOST = 2000
"""Findings, and calls that lead to them, in one reply."""
_MOST_CALLS = 50
"""Calls of one finding."""


def diagnostic(finding: Finding, located: bool, cell_ids: Mapping[str, str] = {}) -> Diagnostic:
    """A finding as the protocol's Diagnostic.

    located : give the place in the user's files too (findings of a model, whose lines are as Python counts them), not
        only within the cell
    cell_ids : the notebook's ids of the cells that are checked, by the names of their sources
    """
    fix = finding.fix
    location = place(finding.file, finding.line, finding.col, finding.end_line, finding.end_col) if located else None
    edits: list[Edit] = [] if fix is None else [cast(Edit, asdict(edit)) for edit in fix.edits]
    data: Diagnostic = {
        "code": finding.code,
        "name": finding.name,
        "severity": finding.severity.value,
        "message": finding.message,
        "help": help_text(finding.code),
        "rewrite": finding.rewrite or "",
        "tensor": finding.tensor or "",
        "block": finding.block or "",
        "line": finding.line if location is None else location["line"],
        "col": finding.col,
        "end_line": finding.end_line if location is None else location["end_line"],
        "end_col": finding.end_col,
        "location": location,
        "fix": None if fix is None else {"title": fix.title, "safe": fix.safe, "edits": edits},
    }
    if finding.calls:
        data["calls"] = [
            {"message": finding.message_at(call), "location": _call_place(call, cell_ids)} for call in finding.calls
        ]
    return data


def _call_place(call: CallSite, cell_ids: Mapping[str, str]) -> Location:
    location = place(call.file, call.line, call.col, call.end_line, call.end_col)
    return {**location, "cell_id": cell_ids.get(call.file, location["cell_id"])}


def lint_cells(request: LintRequest) -> dict[str, list[Diagnostic]]:
    """The reply of `lint`: cells are checked together, none is run; a cell that does not parse has no findings.

    Of very many findings only the first are listed, with a finding that gives the number of the rest.
    """
    cells, only = request["cells"], request["only"]
    ids = {f"<cell {number}>": cell["id"] for number, cell in enumerate(cells, 1)}
    per_cell = check_cells([cell["source"] for cell in cells], request.get("target") or None, list(ids))
    wanted = set(only)
    reply: dict[str, list[Diagnostic]] = {}
    left, unlisted = _MOST, 0
    cut: tuple[str, Finding] | None = None
    for cell, findings in zip(cells, per_cell, strict=True):
        if wanted and cell["id"] not in wanted:
            continue
        listed = reply[cell["id"]] = []
        for item in findings:
            if item.code == _UNREADABLE:
                continue
            left -= 1 + len(item.calls[:_MOST_CALLS])
            if left >= 0:
                listed.append(diagnostic(replace(item, calls=item.calls[:_MOST_CALLS]), False, ids))
            else:
                unlisted += 1
                cut = cut or (cell["id"], item)
    if cut is not None:
        reply[cut[0]].append(diagnostic(_unlisted(cut[1], unlisted), False))
    return reply


def _unlisted(first: Finding, count: int) -> Finding:
    """The finding, at the first unlisted one, that stands for all unlisted findings."""
    record = rules.get("HL002")
    message = f"{count} more findings are not listed: repair some of the others first."
    place = first.line, first.col, first.end_line, first.end_col
    return Finding(record.code, record.name, record.severity, message, first.file, *place)


def kinds_of(blocks: list[tuple[str, Block]]) -> list[type]:
    """The classes of these Blocks."""
    return sorted({type(block) for _, block in blocks}, key=id)


@dataclass(frozen=True)
class LintKey:
    """What the linter's findings in a model depend on. Traces and calls do not change it.

    structure : its structure version; code : of the classes of its Blocks
    """

    name: str
    structure: int
    code: dict[type, tuple[CodeType, ...]]

    def is_new_to(self, before: LintKey | None) -> bool:
        """Whether findings of Blocks that did not change may be others than before."""
        if before is None or before.name != self.name:
            return True
        return any(self.code.get(kind, code) != code for kind, code in before.code.items())


def lint_key(kinds: list[type], net: Block, name: str) -> LintKey:
    """The key of a model. kinds : `kinds_of` its Blocks"""
    return LintKey(name, access.structure_version(net), {kind: code_of(kind) for kind in kinds})


def lint_rows(rows: Iterable[Row], name: str) -> list[Finding]:
    """Lint of the classes of a model's Blocks, by place in the code. Rows that have findings are not checked again.

    A fault of the linter gives no findings, and a line in the log.
    """
    rows = [row for row in rows if row.before is None]
    pending = {row.path: row.reference() for row in rows if row.findings is None}
    found: dict[str, list[Finding]] = {}
    try:
        for item in check_blocks({path: block for path, block in pending.items() if block is not None}, name):
            if item.code != _UNREADABLE:
                found.setdefault(item.block or "", []).append(item)
    except Exception as error:  # a fault of a rule, which must not take the list of models from the panel
        logger.warning(f"{name} could not be checked: {type(error).__name__}: {error}")
    for row in rows:
        if row.findings is None:
            row.findings = found.get(f"{name}.{row.path}".rstrip("."), [])
    return ordered(item for row in rows for item in row.findings or ())


def failures(blocks: list[tuple[str, Block]], name: str) -> list[Finding]:
    """The findings of failed traces of a model's Blocks, with Block paths that start with `name`, as in lint."""
    findings: list[Finding] = []
    seen: list[Failure] = []
    for path, block in blocks:
        failure = access.calls(block).failures.last if isinstance(block, HybridBlock) else None
        if failure is not None and failure.finding is not None and failure not in seen:
            # All Blocks whose code was running have the failure; the first of them is the outermost.
            seen.append(failure)
            parts = name, path, failure.path_below(block)
            findings.append(replace(failure.finding, block=".".join(filter(None, parts))))
    return findings


def merged(lint: list[Finding], raised: list[Finding]) -> list[Diagnostic]:
    """Both as Diagnostics, without duplicates."""
    seen = {(item.code, item.file, item.line) for item in lint}
    more = [item for item in raised if (item.code, item.file, item.line) not in seen]
    return [diagnostic(item, True) for item in [*lint, *more]]


def findings_by_path(findings: list[Diagnostic], name: str) -> dict[str, int]:
    """Path of the Block in the tree -> number of its findings, whose paths start with the model's name."""
    counts: dict[str, int] = {}
    for item in findings:
        path = item["block"].removeprefix(name).removeprefix(".")
        counts[path] = counts.get(path, 0) + 1
    return counts
