"""Fewer combinations of a test's parameters: those that hold every pair of values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from itertools import combinations
from typing import Any


def covering(rows: Sequence[Mapping[str, Hashable]], together: int) -> list[int]:
    """The positions of few rows that hold every set of `together` values of different parameters.

    rows : of each combination its parameters and their values; `together` 2 keeps every pair of values, 1 every value

        >>> covering([{"a": a, "b": b, "c": c} for a in "xy" for b in "xy" for c in "xy"], 2)
        [0, 3, 5, 6]
    """
    left = [set(combinations(sorted(row.items(), key=lambda item: item[0]), min(together, len(row)))) for row in rows]
    used: Counter[tuple[str, Hashable]] = Counter()
    kept = []
    # Greedy: the row with the most sets that no other has had; of several that add one value, the one whose other
    # values were used least.
    while best := max(map(len, left), default=0):
        rest = (position for position, sets in enumerate(left) if len(sets) == best)
        position = min(rest, key=lambda position: together == 1 and sum(used[item] for item in rows[position].items()))
        kept.append(position)
        used.update(rows[position].items())
        held = left[position].copy()
        for sets in left:
            sets -= held
    return sorted(kept)


def dimensions(item: Any) -> dict[str, Hashable]:
    """The parameters of a test's item that vary independently, and their values in this item.

    Parameters of one `parametrize` vary together, as the columns of a table. Values are compared as objects: those that
    pytest repeats in combinations are the same ones.
    """
    if not hasattr(item, "callspec"):
        return {}
    values, found = item.callspec.params, {}
    for mark in item.iter_markers("parametrize"):
        names = [name.strip() for name in mark.args[0].split(",")] if isinstance(mark.args[0], str) else mark.args[0]
        found[", ".join(names)] = tuple(id(values[name]) for name in names)
    of_tables = {name for names in found for name in names.split(", ")}
    return found | {name: id(value) for name, value in values.items() if name not in of_tables}
