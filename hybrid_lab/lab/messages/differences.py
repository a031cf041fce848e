"""Messages about what differs between two models."""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

from .common import ModelRequest

ChangeKind = Literal["same", "added", "removed", "changed"]


class OperatorChange(TypedDict):
    """An operator of two graphs, side by side."""

    kind: ChangeKind
    block: str
    first: str
    second: str
    changes: list[str]
    first_place: int | None
    second_place: int | None
    line: str


class TensorChange(TypedDict):
    """A parameter that differs."""

    kind: ChangeKind
    name: str
    first: str
    second: str
    values: int
    changed: int
    largest: float | None
    scale: float | None
    text: str


class BlockChange(TypedDict):
    """A Block that differs, or whose operators or tensors do."""

    kind: ChangeKind
    path: str
    class_name: str
    changes: list[str]
    operators: list[OperatorChange]
    tensors: list[TensorChange]


class Difference(TypedDict):
    """What differs between two models."""

    equal: bool
    summary: str
    first: str
    second: str
    blocks: list[BlockChange]
    others: list[str]
    notes: list[str]


class CompareReply(TypedDict):
    """What differs between a file and a model."""

    path: str
    file: str
    host: str
    difference: Difference


class CompareRequest(ModelRequest):
    """The file to compare a model, or the Block at a path of it, with; or the file `other` in place of the model."""

    file: str
    path: NotRequired[str]
    other: NotRequired[str]
