"""A folder of MXNet's files, one pair for each HybridBlock, as `save_cached_graphs(format="mxnet")` writes it.

MXNet reads each pair unchanged. Attributes of the graph, in which MXNet takes any text, hold the parts that MXNet's
form lacks: the structure of arguments and results, the path of each parameter, and the Block's class.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

import numpy as np

from hybrid_lab.diagnostics import ArchiveError
from hybrid_lab.diagnostics.file_errors import reading
from hybrid_lab.gluon import access
from hybrid_lab.gluon.assigned import natural, parameters_by_names
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Value
from hybrid_lab.hybridize.structure import LEAF
from hybrid_lab.initializer import described_by
from hybrid_lab.ops.framework.dtypes import name_of

from .. import schema, strict_json
from ..mxnet.graph_reader import read_graph
from ..mxnet.model import load_params
from . import graphs, layout
from .graphs import STRUCTURE, SavedGraph
from .tree import DEPTH_LIMIT, BlockRecord, ParameterRecord, Tree, describe_tree

if TYPE_CHECKING:
    from hybrid_lab.gluon import Block
    from hybrid_lab.hybridize.neutral import NeutralGraph

SYMBOL = "-symbol.json"
BLOCK = "hybrid_lab_block"
"""Key, among the attributes of a graph, of the record of its Block."""
_PARAMS = re.compile(r"(.+)-(\d{4,})\.params")
_NUMBERED = re.compile(r"(.+?)(?:@(\d{1,9}))?")


@dataclass
class Described:
    """One Block, with the fields of its BlockRecord."""

    class_: str = ""
    prefix: str = ""
    layer: str | None = None
    config: dict[str, Any] = field(default_factory=dict)
    forward: str | None = None


@dataclass
class About:
    """The description of a Block in a symbol file.

    above : the Blocks that hold it, the outermost first; fixed : ids of the parameters that no training updates
    """

    block: Described
    above: list[Described]
    fixed: list[str]


class Attributes:
    """The facts in symbol files beside MXNet's form. tree : of the model whose Blocks they are"""

    def __init__(self, tree: Tree) -> None:
        self._ids = {id(parameter): key for key, parameter in tree.live_parameters.items()}
        self._blocks = {
            path: Described(each.class_, each.prefix, each.layer, each.config, each.forward)
            for path, each in tree.places()
        }

    def of(self, path: str, neutral: NeutralGraph) -> dict[str, list[object]]:
        """The attributes of a graph of the Block at this path."""
        named = {id(each): self._ids.get(id(each), each.name) for each in neutral.parameters}
        fixed = [named[id(each)] for each in neutral.parameters if each.grad_req == "null"]
        above = [schema.write(self._blocks[each]) for each in layout.places_above(path)]
        about = json.dumps(
            {**schema.write(About(self._blocks[path], [], fixed)), "above": above}, ensure_ascii=False, allow_nan=False
        )
        return {STRUCTURE: ["str", graphs.structure_text(neutral, named, neutral.types)], BLOCK: ["str", about]}


def folder_at(path: str | PathLike[str] | None, name: str = "") -> str | None:
    """The folder of MXNet's files that a path refers to: a folder with such files, unless an archive has the same
    name.
    """
    folder = fspath(path) if path is not None else name
    if not folder or not os.path.isdir(folder) or not any(each.endswith(SYMBOL) for each in os.listdir(folder)):
        return None
    archive = folder + layout.SUFFIX
    return None if os.path.isfile(archive) and not folder.endswith(("/", os.sep)) else folder


class Folder:
    """A folder of MXNet's files, read and checked, with the members of an Archive that loading needs.

    tree : the Blocks that have files, and those above them; it lacks Blocks without a graph
    weights : parameter id -> array; graphs : stem of the file names -> SavedGraph
    net : the model that is to get the values. Files that MXNet wrote have names of parameters only, and no paths: they
        are looked up among the names in the model
    Raises ArchiveError for a damaged file.
    """

    trainer: None = None
    random: None = None

    def __init__(self, path: str | PathLike[str], net: Block | None = None) -> None:
        self.path = fspath(path)
        self.weights: dict[str, np.ndarray] = {}
        self.graphs: dict[str, SavedGraph] = {}
        self.attribute_tensors: dict[str, np.ndarray] = {}
        self._differences: list[str] = []
        self._parameters: dict[str, ParameterRecord] = {}
        self._blocks: dict[str, Described] = {}
        self._members: dict[str, list[str]] = {}
        self._names = None if net is None else _FolderNames(net)
        files = sorted(os.listdir(self.path), key=natural)
        params: dict[str, str] = {}
        for found in map(_PARAMS.fullmatch, files):
            if found is not None:
                params[found[1]] = found[0]  # of the highest epoch, which is the last one
        for stem in [name.removesuffix(SYMBOL) for name in files if name.endswith(SYMBOL)]:
            self._read(stem, params.get(stem))
        self.tree = self._tree()
        self.calls = None

    def aux(self, *arguments: object, **options: object) -> dict[str, Any]:
        """The user's own values, which MXNet's files do not hold."""
        return {}

    def example_differences(self, members: Iterable[str] | None = None) -> list[str]:
        """Contradictions between the files, and between the files and the model."""
        return self._differences

    # -- files -----------------------------------------------------------------------------------------------------

    def _read(self, stem: str, params: str | None) -> None:
        file = os.path.join(self.path, stem + SYMBOL)
        with reading(file), open(file, "rb") as opened:
            content = opened.read()
        arrays = {} if params is None else load_params(os.path.join(self.path, params))
        document = strict_json.parse(content, path=file)
        attributes = document.get("attrs") if isinstance(document, dict) else None
        attributes = attributes if isinstance(attributes, dict) else {}
        about = _read_about(attributes, file)
        path = self._place(stem, STRUCTURE in attributes)
        if path is None:
            self._differences.append(f"file: {stem}{SYMBOL} belongs to no Block of the model")
            return
        if STRUCTURE in attributes:
            saved = graphs.parse(content, stem, arrays, None, file, "file")
        else:
            saved = self._of_mxnet(path, stem, read_graph(document, arrays, path=file), arrays)
        variables = saved.graph.inputs[saved.num_data :]
        for name in arrays.keys() - {value.node.name for value in variables}:
            arrays[name].flags.writeable = False  # of arrays inside the graph
        self.graphs[stem] = saved
        self._members.setdefault(path, []).append(stem)
        if about is not None:
            self._blocks[path] = Described(about.block.class_, about.block.prefix)  # its graph serves for its code
            for place, above in zip(layout.places_above(path), about.above, strict=False):
                self._blocks.setdefault(place, above)
        for value, key in zip(variables, saved.parameters, strict=True):
            self._add_parameter(key, value, arrays.get(value.node.name), value in saved.graph.states, stem)
        for key in about.fixed if about is not None else ():
            if key in self._parameters:
                self._parameters[key].grad_req = "null"

    def _place(self, stem: str, is_path: bool) -> str | None:
        """The path of the Block whose file has this name; None if the model has none.

        is_path : whether the name certainly is a path, because this package wrote the file
        """
        found = _NUMBERED.fullmatch(stem)
        path = "" if found is None or found[1] == layout.ROOT else found[1]
        return path if is_path or self._names is None else self._names.place(path, stem)

    def _of_mxnet(self, path: str, stem: str, graph: Graph, arrays: Mapping[str, np.ndarray]) -> SavedGraph:
        """A graph that MXNet wrote: its variables are data if they have no values and no name of a parameter."""
        states = graph.states
        names = None if self._names is None else self._names.of_block(path, [each.node.name for each in graph.inputs])
        data, owned, owners = [], [], []
        for value in graph.inputs:
            name = value.node.name
            key = None if names is None else names.get(name)
            if key is None and name not in arrays and value not in states:
                data.append(value)
                continue
            if key is None and names is not None:
                self._differences.append(f"graph: {stem} reads {name}, which the model does not have")
            owned.append(value)
            owners.append(key if key is not None else name)
        in_spec = ("tuple", (LEAF,) * len(data))
        out_spec = LEAF if len(graph.outputs) == 1 else ("list", (LEAF,) * len(graph.outputs))
        whole = Graph([*data, *owned], graph.outputs, draws=graph.draws, name=stem)
        return SavedGraph(stem, whole, in_spec, out_spec, owners)

    def _add_parameter(self, key: str, value: Value, array: np.ndarray | None, is_state: bool, stem: str) -> None:
        known = self.weights.get(key) if array is None else self.weights.setdefault(key, array)
        if known is not array and known is not None and array is not None and known.tobytes() != array.tobytes():
            self._differences.append(f"values: {key} has other values in {stem} than in the files before it")
        if key in self._parameters:
            return
        if key.count(".") > DEPTH_LIMIT:
            raise ArchiveError(f"damaged file: the parameter {key[:80]!r}... is nested too deeply", path=self.path)
        attrs = value.node.attrs or {}
        init = attrs.get("__init__", "")
        shape = value.shape if array is None else array.shape
        dtype = (value.dtype or np.float32) if array is None else array.dtype
        self._parameters[key] = ParameterRecord(
            value.node.name,
            shape,
            name_of(np.dtype(dtype)),
            "uninitialized" if array is None else "initialized",
            "null" if is_state else "write",
            _number(attrs.get("__lr_mult__")),
            _number(attrs.get("__wd_mult__")),
            init if described_by(init) else None,
            id=key,
        )

    # -- the tree --------------------------------------------------------------------------------------------------

    def _tree(self) -> Tree:
        """The tree of the Blocks that have files or parameters, and of those above them."""
        owners = {key: key.rpartition(".")[0] for key in self._parameters}
        paths = dict.fromkeys([""])
        for path in [*self._members, *owners.values()]:
            paths |= dict.fromkeys([*layout.places_above(path), path])
        tree = Tree([], self._parameters, partial=True)
        records: dict[str, BlockRecord] = {}
        for path in sorted(paths, key=lambda each: each.count(".") + bool(each)):
            above = records.get(path.rpartition(".")[0]) if path else None
            known = self._blocks.get(path, Described())
            is_hybrid = path in self._members or (above is not None and above.kind == "hybrid")
            kind: Any = "hybrid" if is_hybrid else "plain"
            record = BlockRecord(len(records), path, known.class_, known.prefix, kind, [], layer=known.layer)
            record.config, record.forward = known.config, known.forward
            record.graphs = self._members.get(path, [])
            if above is not None:
                above.children.append((layout.unquote(path.rpartition(".")[2]), record.id))
            records[path] = record
            tree.blocks.append(record)
        for key, path in owners.items():
            records[path].parameters[layout.unquote(key.rpartition(".")[2])] = key
        return tree


class _FolderNames:
    """The Blocks and parameters of a live model by the names that MXNet's files have."""

    def __init__(self, net: Block) -> None:
        tree = describe_tree(net)
        self._keys = {id(parameter): key for key, parameter in tree.live_parameters.items()}
        self._blocks = dict(layout.places(net, lambda block: access.children(block).items()))
        self._by_name: dict[str, str] = {}
        for number, (path, block) in enumerate(self._blocks.items()):
            # As in the RFC that asked for this: block.name and the number of the Block, parents first.
            self._by_name.setdefault(f"{block.name}{number}", path)
            self._by_name.setdefault(block.name, path)

    def place(self, path: str, stem: str) -> str | None:
        """The path of the Block of a file: the file's name is a path, a name of a Block, or its name and number."""
        return path if path in self._blocks else self._by_name.get(stem)

    def of_block(self, path: str, names: Sequence[str]) -> dict[str, str]:
        """Name of a variable -> id of the Block's parameter with this name, or with this name and another prefix."""
        block = self._blocks[path]
        return {name: self._keys[id(each)] for name, each in parameters_by_names(block, names).items()}


def _read_about(attributes: Mapping[str, object], file: str) -> About | None:
    """A file's facts about its Block; None for a file that MXNet wrote. Raises ArchiveError."""
    entry = attributes.get(BLOCK)
    if entry is None:
        return None
    try:
        if not isinstance(entry, list) or len(entry) != 2 or not isinstance(entry[1], str):
            raise ValueError("it is no text")
        return schema.read(About, strict_json.parse(entry[1].encode("utf-8"), path=file))
    except ValueError as error:
        raise ArchiveError(f"damaged file: the attribute {BLOCK} of the graph: {error}", path=file) from None


def _number(text: str | None) -> float:
    try:
        return 1.0 if text is None else float(text)
    except ValueError:
        return 1.0
