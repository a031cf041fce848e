"""The boxes of a picture as a tree: Block calls, kernels and sessions, folds of alike Blocks, parts of large layers."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field

from hybrid_lab.diagnostics.formatting import visible
from hybrid_lab.lab.messages.common import Tensor
from hybrid_lab.lab.messages.graphs import BoxKind, GraphBox, GraphNode, NodeKind

LARGEST = 150
"""Members of one layer; one with more is cut into parts, since a picture is laid out layer by layer."""
_LABEL = 80
"""Characters of a label."""
_AT_THE_EDGE = 25
"""Inputs, and outputs, that stay beside the parts of a layer; if there are more, they are in parts too."""


@dataclass(eq=False)
class PlacedNode:
    """A node of the picture at its place.

    order : place in the order of execution; operators : 1 for an operator, else 0
    reads : (item, number of its output) for each edge that ends here
    """

    row: GraphNode
    box: Box
    order: float
    operators: int
    reads: list[tuple[PlacedNode, int]] = field(default_factory=list)


def add_node(
    box: Box, order: float, identity: str, kind: NodeKind, label: str, outputs: list[Tensor], block: str
) -> PlacedNode:
    """Put a node of the picture into a box. block : the path of the Block that it belongs to"""
    row: GraphNode = {
        "id": identity,
        "box": "",
        "kind": kind,
        "label": short(label),
        "op": "",
        "attributes": {},
        "inputs": [],
        "outputs": outputs,
        "badges": [],
        "block": block,
        "location": None,
        "engine": "",
    }
    item = PlacedNode(row, box, order, int(kind == "operator"))
    box.members.append(item)
    return item


@dataclass(eq=False)
class Box:
    """A frame. Most fields are fields of the protocol's GraphBox.

    members : what stands directly inside, in the order of execution once `arrange` ran
    order : of the last member, which comes after all that the box reads; the first one may be computed early
    """

    kind: BoxKind
    label: str = ""
    parent: Box | None = None
    class_name: str = ""
    block: str | None = None
    summary: str = ""
    text: str = ""
    notes: list[str] = field(default_factory=list)
    location: int | None = None
    copies: int = 1
    operators: int = 0
    order: float = 0.0
    id: str = ""
    members: list[Box | PlacedNode] = field(default_factory=list)
    inside: dict[Hashable, Box] = field(default_factory=dict)

    def chain(self) -> list[Box]:
        """This box and those around it, from the outermost on."""
        found = [self]
        while found[-1].parent is not None:
            found.append(found[-1].parent)
        return found[::-1]

    def items(self) -> Iterator[PlacedNode]:
        """All nodes inside, at all levels."""
        stack: list[Box | PlacedNode] = [self]
        while stack:
            member = stack.pop()
            if isinstance(member, PlacedNode):
                yield member
            else:
                stack += reversed(member.members)


def common_box(boxes: list[Box]) -> Box:
    """The innermost box around all `boxes`; one of the boxes, if it is around the others."""
    shared = boxes[0].chain()
    for box in boxes[1:]:
        if box is not shared[-1]:
            other = box.chain()
            length = next((n for n, pair in enumerate(zip(shared, other)) if pair[0] is not pair[1]), None)
            shared = shared[: min(len(shared), len(other)) if length is None else length]
    return shared[-1]


def arrange(box: Box) -> None:
    """Put the members of all layers into the order of execution, and count operators."""
    for inner in _children_first(box):
        inner.operators = sum(member.operators for member in inner.members)
        inner.members.sort(key=lambda member: member.order)
        inner.order = max((member.order for member in inner.members), default=0.0)


def fold(box: Box) -> None:
    """Put alike Blocks in a row into one box of kind `fold`, at all levels. Operators end a row; parameters, and other
    nodes that compute nothing, do not.
    """
    for inner in _children_first(box):
        runs: list[list[Box]] = []
        last: Box | None = None
        for member in inner.members:
            if isinstance(member, PlacedNode):
                last = None if member.operators else last
            elif last is not None and alike(last, member):
                runs[-1].append(member)
                last = member
            else:
                runs.append([member])
                last = member if member.kind == "block" else None
        folds = {run[0]: _folded(inner, run) for run in runs if len(run) > 1}
        gone = {box for run in runs for box in run[1:]}
        inner.members = [folds.get(member, member) for member in inner.members if member not in gone]  # type: ignore


def _folded(parent: Box, run: list[Box]) -> Box:
    label = f"{run[0].label} to {run[-1].label}"
    new = Box("fold", label, parent, run[0].class_name, copies=len(run), order=run[-1].order, members=[*run])
    new.operators, new.location = sum(copy.operators for copy in run), run[0].location
    for copy in run:
        copy.parent = new
    return new


def alike(one: Box, other: Box) -> bool:
    """Whether two boxes hold the same: boxes, operators, attributes, shapes, and edges between them.

    The boxes' own names do not count, and of an edge from outside counts only the type, and which edges come from the
    same place.
    """
    if (one.kind, one.class_name, one.operators) != (other.kind, other.class_name, other.operators):
        return False
    same: dict[PlacedNode, PlacedNode] = {}
    pairs: list[tuple[Box | PlacedNode, Box | PlacedNode]] = list(zip(one.members, other.members))
    if len(one.members) != len(other.members):
        return False
    while pairs:
        first, second = pairs.pop()
        if isinstance(first, PlacedNode) or isinstance(second, PlacedNode):
            if (
                not isinstance(first, PlacedNode)
                or not isinstance(second, PlacedNode)
                or not _alike_alone(first, second)
            ):
                return False
            same[first] = second
            continue
        if _look(first) != _look(second) or len(first.members) != len(second.members):
            return False
        pairs += zip(first.members, second.members)
    return _wired_alike(same)


def _look(box: Box) -> tuple[object, ...]:
    name = box.label if box.kind == "block" else ""
    return box.kind, name, box.class_name, box.summary, box.copies, box.operators


def _alike_alone(first: PlacedNode, second: PlacedNode) -> bool:
    """Whether two nodes are alike, apart from the edges."""
    one, other = first.row, second.row
    if any(one[key] != other[key] for key in ("kind", "op", "outputs", "engine")):
        return False
    if len(first.reads) != len(second.reads) or len(one["badges"]) != len(other["badges"]):
        return False
    for badge, counterpart in zip(one["badges"], other["badges"], strict=True):
        if badge["kind"] == "constant" and badge["name"] != counterpart["name"]:
            return False
        if (badge["kind"], badge["shape"], badge["dtype"]) != (
            counterpart["kind"], counterpart["shape"], counterpart["dtype"],
        ):  # fmt: skip
            return False
    return _settings(one) == _settings(other)


#: Attributes of a node that name others: they differ between two calls of equal code.
NAMING = frozenset({"part of", "updates", "gradient of", "parameter"})


def _settings(row: GraphNode) -> dict[str, str]:
    return {key: value for key, value in row["attributes"].items() if key not in NAMING}


def _wired_alike(same: dict[PlacedNode, PlacedNode]) -> bool:
    """Whether the edges of these pairs of nodes are alike."""
    outside: dict[tuple[PlacedNode, int], tuple[PlacedNode, int]] = {}
    back: dict[tuple[PlacedNode, int], tuple[PlacedNode, int]] = {}
    seconds = set(same.values())
    for first, second in same.items():
        for read, counterpart in zip(first.reads, second.reads, strict=True):
            inner = same.get(read[0])
            if inner is not None:
                if (inner, read[1]) != counterpart:
                    return False
                continue
            if counterpart[0] in seconds or _type(*read) != _type(*counterpart):
                return False
            if outside.setdefault(read, counterpart) != counterpart or back.setdefault(counterpart, read) != read:
                return False
    return True


def _type(item: PlacedNode, output: int) -> object:
    return item.row["outputs"][output]


def cut(box: Box) -> None:
    """Cut each layer that has more than `LARGEST` members into boxes of kind `part`, and their layers again."""
    for inner in _children_first(box):
        if len(inner.members) <= LARGEST:
            continue
        first, last = (_edge(inner, kind) for kind in ("input", "output"))
        edges = {*first, *last}
        rest = [member for member in inner.members if member not in edges]
        while len(first) + len(rest) + len(last) > LARGEST:
            rest = [*_parts(inner, rest)]
        inner.members = [*first, *rest, *last]


def _edge(box: Box, kind: str) -> list[Box | PlacedNode]:
    found: list[Box | PlacedNode] = [
        item for item in box.members if isinstance(item, PlacedNode) and item.row["kind"] == kind
    ]
    return found if len(found) <= _AT_THE_EDGE else []


def _parts(parent: Box, members: list[Box | PlacedNode]) -> Iterator[Box]:
    """Consecutive pieces of about equal size, with at most `LARGEST` members each: as few as that allows."""
    pieces = max(2, -(-len(members) // LARGEST))
    before = 0
    for number in range(pieces):
        piece = members[number * len(members) // pieces : (number + 1) * len(members) // pieces]
        operators = sum(member.operators for member in piece)
        label = f"operators {before + 1:,} to {before + operators:,}" if operators else f"part {number + 1} of {pieces}"
        blocks = [member for member in piece if isinstance(member, Box) and member.kind in ("block", "fold")]
        if len(blocks) * 2 > len(piece):
            label = _names(blocks)
        part = Box("part", label, parent, operators=operators, order=piece[-1].order, members=piece)
        before += operators
        for member in piece:
            if isinstance(member, Box):
                member.parent = part
            else:
                member.box = part
        yield part


def _names(blocks: list[Box]) -> str:
    """`layer0 to layer149`: the names of the first and the last of Blocks in a row."""
    first, last = blocks[0].label.partition(" to ")[0], blocks[-1].label.rpartition(" to ")[2]
    return first if first == last else f"{first} to {last}"


def _children_first(box: Box) -> list[Box]:
    """The box and all inside it, each after its children."""
    found, stack = [], [box]
    while stack:
        inner = stack.pop()
        found.append(inner)
        stack += [member for member in inner.members if isinstance(member, Box)]
    return found[::-1]


# -- records ----------------------------------------------------------------------------------------------------------


def write(top: Box) -> tuple[list[GraphBox], list[GraphNode]]:
    """Arrange, fold and cut the tree of boxes, and take it apart into the records of boxes and nodes, both in the order
    of execution. The boxes get their ids.
    """
    arrange(top)
    fold(top)
    cut(top)
    items: list[PlacedNode] = []
    records: dict[Box, GraphBox] = {}
    stack: list[Box | PlacedNode] = [*reversed(top.members)]
    while stack:
        member = stack.pop()
        if isinstance(member, PlacedNode):
            items.append(member)
            member.row["box"] = member.box.id
            member.row["inputs"] = [{"node": source.row["id"], "output": output} for source, output in member.reads]
            continue
        member.id = f"b{len(records)}"
        records[member] = _record(member)
        stack += reversed(member.members)
    outputs: dict[Box, dict[tuple[PlacedNode, int], None]] = {}
    for item in items:
        for source, output in item.reads:
            if source.box is not item.box and source.row["kind"] != "input":
                _leave(source, output, item, outputs)
    for box, values in outputs.items():
        if box in records:
            records[box]["outputs"] = [source.row["outputs"][output] for source, output in values]
    for box, record in records.items():
        if record["location"] is None:
            places = (item.row["location"] for item in box.items())
            record["location"] = next((place for place in places if place is not None), None)
    nodes = [item.row for item in sorted(items, key=lambda item: item.order)]
    for box in (top, *records):  # no cycles are left, which would wait for Python's garbage collector
        box.members, box.inside = [], {}
    return list(records.values()), nodes


def _leave(
    source: PlacedNode, output: int, reader: PlacedNode, outputs: dict[Box, dict[tuple[PlacedNode, int], None]]
) -> None:
    """Note a value as an output of the boxes that its edge leaves."""
    around = {id(box) for box in reader.box.chain()}
    box: Box | None = source.box
    while box is not None and id(box) not in around:
        outputs.setdefault(box, {})[source, output] = None
        box = box.parent


def _record(box: Box) -> GraphBox:
    return {
        "id": box.id,
        "parent": "" if box.parent is None else box.parent.id,
        "kind": box.kind,
        "label": short(box.label),
        "class": box.class_name,
        "block": box.block,
        "copies": box.copies,
        "operators": box.operators,
        "summary": box.summary,
        "text": box.text,
        "notes": box.notes,
        "outputs": [],
        "location": box.location,
    }


def short(label: str) -> str:
    """A label without invisible characters, cut if it is long."""
    label = visible(label)
    return label if len(label) <= _LABEL else f"{label[: _LABEL - 1]}…"
