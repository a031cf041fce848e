"""InsightReport: the base of all results of insight, which have text, HTML for a notebook, and plain data."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict
from typing import Any

from hybrid_lab.insight.table import Table, frame


class InsightReport(ABC):
    """A dataclass with a name; `print` it, show it in a notebook, or take `data()`."""

    name: str

    @property
    @abstractmethod
    def headline(self) -> str:
        """One line that says the most."""

    def _table(self) -> Table:
        """The table below the headline, for reports that are one table."""
        return Table(())

    def _lines(self) -> list[str]:
        """The text below the headline."""
        table = self._table()
        return table.lines() if table.rows else []

    def _parts(self) -> list[str]:
        """The HTML below the headline, without scripts."""
        table = self._table()
        return [table.html()] if table.rows else []

    def data(self) -> dict[str, Any]:
        """Everything as dicts, lists, strings and numbers; times in seconds."""
        return asdict(self)  # type: ignore[call-overload]

    def __str__(self) -> str:
        return "\n".join([self.headline, *self._lines()])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return frame(self.headline, *self._parts())
