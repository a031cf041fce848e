"""Two models side by side: the pictures of their graphs, and which nodes and boxes of them are the same.

What belongs together, and what differs, is what `mx.diff` found (`archive.compare_sides`); here it gets the ids of the
pictures.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, cast

from hybrid_lab.diagnostics.formatting import visible, visible_lines
from hybrid_lab.formats import archive
from hybrid_lab.gluon.block import Block
from hybrid_lab.insight.difference import BlockDifference, TensorDifference
from hybrid_lab.insight.facets import facets
from hybrid_lab.lab.messages.differences import ComparedGraphs, ComparedItem, ComparedValuesReply
from hybrid_lab.lab.messages.graphs import GraphNode, GraphReply
from hybrid_lab.lab.messages.measured import ValuesReply
from hybrid_lab.lab.picture.graph_view import drawn
from hybrid_lab.lab.picture.nodes import Picture
from hybrid_lab.lab.picture.plain_block import Whole
from hybrid_lab.ndarray.creation import array

_HELD = ("parameter", "aux", "constant")
"""Kinds of nodes that belong to a graph, whether it was called or not."""

_Kind = Literal["same", "added", "removed", "changed", "values"]


def compared_graphs(compared: archive.Compared, first: Block, second: Block) -> ComparedGraphs:
    """The pictures of two models, and what of them belongs together.

    compared : the comparison of the two, of which one or both may be in files: then the Block is `archive.structure`
    """
    return _Pictures(compared, _Drawn(first, 0), _Drawn(second, 1)).reply()


def compared_values(one: archive.Side, two: archive.Side, first: str, second: str) -> ComparedValuesReply:
    """The numbers of a parameter by its id on both sides, "" if it is missing."""
    return {"first": _values(one, first), "second": _values(two, second)}


def _values(side: archive.Side, name: str) -> ValuesReply | None:
    found = side.array(name) if name in side.tree.parameters else None
    if found is None:
        return None
    data = facets(array(found, dtype=found.dtype), visible(name)).data()
    return cast(ValuesReply, data | {"text": visible_lines(data["text"]), "missing": ""})


class _Drawn:
    """The picture of one side.

    parts : the pictures of single graphs in it, by the path of the Block, in order
    is_called : whether the arrays that flowed between the parts are known
    """

    def __init__(self, net: Block, side: int):
        self.side = side
        self.reply, picture = drawn(net, "", "traced")
        self.parts: dict[str, list[Picture]] = defaultdict(list)
        self.is_called = not isinstance(picture, Whole) or picture.is_called
        if isinstance(picture, Whole):
            for part in picture.parts:
                if part.net is net:
                    self.parts[part.path].append(part.picture)
        elif picture is not None:
            self.parts[""].append(picture)
        self.nodes = {node["id"]: node for node in self.reply["nodes"]}


@dataclass
class _PairDifference:
    """What is known of a pair of nodes or boxes."""

    first: str | None
    second: str | None
    kind: _Kind
    changes: list[str]
    block: str


class _Pictures:
    """The items of two pictures: boxes, operators, and the other nodes."""

    def __init__(self, compared: archive.Compared, one: _Drawn, two: _Drawn):
        self.compared, self.matching = compared, compared.matching
        self.one, self.two = one, two
        self.items: list[_PairDifference] = []
        self._seen: tuple[set[str], set[str]] = set(), set()
        tensors = compared.difference.tensors
        self._tensors = {tensor.name: tensor for tensor in tensors if tensor.kind != "removed"}
        self._removed = {tensor.name: tensor for tensor in tensors if tensor.kind == "removed"}
        self._blocks = {(block.first_path, block.second_path): block for block in compared.difference.blocks}

    def reply(self) -> ComparedGraphs:
        """The body of the reply; nothing is matched if one of the pictures is empty."""
        if self.one.nodes and self.two.nodes:
            self._match_boxes()
            self._match_operators()
            self._match_others()
        items: list[ComparedItem] = [
            {
                "first": item.first,
                "second": item.second,
                "kind": item.kind,
                "changes": [visible(text) for text in item.changes],
                "block": visible(item.block),
            }
            for item in self._in_order()
        ]
        return {"first": self.one.reply, "second": self.two.reply, "items": items}

    def _add(self, first: str | None, second: str | None, kind: _Kind, changes: list[str], block: str) -> None:
        for identity, seen in zip((first, second), self._seen, strict=True):
            if identity is not None:
                seen.add(identity)
        self.items.append(_PairDifference(first, second, kind, changes, block))

    # -- boxes --------------------------------------------------------------------------------------------------------

    def _match_boxes(self) -> None:
        """The boxes of calls of Blocks: the n-th call of a Block with the n-th of its partner."""
        partner = self.matching.in_second
        ours = _by_key(self.one.reply, partner)
        theirs = _by_key(self.two.reply, lambda path: path)
        for key, (second, block) in theirs.items():
            found = ours.pop(key, None)
            before = self.matching.back.get(block) if found is None else found[1]
            difference = self._blocks.get((before, block))
            if found is None:
                self._add(None, second, "added", [], block)
            else:
                changes = _own_changes(difference)
                is_exchange = difference is not None and changes == [difference.exchange]
                self._add(
                    found[0], second, "values" if is_exchange else "changed" if changes else "same", changes, block
                )
        for first, block in ours.values():
            self._add(first, None, "removed", [], block)

    # -- operators ----------------------------------------------------------------------------------------------------

    def _match_operators(self) -> None:
        for pair in self.compared.graphs:
            parts = [drawn.parts.get(path, []) for drawn, path in zip((self.one, self.two), pair.paths, strict=True)]
            if pair.numbers != (0, 0):
                continue  # another variant of the graph, not the one drawn
            for mine, other in zip(*parts):
                ids = mine.operator_ids, other.operator_ids
                counts = [
                    len({number for numbers in pair.operators if (number := numbers[side]) is not None})
                    for side in (0, 1)
                ]
                if counts != [len(ids[0]), len(ids[1])]:
                    continue
                for row, numbers in zip(pair.rows, pair.operators, strict=True):
                    first, second = (
                        None if number is None else own[number] for own, number in zip(ids, numbers, strict=True)
                    )
                    self._add_node(first, second, row.kind, row.changes, row.block)

    def _add_node(self, first: str | None, second: str | None, kind: _Kind, changes: Sequence[str], block: str) -> None:
        """A pair of nodes, with what differs in the parameters that they read."""
        texts = [*changes]
        for tensor in self._tensors_of(first, second):
            name = tensor.name.rpartition(".")[2]
            texts.append(f"{name} {tensor.text}" if tensor.kind == "changed" else f"{name}: {tensor.kind}")
            if kind != "changed":
                kind = "values" if tensor.kind == "changed" and tensor.first == tensor.second else "changed"
        self._add(first, second, kind, texts, block)

    def _tensors_of(self, first: str | None, second: str | None) -> list[TensorDifference]:
        """What differs in the parameters of two nodes that are the same."""
        if first is None or second is None:
            return []
        found = [self._tensors.get(name) for name in _parameters(self.two.nodes[second])]
        found += [self._removed.get(name) for name in _parameters(self.one.nodes[first])]
        return [tensor for tensor in found if tensor is not None]

    # -- inputs, outputs, parameters of several operators, and what stands between graphs ------------------------------

    def _match_others(self) -> None:
        ours, theirs = (
            self._keys(drawn, to_second)
            for drawn, to_second in ((self.one, self.matching.in_second), (self.two, lambda path: path))
        )
        tells = self.one.is_called and self.two.is_called
        for key, second in theirs.items():
            first = ours.pop(key, None)
            node = self.two.nodes[second]
            if first is not None or tells or node["kind"] in _HELD:
                self._add_node(first, second, "added" if first is None else "same", [], node["block"])
        for first in ours.values():
            node = self.one.nodes[first]
            if tells or node["kind"] in _HELD:
                self._add_node(first, None, "removed", [], node["block"])

    def _keys(self, drawn: _Drawn, to_second: Callable[[str], str]) -> dict[tuple[object, ...], str]:
        """The nodes without a partner, by a key that is equal for equal nodes."""
        counts: Counter[tuple[object, ...]] = Counter()
        keys: dict[tuple[object, ...], str] = {}
        for identity, node in drawn.nodes.items():
            if identity in self._seen[drawn.side]:
                continue
            path = node["attributes"].get("parameter", "")
            if path and drawn.side == 0:
                path = self.matching.parameter_in_second(path)
            shape = (str(node["outputs"]), node["label"]) if node["kind"] == "constant" else ()
            key = node["kind"], node["op"], path, "" if path else to_second(node["block"]), shape
            counts[key] += 1
            keys[*key, counts[key]] = identity
        return keys

    # -- the order ----------------------------------------------------------------------------------------------------

    def _in_order(self) -> Iterator[_PairDifference]:
        """The items in the order of the second picture; a removed item stands behind its predecessor in the first."""
        places = [
            {row["id"]: place for place, row in enumerate(_in_reading_order(drawn.reply))}
            for drawn in (self.one, self.two)
        ]
        by_first = {item.first: item for item in self.items if item.first is not None}
        behind: dict[int, int] = {}
        last = -1
        for identity in places[0]:
            item = by_first.get(identity)
            if item is not None and item.second is not None:
                last = places[1][item.second]
            elif item is not None:
                behind[id(item)] = last

        def order(item: _PairDifference) -> tuple[int, int]:
            if item.second is not None:
                return places[1][item.second], -1
            return behind[id(item)], places[0][item.first or ""]

        yield from sorted(self.items, key=order)


def _in_reading_order(reply: GraphReply) -> Iterator[dict[str, str]]:
    """The nodes in order, each box before the first node in it."""
    boxes = {box["id"]: box for box in reply["boxes"]}
    told: set[str] = set()
    for node in reply["nodes"]:
        around = []
        box = node["box"]
        while box and box not in told:
            told.add(box)
            around.append(boxes[box])
            box = boxes[box]["parent"]
        yield from reversed(around)  # type: ignore[misc]
        yield node  # type: ignore[misc]
    yield from (box for box in reply["boxes"] if box["id"] not in told)  # type: ignore[misc]


def _by_key(reply: GraphReply, to_second: Callable[[str], str]) -> dict[tuple[str, int], tuple[str, str]]:
    """Path of a Block and number of the call -> id and path of its box."""
    counts: Counter[str] = Counter()
    found: dict[tuple[str, int], tuple[str, str]] = {}
    for box in reply["boxes"]:
        if box["kind"] == "block" and box["block"] is not None:
            path = to_second(box["block"])
            counts[path] += 1
            found[path, counts[path]] = box["id"], box["block"]
    return found


def _own_changes(difference: BlockDifference | None) -> list[str]:
    """The changes of a Block itself; the operators show changes of its graph."""
    if difference is None:
        return []
    return [text for text in difference.all_changes if not text.startswith("graph: ")]


def _parameters(node: GraphNode) -> list[str]:
    """The paths of the parameters that a node reads, or is."""
    own = [node["attributes"]["parameter"]] if "parameter" in node["attributes"] else []
    return own + [badge["path"] for badge in node["badges"] if badge["path"]]
