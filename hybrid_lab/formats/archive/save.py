"""Saving a model: its tree, all cached graphs, weights, examples and training state in one archive."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence, Set
from os import PathLike
from typing import TYPE_CHECKING, Any
from weakref import ref

import numpy as np

from hybrid_lab import _version
from hybrid_lab.diagnostics import ArchiveError, HybridLabError
from hybrid_lab.diagnostics.errors import FewerGraphsError, SettingError, Unmappable
from hybrid_lab.diagnostics.file_errors import writing
from hybrid_lab.diagnostics.formatting import about, called, check_choice, count
from hybrid_lab.gluon import access
from hybrid_lab.gluon.block import Block
from hybrid_lab.gluon.files.saved import note_file
from hybrid_lab.gluon.hybrid import HybridBlock
from hybrid_lab.gluon.step import boundary
from hybrid_lab.hybridize.neutral import NeutralGraph
from hybrid_lab.ndarray.numpy_mode import is_np_shape
from hybrid_lab.ndarray.random_state import state as random_state
from hybrid_lab.symbol import tracing
from hybrid_lab.system.logger import logger
from hybrid_lab.system.memory import without_collecting
from hybrid_lab.system.progress import shows_work

from ..atomic import atomic_write, check_writable, progress_of
from ..kinds import check_path
from ..mxnet.model import encode_model, write_model
from ..safetensors import little_bytes
from . import attributes, calls, graphs, layout, ledger, tree, values
from .compiled import binaries_of, write_binaries
from .container import Container, ContainerWriter, why_no_archive
from .examples import Examples
from .folder import Attributes
from .histograms import histogram_tensors
from .traces import called_on, passing, trace_missing

if TYPE_CHECKING:
    from hybrid_lab.gluon import Trainer
    from hybrid_lab.gluon.parameter import Parameter
    from hybrid_lab.hybridize.known_calls import Types


FEWER_GRAPHS = "fewer graphs"
"""The value of `overwrite=` that replaces an archive by one with fewer graphs."""


@shows_work("saving")
def save_cached_graphs(
    net: Block,
    path: str | PathLike[str] | None = None,
    inputs: object = None,
    trainer: Trainer | None = None,
    aux: Mapping[str, object] | None = None,
    compiled: object = None,
    format: str = "hlab",  # noqa: A002 - the public name
    overwrite: str | None = None,
) -> str:
    """Write the whole model to one `.hlab` archive, atomically; returns the file's absolute path.

    net : any Block; the graphs of every HybridBlock below it that was ever called, hybridized or not, are saved: a
        called Block without a graph, as after `hybridize()` or `cast()`, is traced again for its earlier calls
    path : `.hlab` is appended unless it ends so; a file of that name is replaced, whatever it is. By default
        `<block name>.hlab`, if only an archive is replaced
    inputs : an array, or a tuple or list of the arguments, to call `net` on once, in predict mode, so that every
        HybridBlock it reaches has a graph
    trainer : saves the optimizer's settings and states and the random state too, for resuming exactly
    aux : values of your own, in a dict: numbers, texts, bytes, arrays, dates, paths, dtypes, metrics, schedules, the
        Trainer, and lists, tuples, sets, dicts and named tuples of them
    compiled : what net.compile_for() gave: its binaries go along, for mx.use_compiled(path) on another machine
    format : "mxnet" takes `path` for a folder and writes MXNet's two files for each HybridBlock that has a graph:
        `features.0-symbol.json` and `features.0-0000.params`; the outermost one is `__root__`
    overwrite : "fewer graphs" also replaces an archive with more graphs than this save; by default that raises a
        FewerGraphsError, which lists the graphs that would be lost

    Parameters without values or shapes are saved as such. Attributes of Blocks (`net.step = 3`) are saved if they are
    data, as in `aux`; one warning names the remaining attributes. Raises HybridLabError for a value that cannot be
    saved, FileError if the file cannot be written; an older file of that name is then unchanged.
    """
    check_choice("format", format, ("hlab", "mxnet"), HybridLabError)
    if overwrite is not None:
        check_choice("overwrite", overwrite, (FEWER_GRAPHS,), HybridLabError)
    if format == "mxnet":
        if trainer is not None or aux is not None or compiled is not None:
            raise HybridLabError("MXNet's files hold graphs and parameters; trainer=, aux= and compiled= need .hlab")
        return save_mxnet(net, net.name if path is None else path, inputs)
    return _save(net, path, inputs, trainer, aux, compiled, None, overwrite == FEWER_GRAPHS)


def save_mxnet(net: Block, folder: str | PathLike[str], inputs: object) -> str:
    """Write MXNet's pair of files for each HybridBlock of a model that has a graph; returns the folder's path.

    A Block with an operator that MXNet lacks is left out with a warning. Raises HybridLabError if no Block is left; the
    folder is then unchanged.
    """
    with about(net), without_collecting(), boundary.lock, passing(net) as blocks:
        if inputs is not None:
            called_on(net, inputs, blocks)
        problems = trace_missing(blocks)
        files: dict[str, tuple[bytes, dict[str, np.ndarray]]] = {}
        described = tree.describe_tree(net)
        attributes_of = Attributes(described).of
        for path, block in layout.places(net, lambda each: access.children(each).items()):
            found = access.calls(block).predicting_first() if isinstance(block, HybridBlock) else []
            for number, whole in enumerate(found, start=1):
                neutral = whole.without_unused()
                variables = neutral.graph.inputs[neutral.num_data :]
                values = {value: _values_of(each) for value, each in zip(variables, neutral.parameters, strict=True)}
                name = layout.graph_member(path, number).removeprefix("graphs/").removesuffix(".json")
                try:
                    files[name] = encode_model(neutral.graph, values, is_np_shape(), attributes_of(path, neutral))
                except Unmappable as error:
                    problems.append(f"{path or _called(block)}: {error}")
        for problem in problems:
            logger.warning(f"no symbol file was written of {problem}")
        kept = [graph.without_unused() for block in blocks for graph in access.graphs(block).graphs()]
        written = {id(each) for graph in kept for each in graph.parameters}
        unread = [key for key, parameter in described.live_parameters.items() if id(parameter) not in written]
        if files and unread:
            logger.warning(
                f"{_called(net)}: MXNet's files hold the parameters that a graph reads, and not "
                f"{layout.shorten(unread)}; net.save(path) saves all"
            )
        if not files:
            advice = "" if problems else "; call the model once, or pass inputs="
            raise HybridLabError(f"no HybridBlock has a graph that MXNet can read{advice}")
        with writing(folder):
            os.makedirs(folder, exist_ok=True)
            others = [name for name in os.listdir(folder) if name.endswith("-symbol.json")]
        others = sorted({name.removesuffix("-symbol.json") for name in others} - files.keys())
        if others:
            logger.warning(f"{folder} keeps the files of {layout.shorten(others)}, which this save does not write")
        for name in files:  # before the first file is written
            check_writable(os.path.join(folder, f"{name}-symbol.json"))
            check_writable(os.path.join(folder, f"{name}-0000.params"))
        for name, (text, arrays) in files.items():
            write_model(os.path.join(folder, name), 0, text, arrays, is_np_shape())
    return os.path.abspath(folder)


def save_checkpoint(
    net: Block,
    path: str | PathLike[str],
    trainer: Trainer | None,
    aux: Mapping[str, object] | None,
    checkpoint: Mapping[str, object],
) -> str:
    """`save_cached_graphs` with the random state, and `checkpoint`, which says where the training stands: values of the
    same kinds as `aux`. A file of that name is replaced: a training that went back to an earlier step repeats steps.
    """
    return _save(net, path, None, trainer, aux, None, checkpoint, fewer_graphs=True)


def _save(
    net: Block,
    path: str | PathLike[str] | None,
    inputs: object,
    trainer: Trainer | None,
    aux: Mapping[str, object] | None,
    compiled: object,
    checkpoint: Mapping[str, object] | None,
    fewer_graphs: bool,
) -> str:
    if tracing.current() is not None:
        raise HybridLabError("a model cannot be saved from inside its own trace; save it after the call")
    if not isinstance(net, Block):
        raise HybridLabError(f"save_cached_graphs needs a Block, not {type(net).__name__}")
    if path is not None:
        check_path(path, "a .hlab archive", layout.SUFFIX)
    file_name = layout.archive_path(path, net.name)
    if path is None and os.path.lexists(file_name):
        reason = why_no_archive(file_name)
        if reason is not None:
            raise HybridLabError(f"{file_name} exists and is not an intact archive ({reason}); give a path")
    with about(net), without_collecting(), boundary.lock, passing(net) as blocks:
        given = called_on(net, inputs, blocks) if inputs is not None else {}
        problems = trace_missing(blocks)
        contents = _Contents(net, given, trainer, aux, checkpoint)
        contents.binaries = [] if compiled is None else binaries_of(compiled)
        if not fewer_graphs:
            _check_no_graph_is_lost(file_name, contents, problems)
        try:
            with atomic_write(file_name) as file, progress_of(f"saving {_called(net)}", contents.size) as written:
                contents.write(ContainerWriter(file, written))
        except ArchiveError as error:
            raise ArchiveError(str(error), path=file_name) from None
        absolute = os.path.abspath(file_name)
        note_file(net, absolute, "saved")
        if checkpoint is None:
            ledger.note(net, absolute)
    if contents.unsaved:
        unsaved = layout.shorten(contents.unsaved, 20)
        text = f"{_called(net)}: attributes that are no data were not saved: {unsaved}; code must make them again"
        _warn(net, text, always=checkpoint is None)
    if checkpoint is not None:  # a training with a checkpoint every few steps would fill its cell with lines
        for problem in problems:
            _warn(net, f"no graph was saved of {problem}", always=False)
        logger.debug(f"{_called(net)}: saved {contents.summary} to {absolute}")
        return absolute
    if blocks and not contents.graphs:
        cause = "no HybridBlock of it was ever called; call the model once, or pass inputs="
        if problems:
            cause = f"there is none of {'; '.join(problems)}"
        logger.warning(f"{_called(net)}: saved {contents.summary} to {absolute}; no graph, because {cause}")
        return absolute
    logger.info(f"{_called(net)}: saved {contents.summary} to {absolute}")
    if contents.graphs and contents.never_called:
        never_called = layout.shorten(contents.never_called)
        logger.info(f"{_called(net)}: saved without graphs, because they were never called: {never_called}")
    for problem in problems:
        logger.warning(f"no graph was saved of {problem}")
    return absolute


def _called(block: Block) -> str:
    """The name of a Block in messages, or its class if it has no name, as a BidirectionalCell or a SymbolBlock."""
    return called(block) or type(block).__name__


_told: dict[int, tuple[ref[Block], set[str]]] = {}
"""id() of a Block -> the Block, and the warnings of its saves: a training with checkpoints would repeat them. No
WeakKeyDictionary: the class of a Block may define __eq__ and no __hash__.
"""


def _warn(net: Block, text: str, always: bool) -> None:
    """Warn of something that a save of the model left out; unless `always`, only the first time."""
    key = id(net)
    if key not in _told or _told[key][0]() is not net:
        _told[key] = ref(net, lambda _: _told.pop(key, None)), set()
    if always or text not in _told[key][1]:
        _told[key][1].add(text)
        logger.warning(text)


def _check_no_graph_is_lost(file_name: str, contents: _Contents, problems: Sequence[str]) -> None:
    """Raise FewerGraphsError if the archive to be replaced has more graphs than this save, or graphs of a Block of the
    model that now has none.

    problems : why some Blocks have no graph
    """
    try:
        before = graph_members(Container.open(file_name))
    except (ArchiveError, OSError):  # no file, or no archive
        return
    lost = _lost_graphs(before, contents.graphs.keys(), contents.tree)
    if not lost:
        return
    causes = f" No graph was made of {'; '.join(problems)}." if problems else ""
    raise FewerGraphsError(
        f"{file_name} has {count(len(before), 'graph')}, and this save has {len(contents.graphs)}: it would lose "
        f"{layout.shorten(lost)}.{causes} Nothing was written. Call the model as it was called before, save to another "
        f"path, or pass overwrite={FEWER_GRAPHS!r}",
        lost,
        len(before),
        len(contents.graphs),
    )


def graph_members(archive: Container) -> list[str]:
    """The names of the members that hold graphs."""
    return [name for name in archive.manifest["members"] if layout.is_graph(name)]


def _lost_graphs(before: Sequence[str], now: Set[str], described: tree.Tree) -> list[str]:
    """In words, the graphs of a file that a save without them would lose; empty if the save has as many graphs, and a
    graph of every Block that has one in the file.
    """
    without = {layout.graph_member(record.path, 1) for record in described.blocks if not record.graphs}
    if len(before) <= len(now) and without.isdisjoint(before):
        return []
    return [layout.named_graph(member) for member in before if member not in now]


_PARTS = {
    layout.TRAINER: "the states of the Trainer",
    layout.AUX: "your own values, saved with aux=",
    layout.CHECKPOINT: "the place in the training, saved with a checkpoint",
}
"""Members of an archive that only a save by code writes."""


def would_lose(net: Block, path: str | PathLike[str], trainer: Trainer | None = None) -> list[str]:
    """In words, the graphs, tensors and other parts of the archive at `path` that a save of `net` would not write.

    Nothing changes. Tensors are compared only for Blocks of this model: losing the tensors of another model is no loss
    here. Raises ArchiveError, FileError.
    """
    archive = Container.open(path)
    with about(net), without_collecting(), boundary.lock, passing(net) as blocks:
        trace_missing(blocks)
        described = tree.describe_tree(net)
        _, members = _named_graphs(described)
        values_now = {
            key for key, parameter in described.live_parameters.items() if access.arrays(parameter) is not None
        }
    lost = [f"the graph of {name}" for name in _lost_graphs(graph_members(archive), members.keys(), described)]
    if layout.WEIGHTS in archive:
        tensors = archive.manifest["members"][layout.WEIGHTS].get("tensors", {})
        lost += [f"the values of {key}" for key in tensors if key not in values_now]
    return lost + [text for member, text in _PARTS.items() if member in archive and trainer is None]


class _Contents:
    """The contents of the archive, gathered before anything is written."""

    def __init__(
        self,
        net: Block,
        given: Mapping[int, Sequence[np.ndarray]],
        trainer: Trainer | None,
        aux: Mapping[str, object] | None,
        checkpoint: Mapping[str, object] | None,
    ) -> None:
        self.tree = tree.describe_tree(net)
        self.weights = self._fixed(
            {
                key: _values_of(parameter)
                for key, parameter in self.tree.live_parameters.items()
                if access.arrays(parameter) is not None
            }
        )
        self.histograms = histogram_tensors(self.tree.live_parameters, self.weights)
        self.graphs = self._name_graphs()
        self.calls = calls.describe(self.tree)
        self.trainer = None if trainer is None else self._trainer_states(trainer)
        self.random = None if trainer is None and checkpoint is None else random_state.get_state()
        numbers = {id(block): number for number, block in enumerate(self.tree.live_blocks)}
        keys = {id(parameter): key for key, parameter in self.tree.live_parameters.items()}
        self.attribute_tensors: dict[str, np.ndarray] = {}
        self.unsaved = attributes.describe(self.tree, values.Encoder(self.attribute_tensors, numbers, keys))
        self.aux_tensors: dict[str, np.ndarray] = {}
        if aux is not None and not isinstance(aux, Mapping):
            raise SettingError(f"aux= takes a dict of your own values, not {type(aux).__name__}")
        self.aux = None if aux is None else values.Encoder(self.aux_tensors, numbers, keys).encode(dict(aux))
        self.checkpoint_tensors: dict[str, np.ndarray] = {}
        self.checkpoint = None
        if checkpoint is not None:
            encoder = values.Encoder(self.checkpoint_tensors, numbers, keys)
            self.checkpoint = encoder.encode(dict(checkpoint), "checkpoint")
        self.attribute_tensors = self._fixed(self.attribute_tensors)
        self.aux_tensors = self._fixed(self.aux_tensors)
        by_identity = {id(self.tree.live_parameters[key]): array for key, array in self.weights.items()}
        self._sums = _sums(self.weights)
        self.examples, types = Examples(by_identity, given).collect(self.graphs)
        ids = {id(parameter): key for key, parameter in self.tree.live_parameters.items()}
        self.members = {
            member: graphs.write(member, neutral, ids, types[member] or self.types[member], self.weights)
            for member, neutral in self.graphs.items()
        }

    binaries: Sequence[Any] = ()
    lost_examples = False

    @staticmethod
    def _fixed(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The arrays, or copies while a cell may write to them: all parts of a file have the same values."""
        return {name: array.copy() for name, array in arrays.items()} if boundary.is_passed_by else arrays

    def _trainer_states(self, trainer: Trainer) -> tuple[dict[str, object], dict[str, np.ndarray]]:
        """The trainer's states; each of its parameters with the id it has in the tree, for models of other names."""
        if not hasattr(trainer, "get_states"):
            raise SettingError(f"trainer= takes a gluon.Trainer, not {type(trainer).__name__}")
        data, arrays = trainer.get_states()
        ids = {id(parameter): key for key, parameter in self.tree.live_parameters.items()}
        strangers = [each.name for each in access.trainer_parameters(trainer) if id(each) not in ids]
        if strangers:
            raise HybridLabError(
                f"the Trainer trains {layout.shorten(strangers)}, which the model does not have: its states could not "
                "be restored from the file. Save the whole model, or give the Trainer of this one"
            )
        named = [
            {**entry, "id": ids.get(id(parameter))}
            for entry, parameter in zip(data["parameters"], access.trainer_parameters(trainer), strict=True)
        ]
        return {**data, "parameters": named}, arrays

    @property
    def size(self) -> int:
        """Bytes of the arrays that make an archive large."""
        states = {} if self.trainer is None else self.trainer[1]
        tensors = (self.weights, states, self.attribute_tensors, self.aux_tensors, self.checkpoint_tensors)
        return sum(array.nbytes for arrays in tensors for array in arrays.values())

    @property
    def summary(self) -> str:
        """How many graphs of how many HybridBlocks, and how many parameters with values."""
        hybrid = sum(isinstance(block, HybridBlock) for block in self.tree.live_blocks)
        with_graphs = sum(bool(record.graphs) for record in self.tree.blocks)
        with_values = sum(key in self.weights for key in self.tree.live_parameters)
        without_values = len(self.tree.live_parameters) - with_values
        graphs, blocks = count(len(self.graphs), "graph"), count(hybrid, "HybridBlock")
        parameters = count(with_values, "parameter")
        notes = []
        if with_graphs != hybrid:
            notes.append(f"{with_graphs} of {blocks} {'has' if with_graphs == 1 else 'have'} graphs")
        if without_values:
            notes.append(f"{count(without_values, 'parameter')} without values")
        if self.lost_examples:
            notes.append("without examples: a thread changed parameters meanwhile")
        saved = f"{graphs} of {blocks} and {parameters}" if with_graphs == hybrid else f"{graphs} and {parameters}"
        return f"{saved} ({', '.join(notes)})" if notes else saved

    @property
    def never_called(self) -> list[str]:
        """Paths of the HybridBlocks that have no graph because no call has reached them."""
        return [
            record.path or _called(block)
            for record, block in zip(self.tree.blocks, self.tree.live_blocks, strict=True)
            if isinstance(block, HybridBlock) and not record.graphs and not access.last_outputs(block)
        ]

    def _name_graphs(self) -> dict[str, NeutralGraph]:
        self.types, members = _named_graphs(self.tree)
        return members

    def write(self, writer: ContainerWriter) -> None:
        """Write all members in their fixed order."""
        writer.add_json(layout.TREE, tree.to_json(self.tree))
        if self.calls is not None:
            writer.add_json(layout.CALLS, self.calls)
        for member, content in self.members.items():
            writer.add(member, content)
        writer.add_tensors(layout.WEIGHTS, self.weights)
        if self.examples and _sums(self.weights) != self._sums:
            self.examples, self.lost_examples = {}, True  # another thread changed values: they belong to other examples
        if self.histograms:
            writer.add_tensors(layout.HISTOGRAMS, self.histograms)
        if self.attribute_tensors:
            writer.add_tensors(layout.ATTRIBUTES, self.attribute_tensors)
        if self.trainer is not None:
            data, arrays = self.trainer
            writer.add_json(layout.TRAINER, _as_json(data, "the trainer's settings"))
            writer.add_tensors(layout.TRAINER_ARRAYS, arrays)
        if self.random is not None:
            writer.add_json(layout.RANDOM, self.random)
        if self.aux is not None:
            writer.add_json(layout.AUX, self.aux)
            writer.add_tensors(layout.AUX_ARRAYS, self.aux_tensors)
        if self.checkpoint is not None:
            writer.add_json(layout.CHECKPOINT, self.checkpoint)
            writer.add_tensors(layout.CHECKPOINT_ARRAYS, self.checkpoint_tensors)
        if self.examples:
            writer.add_tensors(layout.EXAMPLE_ARRAYS, self.examples)
        if self.binaries:
            write_binaries(writer, self.binaries)
        own = {} if values.is_of_1_0([self.aux, self.checkpoint]) else {"reader": "1.2"}
        writer.finish({**own, "writer": f"hybrid_lab {_version.__version__}", "model": self.tree.blocks[0].class_})


def _named_graphs(described: tree.Tree) -> tuple[dict[str, Types | None], dict[str, NeutralGraph]]:
    """Name of a member -> the types of its inputs, and its graph. Notes the names in the records of the Blocks."""
    members: dict[str, NeutralGraph] = {}
    types: dict[str, Types | None] = {}
    for record, block in zip(described.blocks, described.live_blocks, strict=True):
        if not isinstance(block, HybridBlock):
            continue
        for number, neutral in enumerate(access.calls(block).predicting_first(), start=1):
            member = layout.graph_member(record.path, number)
            record.graphs.append(member)
            members[member], types[member] = neutral, access.graphs(block).types_of(neutral)
    return types, members


def _values_of(parameter: Parameter) -> np.ndarray:
    """The values without a copy if there is one context."""
    arrays = parameter.list_data()
    return arrays[0].raw() if len(arrays) == 1 else access.mean(parameter).raw()


def _as_json(data: object, what: str) -> object:
    import json

    try:
        return json.loads(json.dumps(data, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise HybridLabError(f"{what} cannot be saved: {error}") from None


def _sums(arrays: Mapping[str, np.ndarray]) -> list[int]:
    """A number for each array that changes with its values: it takes a small part of the time of a digest."""
    sums = []
    for array in arrays.values():
        content = np.asarray(little_bytes(array))
        words = len(content) // 8 * 8
        sums.append(int(content[:words].view(np.uint64).sum()) + int(content[words:].sum()))
    return sums
