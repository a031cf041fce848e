"""A finding: one place in the user's code, one rule, one message; and the edits that would repair it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from .location import display_file


class Severity(StrEnum):
    """ERROR: the graph cannot be made or would differ. WARNING: it is made, and may surprise. NOTE: for information."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True)
class Edit:
    """Replace the text between two positions (lines from 1, columns in characters from 0) by `text`."""

    line: int
    col: int
    end_line: int
    end_col: int
    text: str


@dataclass(frozen=True)
class Fix:
    """An automatic repair. `safe`: it cannot change what the code computes."""

    title: str
    edits: tuple[Edit, ...]
    safe: bool


@dataclass(frozen=True)
class CallSite:
    """A call of the function that a finding is in, at the place in hybrid_forward (or forward) where it stands.

    function is the function's name. The remaining fields are as in Finding.
    """

    function: str
    file: str
    line: int
    col: int
    end_line: int
    end_col: int
    cell: int | None = None

    @property
    def place(self) -> str:
        """`file:line:col`, with the cell if there is one."""
        return _place(self.file, self.cell, self.line, self.col)


@dataclass(frozen=True)
class Finding:
    """One remark of the linter, or of a trace.

    line, end_line count from 1; col, end_col count characters from 0 (end_col is exclusive). tensor is the tensor's
    name as written, block the path of the block (`net.encoder.0`), each None if unknown. fix is an automatic repair or
    None; rewrite is the text to paste instead. cell is the number of the notebook cell (code cells counted from 1) if a
    whole notebook was checked; line then counts within that cell. calls are, for a finding in a function called by
    hybrid_forward, the places in hybrid_forward that lead to it.
    """

    code: str
    name: str
    severity: Severity
    message: str
    file: str
    line: int
    col: int
    end_line: int
    end_col: int
    tensor: str | None = None
    block: str | None = None
    fix: Fix | None = None
    rewrite: str = ""
    cell: int | None = None
    calls: tuple[CallSite, ...] = ()

    @property
    def place(self) -> str:
        """`file:line:col`, with the cell if there is one."""
        return _place(self.file, self.cell, self.line, self.col)

    def message_at(self, call: CallSite) -> str:
        """The message of the mark at a call."""
        return f"calls `{call.function}`, in which {self.message}"

    def __str__(self) -> str:
        block = f" (block {self.block})" if self.block else ""
        return f"{self.place}: {self.code} {self.message}{block}"

    def to_json(self) -> dict[str, Any]:
        """Plain dict of JSON values, with the field names of this class."""
        return {**asdict(self), "severity": self.severity.value}


def _place(file: str, cell: int | None, line: int, col: int) -> str:
    # Terminals and editors count columns from 1.
    return f"{display_file(file)}:{f'cell {cell}:' if cell is not None else ''}{line}:{col + 1}"
