"""Messages about model files, which the Jupyter server reads."""

from __future__ import annotations

from typing import Literal, TypedDict

from .common import Shape
from .differences import ComparedGraphs

DocumentKind = Literal["archive", "symbol", "arrays", "onnx", "unknown"]


class Fact(TypedDict):
    """One line about a file."""

    name: str
    text: str


class DocumentReply(TypedDict):
    """What a model file is. `has_model`: it has a tree.

    `code` loads it in a notebook, "" if nothing does: `FILE` stands for its path, and `BESIDE` for the path of the
    file `beside` in the same folder.
    """

    file: str
    host: str
    kind: DocumentKind
    title: str
    bytes: int
    modified: float
    facts: list[Fact]
    parts: int
    has_model: bool
    code: str
    beside: str
    problem: str
    next: str


class FilePart(TypedDict):
    """A tensor or another member of a file, after it was read. The numbers are computed from the finite elements."""

    name: str
    kind: Literal["tensor", "member"]
    shape: Shape | None
    dtype: str
    bytes: int
    state: Literal["verified", "read", "damaged"]
    digest: str
    minimum: float | None
    maximum: float | None
    mean: float | None
    nan: int
    inf: int
    problem: str


class ContentsReply(TypedDict):
    """Some of the parts of a file, and the number of the next one; -1 after the last."""

    parts: list[FilePart]
    next: int


class ContentsRequest(TypedDict):
    """The number of the first part to read."""

    start: int


class DifferenceLine(TypedDict):
    """What differs between two files in one place."""

    change: Literal["added", "removed", "changed", "same"]
    what: Literal["Block", "operator", "tensor", "file"]
    name: str
    text: str


class DifferenceReply(TypedDict):
    """What differs between two files. `count` is the number of all lines; `graphs`: null if a file has no model."""

    other: str
    summary: str
    count: int
    lines: list[DifferenceLine]
    graphs: ComparedGraphs | None


class DifferenceRequest(TypedDict):
    """The path of another file on the server."""

    other: str


class DifferingValuesRequest(TypedDict):
    """A tensor of this file, `first`, and of another file on the server, `second`; "" if it is missing."""

    other: str
    first: str
    second: str
