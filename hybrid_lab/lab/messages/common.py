"""Records and types that the messages of several subjects share."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

LongText = Annotated[str, "long text"]
"""In a request, a string that may be longer than a name or a path."""
NodeId = Annotated[str, "node id"]
"""Letters, digits and underscores, at most 64: the name of a node in DOT text."""
Shape = list[int | None]
JsonObject = dict[str, Any]
"""A message or its body on the way in or out, not checked or no longer needed as a record."""
WithClass = TypedDict("WithClass", {"class": str})
"""The field `class`, which is a keyword of Python."""


class Tensor(TypedDict):
    """Shape and dtype of an output."""

    shape: Shape | None
    dtype: str


class Span(TypedDict):
    """Lines from 1, columns in characters from 0; the end is exclusive."""

    line: int
    col: int
    end_line: int
    end_col: int


class Location(Span):
    """A place in the user's code."""

    file: str
    label: str
    cell: int | None
    cell_id: str


class EmptyRequest(TypedDict):
    """A request without fields."""


class ModelRequest(TypedDict):
    """A request about a model."""

    model: str
