"""HybridBlocks made from ONNX files: what `imports` returns, and the base of classes that add to an imported graph."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from os import PathLike
from typing import Any

import numpy as np

from hybrid_lab.diagnostics.errors import HybridLabError, SettingError
from hybrid_lab.formats.archive.layout import shorten
from hybrid_lab.formats.archive.open import ArchivedBlock
from hybrid_lab.gluon import access
from hybrid_lab.gluon.hybrid import HybridBlock
from hybrid_lab.gluon.parameter import Parameter
from hybrid_lab.gluon.parameter_dict import ParameterDict
from hybrid_lab.gluon.symbol_block import SymbolBlock
from hybrid_lab.graph.graph import Graph, extract
from hybrid_lab.graph.node import Constant
from hybrid_lab.hybridize.neutral import NOTHING_OBSERVED, NeutralGraph, Observation, data_names
from hybrid_lab.hybridize.structure import LEAF
from hybrid_lab.insight.states import class_name
from hybrid_lab.ndarray import NDArray
from hybrid_lab.ndarray.context import Context
from hybrid_lab.onnx.reading import tree
from hybrid_lab.onnx.reading.compose import Composed, compose
from hybrid_lab.system.progress import shows_work


class ImportedGraph(SymbolBlock):
    """The graph of an ONNX file: its initializers are the parameters, under their names in the file.

    composed : the graph; its arrays are taken over and left out there
    """

    def __init__(
        self, composed: Composed, ctx: Context | Sequence[Context] | None = None, training: Composed | None = None
    ) -> None:
        """training : the graph of calls in training, if `composed` is the graph of prediction alone"""
        _begin(self, composed)
        known: dict[str, Parameter] = {}
        observations = (
            (NOTHING_OBSERVED,) if training is None else (Observation(training=False), Observation(training=True))
        )
        neutrals = []
        for each, observation in zip((composed, training), observations, strict=False):
            assert each is not None
            for name in list(each.parameters):
                array, shared = each.parameters.pop(name), name in known
                if not shared:
                    known[name] = _parameter(name, array, each, ctx)
            variables = each.graph.inputs[len(each.inputs) :]
            parameters = tuple([known[value.node.name] for value in variables])
            neutrals.append(
                NeutralGraph(
                    each.graph,
                    each.structure,
                    each.results,
                    parameters,
                    observation,
                    source="file",
                    module=each.source == "torch",
                )  # fmt: skip
            )
        composed_graphs = [composed] if training is None else [composed, training]
        classes = composed.classes | (training.classes if training else {})
        blocks = tree.add_children(self, neutrals, composed_graphs, classes)
        for parameter in known.values():
            tree.place(parameter, blocks)
        self._graph_calls.pin(neutrals)

    archived_class: str
    _composed: Composed

    def __repr__(self) -> str:
        children = access.children(self).items()
        inner = [f"  ({name}): " + repr(child).replace("\n", "\n  ") for name, child in children]
        return "\n".join([f"{class_name(self)}(", *inner, ")"]) if inner else super().__repr__()

    def with_outputs(self, names: Iterable[str]) -> ImportedGraph:
        """A Block of the same parameters that also returns these results of nodes: (the output, one for each name).

        Raises HybridLabError for a name that no node of the file computes.
        """
        if isinstance(names, str):
            raise HybridLabError(f"aux_output is a list of names: aux_output=[{names!r}]")
        composed, names = self._composed, tuple(names)
        known = composed.views.get(names)
        if isinstance(known, ImportedGraph):
            return known
        unknown = [name for name in names if name not in composed.tensors]
        if unknown:
            near = difflib.get_close_matches(unknown[0], self.tensor_names, n=4, cutoff=0.5) or self.tensor_names
            raise HybridLabError(
                f"the graph computes no {unknown[0]!r}; it has {shorten(near)}. `tensor_names` lists all. Results "
                "inside the file's functions have no name; mx.onnx.export(..., flat=True) writes a file without any"
            )
        more = [composed.tensors[name] for name in names]
        first = next(iter(access.graphs(self).pinned.values()))
        graph = composed.graph
        whole = Graph(graph.inputs, [*graph.outputs, *more], draws=graph.draws, name=graph.name)
        own = composed.results[1] if composed.results[0] == "list" else (composed.results,)
        results = ("tuple", (*own, *[LEAF] * len(names)))
        twin = ImportedGraph.__new__(ImportedGraph)
        _begin(twin, composed)
        for parameter in first.parameters:
            twin.params.add(parameter)
            access.own_parameters(twin)[parameter.name] = parameter
        access.calls(twin).pin([NeutralGraph(whole, composed.structure, results, first.parameters, source="file")])
        composed.views[names] = twin
        return twin

    @property
    def tensor_names(self) -> list[str]:
        """Names of the results that `aux_output` may ask for."""
        return [name for name, value in self._composed.tensors.items() if not value.is_input]

    def __call__(self, *args: Any, aux_output: Sequence[str] = ()) -> Any:
        """The outputs of the graph, and after them the results named in `aux_output`."""
        if not aux_output:
            return super().__call__(*args)
        view = self.with_outputs(aux_output)
        access.set_active(view, access.is_active(self))
        access.set_flags(view, access.flags(self))
        return view(*args)

    @property
    def layers(self) -> Layers:
        """The nodes of the file by their names, as Blocks of the same parameters: `net.layers["conv1"](x)`."""
        return Layers(self._composed, next(iter(access.graphs(self).pinned.values())))

    def __getattr__(self, name: str) -> Any:
        composed = vars(self).get("_composed")
        if composed is not None and any(each.name == name for each in composed.layers):
            return self.layers[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *(each.name for each in self._composed.layers if each.name.isidentifier())]


class Layers(Mapping[str, HybridBlock]):
    """The nodes of an ONNX file as Blocks, by name, in the file's order. A Block is made when it is asked for."""

    def __init__(self, composed: Composed, whole: NeutralGraph) -> None:
        self._composed, self._whole = composed, whole
        self._layers = {layer.name: layer for layer in composed.layers}

    def __iter__(self) -> Iterator[str]:
        return iter(self._layers)

    def __len__(self) -> int:
        return len(self._layers)

    def __repr__(self) -> str:
        return "\n".join(f"({name}): {layer.kind}" for name, layer in self._layers.items())

    def __getitem__(self, name: str) -> HybridBlock:
        """The Block of a node: its arguments are the node's inputs without parameters and constants.

        Raises KeyError, and HybridLabError for a node that is no computation by itself in this package's operators.
        """
        known: HybridBlock | None = self._composed.views.get(("layer", name))
        if known is not None:
            return known
        layer = self._layers[name]
        variables = self._whole.graph.inputs[self._whole.num_data :]
        owners = dict(zip(variables, self._whole.parameters, strict=True))
        read, written = (
            list(dict.fromkeys(self._composed.tensors[each] for each in names if each in self._composed.tensors))
            for names in (layer.inputs, layer.outputs)
        )
        data = [value for value in read if value not in owners and not isinstance(value.node.op, Constant)]
        graph = extract(data, written, data_names(len(data)), name) if data and written else None
        inner = () if graph is None else graph.inputs[len(data) :]
        if graph is None or not graph.operators or any(value not in owners for value in inner):
            raise HybridLabError(
                f"the node {name!r} ({layer.kind}) cannot be called by itself: it computes nothing from data alone, or "
                "its work is a part of other nodes here; aux_output=[...] gives its results"
            )
        block = ArchivedBlock(f"{name}_", layer.kind)
        parameters = tuple(owners[value] for value in inner)
        for parameter in parameters:
            block.params.add(parameter)
            short = parameter.name.rpartition(".")[2]
            own = access.own_parameters(block)
            own[parameter.name if short in own else short] = parameter
            if short.isidentifier() and not hasattr(type(block), short):
                object.__setattr__(block, short, parameter)
        spec: Any = LEAF if len(written) == 1 else ("tuple", (LEAF,) * len(written))
        structure = ("tuple", (LEAF,) * len(data))
        access.calls(block).pin([NeutralGraph(graph, structure, spec, parameters, source="file")])
        self._composed.views["layer", name] = block
        return block


def _begin(block: ImportedGraph, composed: Composed) -> None:
    HybridBlock.__init__(block)
    object.__setattr__(block, "_prefix", "")  # parameters have the names of the file
    object.__setattr__(block, "_params", ParameterDict("", ParameterDict()))
    object.__setattr__(block, "_composed", composed)
    object.__setattr__(block, "archived_class", composed.classes.get("") or ImportedGraph.__name__)


def _parameter(name: str, array: np.ndarray, composed: Composed, ctx: Context | Sequence[Context] | None) -> Parameter:
    """The parameter that takes over an array."""
    fixed = name in composed.states
    req = "null" if fixed or name in composed.frozen else "write"
    made = Parameter(name, shape=array.shape, dtype=array.dtype.name, grad_req=req, differentiable=not fixed)
    made.from_file = True
    buffer = composed.buffers.pop(name, None)
    if buffer is not None:
        values = NDArray.view_of(buffer, buffer.host)
    else:
        values = NDArray.wrap(array if array.flags.writeable and array.flags.owndata else np.array(array))
    access.load_values(made, values, ctx)
    return made


@shows_work("importing")
def imports(
    path: str | PathLike[str], ctx: Context | Sequence[Context] | None = None, *,
    shapes: Mapping[str, Sequence[int | str | None]] | None = None, values: Mapping[str, object] | None = None,
) -> HybridBlock:  # fmt: skip
    """The model in an ONNX file as a HybridBlock of this package's operators: it runs, trains, saves and exports.

    path : the file, of opset 7 or newer; ctx : where the parameters go, the CPU by default
    shapes : input -> its shape, in the place of the file's: numbers, names, and None for open sizes. A name is one size
        wherever it stands. The Block takes inputs of the shapes that the file declares, as ONNX Runtime does, because a
        file may be valid for these shapes alone; (None, 3, None, None) opens sizes of a file that computes for other
        sizes too
    values : input -> its value, for inputs that decide shapes; they are no arguments of the Block then
    A call with other sizes raises DeclaredSizeError.
    Raises OnnxError for a damaged file, UnsupportedOperatorError (an OnnxError) naming node and operator.
    """
    return ImportedGraph(compose(path, shapes, values), ctx)


class OnnxBlock(HybridBlock):
    """The base of Blocks that build on the graph of an ONNX file:

        class MyModel(mx.onnx.OnnxBlock):
            def __init__(self, path):
                super().__init__(path, last_layers=-1)
                self.head = nn.Dense(10)

            def forward(self, x):
                features, middle = super().forward(x, aux_output=["conv3_out"])
                return self.head(features) + middle

    path : the file; last_layers : -k leaves out the last k nodes of the graph, k takes the first k; ctx, shapes,
        values : as of `imports`
    """

    def __init__(
        self, path: str | PathLike[str], last_layers: int | None = None,
        ctx: Context | Sequence[Context] | None = None, *,
        shapes: Mapping[str, Sequence[int | str | None]] | None = None, values: Mapping[str, object] | None = None,
        prefix: str | None = None,
    ) -> None:  # fmt: skip
        if type(self).hybrid_forward is not HybridBlock.hybrid_forward:
            name = type(self).__name__
            raise SettingError(f"{name} is an OnnxBlock, which runs forward(self, x), not hybrid_forward")
        super().__init__(prefix=prefix)
        self.imported = ImportedGraph(compose(path, shapes, values, last_layers), ctx)

    def forward(self, x: Any, *args: Any, aux_output: Sequence[str] = ()) -> Any:
        """The outputs of the file's graph, and after them the results named in `aux_output`."""
        view = self.imported.with_outputs(aux_output) if aux_output else self.imported
        return view(x, *args)

    def __call__(self, *args: Any, aux_output: Sequence[str] = ()) -> Any:
        """As `forward`; `aux_output` is for the graph of the file, if the class has no forward of its own."""
        if not aux_output:
            return super().__call__(*args)
        if type(self).forward is not OnnxBlock.forward:
            raise SettingError(
                f"{type(self).__name__} has a forward of its own; call super().forward(x, aux_output=...) in it, or "
                "net.imported(x, aux_output=...)"
            )
        return self.imported(*args, aux_output=aux_output)

    @property
    def tensor_names(self) -> list[str]:
        """Names of the results that `aux_output` may ask for."""
        return self.imported.tensor_names

    @property
    def layers(self) -> Layers:
        """The nodes of the file by their names, as Blocks of the same parameters."""
        return self.imported.layers
