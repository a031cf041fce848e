"""Messages about findings of lint and of failed traces."""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

from .common import Location, LongText, Span

Severity = Literal["error", "warning", "note"]
LintTarget = Literal["", "mxnet"]


class Edit(Span):
    """A replacement of a span by text."""

    text: str


class Fix(TypedDict):
    """Edits that repair a finding."""

    title: str
    safe: bool
    edits: list[Edit]


class FindingCall(TypedDict):
    """A call, in a method that becomes a graph, that leads to a finding in the function called."""

    message: str
    location: Location


class Diagnostic(Span):
    """A finding of lint or of a trace. `calls`: its place in a function that hybrid_forward calls."""

    code: str
    name: str
    severity: Severity
    message: str
    help: str
    rewrite: str
    tensor: str
    block: str
    location: Location | None
    fix: Fix | None
    calls: NotRequired[list[FindingCall]]


class FindingsReply(TypedDict):
    """The findings of a model."""

    findings: list[Diagnostic]


class CellSource(TypedDict):
    """A code cell to check."""

    id: str
    source: LongText


class LintReply(TypedDict):
    """Findings by the id of the cell."""

    cells: dict[str, list[Diagnostic]]


class LintRequest(TypedDict):
    """All code cells of a notebook, and the ids of the cells to report on; none: all. With the target `mxnet`, also
    notes about what MXNet itself cannot do.
    """

    cells: list[CellSource]
    only: list[str]
    target: NotRequired[LintTarget]
