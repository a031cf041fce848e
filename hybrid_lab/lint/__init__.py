"""Marks code that cannot be hybridized: `check(source_or_class_or_block)` gives findings; nothing is executed."""

from hybrid_lab.diagnostics.finding import Edit, Finding, Fix, Severity

from .fixes import apply_fixes
from .report import help_text, jupyter, sarif, text, to_json
from .runner import check, check_cells

__all__ = [
    "Edit",
    "Finding",
    "Fix",
    "Severity",
    "apply_fixes",
    "check",
    "check_cells",
    "help_text",
    "jupyter",
    "sarif",
    "text",
    "to_json",
]
