"""Chooses the open sizes of an ONNX file that get a number, or become one size, so that the graph holds for all sizes
that stay open.

The guards of a symbolic graph (ops/framework/sizes.py) hold for the sizes of the call. A file with open sizes needs
each equality among them at all sizes. Giving some symbols their numbers makes it an identity:

    64*s0 == s0*s1, of reshape(x, (0, 8, 8))          s1 = 64
    6 * (s0*s1*4 // 6) == s0*s1*4, of (-1, 6)         s1 = 3
    s0 == s1                                          s0 and s1 are one symbol, which needs no number
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from hybrid_lab.ops.framework.sizes import Guards, Polynomial


@dataclass
class Needed:
    """The symbols that must get a number or become one size.

    numbers : symbols that must have the number of the call -> the symbols that stay open for this: if such a symbol had
        a number, the key could be open. Usually empty
    one : symbols that must be one size; the caller then examines the equalities again
    """

    numbers: dict[int, tuple[int, ...]] = field(default_factory=dict)
    one: tuple[int, ...] = ()


def needed(guards: Guards, order: Sequence[int]) -> Needed:
    """Find the symbols that the recorded equalities restrict.

    order : all symbols; given a choice, earlier symbols stay open
    """
    result = Needed()
    equalities = [
        (polynomial, symbols)
        for (relation, polynomial), holds in guards.recorded.items()
        if relation == "==" and holds and (symbols := guards.symbols_in(polynomial))
    ]
    # First the equalities of one symbol, which leave no choice.
    for polynomial, symbols in sorted(equalities, key=lambda equality: len(equality[1])):
        left = [symbol for symbol in order if symbol in symbols and symbol not in result.numbers]
        if guards.is_identity(polynomial, result.numbers):
            continue
        for same in _equal(left, guards):
            if guards.is_identity(polynomial, symbols.difference(same), same):
                result.one = same
                return result
        result.numbers |= _numbers(guards, polynomial, left, result.numbers)
    return result


def _equal(symbols: Sequence[int], guards: Guards) -> Iterator[tuple[int, ...]]:
    """Symbols that may be one size, as they have the same value in this call: pairs, then all with one value."""
    values = guards.hints.values
    for index, one in enumerate(symbols):
        yield from ((one, two) for two in symbols[index + 1 :] if values[one] == values[two])
    for value in dict.fromkeys(values[symbol] for symbol in symbols):
        same = tuple(symbol for symbol in symbols if values[symbol] == value)
        if len(same) > 2:
            yield same


def _numbers(
    guards: Guards, polynomial: Polynomial, symbols: Sequence[int], known: Collection[int]
) -> dict[int, tuple[int, ...]]:
    """As few of the symbols as make an equality an identity if they have numbers. known : symbols that have them"""
    fixed = set(symbols)
    for symbol in symbols:
        if guards.is_identity(polynomial, {*known, *fixed} - {symbol}):
            fixed.remove(symbol)
    opened = tuple(symbol for symbol in symbols if symbol not in fixed)
    return {
        symbol: opened if guards.is_identity(polynomial, {*known, *symbols} - {symbol}) else ()
        for symbol in symbols
        if symbol in fixed
    }
