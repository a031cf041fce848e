"""The error of a cell, as its output has it for the front end beside the text."""

from __future__ import annotations

from typing import TypedDict

from .common import Location

ERROR = "application/vnd.hybrid-lab.error+json"
"""The type of the output."""


class CellError(TypedDict):
    """An error of this package that ended a cell.

    error : the name of its class; model, block : id of the model and path of its Block, "" and null if none is known
    name : what to call the Block, `net.features.3`; places : in the user's cells, the innermost first
    hidden : number of frames that the short traceback leaves out
    """

    error: str
    model: str
    block: str | None
    name: str
    places: list[Location]
    hidden: int
