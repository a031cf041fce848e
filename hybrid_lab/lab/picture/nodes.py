"""The picture of a graph as data: nodes with their edges and badges, and the boxes that they stand in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from hybrid_lab.diagnostics.formatting import visible, visible_lines
from hybrid_lab.diagnostics.location import Location
from hybrid_lab.gluon.block import Block
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Constant, Input, Node, Scope, Value
from hybrid_lab.graph.printer import format_graph, format_type
from hybrid_lab.insight.states import block_at, class_name
from hybrid_lab.lab.messages.common import Location as LocationData
from hybrid_lab.lab.messages.common import Tensor
from hybrid_lab.lab.messages.graphs import Badge, BadgeKind, GraphBox, GraphNode, NodeKind
from hybrid_lab.lab.models.tree import tensor
from hybrid_lab.lab.picture.boxes import Box, PlacedNode, add_node, common_box, short, write
from hybrid_lab.lab.picture.units import Unit, Units
from hybrid_lab.lab.places import located

PRINTED = 5000
"""Operators of a printed graph; of more only the first ones are printed."""
_SMALL = 4
"""Numbers of a constant that is shown by value."""
_ATTRIBUTE = 2000
"""Characters of an attribute."""


@dataclass(frozen=True)
class Role:
    """What an input or output of a graph is.

    kind : how it is drawn; path : of the parameter in the model, "" for others
    inside : whether it is drawn beside its readers, or its source, instead of at the top
    number : of an input of the call
    """

    kind: NodeKind
    label: str
    path: str = ""
    inside: bool = False
    attributes: dict[str, str] = field(default_factory=dict)
    number: int | None = None


@dataclass(frozen=True)
class DrawnGraph:
    """A graph to be drawn, with the facts that the picture shows.

    graph : with every kernel and session opened
    inputs, outputs : the role of each input; of each output, or None if it is only marked in its operator
    root : scope of the shown Block in the graph
    units : which operators run together, and where
    prologue : the graph that runs before, when a parameter has changed; `hoisted` has the inputs of `graph` that stand
        for outputs of it
    marks : further attributes of the operators that compute these values
    code : how many operators the graph of the code has that this one was compiled from
    """

    graph: Graph
    inputs: dict[Value, Role]
    outputs: Sequence[tuple[Value, Role]]
    root: str
    units: Units
    prologue: Graph | None = None
    hoisted: dict[Value, Value] = field(default_factory=dict)
    marks: dict[Value, dict[str, str]] = field(default_factory=dict)
    code: int = 0


class Picture:
    """Nodes and boxes of one program of the Block at `path` in the model `net`.

    nodes, boxes : records of the protocol
    around : the box of the Block in a larger picture, which then writes the records
    entries, results : the nodes of the inputs, and of the outputs, by their number
    """

    def __init__(self, drawn_graph: DrawnGraph, net: Block, path: str, around: Box | None = None):
        self.drawn_graph, self.net, self.path = drawn_graph, net, path
        self._top = Box("part") if around is None else around
        self._chains: dict[int, tuple[tuple[str, int], ...]] = {}
        self._places: dict[int, Box] = {}
        self._paths: dict[int, str] = {}
        self._blocks: dict[str, tuple[str | None, str]] = {}
        self._unit_boxes: dict[Unit, Box] = {}
        self._item_of: dict[Node, PlacedNode] = {}
        self._source: dict[Value, Value] = drawn_graph.hoisted
        self._tensors: dict[tuple[object, object], Tensor] = {}
        self.entries: dict[int, PlacedNode] = {}
        self.results: dict[int, PlacedNode] = {}
        self.locations: list[LocationData] = []
        self._location_of: dict[Location, int] = {}
        self._serial = 0
        nodes = drawn_graph.graph.nodes
        if drawn_graph.prologue is not None:
            nodes = tuple(dict.fromkeys((*drawn_graph.prologue.nodes, *nodes)))
        self._operators = [node for node in nodes if _computes(node)]
        self._units = drawn_graph.units.of
        self._build(nodes)
        self._lift_prologue()
        self.boxes: list[GraphBox] = []
        self.nodes: list[GraphNode] = []
        if around is None:
            self.boxes, self.nodes = write(self._top)

    @property
    def box(self) -> Box:
        """What the nodes and boxes are in."""
        return self._top

    @property
    def text(self) -> str:
        """The graph as it is printed; of a large one the first operators."""
        return format_graph(self.drawn_graph.graph, PRINTED)

    def id_of(self, node: Node) -> str | None:
        """Id of the node or box of the picture that shows a node of the executable, or of a region in it."""
        drawn = self.drawn_graph.units.drawn.get(node, node)
        if isinstance(drawn, Unit):
            return self._unit_boxes[drawn].id if drawn in self._unit_boxes else None
        item = self._item_of.get(drawn)
        return None if item is None else item.row["id"]

    @property
    def operator_ids(self) -> list[str]:
        """The ids of the operators, in the order of the graph."""
        return [self._item_of[node].row["id"] for node in self._operators]

    # -- places -------------------------------------------------------------------------------------------------------

    def _chain(self, scope: str) -> tuple[tuple[str, int], ...]:
        """The Block calls from the shown Block, itself left out, to the one with this scope: (path, number)."""
        known = self._chains.get(id(scope))
        if known is None:
            known = self._chains[id(scope)] = self._calls(scope)
        return known

    def _calls(self, scope: str) -> tuple[tuple[str, int], ...]:
        root = self.drawn_graph.root
        if not isinstance(scope, Scope) or scope == root or not scope.startswith(f"{root}." if root else ""):
            return ()
        before = () if scope.caller is None else self._chain(scope.caller)
        return *before, (_below(scope, root), scope.call)

    def _unit_places(self) -> dict[Unit, int]:
        """How many Block calls of an operator's chain stand around its unit."""
        shared: dict[Unit, tuple[tuple[str, int], ...]] = {}
        for node, unit in self._units.items():
            chain = self._chain(node.scope)
            before = shared.setdefault(unit, chain)
            if before != chain:
                length = next((at for at, pair in enumerate(zip(before, chain)) if pair[0] != pair[1]), None)
                shared[unit] = before[: min(len(before), len(chain)) if length is None else length]
        return {unit: len(chain) for unit, chain in shared.items()}

    def _place(self, node: Node, depth_of: dict[Unit, int]) -> Box:
        """The box that an operator stands in."""
        unit = self._units.get(node)
        chain = self._chain(node.scope)
        box = self._top
        for call in chain if unit is None else chain[: depth_of[unit]]:
            box = self._block_box(box, call)
        if unit is not None:
            box = self._unit_box(box, unit)
            for call in chain[depth_of[unit] :]:
                box = self._block_box(box, call)
        return box

    def _lift_prologue(self) -> None:
        """Take the prologue out of Blocks of which there is nothing else at its place, as all else is in a session."""
        for unit, box in self._unit_boxes.items():
            while unit.kind == "prologue" and box.parent is not None and box.parent.members == [box]:
                around = box.parent.parent
                if around is None or box.parent is self._top:
                    break
                around.members[around.members.index(box.parent)] = box
                box.parent = around

    def _block_box(self, parent: Box, call: tuple[str, int]) -> Box:
        box = parent.inside.get(call)
        if box is None:
            inside, number = call
            path, kind = self._block(inside)
            label = visible(inside.rsplit(".", 1)[-1]) + (f" ({number})" if number > 1 else "")
            box = parent.inside[call] = Box("block", label, parent, visible(kind), path)
            parent.members.append(box)
        return box

    def _unit_box(self, parent: Box, unit: Unit) -> Box:
        box = self._unit_boxes.get(unit)
        if box is None:
            name, text = visible(unit.name), visible_lines(unit.text)
            notes = [visible(note) for note in unit.notes]
            box = Box(unit.kind, name, parent, summary=visible(unit.summary), text=text, notes=notes)
            self._unit_boxes[unit] = box
            parent.members.append(box)
        return box

    def _block(self, inside: str) -> tuple[str | None, str]:
        """(path in the model, class) of a Block below the shown one; (None, "") for any other Block."""
        known = self._blocks.get(inside)
        if known is None:
            path = ".".join(part for part in (self.path, inside) if part)
            try:
                known = path, class_name(block_at(self.net, path))
            except KeyError:
                known = None, ""
            self._blocks[inside] = known
        return known

    def _block_path(self, scope: str) -> str:
        """Path in the model of the innermost Block of the tree around an operator."""
        known = self._paths.get(id(scope))
        if known is None:
            paths = (self._block(inside)[0] for inside, _ in reversed(self._chain(scope)))
            known = self._paths[id(scope)] = next((path for path in paths if path is not None), self.path)
        return known

    # -- nodes --------------------------------------------------------------------------------------------------------

    def _build(self, nodes: Iterable[Node]) -> None:
        drawn_graph, depth_of = self.drawn_graph, self._unit_places()
        returned = {self._real(value) for value, _ in drawn_graph.outputs}
        for order, node in enumerate(self._operators):
            box = self._places.get(id(node.scope)) if node not in self._units else None
            if box is None:
                box = self._place(node, depth_of)
                if node not in self._units:
                    self._places[id(node.scope)] = box
            self._item_of[node] = self._operator(node, box, order)
        readers = self._readers()
        for node in nodes:
            value = node.outputs[0]
            if _computes(node) or value in self._source:
                continue
            if isinstance(node.op, Constant):
                array = node.op.array
                label = repr(node.op) if array.size <= _SMALL else format_type(array.shape, array.dtype)
                role = Role("constant", label, inside=True)
            else:
                role = drawn_graph.inputs.get(value) or Role("input", node.name)
            self._put(value, role, readers.get(value, []), value in returned)
        for node in self._operators:
            item = self._item_of[node]
            for value in node.values_in:
                self._connect(item, value)
        self._outputs()

    def _real(self, value: Value) -> Value:
        return self._source.get(value, value)

    def _readers(self) -> dict[Value, list[PlacedNode]]:
        """Input or constant -> the operators that read it, each once."""
        readers: dict[Value, dict[PlacedNode, None]] = {}
        for node in self._operators:
            for index, value in enumerate(node.inputs):
                if isinstance(value, Value) and not _computes(value.node):
                    if not isinstance(value.node.op, Constant) or node.op.reads_values(index):  # else it is a shape
                        readers.setdefault(value, {})[self._item_of[node]] = None
        return {value: list(items) for value, items in readers.items()}

    def _operator(self, node: Node, box: Box, order: float) -> PlacedNode:
        attributes = {key: _text(value) for key, value in node.op.written.items()}
        for place, item in enumerate(node.inputs):
            if not isinstance(item, Value):
                attributes[f"input {place}"] = _text(item)
        for label, inside in node.subgraphs:  # of a loop or a branch
            attributes[label] = _cut(visible_lines(format_graph(inside)))
        if node.composite:
            attributes["part of"] = visible(node.composite)
        visible_outputs = node.outputs[: max(node.op.signature.visible, 1)]
        for value in node.outputs if self.drawn_graph.marks else ():
            attributes |= self.drawn_graph.marks.get(value, {})
        outputs = [self._tensor(value) for value in visible_outputs]
        item = self._add("operator", node.op.name, box, order, outputs)
        row = item.row
        row["op"], row["attributes"], row["block"] = row["label"], attributes, self._block_path(node.scope)
        row["location"] = self._location(node.location)
        row["engine"] = self.drawn_graph.units.engines.get(node, "")
        return item

    def _put(self, value: Value, role: Role, readers: list[PlacedNode], returned: bool) -> None:
        """Draw an input or a constant: as a badge, as a node, or, without readers, not at all."""
        if role.kind in ("parameter", "aux", "constant"):
            if not readers and not returned:
                return
            if len(readers) == 1 and not returned:
                readers[0].row["badges"].append(self._badge(value, role, readers[0].row["block"]))
                return
        box = common_box([item.box for item in readers]) if role.inside and readers and not returned else self._top
        order = min((item.order for item in readers), default=0.0) - 0.5 if role.inside else -1.0
        around = next((each.block for each in reversed(box.chain()) if each.block is not None), self.path)
        item = self._add(role.kind, self._name(role, around), box, order, [self._tensor(value)])
        item.row["attributes"] = {"parameter": visible(role.path)} if role.path else {}
        item.row["attributes"] |= role.attributes
        self._item_of[value.node] = item
        if role.number is not None:
            self.entries[role.number] = item

    def _connect(self, reader: PlacedNode, value: Value) -> None:
        value = self._real(value)
        source = self._item_of.get(value.node)
        if source is None:  # a badge, or a shape
            return
        reader.reads.append((source, value.index))
        outputs = source.row["outputs"]
        for index in range(len(outputs), value.index + 1):
            outputs.append(self._tensor(value.node.outputs[index]))

    def _outputs(self) -> None:
        last = float(len(self._operators))
        for number, (value, role) in enumerate(self.drawn_graph.outputs):
            source = self._item_of.get(self._real(value).node)
            beside = role.inside and source is not None and source.operators
            box, order = (source.box, source.order + 0.5) if source is not None and beside else (self._top, last)
            item = self._add("output", role.label, box, order, [self._tensor(value)])
            item.row["attributes"] = role.attributes
            self._connect(item, value)
            self.results[number] = item

    def _add(self, kind: NodeKind, label: str, box: Box, order: float, outputs: list[Tensor]) -> PlacedNode:
        self._serial += 1
        return add_node(box, order, f"n{self._serial - 1}", kind, label, outputs, self.path)

    def _tensor(self, value: Value) -> Tensor:
        key = value.shape, value.dtype
        known = self._tensors.get(key)
        if known is None:
            known = self._tensors[key] = tensor(*key)
        return known

    def _name(self, role: Role, block: str) -> str:
        """What an input is called beside the operators of a Block: `weight` for its own parameter, else with the path
        from the shown Block.
        """
        if not role.path or role.path.rpartition(".")[0] == block:
            return role.label
        return role.path.removeprefix(f"{self.path}.") if self.path else role.path

    def _badge(self, value: Value, role: Role, block: str) -> Badge:
        kind: BadgeKind = "aux" if role.kind == "aux" else "constant" if role.kind == "constant" else "parameter"
        data = self._tensor(value)
        name = short(self._name(role, block))
        return {"name": name, "path": role.path, "shape": data["shape"], "dtype": data["dtype"], "kind": kind}

    def _location(self, location: Location | None) -> int | None:
        """The index of a place in `locations`."""
        if location is None:
            return None
        index = self._location_of.get(location)
        if index is None:
            index = self._location_of[location] = len(self.locations)
            self.locations.append(located(location))
        return index


def _computes(node: Node) -> bool:
    return not isinstance(node.op, (Input, Constant))


def _below(scope: str, root: str) -> str:
    return scope[len(root) + 1 :] if root else scope


def _text(value: object) -> str:
    """An attribute as it is shown."""
    return _cut(visible(str(value)))


def _cut(text: str) -> str:
    return text if len(text) <= _ATTRIBUTE else f"{text[: _ATTRIBUTE - 1]}…"
