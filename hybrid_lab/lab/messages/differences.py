"""Messages about what differs between two models."""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

from .common import ModelRequest

ChangeKind = Literal["same", "added", "removed", "changed"]


class OperatorChange(TypedDict):
    """An operator of two graphs, side by side.

    block : path of its Block in the second model, of one that is in the first only there
    first_block : path of its Block in the first model, "" where it is missing
    first_place, second_place : its number among the operators of its Block
    """

    kind: ChangeKind
    block: str
    first: str
    second: str
    changes: list[str]
    first_place: int | None
    second_place: int | None
    line: str
    first_block: str


class TensorChange(TypedDict):
    """A parameter that differs. `first_name`: what the first model calls it, where that is something else."""

    kind: ChangeKind
    name: str
    first: str
    second: str
    values: int
    changed: int
    largest: float | None
    scale: float | None
    first_name: str
    text: str


class BlockChange(TypedDict):
    """A Block that differs, or whose operators or tensors do.

    changes : what changed in the Block itself, its place included; move : how its place differs
    first_path, second_path : its place in each model, null where it is missing
    """

    kind: ChangeKind
    path: str
    class_name: str
    changes: list[str]
    operators: list[OperatorChange]
    tensors: list[TensorChange]
    move: Literal["", "renamed", "moved"]
    first_path: str | None
    second_path: str | None


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
