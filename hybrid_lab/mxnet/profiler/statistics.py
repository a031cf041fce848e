"""Times by name: how often, in all, the shortest, the longest and on average; as a table and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import NamedTuple

from hybrid_lab.diagnostics.errors import SettingError
from hybrid_lab.diagnostics.formatting import check_choice

from .recording import Event

_ORDERS = ("total", "avg", "min", "max", "count")


class Statistics(NamedTuple):
    """Statistics of all events of one name: durations in milliseconds, or the values of a counter."""

    number: int
    total: float
    smallest: float
    largest: float

    def key(self, order: str) -> float:
        """The value by which the rows of the table are sorted."""
        mean = self.total / self.number
        values = {"total": self.total, "avg": mean, "min": self.smallest, "max": self.largest}
        return values.get(order, float(self.number))


Table = dict[str, dict[str, Statistics]]
"""By category, then by name."""


def collected(events: Iterable[Event], phase: str) -> Table:
    """Statistics of the spans ("X") or of the counters ("C")."""
    values: dict[str, dict[str, list[float]]] = {}
    for event in events:
        if event.phase == phase:
            value = event.duration / 1e6 if phase == "X" else float(event.value)
            values.setdefault(event.category, {}).setdefault(event.name, []).append(value)
    return {
        category: {name: Statistics(len(each), sum(each), min(each), max(each)) for name, each in names.items()}
        for category, names in values.items()
    }


def ordered(table: Table, sort_by: str, ascending: bool) -> Table:
    """The table with the names of each category in order."""
    check_choice("dumps: sort_by", sort_by, _ORDERS, SettingError)
    return {
        category: dict(sorted(names.items(), key=lambda item: item[1].key(sort_by), reverse=not ascending))
        for category, names in table.items()
    }


def as_json(times: Table, counters: Table) -> str:
    """MXNet's JSON; counters stand under "Memory", as there."""
    return json.dumps(
        {
            "Time": {
                category: {
                    name: {
                        "Count": each.number,
                        "Total": each.total,
                        "Min": each.smallest,
                        "Max": each.largest,
                        "Avg": each.total / each.number,
                    }
                    for name, each in names.items()
                }
                for category, names in times.items()
            },
            "Memory": {
                category: {
                    name: {
                        "Count": each.number,
                        "Max": each.largest,
                        "Min": each.smallest,
                        "Avg": each.total / each.number,
                    }
                    for name, each in names.items()
                }
                for category, names in counters.items()
            },
            "Unit": {"Time": "ms", "Memory": "value"},
        },
        indent=1,
    )


def as_table(times: Table, counters: Table) -> str:
    """A table that a person reads."""
    lines = ["Profile statistics: milliseconds of each name, by category"]
    lines += _rows(times, ("Name", "Count", "Total", "Min", "Max", "Avg"))
    if counters:
        lines += ["", "Counters: values"]
        lines += _rows(counters, ("Name", "Count", "Sum", "Min", "Max", "Avg"))
    return "\n".join(lines)


def _rows(table: Table, header: tuple[str, ...]) -> list[str]:
    lines = []
    for category, names in table.items():
        lines += ["", category, "=" * len(category)]
        lines.append(f"{header[0]:<40}" + "".join(f"{word:>14}" for word in header[1:]))
        for name, each in names.items():
            numbers = (each.total, each.smallest, each.largest, each.total / each.number)
            lines.append(f"{name:<40}{each.number:>14}" + "".join(f"{number:>14.4f}" for number in numbers))
    return lines
