"""The contents of an overlay: a cell for each node and box, and the texts beside the picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hybrid_lab.insight.summary import Summary, number
from hybrid_lab.lab.messages.measured import MeasuredOn, Moment, StepMoment

SLOWEST = 5
NOT_FINITE = "NaN or infinite"
BY_CHANCE = "may come from the random numbers alone"


@dataclass
class Cell:
    """The measurement of one node or box. value : the number; eager : seconds in eager mode

    short : the number as text; text : in words, "" where `short` says all
    """

    value: float | None = None
    eager: float | None = None
    short: str = ""
    text: str = ""
    bad: bool = False


@dataclass
class Overlay:
    """cells : by id of the picture
    total : the value that is 100 % in shares; None for the largest value of an operator
    """

    unit: str
    measured_on: MeasuredOn = ""
    cells: dict[str, Cell] = field(default_factory=dict)
    total: float | None = None
    headline: str = ""
    marked: list[str] = field(default_factory=list)
    timeline: list[Moment] = field(default_factory=list)
    step: list[StepMoment] = field(default_factory=list)
    missing: str = ""


def values_cell(summaries: Sequence[Summary], by_chance: bool) -> Cell:
    """The values of one operator's outputs. by_chance : whether they come from random numbers"""
    ends = [abs(end) for each in summaries for end in (each.minimum, each.maximum) if end is not None]
    text = "; ".join(map(str, summaries))
    cell = Cell(max(ends, default=None), None, _range(summaries[0]), text, not all(each.finite for each in summaries))
    if cell.bad:
        cell.short = f"{NOT_FINITE}, random inputs" if by_chance else NOT_FINITE
        cell.text += f" ({BY_CHANCE})" if by_chance else ""
    return cell


def _range(summary: Summary) -> str:
    """`-1.2 to 3.4`, of the finite values."""
    if summary.minimum is None or summary.maximum is None:
        return str(summary)
    return f"{number(summary.minimum)} to {number(summary.maximum)}"
