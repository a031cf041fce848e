"""Messages about what differs between two models."""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

from .common import ModelRequest, NodeId
from .graphs import GraphReply
from .measured import ValuesReply

ChangeKind = Literal["same", "added", "removed", "changed"]


class OperatorChange(TypedDict):
    """An operator of two graphs, side by side.

    block : path of its Block in the second model; in the first model, if only the first has the operator
    first_block : path of its Block in the first model, "" if it is missing
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
    """A parameter that differs.

    first_name : its name in the first model, if different
    exchanged : the parameter that had these numbers in the first model, if Blocks changed places, else ""
    """

    kind: ChangeKind
    name: str
    first: str
    second: str
    values: int
    changed: int
    largest: float | None
    scale: float | None
    first_name: str
    exchanged: NotRequired[str]
    text: str


class BlockChange(TypedDict):
    """A Block that differs, or whose operators or tensors do.

    changes : what changed in the Block itself, its place included; move : how its place differs
    first_path, second_path : its place in each model, null if it is missing
    exchange : in words, which Block of equal structure changed places with it, as the numbers say; else ""
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
    exchange: NotRequired[str]


class Difference(TypedDict):
    """What differs between two models."""

    equal: bool
    summary: str
    first: str
    second: str
    blocks: list[BlockChange]
    others: list[str]
    notes: list[str]


class ComparedItem(TypedDict):
    """A node or box of one picture, and its partner in the other picture.

    first, second : their ids in the two graphs, null if it is missing
    kind : how the item itself differs. `values`: only numbers do
    changes : the differences, one text each; block : path of its Block, in the second model if it is there
    """

    first: NodeId | None
    second: NodeId | None
    kind: Literal["same", "added", "removed", "changed", "values"]
    changes: list[str]
    block: str


class ComparedGraphs(TypedDict):
    """The graphs of two models side by side.

    first, second : the picture of each, as `graph` has them; items : in the order of the second picture, a removed one
        where it was. A node or box that is in no item is not compared
    """

    first: GraphReply
    second: GraphReply
    items: list[ComparedItem]


class CompareReply(TypedDict):
    """What differs between a file and a model; `graphs` if they were asked for."""

    path: str
    file: str
    host: str
    difference: Difference
    graphs: NotRequired[ComparedGraphs | None]


class CompareRequest(ModelRequest):
    """The file to compare a model, or the Block at a path of it, with; or the file `other` in place of the model.

    graphs : whether the graphs are wanted side by side
    """

    file: str
    path: NotRequired[str]
    other: NotRequired[str]
    graphs: NotRequired[bool]


class ComparedValuesReply(TypedDict):
    """The numbers of a parameter on both sides; null if it is missing."""

    first: ValuesReply | None
    second: ValuesReply | None


class ComparedValuesRequest(CompareRequest):
    """Which parameter: its name in the first and in the second model, "" if it is missing. `graphs` has no use."""

    first: str
    second: str
