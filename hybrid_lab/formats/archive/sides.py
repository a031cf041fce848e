"""What `diff` compares: a live model, an archive or graphs, each as a tree of Blocks with graphs and arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from hybrid_lab.diagnostics import ArchiveError, HybridLabError
from hybrid_lab.diagnostics.formatting import called
from hybrid_lab.gluon import access
from hybrid_lab.gluon.hybrid import HybridBlock
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.passes.infer import infer
from hybrid_lab.hybridize.neutral import NOTHING_OBSERVED, NeutralGraph, Observation
from hybrid_lab.hybridize.structure import Spec, plain
from hybrid_lab.insight.graph_diff import GraphSide
from hybrid_lab.insight.silent import silent
from hybrid_lab.insight.states import hybrid_blocks
from hybrid_lab.ndarray.random_state import state as random_state

from . import attributes, graphs, layout, tree, values
from .archive import Archive
from .block_matching import BlockMatching
from .container import Container
from .traces import live_graph
from .tree import BlockRecord, Tree

if TYPE_CHECKING:
    from hybrid_lab.gluon import Block

    from .graphs import SavedGraph


@dataclass
class SideGraph:
    """One graph of a Block. owners : id in the tree of each parameter, after `data` inputs; others as in SavedGraph"""

    graph: Graph
    data: int
    owners: list[str]
    in_spec: Spec = ()
    out_spec: Spec = ()
    observation: Observation = NOTHING_OBSERVED
    types: tuple[Any, ...] | None = None
    named: bool = False

    def side(
        self,
        path: str,
        tree: Tree,
        types: tuple[Any, ...] | None,
        hidden: bool,
        matching: BlockMatching,
        is_first: bool,
    ) -> GraphSide:
        """The graph for `diff_graphs`; with the shapes of all values if the shapes of the inputs are known.

        matching : the Blocks and parameters that are equal on both sides; is_first : whether this is the first side
        """
        data = [f"input {index}" for index in range(self.data)]
        graph = self._inferred(tree, types)
        if not is_first:
            moved = {place for place, move in matching.moves.items() if move == "moved"}
            return GraphSide(graph, path, data + self.owners, hidden, moved=moved)
        keys = data + [matching.parameter_in_second(key) for key in self.owners]
        return GraphSide(graph, path, data + self.owners, hidden, keys, matching.in_second)

    def _inferred(self, tree: Tree, types: tuple[Any, ...] | None) -> Graph:
        records = [tree.parameters.get(key) for key in self.owners]
        if types is None or len(types) != self.data or any(record is None or not record.shape for record in records):
            return self.graph
        known = [*types, *((record.shape, record.dtype) for record in records if record is not None)]
        if any(shape is None or None in shape for shape, _ in known):
            return self.graph
        values = self.graph.inputs
        try:
            shapes = {value: shape for value, (shape, _) in zip(values, known, strict=True)}
            return infer(self.graph, shapes, {value: dtype for value, (_, dtype) in zip(values, known, strict=True)})
        except Exception:  # the types are extra, and shape rules may raise anything for a graph from a file
            return self.graph


class Side(Protocol):
    """One of two models. label : in words; tree : its Blocks; is_live : whether it is a model in memory"""

    label: str
    tree: Tree
    is_live: bool

    @property
    def attribute_tensors(self) -> Mapping[str, np.ndarray] | None:
        """The arrays among the attributes of Blocks; None if nothing is known of attributes."""

    def graphs(self, path: str, other: list[SideGraph]) -> list[SideGraph]:
        """The graphs of the Block that stands first at `path`. other : the other side's graphs, for whose inputs to
        trace
        """
        ...

    def array(self, key: str) -> np.ndarray | None:
        """The values of a parameter by its id, None if it has none."""
        ...

    def digest(self, key: str) -> str | None:
        """The SHA-256 of these values, if it is known without reading them."""
        ...


class LiveSide:
    """A model in memory."""

    is_live = True

    def __init__(self, net: Block, label: str = ""):
        self.net, self.label = net, label or called(net)
        self.tree = tree.describe_tree(net)
        self._ids = {id(parameter): key for key, parameter in self.tree.live_parameters.items()}
        self.attribute_tensors: dict[str, np.ndarray] = {}
        numbers = {id(block): number for number, block in enumerate(self.tree.live_blocks)}
        attributes.describe(self.tree, values.Encoder(self.attribute_tensors, numbers, self._ids))
        self._blocks = {
            record.path: block for record, block in zip(self.tree.blocks, self.tree.live_blocks, strict=True)
        }

    def graphs(self, path: str, other: list[SideGraph]) -> list[SideGraph]:
        """The Block's graphs; a Block without graphs is traced for the inputs of the other side's graphs."""
        block = self._blocks.get(path)
        if not isinstance(block, HybridBlock):
            return []
        there = access.graphs(block).graphs()
        if there or not other:
            return [self._graph(neutral) for neutral in there]
        without = [block for _, block in hybrid_blocks(self.net) if not access.graphs(block).graphs()]
        try:
            with silent(), random_state.preserved():
                traced = [live_graph(block, each.in_spec, each.observation, each.types, each.named) for each in other]
        finally:
            for inner in without:
                access.calls(inner).clear()
        return [self._graph(neutral) for neutral in traced if neutral is not None]

    def _graph(self, neutral: NeutralGraph) -> SideGraph:
        owners = [self._ids.get(id(parameter), parameter.name) for parameter in neutral.parameters]
        return SideGraph(
            neutral.graph,
            neutral.num_data,
            owners,
            plain(neutral.in_spec),
            plain(neutral.out_spec),
            neutral.observation,
            neutral.types,
        )

    def array(self, key: str) -> np.ndarray | None:
        """The values now; of several contexts their mean."""
        parameter = self.tree.live_parameters[key]
        arrays = access.arrays(parameter)
        if arrays is None:
            return None
        return (arrays[0] if len(arrays) == 1 else access.mean(parameter)).asnumpy()

    def digest(self, key: str) -> None:
        """Not known."""


class FileSide:
    """An archive. Members of an open Container are read when they are asked for; an Archive was read whole."""

    is_live = False

    def __init__(self, file: Container | Archive, label: str = ""):
        self.container = file.container if isinstance(file, Archive) else file
        self.label = label or str(self.container.path or "archive")
        self._file = file
        container = self.container
        self.tree = (
            file.tree if isinstance(file, Archive) else tree.from_json(container.read_json(layout.TREE), container.path)
        )
        self._records = {record.path: record for record in self.tree.blocks}
        self._tensors = None if isinstance(file, Archive) else container.tensors(layout.WEIGHTS)
        self._read: dict[str, SideGraph] = {}

    @cached_property
    def attribute_tensors(self) -> Mapping[str, np.ndarray] | None:
        """The arrays of the file; None for a file that was written before attributes were."""
        if str(self.container.manifest.get("schema")) in ("1.0", "1.1"):
            return None
        if isinstance(self._file, Archive):
            return self._file.attribute_tensors
        return self.container.read_tensors(layout.ATTRIBUTES) if layout.ATTRIBUTES in self.container else {}

    def graphs(self, path: str, other: list[SideGraph]) -> list[SideGraph]:
        """The file's graphs of the Block."""
        record = self._records.get(path)
        return [] if record is None else [self._graph(member) for member in record.graphs]

    def _graph(self, member: str) -> SideGraph:
        if member not in self._read:
            self._read[member] = self._parsed(member)
        return self._read[member]

    def _parsed(self, member: str) -> SideGraph:
        saved = self._saved(member)
        return SideGraph(
            saved.graph,
            saved.num_data,
            saved.parameters,
            saved.in_spec,
            saved.out_spec,
            saved.observation,
            saved.types,
            saved.named,
        )

    def _saved(self, member: str) -> SavedGraph:
        if isinstance(self._file, Archive):
            return self._file.graphs[member]
        tensors, prefix = self._tensors, f"{member}:"
        assert tensors is not None
        constants = {name.removeprefix(prefix): tensors[name] for name in tensors if name.startswith(prefix)}
        content = self.container.read(member)
        return graphs.parse(content, member, constants, self.tree.parameters, self.container.path)

    def array(self, key: str) -> np.ndarray | None:
        """The values in the file, checked."""
        if self.tree.parameters[key].state != "initialized":
            return None
        arrays: Any = self._file.weights if isinstance(self._file, Archive) else self._tensors
        if key not in arrays:
            raise ArchiveError("damaged archive: it has no values of a parameter", path=self.container.path, member=key)
        array: np.ndarray = arrays[key]
        return array

    def digest(self, key: str) -> str | None:
        """As the manifest has it."""
        digests = self.container.manifest["members"].get(layout.WEIGHTS, {}).get("tensors")
        found = digests.get(key) if isinstance(digests, dict) else None
        return found if isinstance(found, str) else None


class GraphsSide:
    """Graphs without a model: one, or the prologue, forward and backward of a program, each as a Block."""

    is_live = False
    attribute_tensors: Mapping[str, np.ndarray] | None = None

    def __init__(self, named: Mapping[str, Graph], label: str):
        self.label, self._graphs = label, named
        self.tree = Tree([BlockRecord(0, "", "graphs" if "" not in named else "graph", "", "hybrid", [])], {})
        for number, name in enumerate((name for name in named if name), start=1):
            self.tree.blocks[0].children.append((name, number))
            self.tree.blocks.append(BlockRecord(number, name, "graph", "", "hybrid", []))

    def graphs(self, path: str, other: list[SideGraph]) -> list[SideGraph]:
        """The graph of this name."""
        graph = self._graphs.get(path)
        if graph is None:
            return []
        data = [value.node.name for value in graph.inputs]
        return [SideGraph(graph, 0, data)]

    def array(self, key: str) -> None:
        """None: a graph has no parameters."""

    digest = array


def side_of(item: object, label: str = "") -> Side:
    """The side for a Block, a file, a Graph, or a graph before or after a pass. Raises HybridLabError for other
    items.
    """
    from hybrid_lab.gluon import Block

    if isinstance(item, Block):
        return LiveSide(item, label)
    if isinstance(item, (Container, Archive)):
        return FileSide(item, label)
    if isinstance(item, NeutralGraph):
        item = item.graph
    if isinstance(item, Graph):
        return GraphsSide({"": item}, label or item.name or "graph")
    parts = {name: getattr(item, name, None) for name in ("prologue", "forward", "backward")}
    named = {name: graph for name, graph in parts.items() if isinstance(graph, Graph)}
    if named:
        return GraphsSide(named, label or type(item).__name__)
    if isinstance(item, (str, bytes)) or hasattr(item, "__fspath__"):
        path = layout.existing_path(item)
        return FileSide(Container.open(path), label or path)
    raise HybridLabError(f"diff compares Blocks, archives and graphs, not {type(item).__name__}")
