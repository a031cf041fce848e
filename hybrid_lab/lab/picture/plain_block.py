"""The picture of a plain Block: the Blocks that its last call called, each with its own graph, and what flowed between.

A plain Block runs as Python and has no graph. The record of its calls (`gluon/call_record.py`) tells the Blocks and
operators that it called; the graphs of these Blocks tell the computation.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from hybrid_lab.diagnostics.formatting import called, count, visible
from hybrid_lab.diagnostics.location import Location
from hybrid_lab.gluon import access
from hybrid_lab.gluon.block import Block
from hybrid_lab.gluon.call_record import ArraySource, Record, RecordedCall, Types, last_record
from hybrid_lab.gluon.hybrid import HybridBlock
from hybrid_lab.insight.states import blocks_below, class_name
from hybrid_lab.lab.messages.common import Location as LocationData
from hybrid_lab.lab.messages.graphs import GraphBox, GraphNode, GraphProgram, Half, NodeKind
from hybrid_lab.lab.models.groups import BlockGroup
from hybrid_lab.lab.models.tree import tensor
from hybrid_lab.lab.picture.boxes import Box, PlacedNode, add_node, write
from hybrid_lab.lab.picture.hybrid_block import chosen, hybrid_programs
from hybrid_lab.lab.picture.nodes import DrawnGraph, Picture
from hybrid_lab.lab.picture.programs import SelectorEntry, Shown, entry, parameter_paths, updates
from hybrid_lab.lab.places import located
from hybrid_lab.system.memory import without_collecting

_REPEATS = 8
"""Calls of one Block, or of one operator of one line, that stand beside one another; more are drawn as one."""
_DEPTH = 50
"""Blocks inside one another that are drawn where one calls itself."""
_DRAWN = 5000
"""Calls of Blocks that are drawn with what is in them."""
_CHILDREN = 1000
"""Children of one Block that are drawn where it was not called."""
_ATTRIBUTE = 2000
"""Characters of an attribute."""

Graphs = Literal["ran", "traced"]
"""Which graphs are drawn: the graphs that ran, or the traced graphs of the code."""
RAN: Final = "calls"
"""Ids of the two programs of a plain Block. The second begins as that of a HybridBlock's traced graph does."""
TRACED: Final = "traced"

_Value = tuple[PlacedNode, int]
"""An output of a node."""


def plain_programs(net: Block, path: str, block: Block) -> list[SelectorEntry] | str:
    """The pictures of the plain Block at a path: its last call, with the graphs of the code and with the graphs that
    ran; or the reason why there is none.
    """
    record = last_record(block)
    if record is None and not access.children(block):
        kind = class_name(block)
        return f"{called(block)} is a {kind}, not a HybridBlock: it has no graph. Call it once to see what it calls."
    half, label = _words(record)
    if isinstance(block, BlockGroup) and record is not None:
        half, label = "forward" if any(item.recording for item in record.items) else "predict", "calls of the last cell"
    traced = SelectorEntry(
        entry(TRACED, "what it calls, as traced", "traced"), lambda: _show(net, path, block, "traced")
    )
    ran = SelectorEntry(entry(RAN, label, half), lambda: _show(net, path, block, "ran"))
    return [traced, ran, *updates(block)]


def _words(record: Record | None) -> tuple[Half, str]:
    """Half and label of the program with the graphs that ran."""
    if record is None:
        return "predict", "what it consists of"
    shapes = ", ".join(str(tuple(shape)) for shape, _ in record.inputs)
    mode = "training" if record.training else "predict"
    when = "last call before the save" if record.is_saved else "last call"
    return ("forward" if record.recording else "predict"), f"{when}, {mode} {shapes}".rstrip()


def _show(net: Block, path: str, block: Block, graphs: Graphs) -> Shown:
    with without_collecting(collect=False):
        whole = Whole(net, path, block, graphs)
    if not whole.nodes:
        kind = class_name(block)
        return Shown(None, missing=f"The last call of {called(block)}, a {kind}, called no Block and no operator.")
    return Shown(whole, whole.summary, failed=whole.failed)


@dataclass
class BlockPicture:
    """A Block's own graph in the picture of the whole: its program `entry`, drawn with the ids of the whole.

    net, path : the place of the Block; a Block outside the model's tree stands for itself
    """

    net: Block
    path: str
    block: HybridBlock
    entry: GraphProgram
    picture: Picture


class Whole:
    """Nodes and boxes of the last call of the plain Block `block`, which stands at `path` in `net`.

    nodes, boxes, locations : as in the protocol; parts : the graphs of the HybridBlocks; eager : the operators between
        them, each as its node and as it was called
    summary : in one line; text : the calls, a line each; failed : the line where the call failed
    is_called : whether a call is known; without one the children are drawn, and nothing between them
    """

    def __init__(self, net: Block, path: str, block: Block, graphs: Graphs):
        self.net, self.path, self._graphs = net, path, graphs
        self._labels = net.labels if isinstance(net, BlockGroup) else {}
        self._paths = {id(each): above for above, each in reversed(blocks_below(net))}
        self._parameters = parameter_paths(net)
        self._order = 0.0
        self._top = Box("part")
        self._lines: list[str] = []
        self._calls = self._operators = 0
        self._running: list[tuple[Block, Record | None]] = []
        self._joined: list[list[_Value]] = []  # per array of the running call, what it was made from, if known
        self.locations: list[LocationData] = []
        self._places: dict[Location, int] = {}
        self.parts: list[BlockPicture] = []
        self.eager: list[tuple[GraphNode, RecordedCall]] = []
        self.failed: Location | None = None
        record = last_record(block)
        self.is_called = record is not None
        self._more = "+" if isinstance(block, BlockGroup) and record is not None and not record.is_whole else ""
        if record is None:
            self._tree(block, path, self._top)
        else:
            self._call_of_top(block, record)
        self.nodes: list[GraphNode] = []
        self.boxes: list[GraphBox] = []
        self._write()
        self.summary = self._in_words(record)
        self.text = "\n".join(self._lines)

    # -- the calls ----------------------------------------------------------------------------------------------------

    def _call_of_top(self, block: Block, record: Record) -> None:
        names = _names_of_inputs(block, len(record.inputs))
        inputs = [self._add("input", name, self._top, [each]) for name, each in zip(names, record.inputs, strict=True)]
        results = self._run(block, self.path, self._top, record, [(item, 0) for item in inputs])
        several = len(results) > 1
        for number, (value, each) in enumerate(zip(results, record.gives, strict=True)):
            item = self._add("output", f"output {number}" if several else "output", self._top, [each])
            item.reads = [] if value is None else [value]

    def _run(
        self, block: Block, path: str, box: Box, record: Record, inputs: Sequence[_Value | None]
    ) -> list[_Value | None]:
        """Draw the calls of the plain Block at `path` into its box; returns its results."""
        totals = Counter(map(_same, record.items))
        numbers: Counter[object] = Counter()
        first: dict[object, Sequence[_Value | None]] = {}
        given: list[Sequence[_Value | None]] = []

        def find(source: ArraySource | None) -> _Value | None:
            if source is None:
                return None
            values = inputs if source.item < 0 else given[source.item] if source.item < len(given) else ()
            return values[source.output] if source.output < len(values) else None

        self._running.append((block, record))
        for item in record.items:
            key, sources = _same(item), [find(source) for source in item.inputs]
            numbers[key] += 1
            if totals[key] > _REPEATS and key in first:
                given.append(first[key])
                continue
            count_of = totals[key] if totals[key] > _REPEATS else item.times if item.times > 1 else 0
            if item.block is None:
                given.append(self._operator(item, path, box, sources, count_of))
            else:
                alone = totals[key] == 1
                self._joined = [[value for each in found if (value := find(each))] for found in item.joined]
                given.append(self._block(item, block, path, box, sources, numbers[key], count_of, alone, record.error))
                self._joined = []
            first[key] = given[-1]
        self._running.pop()
        return [find(source) for source in record.outputs]

    def _operator(
        self, item: RecordedCall, path: str, box: Box, sources: Sequence[_Value | None], repeats: int
    ) -> list[_Value | None]:
        node = self._add("operator", item.name, box, item.gives or ())
        row = node.row
        row["op"], row["block"], row["location"] = item.name, path, self._place(item.location)
        row["attributes"] = {key: visible(str(value))[:_ATTRIBUTE] for key, value in item.attributes.items()}
        if repeats:
            row["attributes"]["called"] = f"{repeats} times"
        node.reads = [source for source in sources if source is not None]
        self._operators += 1
        self.eager.append((row, item))
        self._line(box, item.name, "", item)
        return [(node, number) for number in range(len(item.gives or ()))]

    def _block(
        self,
        item: RecordedCall,
        caller: Block,
        path: str,
        around: Box,
        sources: Sequence[_Value | None],
        number: int,
        repeats: int,
        alone: bool,
        error: str,
    ) -> Sequence[_Value | None]:
        """A Block that was called. number : of its call; repeats : how many calls this one stands for, or 0

        alone : it is the only one; error : of the call around
        """
        assert item.block is not None
        block = item.block()
        self._calls += max(repeats, 1)
        if block is None:
            label = f"{item.name}, no part of the model" if item.name else "a Block that is gone"
            self._line(around, label, "", item)
            return self._node(visible(label), path, around, sources, item, {})
        inner_path = self._path(block, caller, path)
        name = block.name if inner_path is None else self._labels.get(inner_path) or inner_path.rpartition(".")[2]
        label = f"{name} ({number})" if number > 1 else name
        label += f", {repeats}{self._more} calls" if repeats else ""
        place = self._place(item.location)
        box = Box("block", visible(label), around, visible(class_name(block)), inner_path, location=place)
        if item.gives is None:
            self.failed = self.failed or item.location
            box.label, box.summary = visible(f"{label}: failed"), visible(f"failed: {error}"[:_ATTRIBUTE])
            box.notes = [visible(error)]
        self._line(around, box.label, box.class_name, item)
        before = self._order
        drawn: Sequence[_Value | None] | str
        if self._calls > _DRAWN:
            drawn = f"what is in the calls after the first {_DRAWN:,} is not drawn"
        elif isinstance(block, HybridBlock):
            drawn = self._graph(block, inner_path, path, box, item, sources)
        else:
            drawn = self._plain(block, inner_path or path, box, item, sources, alone)
        if not isinstance(drawn, str) and box.members:
            around.members.append(box)
            return drawn
        self._order = before
        why = drawn if isinstance(drawn, str) else "it called no Block and no operator that is known"
        return self._node(box.label, inner_path or path, around, sources, item, {
            "class": box.class_name, "no graph": visible(why)[:_ATTRIBUTE],
        })  # fmt: skip

    def _plain(
        self,
        block: Block,
        path: str,
        box: Box,
        item: RecordedCall | None,
        sources: Sequence[_Value | None],
        alone: bool = True,
    ) -> Sequence[_Value | None] | str:
        around = [record for each, record in self._running if each is block]
        alone = alone and not around
        record = last_record(block) if alone or item is None else item.inside
        if around and (record is None or record in around or len(self._running) > _DEPTH):
            return "it calls itself"
        if record is None:
            self._tree(block, path, box)
            return ()
        types = record.inputs
        names = _names_of_inputs(block, len(types))
        inputs: list[_Value | None] = [*sources][: len(types)] + [None] * (len(types) - len(sources))
        for number, value in enumerate(inputs):
            if value is None and _is_read(record, number):
                node = self._add("input", names[number], box, [types[number]])
                node.reads = self._joined[number] if number < len(self._joined) else []
                inputs[number] = node, 0
        self._joined = []
        return self._run(block, path, box, record, inputs)

    def _tree(self, block: Block, path: str, box: Box) -> None:
        """The children of a Block that was not called, in their order."""
        self._running.append((block, None))
        for name, child in tuple(access.children(block).items())[:_CHILDREN]:
            inner_path = f"{path}.{name}" if path else name
            inner = Box("block", visible(name), box, visible(class_name(child)), inner_path)
            drawn: Sequence[_Value | None] | str
            if isinstance(child, HybridBlock):
                drawn = self._graph(child, inner_path, path, inner, None, ())
            else:
                drawn = self._plain(child, inner_path, inner, None, ())
            self._lines.append(f"{'  ' * (len(box.chain()))}{visible(name)}: {inner.class_name}")
            if not isinstance(drawn, str) and inner.members:
                box.members.append(inner)
            else:
                why = drawn if isinstance(drawn, str) else "it was not called, and has no children"
                facts = {"class": inner.class_name, "no graph": visible(why)[:_ATTRIBUTE]}
                self._node(visible(name), inner_path, box, (), None, facts)
        self._running.pop()

    # -- one Block ----------------------------------------------------------------------------------------------------

    def _path(self, block: Block, caller: Block, path: str) -> str | None:
        """Path of a called Block in the model: below its caller, if it is there; None if it is not in the tree."""
        below = next((name for name, child in access.children(caller).items() if child is block), None)
        if below is None:
            return self._paths.get(id(block))
        return f"{path}.{below}" if path else below

    def _graph(
        self,
        block: HybridBlock,
        path: str | None,
        around: str,
        box: Box,
        item: RecordedCall | None,
        sources: Sequence[_Value | None],
    ) -> list[_Value | None] | str:
        """Draw the Block's graph into its box; or say why there is none. around : path of the caller"""
        net, own = (self.net, path) if path is not None else (block, "")
        found = hybrid_programs(net, own, block, self._parameters if path is not None else None)
        if isinstance(found, str):
            return found
        choice = self._choose(found, block, item)
        shown = choice.show()
        if not isinstance(shown.program, DrawnGraph):
            return shown.missing or "it has no graph"
        picture = Picture(shown.program, net, own, box)
        self.parts.append(BlockPicture(net, own, block, choice.entry, picture))
        moved = len(self.locations)
        self.locations += picture.locations
        for node in box.items():
            node.order += self._order + 1
            if node.row["location"] is not None:
                node.row["location"] += moved
            if path is None:
                _as_foreign(node.row, around)
        if path is None:
            for inner in _boxes_in(box):
                inner.block = None
        self._order += len(shown.program.graph.nodes) + 3
        for number, node in picture.entries.items():
            if number < len(self._joined) and (number >= len(sources) or sources[number] is None):
                node.reads = self._joined[number]
        return _splice(picture, box, sources)

    def _choose(self, found: list[SelectorEntry], block: HybridBlock, item: RecordedCall | None) -> SelectorEntry:
        """The program of the Block that ran in the call, or the graph of its code."""
        if self._graphs == "traced":
            return next((choice for choice in found if choice.entry["half"] == "traced"), found[0])
        if item is not None:
            for compilation in reversed(tuple(access.calls(block).compilations)):
                if compilation.program is None or compilation.signature is None:
                    continue
                _, types, training, recording, *_ = compilation.signature[0]
                if (tuple(types), training, recording) == (item.takes, item.training, item.recording):
                    return chosen(found, f"p{compilation.number}:forward")
        return chosen(found, "")

    # -- nodes --------------------------------------------------------------------------------------------------------

    def _add(self, kind: NodeKind, label: str, box: Box, types: Types | Sequence[tuple[object, object]]) -> PlacedNode:
        self._order += 1
        outputs = [tensor(shape, dtype) for shape, dtype in types]  # type: ignore[arg-type]
        return add_node(box, self._order, "", kind, label, outputs, self.path)

    def _node(
        self,
        label: str,
        path: str,
        box: Box,
        sources: Sequence[_Value | None],
        item: RecordedCall | None,
        facts: dict[str, str],
    ) -> list[_Value | None]:
        """A Block without a graph."""
        types = () if item is None else item.gives or ()
        node = self._add("operator", label, box, types)
        node.operators = 0
        node.row["block"], node.row["attributes"] = path, facts
        node.row["location"] = None if item is None else self._place(item.location)
        node.reads = [source for source in sources if source is not None]
        return [(node, number) for number in range(len(types))]

    def _place(self, location: Location | None) -> int | None:
        """The index of a place in `locations`."""
        if location is None:
            return None
        if location not in self._places:
            self._places[location] = len(self.locations)
            self.locations.append(located(location))
        return self._places[location]

    def _line(self, box: Box, label: str, kind: str, item: RecordedCall) -> None:
        gives = "failed" if item.gives is None else _types(item.gives)
        name = f"{label}: {kind}" if kind else visible(label)
        arrow = f"  {_types(item.takes)} -> {gives}" if item.takes or item.gives else ""
        self._lines.append(f"{'  ' * len(box.chain())}{name}{arrow}")

    # -- records ------------------------------------------------------------------------------------------------------

    def _write(self) -> None:
        for number, item in enumerate(self._top.items()):
            item.row["id"] = f"n{number}"
        inside = [(part.picture, *_inside(part.picture)) for part in self.parts]
        self.boxes, self.nodes = write(self._top)
        records = {box["id"]: box for box in self.boxes}
        for picture, boxes, rows in inside:
            picture.nodes = rows
            picture.boxes = [records[box.id] for box in boxes if box.id in records]

    def _in_words(self, record: Record | None) -> str:
        codes = {id(part.block): part.picture.drawn_graph.code for part in reversed(self.parts)}
        graphs = f"{count(len(codes), 'graph')}, {count(sum(codes.values()), 'operator')}"
        if record is None:
            return f"{graphs}; not called yet: the children in the order of the tree, without arrows"
        words = f"{self._calls}{self._more} {'call' if self._calls == 1 else 'calls'} of {graphs}"
        if self._operators:
            words += f"; {count(self._operators, 'operator')} between them in eager mode"
        if not record.flows:
            words += "; what flowed between them is known from the next call on"
        if not record.is_whole:
            words += "; the calls after these were not noted"
        if record.is_saved:
            words += "; as last called before it was saved"
        return words + (f"; failed: {record.error}" if record.error else "")


def _same(item: RecordedCall) -> object:
    """What calls of one Block have in common, and of one operator in one line."""
    if item.block is None:
        return item.name, item.location
    block = item.block()
    return item.name if block is None else id(block)


def _is_read(record: Record, number: int) -> bool:
    """Whether an item of a record reads an input of the call."""
    source = ArraySource(-1, number)
    return any(source in item.inputs for item in record.items)


def _names_of_inputs(block: Block, number: int) -> list[str]:
    """The names of a call's arguments, such as `x`, if they are clear."""
    try:
        parameters = inspect.signature(block.forward).parameters.values()
    except (TypeError, ValueError):
        parameters = ()  # type: ignore[assignment]
    named = [each.name for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    required = [each.name for each in parameters if each.name in named and each.default is each.empty]
    for names in (named, required):
        if len(names) == number:
            return names
    return ["input" if number == 1 else f"input {place}" for place in range(number)]


def _splice(picture: Picture, box: Box, sources: Sequence[_Value | None]) -> list[_Value | None]:
    """Let the readers of the inputs read the sources, if known; returns the results of the graph. The nodes of known
    inputs and of outputs are removed.
    """
    known = {
        item: value
        for number, item in picture.entries.items()
        if number < len(sources) and (value := sources[number]) is not None
    }
    for item in box.items():
        item.reads = [known.get(source, (source, output)) for source, output in item.reads]
    results: list[_Value | None] = []
    for _, item in sorted(picture.results.items()):
        results.append(item.reads[0] if item.reads else None)
    for item in (*known, *picture.results.values()):
        item.box.members.remove(item)
    return results


def _boxes_in(box: Box) -> Iterator[Box]:
    for member in box.members:
        if isinstance(member, Box):
            yield member
            yield from _boxes_in(member)


def _inside(picture: Picture) -> tuple[list[Box], list[GraphNode]]:
    """The boxes in the box of a picture, and the records of the nodes in it."""
    return [*_boxes_in(picture.box)], [item.row for item in picture.box.items()]


def _as_foreign(row: GraphNode, around: str) -> None:
    """Mark a node of a Block outside the tree: its paths lead nowhere."""
    row["block"] = around
    for badge in row["badges"]:
        badge["path"] = ""
    row["attributes"].pop("parameter", None)


def _types(types: Types) -> str:
    return ", ".join(f"{dtype}{list(shape)}" for shape, dtype in types)
