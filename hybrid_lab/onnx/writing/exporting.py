"""mx.onnx.export: the networks of a model as ONNX files."""

from __future__ import annotations

import functools
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from typing import Any

import numpy as np

from hybrid_lab.diagnostics.errors import HybridLabError, MissingGraphError, SettingError
from hybrid_lab.diagnostics.formatting import count
from hybrid_lab.diagnostics.switches import check_switches
from hybrid_lab.formats.archive.exporting import outermost
from hybrid_lab.formats.archive.traces import called_on, passing
from hybrid_lab.formats.kinds import check_path
from hybrid_lab.gluon import access
from hybrid_lab.gluon.block import Block
from hybrid_lab.gluon.files.observed_shapes import with_checks
from hybrid_lab.gluon.hybrid import HybridBlock
from hybrid_lab.gluon.parameter import Parameter
from hybrid_lab.gluon.step import boundary
from hybrid_lab.gluon.trainer import Trainer
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.passes.bind_mode import bind_mode
from hybrid_lab.graph.passes.infer import infer as inferred_graph
from hybrid_lab.hybridize.neutral import NeutralGraph
from hybrid_lab.hybridize.structure import LEAF, Spec, to_json
from hybrid_lab.insight.states import blocks_below
from hybrid_lab.ndarray.tape import Mode
from hybrid_lab.symbol import Symbol, tracing
from hybrid_lab.symbol.predicting import labels_of, predicting
from hybrid_lab.system.logger import logger
from hybrid_lab.system.memory import without_collecting
from hybrid_lab.system.progress import shows_work

from .. import opsets, own_graph
from ..reading import tree
from ..reading.compose import METADATA
from ..training_info.writing import Settings, settings_of, training_of
from . import file
from .asked import Asked, asked_of, untouched
from .network import Network, NetworkWriter, unused
from .nodes import reads
from .open_sizes import Described, OpenSizes, dimension_text

TRAINING_METADATA = "hybrid_lab.training"
"""Key of what a Trainer is restored from."""


@dataclass(frozen=True)
class Exported:
    """One ONNX file that was written.

    path : absolute; files : itself, and the file of its arrays if there is one
    inputs, outputs : name -> dimensions, numbers or names of open sizes
    functions : names of the functions
    notes : what could not be as asked for, one line each
    """

    path: str
    files: tuple[str, ...]
    opset: int
    inputs: Mapping[str, tuple[int | str, ...]]
    outputs: Mapping[str, tuple[int | str, ...]]
    functions: tuple[str, ...]
    notes: tuple[str, ...]

    def __fspath__(self) -> str:
        return self.path

    def __str__(self) -> str:
        """The file, its inputs and outputs, and the notes."""
        takes, gives = (", ".join(f"{name} {_shown(shape)}" for name, shape in each.items())
                        for each in (self.inputs, self.outputs))  # fmt: skip
        lines = [f"{self.path}: opset {self.opset}, {takes} -> {gives}, {count(len(self.functions), 'function')}"]
        return "\n".join([*lines, *(f"  note: {note}" for note in self.notes)])


@dataclass(frozen=True)
class ExportReport:
    """What `mx.onnx.export` wrote.

    exported : one entry for each file; left_out : HybridBlocks that were never called
    """

    exported: tuple[Exported, ...]
    left_out: tuple[str, ...] = field(default=())

    @property
    def path(self) -> str:
        """The first model file."""
        return self.exported[0].path

    @property
    def files(self) -> tuple[str, ...]:
        """All files."""
        return tuple(file for each in self.exported for file in each.files)

    @property
    def notes(self) -> tuple[str, ...]:
        """What could not be as asked for, one line each."""
        return tuple(note for each in self.exported for note in each.notes)

    def __fspath__(self) -> str:
        return self.path

    def __str__(self) -> str:
        missing = [f"never called, and so without a file: {', '.join(self.left_out)}"] if self.left_out else []
        return "\n".join([*map(str, self.exported), *missing])

    __repr__ = __str__


@shows_work("exporting")
def export(
    net: Block,
    path: str | PathLike[str],
    inputs: object = None,
    *,
    opset: int | None = None,
    flat: bool = False,
    external_data: bool | None = None,
    training: bool = False,
    loss: Block | None = None,
    trainer: Trainer | None = None,
    label: object = None,
) -> ExportReport:
    """Write the network of a model, as it predicts, to an ONNX file; returns a report of the file.

        net = nn.Dense(2, in_units=3)
        net.initialize()
        net.hybridize()
        y = net(nd.ones((1, 3)))
        report = mx.onnx.export(net, "net.onnx")
        again = mx.onnx.imports("net.onnx")
        bool(abs(again(nd.ones((1, 3))) - y).max() < 1e-5)

    net : a HybridBlock. For any other Block each outermost HybridBlock is written, to NAME-<path of the Block>.onnx
    path : `.onnx` is appended if there is no suffix; a file of that name is replaced, atomically
    inputs : an array, a shape, or a list of them. A string in a shape names an open size: ("batch", 3, 224, 224).
        Default: as in the last call
    opset : 13 to the newest that the installed onnx and onnxruntime both know. Default: the newest in which ONNX
        Runtime runs all operators of the network
    flat : without functions. By default the file has a function for each HybridBlock
    external_data : parameters in a file beside it; default: if the file would have more than 2 GB
    training : add how the network is trained: its first values, the loss, the gradients and the trainer's optimizer
        with its states (TrainingInfoProto); needs loss=, a HybridBlock of (outputs, labels), and trainer=.
        `mx.onnx.imports_training` reads it
    label : shape or array of the labels; default: as in the loss's last call

    Sizes are open, with a name, if calls differ in them or if `inputs` names them; of the first two sizes of each
    input, also if the network allows it. Raises HybridLabError: Unmappable for an operator without a form in this
    opset, which the message names with the lowest opset that has one; then no file is changed.
    """
    check_switches("export", flat=flat, training=training)
    if tracing.current() is not None:
        raise HybridLabError("a model cannot be exported from inside its own trace; export it after the call")
    if not isinstance(net, Block):
        raise HybridLabError(f"mx.onnx.export needs a Block, not {type(net).__name__}")
    check_path(path, "an ONNX network", ".onnx")
    check_opset(opset)
    settings = settings_of(training, loss, trainer, label)
    if settings is not None and not isinstance(net, HybridBlock):
        raise HybridLabError(f"{net.name} is not hybrid: training information is written for one HybridBlock")
    with without_collecting(), boundary.lock, passing(net) as blocks:
        networks, left_out = _networks(net, os.path.abspath(os.fspath(path)), inputs, blocks)
        prepared = [_prepared(block, name, asked, opset, flat, settings) for block, name, asked in networks]
        for each in prepared:
            file.check(each.model, each.contents.arrays, each.contents.training_arrays)
        report = ExportReport(tuple([each.write(external_data) for each in prepared]), tuple(left_out))
    for note in report.notes:
        logger.warning(f"{net.name or type(net).__name__}: {note}")
    logger.info(f"{net.name or type(net).__name__}: exported {', '.join(each.path for each in report.exported)}")
    return report


def _networks(
    net: Block, path: str, inputs: object, blocks: Sequence[HybridBlock]
) -> tuple[list[tuple[HybridBlock, str, Asked]], list[str]]:
    """The HybridBlocks to write, each with its file and its arguments; and the paths of HybridBlocks that were never
    called.
    """
    stem, suffix = os.path.splitext(path)
    suffix = suffix or ".onnx"
    if isinstance(net, HybridBlock):
        return [(net, f"{stem}{suffix}", asked_of(net, inputs))], []
    if inputs is not None:
        called_on(net, inputs, blocks)
    networks: list[tuple[HybridBlock, str, Asked]] = []
    left_out: list[str] = []
    for place, block in outermost(net):
        try:
            networks.append((block, f"{stem}-{place}{suffix}", asked_of(block, None)))
        except MissingGraphError:
            left_out.append(place)
    if not networks:
        raise MissingGraphError(f"{net.name}: no HybridBlock below it was called; call the model, or pass inputs=")
    return networks, left_out


def check_opset(opset: int | None) -> None:
    """Raise SettingError or HybridLabError for an opset that files are not written for. None is the default."""
    newest = opsets.newest()
    if opset is None:
        return
    if isinstance(opset, bool) or not isinstance(opset, int):
        raise SettingError(f"opset={opset!r}: a whole number is needed, {opsets.OLDEST} to {newest}")
    if not opsets.OLDEST <= opset <= newest:
        raise HybridLabError(
            f"opset={opset}: files are written for {opsets.OLDEST} to {newest}, the newest that is installed"
        )


# -- one network -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Prepared:
    """A file before it is written. model : the ModelProto, without the arrays"""

    path: str
    contents: file.Contents
    model: Any
    notes: tuple[str, ...]

    def write(self, external_data: bool | None) -> Exported:
        contents = self.contents
        files = file.write(self.path, self.model, contents.arrays, external_data, contents.training_arrays)
        inputs, outputs = (
            {name: tuple(map(contents.dimension, shape)) for name, shape, _ in values}
            for values in (contents.inputs, contents.outputs)
        )
        functions = tuple(contents.network.functions)
        return Exported(files[0], tuple(files), contents.network.opset, inputs, outputs, functions, self.notes)


def _prepared(
    net: HybridBlock, path: str, asked: Asked, opset: int | None, flat: bool, settings: Settings | None
) -> _Prepared:
    """The file of a HybridBlock."""
    leaves = [untouched(item.sizes, item.dtype) for item in asked.inputs]
    with Mode(False, False):
        neutral = access.calls(net).twin(traces=True).neutral(asked.spec, leaves)
    access.complete_parameters(net, neutral, leaves)
    labels: list[str] = []
    if settings is None:
        neutral, asked, labels = _without_labels(neutral, asked)
    neutral = with_checks(neutral)
    inputs, notes = _named(neutral, asked)
    if labels:
        notes.append(f"without the labels {', '.join(labels)}, which only training reads")
    paths = parameter_paths(net)
    names = [paths.get(id(each), each.name) for each in neutral.parameters]
    data_names = [item.name for item in inputs]
    form = own_graph.normal_form(neutral, [*data_names, *names])
    if form is not None:
        neutral, names = form.neutral, form.names[len(inputs) :]
    arrays = {name: _values(each) for name, each in zip(names, neutral.parameters, strict=True)}
    outputs = [unused(name, {*data_names, *names}) for name in _output_names(neutral.out_spec)]

    def infer(shapes: list[tuple[Any, ...]]) -> Graph:
        dtypes = [*(item.dtype for item in inputs), *(array.dtype for array in arrays.values())]
        return _predicting(neutral, [*shapes, *(array.shape for array in arrays.values())], dtypes)

    def write(graph: Graph) -> Network:
        def network(opset: int) -> Network:
            return NetworkWriter(graph, [*data_names, *names], len(inputs), opset).network(outputs, flat)

        if opset is not None:
            return network(opset)
        made = network(opsets.newest())
        known = opsets.newest_that_runs(made.op_types)
        return made if known == made.opset else network(known)

    sizes = OpenSizes(inputs)
    network = sizes.solve(infer, write)
    dimensions = sizes.names(_roles(network.graph))

    graph = network.graph
    contents = file.Contents(
        _class_name(net).rpartition(".")[2],
        network,
        [(name, value.shape, value.dtype) for name, value in zip(data_names, graph.inputs, strict=False)],
        [(name, value.shape, value.dtype) for name, value in zip(outputs, graph.outputs, strict=True)],
        {name: array for name, array in arrays.items() if name in _read(network)},
        {path: _class_name(block) for path, block in blocks_below(net)},
        {METADATA: _metadata(net, neutral, data_names, outputs, names, _read(network))},
        functools.partial(dimension_text, names=dimensions),
    )
    if form is not None and form.is_told_by(network, contents.arrays):
        contents.metadata = {**contents.metadata, own_graph.METADATA: form.text}
    if settings is not None:
        contents.training = training_of(settings, net, neutral, network, data_names, names, outputs)
        contents.arrays = arrays  # the algorithm may read what prediction does not
        contents.metadata = {**contents.metadata, TRAINING_METADATA: file.as_json(contents.training.metadata)}
        notes = [*notes, *contents.training.notes]
    return _Prepared(path, contents, contents.model(), (*notes, *sizes.notes))


def _without_labels(neutral: NeutralGraph, asked: Asked) -> tuple[NeutralGraph, Asked, list[str]]:
    """The network without the inputs that are labels, of SoftmaxOutput for instance: prediction does not read them.
    Also returns the names of the labels.
    """
    whole, data = Symbol(tuple(neutral.graph.outputs)), neutral.graph.inputs[: neutral.num_data]
    labels = set(labels_of(whole))
    kept = [place for place, value in enumerate(data) if value.node.name not in labels]
    if len(kept) == len(data) or not kept or neutral.in_spec != ("tuple", (LEAF,) * len(data)):
        return neutral, asked, []
    shapes = {value.node.name: item.sizes for value, item in zip(data, asked.inputs, strict=False)}
    inputs = [*(data[place] for place in kept), *neutral.graph.inputs[neutral.num_data :]]
    graph = predicting(whole, shapes, labels).graph(inputs)
    spec = ("tuple", (LEAF,) * len(kept))
    given = [asked.inputs[place] for place in kept]
    left_out = [value.node.name for place, value in enumerate(data) if place not in kept]
    return replace(neutral, graph=graph, in_spec=spec, types=None), replace(asked, spec=spec, inputs=given), left_out


def _read(network: Network) -> set[str]:
    """The names that the main body reads; a parameter that only dead code read is left out."""
    return {name for node in network.body.nodes for name in reads(node)}


def _named(neutral: NeutralGraph, asked: Asked) -> tuple[list[Described], list[str]]:
    """The inputs under their names in the graph. A graph that holds for the shapes which its code read has no open
    sizes.
    """
    notes = []
    inputs = []
    fixed = neutral.observation.types is not None and neutral.observation.includes("shape")
    for value, item in zip(neutral.graph.inputs, asked.inputs, strict=False):
        names, varying = ({}, frozenset()) if fixed else (item.names, item.varying)
        inputs.append(Described(value.node.name, item.sizes, item.dtype, names, varying, item.exact or fixed))
    if fixed:
        places = [place.describe() for what, place in neutral.observation.places if what == "shape" and place]
        where = f" ({places[0]})" if places else ""
        notes.append(f"all sizes are fixed: the code reads shapes{where}, so the graph holds for these alone")
    return inputs, notes


def _predicting(neutral: NeutralGraph, shapes: Sequence[Any], dtypes: Sequence[np.dtype]) -> Graph:
    """The graph with types, in prediction."""
    graph = neutral.graph
    inferred = inferred_graph(
        graph, dict(zip(graph.inputs, shapes, strict=True)), dict(zip(graph.inputs, dtypes, strict=True))
    )
    return inferred if neutral.bound else bind_mode(inferred, train=False)


def _roles(graph: Graph) -> list[tuple[str, Any]]:
    """What recurrent layers tell of sizes."""
    found: list[tuple[str, Any]] = []
    for node in graph.operators:
        if node.op.name == "RNN":
            shape = node.values_in[0].shape
            found += [("time", shape[0]), ("batch", shape[1])]
    return found


def parameter_paths(net: Block) -> dict[int, str]:
    """id of a Parameter -> its path in the model, the first one of a shared Parameter."""
    paths: dict[int, str] = {}
    for path, block in blocks_below(net):
        for name, parameter in access.own_parameters(block).items():
            paths.setdefault(id(parameter), f"{path}.{name}" if path else name)
    return paths


def _values(parameter: Parameter) -> np.ndarray:
    arrays = parameter.list_data()
    return arrays[0].raw() if len(arrays) == 1 else access.mean(parameter).raw()


def _class_name(block: Block) -> str:
    archived = getattr(block, "archived_class", None)
    if archived in (tree.FUNCTION, tree.HOLDER):
        return ""
    kind = type(block)
    return archived or f"{kind.__module__}.{kind.__qualname__}"


# -- names and metadata ----------------------------------------------------------------------------------------------


def _output_names(spec: Spec) -> list[str]:
    """A name for each output: "output", "output0", ... or the keys that lead to it."""
    paths = _leaf_paths(spec)
    if paths == [()]:
        return ["output"]
    return [f"output{path[0]}" if len(path) == 1 and path[0].isdigit() else ".".join(path) for path in paths]


def _leaf_paths(spec: Spec) -> list[tuple[str, ...]]:
    """The keys and positions that lead to each tensor of a structure."""
    if spec[0] == "tensor":
        return [()]
    if spec[0] == "dict":
        return [(str(key), *rest) for key, part in spec[1] for rest in _leaf_paths(part)]
    if spec[0] in ("tuple", "list"):
        return [(str(index), *rest) for index, part in enumerate(spec[1]) for rest in _leaf_paths(part)]
    return []


def _metadata(
    net: HybridBlock, neutral: NeutralGraph, inputs: Sequence[str], outputs: Sequence[str], parameters: Sequence[str],
    read: Collection[str],
) -> str:  # fmt: skip
    """The structure around the network, from which an importer makes the same arguments and results. read : the
    parameters that the file has
    """
    pairs = zip(parameters, neutral.parameters, strict=True)
    states = [name for name, each in pairs if each.grad_req == "null" and name in read]
    return file.as_json({
        "version": 1,
        "class": _class_name(net),
        "in": to_json(neutral.in_spec),
        "out": to_json(neutral.out_spec),
        "inputs": list(inputs),
        "outputs": list(outputs),
        "states": states,
    })  # fmt: skip


def _shown(shape: Sequence[int | str]) -> str:
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"
