"""Kernels in a notebook: a list as a table, one kernel with its text, operators and reasons."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf
from typing import TYPE_CHECKING, SupportsIndex, overload

from hybrid_lab.diagnostics.formatting import count
from hybrid_lab.engines.report import format_bytes
from hybrid_lab.insight.table import Column, Row, Table, code, folded, frame, heaviest, milliseconds

if TYPE_CHECKING:
    from hybrid_lab.engines.triton.kernels import FusedKernel

_SHOWN = 40
"""Rows that are printed at most."""


class Kernels(list["FusedKernel"]):
    """Kernels in the order in which they run: a list that shows itself as a table; a single kernel shows its text.

    none : a sentence that says why the list is empty
    """

    def __init__(self, kernels: Iterable[FusedKernel] = (), none: str = "no kernels"):
        super().__init__(kernels)
        self.none = none

    @overload
    def __getitem__(self, index: SupportsIndex) -> FusedKernel: ...

    @overload
    def __getitem__(self, index: slice) -> Kernels: ...

    def __getitem__(self, index: SupportsIndex | slice) -> FusedKernel | Kernels:
        chosen = super().__getitem__(index)
        return Kernels(chosen, self.none) if isinstance(chosen, list) else chosen

    def lines(self, indent: str = "") -> list[str]:
        """The table as text, with at most `_SHOWN` kernels, the slowest; or the reason why there are none."""
        if not self:
            return [indent + self.none]
        rows, hidden = heaviest(self, _weight, _SHOWN)
        lines = table(rows).lines(indent)
        return [*lines, f"{indent}... and {count(hidden, 'kernel')} more, the quick ones ..."] if hidden else lines

    def __repr__(self) -> str:
        return "\n".join(self.lines())

    def _repr_html_(self) -> str:
        if not self:
            return frame(self.none)
        return frame(count(len(self), "kernel"), table(self).html(), *map(folded_text, self.distinct()))

    def distinct(self) -> list[FusedKernel]:
        """The first kernel with each text."""
        by_text: dict[str, FusedKernel] = {}
        for kernel in self:
            by_text.setdefault(kernel.generated.code, kernel)
        return list(by_text.values())


def folded_text(kernel: FusedKernel) -> str:
    """The text of a kernel, behind a line that opens it with a click, Enter or the space bar."""
    return folded(f"{kernel.name}, {kernel.kind}", code(str(kernel).splitlines()))


def kernel_html(kernel: FusedKernel) -> str:
    """One kernel as HTML without scripts: its text, and the operators in it."""
    head, *lines = str(kernel).splitlines()
    operators = folded(count(kernel.operators, "operator"), code(map(str, kernel.nodes)))
    return frame(head.removeprefix("# "), code(lines), operators)


_COLUMNS = (
    Column("kernel", flexible=True),
    Column("kind"),
    Column("part"),
    Column("ops", right=True),
    Column("regs", right=True),
    Column("spills", right=True),
    Column("shared", right=True),
    Column("binary", right=True),
    Column("moved", right=True),
    Column("estimate", right=True),
)


def table(kernels: Sequence[FusedKernel]) -> Table:
    """A row for each kernel; columns that are empty in every row are left out."""
    rows = []
    for kernel in kernels:
        resources = kernel.resources if not kernel.problem else None
        costs = ["", "", "", ""]
        if resources is not None:
            costs = [
                str(resources.registers),
                str(resources.spills),
                _size(resources.shared),
                _size(resources.binary_bytes),
            ]
        estimate = "does not compile" if kernel.problem else "" if kernel.estimate is None else least(kernel.estimate)
        first = [kernel.name, kernel.kind, kernel.part, str(kernel.operators)]
        rows.append([*first, *costs, _size(kernel.bytes_moved), estimate])
    filled = [index for index in range(len(_COLUMNS)) if any(row[index] for row in rows)]
    columns = [_COLUMNS[index] for index in filled]
    return Table(columns, [Row([row[index] for index in filled]) for row in rows])


def _weight(kernel: FusedKernel) -> float:
    """Its time by estimate, else its bytes; kernels that do not compile are always shown."""
    if kernel.problem:
        return inf
    return kernel.estimate if kernel.estimate is not None else kernel.bytes_moved


def _size(size: int) -> str:
    return format_bytes(size) if size else "0"


def least(seconds: float) -> str:
    """An estimated time as text; less than a nanosecond is not rounded to 0."""
    if seconds >= 1e-6:
        return milliseconds(seconds)
    return f"{seconds * 1e9:.0f} ns" if seconds >= 1e-9 or not seconds else "< 1 ns"
