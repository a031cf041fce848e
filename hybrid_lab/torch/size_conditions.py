"""For which sizes an exported program holds, as torch says it: ranges of symbols, and comparisons that the code made.

torch writes a comparison with the paths of the inputs: `L['x'].size()[0] > 3`, `L['ys'][1]['a'].size()[1] != 8`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from hybrid_lab.ops.framework.declared_shapes import Formula
from hybrid_lab.ops.framework.sizes import Guards, SymbolicSize

if TYPE_CHECKING:
    from hybrid_lab.torch.exported import Exported

Sizes = Mapping[str, tuple[Any, ...]]
"""The shapes of the inputs by their names in the program; open sizes are symbols."""

_SIZE = re.compile(r"L((?:\['[^']*'\]|\[\d+\]|\.\w+)+)\.size\(\)\[(\d+)\]")
_KEY = re.compile(r"'([^']*)'|\[(\d+)\]|\.(\w+)")
_ENOUGH = 2
"""torch gives open sizes a least value of 2 by itself, and takes 0 and 1 nevertheless."""
_ENDLESS = 2**48


def conditions_of(
    exported: Exported, sizes: Sizes, symbols: Mapping[str, Any], hints: Mapping[str, int], warn: Callable[[str], None]
) -> list[str]:
    """The conditions on the open sizes, in their symbols: "s0 > 3", "s1 % 2 == 0".

    symbols : torch's symbols -> the open sizes; hints : open sizes by their formulas -> the numbers of the example
    Sizes in a comparison that no formula of sizes says are fixed at their numbers, with a warning.
    """
    found: list[str] = []
    program = exported.program
    for symbol, bounds in program.range_constraints.items():
        own = symbols.get(str(symbol))
        if isinstance(own, SymbolicSize):
            low, high = _whole(bounds.lower, 0), _whole(bounds.upper, _ENDLESS)
            found += [f"{own!r} >= {low}"] * (low > _ENOUGH) + [f"{own!r} <= {high}"] * (high < _ENDLESS)
    for guard in getattr(program, "_guards_code", ()):
        found += _condition(guard, sizes, hints, warn)
    if exported.holds_for_one:
        found = [text for text in found if not _is_of_one(text)]
    return list(dict.fromkeys(found))


def equalities_of(guards: Guards) -> list[str]:
    """The equalities that were used while a graph was composed, as conditions: "s1 + -2*((s1) // (2)) == 0"."""
    used = [polynomial for (relation, polynomial), outcome in guards.recorded.items() if relation == "==" and outcome]
    return [f"{SymbolicSize(guards, polynomial, 0)!r} == 0" for polynomial in used]


def _is_of_one(text: str) -> bool:
    """Whether a condition tells 1 apart from all other sizes."""
    condition = Formula(text)
    try:
        holds = [condition.value(dict.fromkeys(condition.symbols, number)) for number in (1, 2, 3, 8)]
    except ArithmeticError:  # it divides by a size less one
        return False
    return holds == [False, True, True, True]


def _condition(guard: str, sizes: Sizes, hints: Mapping[str, int], warn: Callable[[str], None]) -> list[str]:
    """A comparison in the symbols of the open sizes; nothing for a comparison without symbols, or one true for all
    sizes.
    """
    read: list[Any] = []
    unknown: list[str] = []

    def formula(match: re.Match[str]) -> str:
        name = "_".join(part for key in _KEY.findall(match[1]) for part in key if part)
        shape = sizes.get(name, ())
        if int(match[2]) >= len(shape):
            unknown.append(match[0])
            return match[0]
        read.append(shape[int(match[2])])
        return f"({read[-1]!r})"

    text = " ".join(_SIZE.sub(formula, guard).split())
    opened = list(dict.fromkeys(repr(size) for size in read if isinstance(size, SymbolicSize)))
    if not opened and not unknown:
        return []
    try:
        condition = Formula(text)
    except ValueError:
        warn(
            f"the code of the module compares sizes by {guard}, which has no form here; "
            + (f"{', '.join(opened)} can only have the sizes of the example" if opened else "it is not checked")
        )
        return [f"{size} == {hints[size]}" for size in opened if size in hints]
    guards = Guards()
    every = {name: guards.symbol(hints.get(name, _ENOUGH)) for name in condition.symbols}
    holds = condition.value(every) is True and not guards.recorded
    return [] if holds else [_plain(text)]


def _plain(text: str) -> str:
    """Without the parentheses around single symbols."""
    return re.sub(r"\((s\d+)\)", r"\1", text)


def _whole(bound: Any, otherwise: int) -> int:
    """A bound as a number; infinity is `otherwise`."""
    return int(bound) if isinstance(bound, int) or getattr(bound, "is_Integer", False) else otherwise
