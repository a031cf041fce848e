"""Lint for the trace: the findings in a class's source, which gluon asks for after the first trace."""

from __future__ import annotations

from hybrid_lab.diagnostics.errors import HybridLabError
from hybrid_lab.diagnostics.finding import Finding
from hybrid_lab.lint.runner import check


def findings_of(kind: type) -> list[Finding]:
    """The findings of a class; none where its source is not at hand."""
    try:
        return check(kind)
    except (HybridLabError, OSError, TypeError):
        return []
