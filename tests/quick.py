"""How much runs: `make check` one sample of each record on NumPy alone, `make test` all samples and every pair of a
test's parameters, `make test-all` everything.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from itertools import product
from typing import Any
from zlib import crc32

from tests.combinations import covering, dimensions

#: Whether this is `make check`.
QUICK = bool(os.environ.get("HYBRID_LAB_QUICK"))
#: Whether this is `make test-all`.
ALL = bool(os.environ.get("HYBRID_LAB_ALL"))
#: Engines that need libraries of seconds.
OTHERS = ("onnxruntime", "torch", "triton")

#: The packages that an engine needs.
_PACKAGES = {"onnxruntime": ("onnxruntime",), "torch": ("torch",), "triton": ("torch", "triton")}


def engines(*names: str) -> Sequence[str]:
    """The engines of these that run now."""
    return [name for name in _installed(names) if not (QUICK and name in OTHERS)]


def in_turn(key: str, *names: str) -> Sequence[str]:
    """The first engine and, by the key, one of the others; all of them in `make test-all`."""
    first, *others = _installed(names)
    return [first, *others] if ALL or not others else [first, others[crc32(key.encode()) % len(others)]]


def _installed(names: Sequence[str]) -> Sequence[str]:
    """The engines whose packages are there."""
    return [name for name in names if all(map(find_spec, _PACKAGES.get(name, ())))]


def count(variable: str, usual: int, all_: int) -> int:
    """How many random cases run: what an environment variable says, else `usual`, or `all_` in `make test-all`."""
    return int(os.environ.get(variable) or (all_ if ALL else usual))


def pairs(**values: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    """Combinations of values for a loop in a test: all of them in `make test-all`, else those that hold every pair."""
    rows = list(product(*values.values()))
    kept = range(len(rows)) if ALL else covering([dict(zip(values, row, strict=True)) for row in rows], 2)
    return (rows[position] for position in kept)


def each_value(key: str, **values: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    """Combinations of values for a loop in a test: all of them in `make test-all`, else few that hold every value.
    Which ones, the key decides, so that tests with different keys hold every pair.
    """
    if ALL:
        return product(*values.values())
    shifts = [crc32(f"{key} {name}".encode()) for name in values]
    numbers = range(max(map(len, values.values())))
    return (tuple(v[(n + s) % len(v)] for v, s in zip(values.values(), shifts, strict=True)) for n in numbers)


def left_out(items: Sequence[Any], named: Sequence[str] = ()) -> set[Any]:
    """The tests that do not run now. named : arguments of pytest; tests that are named by "file::test" run always

    `make check` leaves out those with another engine than NumPy among their parameters. It and `make test` leave out
    those that are marked `long`; of tests with three `parametrize` or more the combinations whose pairs of values are
    in others; and of tests that are marked `each_value` the combinations whose values are in others.
    """
    if ALL:
        return set()
    found, functions = set(), {}
    for item in items:
        if any("::" in name and item.nodeid.startswith(name.partition("[")[0]) for name in named):
            continue
        values = item.callspec.params if hasattr(item, "callspec") else {}
        if (
            item.get_closest_marker("long")
            or QUICK
            and any(isinstance(v, str) and v in OTHERS for v in values.values())
        ):
            found.add(item)
        elif len(values) > 1:
            functions.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for alike in functions.values():
        rows = [dimensions(item) for item in alike]
        together = 1 if alike[0].get_closest_marker("each_value") else 2
        if len(rows[0]) > together:
            kept = set(covering(rows, together))
            found |= {item for position, item in enumerate(alike) if position not in kept}
    return found
