"""Collect: an operator that adds up or overwrites rows by number, for kernels that look for the entries of each row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hybrid_lab.ops.protocols import Elements, Index, Place


@dataclass(frozen=True)
class Collect:
    """out[row, column] = the sum over all entries i with number[i] == row of entry[i, column]; no such entry gives 0.

    rows, columns, entries : the sizes of the axes that row, column and i stand for; () for one alone
    number : (K, i) -> the row that an entry belongs to, an index over all rows; it lies inside
    entry : (K, i, column) -> an element, as a record's `element` writes it
    place : (row, column) -> where in the output
    last : the entry that comes last counts, not the sum
    start : (K, row, column) -> what stands there where no entry is, instead of 0; with `last` only
    """

    rows: tuple[int, ...]
    columns: tuple[int, ...]
    entries: tuple[int, ...]
    number: Callable[[Elements, Place], Index]
    entry: Callable[[Elements, Place, Place], str]
    place: Callable[[Place, Place], tuple[Any, ...]]
    last: bool = False
    start: Callable[[Elements, Place, Place], str] | None = None
