"""The picture of a graph as data: nodes of the protocol, edges and groups; a nested Block is one node."""

from __future__ import annotations

from hybrid_lab.gluon import access
from hybrid_lab.gluon.block import Block
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Constant, Input, Node, Value
from hybrid_lab.graph.printer import format_type
from hybrid_lab.insight.states import class_name
from hybrid_lab.lab.messages import GraphGroup, GraphNode, NodeKind, Tensor
from hybrid_lab.lab.places import location_data
from hybrid_lab.lab.tree import tensor
from hybrid_lab.lab.units import Units


class Picture:
    """Nodes and edges of one graph; operators of nested Blocks are folded into one node per Block call.

    nodes : in the order of the graph; edges : (id of a node, id of its reader, type of the value)
    groups : the kernels, sessions and the prologue, with the nodes in the picture that they run

    num_data : how many of the graph's inputs are data, the others are parameters
    block : whose children are folded, or None to show every operator
    path : of the Block in the model; root : its scope in the graph
    units : what runs as one, a session or a kernel, is drawn as one; None: nothing is known of that
    prologue : what runs before `graph` when a parameter has changed; its outputs are the "hoisted" inputs of the graph
    states : names of the auxiliary states; None: what the graph's operators say
    """

    def __init__(
        self,
        graph: Graph,
        num_data: int,
        block: Block | None,
        path: str,
        root: str,
        units: Units | None = None,
        prologue: Graph | None = None,
        states: frozenset[str] | None = None,
    ):
        self.graph, self.block, self.path, self.root = graph, block, path, root
        self._units = units or Units(graph)
        self._prologue = prologue
        self._states = frozenset(value.node.name for value in graph.states) if states is None else states
        self.nodes: list[GraphNode] = []
        self._parameters = set(graph.inputs[num_data:])
        self._calls = self._nested_calls()
        self.edges: dict[tuple[str, str, str], None] = {}
        self._id_of: dict[Value, str] = {}
        self._folded: dict[tuple[str, int], GraphNode] = {}
        self._build()

    def _build(self) -> None:
        graph = self.graph
        hidden = self._read_inside_only()
        hoisted = [
            value for value in graph.inputs if isinstance(value.node.op, Input) and value.node.op.role == "hoisted"
        ]
        prologue_outputs = self._prologue.outputs if self._prologue is not None else ()
        before = self._prologue.nodes if self._prologue is not None else ()
        stand_ins = dict(zip(hoisted, prologue_outputs, strict=True))
        returned = {*graph.outputs, *prologue_outputs}
        readers = graph.users() | (self._prologue.users() if self._prologue is not None else {})
        for node in dict.fromkeys((*before, *graph.nodes)):
            if node.outputs[0] in stand_ins:
                self._id_of[node.outputs[0]] = self._id_of[stand_ins[node.outputs[0]]]
                continue
            call = self._calls.get(node)
            if call is not None:
                row = self._fold(call, node)
            elif isinstance(node.op, Input):
                value = node.outputs[0]
                if value in hidden:
                    continue
                kind: NodeKind = "input" if value in graph.inputs and value not in self._parameters else "parameter"
                kind = "aux" if node.name in self._states else kind
                row = self._add(node, kind, node.name)
            elif isinstance(node.op, Constant):
                value = node.outputs[0]
                if not (value in returned or any(self._reads(reader, value) for reader in readers.get(value, ()))):
                    continue  # it stands for a shape
                row = self._add(node, "constant", repr(node.op))
            else:
                row = self._add(node, "operator", node.op.name)
            self._id_of.update((value, row["id"]) for value in node.outputs)
            for item in node.inputs:
                if isinstance(item, Value):
                    self._connect(item, row)
        for index, value in enumerate(graph.outputs):
            label = f"output {index}" if len(graph.outputs) > 1 else "output"
            self._connect(value, self._put("output", label, [tensor(value.shape, value.dtype)], identity=f"out{index}"))

    @staticmethod
    def _reads(reader: Node, value: Value) -> bool:
        """Whether an operator reads the numbers of a value, not its shape alone."""
        return any(item is value and reader.op.reads_values(index) for index, item in enumerate(reader.inputs))

    def _connect(self, value: Value, row: GraphNode) -> None:
        source = self._id_of.get(value)
        if source is not None and source != row["id"]:
            if source not in row["inputs"]:
                row["inputs"].append(source)
            label = format_type(value.shape, value.dtype) if value.shape is not None else ""
            self.edges[source, row["id"], label] = None

    # -- nested Blocks ------------------------------------------------------------------------------------------------

    def _nested_calls(self) -> dict[Node, tuple[str, int]]:
        """Operator of a nested Block -> (name of the child, number of its call)."""
        call_of: dict[Node, tuple[str, int]] = {}
        calls: dict[str, int] = {}
        last: str | None = None
        for node in self.graph.operators if self.block is not None else ():
            child = self._inside(node).split(".")[0]
            if self.block is None or child not in access.children(self.block):
                last = None
                continue
            if child != last:
                calls[child] = calls.get(child, 0) + 1
                last = child
            call_of[node] = (child, calls[child])
        return call_of

    def _inside(self, node: Node) -> str:
        """Path of the Block that a node belongs to, as seen from the Block of the picture."""
        return node.scope[len(self.root) :].lstrip(".") if f"{node.scope}.".startswith(f"{self.root}.") else ""

    def _in_model(self, inside: str) -> str:
        return ".".join(part for part in (self.path, inside) if part)

    def _read_inside_only(self) -> set[Value]:
        """Parameters that only folded Blocks read: they are not shown."""
        users = self.graph.users() if self._calls else {}
        shown = set(self.graph.outputs)
        return {
            value
            for value in self._parameters - shown
            if users.get(value) and all(reader in self._calls for reader in users[value])
        }

    def _fold(self, call: tuple[str, int], node: Node) -> GraphNode:
        """The node of a nested Block's call; its outputs are those of the last operator."""
        row = self._folded.get(call)
        if row is None:
            assert self.block is not None
            child = call[0]
            where, label = self._in_model(child), f"{child}: {class_name(access.children(self.block)[child])}"
            row = self._put("block", label, [])
            row |= {"scope": where, "block": where, "location": location_data(node.location)}
            self._folded[call] = row
        row["outputs"] = [tensor(value.shape, value.dtype) for value in node.outputs[: node.op.signature.visible]]
        return row

    # -- nodes --------------------------------------------------------------------------------------------------------

    def _add(self, node: Node, kind: NodeKind, label: str) -> GraphNode:
        attributes: dict[str, str] = {}
        visible, is_operator = 1, kind == "operator"
        if is_operator:
            visible = max(node.op.signature.visible, 1)
            attributes = {key: str(value) for key, value in node.op.written.items()}
            immediates = [(place, item) for place, item in enumerate(node.inputs) if not isinstance(item, Value)]
            attributes |= {f"input {place}": repr(item) for place, item in immediates}
            attributes |= {"part of": node.composite} if node.composite else {}
        row = self._put(kind, label, [tensor(value.shape, value.dtype) for value in node.outputs[:visible]])
        row |= {
            "op": node.op.name if is_operator else "",
            "attributes": attributes,
            "scope": self._in_model(self._inside(node)),
            "location": location_data(node.location),
            "engine": self._units.engines.get(node, ""),
            "group": self._units.of.get(node, ""),
        }
        return row

    def _put(self, kind: NodeKind, label: str, outputs: list[Tensor], identity: str = "") -> GraphNode:
        row: GraphNode = {
            "id": identity or f"n{len(self.nodes)}",
            "kind": kind,
            "label": label,
            "op": "",
            "attributes": {},
            "inputs": [],
            "outputs": outputs,
            "scope": self.path,
            "block": None,
            "location": None,
            "group": "",
            "engine": "",
        }
        self.nodes.append(row)
        return row

    @property
    def groups(self) -> list[GraphGroup]:
        """The units of which there is a node in the picture."""
        shown = {row["group"] for row in self.nodes}
        return [group for group in self._units.groups if group["name"] in shown]
