"""Loading an archive into a live model: all or nothing, after comparing everything with the model and its code."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

from hybrid_lab.diagnostics import HybridLabError, LoadMismatchError, SettingError
from hybrid_lab.diagnostics.formatting import about, called, check_choice, first_line
from hybrid_lab.diagnostics.switches import check_switches
from hybrid_lab.gluon import access
from hybrid_lab.gluon.block import Block
from hybrid_lab.gluon.files.saved import note_file
from hybrid_lab.gluon.hybrid import HybridBlock
from hybrid_lab.gluon.step import boundary
from hybrid_lab.hybridize.neutral import NeutralGraph
from hybrid_lab.hybridize.structure import describe, plain
from hybrid_lab.insight.states import hybrid_blocks
from hybrid_lab.ndarray import NDArray
from hybrid_lab.system.logger import logger
from hybrid_lab.system.memory import without_collecting
from hybrid_lab.system.progress import shows_work

from . import calls, graphs, layout, ledger
from .archive import Archive
from .attributes import CHOICES, restoring
from .block_save import load_pair, prefix_of
from .compare import Match, match
from .folder import Folder, folder_at
from .graphs import SavedGraph
from .report import LoadReport, TrainerStates
from .traces import live_graph, passing
from .tree import initializer_of, rename_classes
from .values import Decoder, trainer_parts

if TYPE_CHECKING:
    from hybrid_lab.gluon import Trainer


@shows_work("loading")
def load_cached_graphs(
    net: Block,
    path: str | PathLike[str] | None = None,
    strict: bool = True,
    graphs: str = "code",
    map: Mapping[str, str] | None = None,  # noqa: A002 - the public name
    subtree: str | None = None,
    trainer: Trainer | None = None,
    attributes: str = "state",
    classes: Mapping[str, type | str] | None = None,
) -> LoadReport:
    """Load a `.hlab` archive into an existing model; Parameter objects stay the same, so Trainers stay valid.

    Or load a folder that `save_cached_graphs(net, path, format="mxnet")` wrote, or a folder with MXNet's files of
    single Blocks, named by their paths or by `block.name` and a number: a Block without files is not changed. Or load
    the two files that MXNet's `Block.save(path)` wrote: their tree is compared with the model, and their graphs are
    read for graphs="file" only.

    strict : raise one LoadMismatchError that lists every difference; False loads what fits and reports the rest
    graphs : "code" traces the model's code again and compares it with the file's graphs; "file" lets the file's graphs
        win without a trace, for eager calls too
    map : file path -> model path of blocks that have moved, {"features": "backbone"}
    subtree : load only the part below this path of the file into `net`
    trainer : also restore this Trainer and the random state from the file
    attributes : "state" restores the attributes that the model's forward does not read: counters, histories, Trainers.
        An attribute that forward reads is a setting of the code; it is not changed, and a different value in the file
        is noted. "file" restores these too, before graphs are compared; "code" restores none. `report.attributes` has
        all of the file
    classes : name in the file -> the class, or its name, of Blocks whose class has another name now, {"OldNet": Net}

    The report has the user's own values and, if the file was saved with `trainer=`, the training state. The training
    continues exactly where it stopped once a Trainer of this model has restored the state:

    >>> report = load_cached_graphs(net, "run.hlab")
    >>> report.aux
    {'epoch': 3}
    >>> report.trainer_states
    <trainer states: Adam after 5 updates of 2 parameters>
    >>> report.trainer_states.restore(trainer)          # or load_cached_graphs(net, "run.hlab", trainer=trainer)
    >>> trainer.optimizer.num_update
    5

    Raises ArchiveError for a damaged file, LoadMismatchError, HybridLabError for a bad argument; nothing changed then.
    """
    check_switches("load_cached_graphs", strict=strict)
    check_choice("graphs", graphs, ("code", "file"), HybridLabError)
    if not isinstance(net, Block):
        raise HybridLabError(f"load_cached_graphs needs a Block, not {type(net).__name__}")
    with about(net), without_collecting(), boundary.lock:
        folder = folder_at(path, net.name)
        pair = prefix_of(path) if folder is None else None
        if pair is not None:
            check_choice("attributes", attributes, CHOICES, HybridLabError)
            if map or subtree or trainer:
                raise HybridLabError("MXNet's files are loaded as a whole: map=, subtree= and trainer= need an archive")
            return load_pair(net, pair, strict, graphs == "file", classes)
        check_choice("attributes", attributes, CHOICES, HybridLabError)
        archive = Archive(layout.existing_path(path, net.name)) if folder is None else Folder(folder, net)
        rename_classes(archive.tree, classes)
        return _Loading(archive, net, strict, graphs == "file", map, subtree, trainer, attributes).run()


def load_opened(
    net: Block,
    archive: Archive,
    graphs: str,
    trainer: Trainer | None = None,
    attributes: str = "state",
    trainers: Sequence[tuple[str, Mapping[str, Any], Trainer]] = (),
) -> LoadReport:
    """`load_cached_graphs` of an archive that was read already. Raises LoadMismatchError; nothing changed then.

    trainers : (name, parts of a saved Trainer as `objects.trainer_parts` gives them, the Trainer that goes on from it)
    """
    with about(net), without_collecting(), boundary.lock:
        loading = _Loading(archive, net, True, graphs == "file", None, None, trainer, attributes)
        owners, path = loading.match.parameters, archive.path
        loading.further = [
            (name, TrainerStates(parts["settings"], parts["arrays"], None, owners, path), each)
            for name, parts, each in trainers
        ]
        return loading.run()


class _Loading:
    """One load: compare, decide, apply. further : names of more Trainers, their states in the file, the Trainers"""

    further: Sequence[tuple[str, TrainerStates, Trainer]] = ()

    def __init__(
        self,
        archive: Archive | Folder,
        net: Block,
        strict: bool,
        from_file: bool,
        renamed: Mapping[str, str] | None,
        subtree: str | None,
        trainer: Trainer | None,
        attributes: str,
    ) -> None:
        self.archive, self.net, self.strict, self.from_file, self.trainer = archive, net, strict, from_file, trainer
        self.is_whole = subtree is None
        self.match: Match = match(archive.tree, net, renamed, subtree)
        self.differences = self.match.differences
        self.seen: set[int] = set()
        self.pairs: list[tuple[str, HybridBlock, list[SavedGraph]]] = []
        for place, record, block in self.match.blocks:
            if id(block) not in self.seen and isinstance(block, HybridBlock):
                self.pairs.append((place, block, [archive.graphs[member] for member in record.graphs]))
            self.seen.add(id(block))
        self.blocks = {record.id: block for _, record, block in self.match.blocks}
        self.attributes = restoring(self.match, archive.attribute_tensors, attributes, archive.path)
        self.match.notes += self.attributes.notes

    def run(self) -> LoadReport:
        """Raises before anything changes, or changes everything."""
        states = self._trainer_states()
        self.archive.aux(self.blocks, self.match.parameters, trainer_parts)  # a damaged value stops the load here
        members = [saved.member for _, _, saved_graphs in self.pairs for saved in saved_graphs]
        self.differences += self.archive.example_differences(members)
        records = self.archive.tree.parameters
        waiting = {key: initializer_of(records[key], self.archive.path) for key in self.match.deferred}
        pins: dict[int, list[NeutralGraph]] = {}
        untraced = [block for _, block in hybrid_blocks(self.net) if not access.graphs(block).graphs()]
        try:
            self.attributes.apply()
            if self.from_file:
                pins = self._attach()
            else:
                self._compare_code()
            restorable = self.trainer is not None and self._check_trainer(states, self.trainer)
            for name, saved_trainer, trainer in self.further:
                self.differences += [f"trainer {name!r}: {line}" for line in saved_trainer.differences(trainer)]
            if self.strict and self.differences:
                count = f"{len(self.differences)} difference{'s' * (len(self.differences) > 1)}"
                settings = "".join(f"; {note}" for note in self.attributes.notes[:3])
                raise LoadMismatchError(
                    f"the archive does not fit the model {called(self.net)}: {count}; nothing was loaded "
                    f"(net.load with strict=False loads what fits){settings}",
                    self.differences,
                    path=self.archive.path,
                )
        except BaseException:
            self.attributes.undo()
            for block in untraced:
                access.calls(block).clear()
            raise
        fitting = self._parameters()
        interrupt = self._apply(fitting)
        for key, init in waiting.items():
            self.match.parameters[key].initialize(default_init=init)
        for _, block, saved_graphs in self.pairs:
            if self.from_file and saved_graphs and id(block) in pins:
                access.calls(block).pin(pins[id(block)])
            elif not self.from_file and access.graphs(block).pinned and not access.is_its_graph(block):
                access.calls(block).pin([])
            for saved in reversed(saved_graphs):
                access.graphs(block).note_loaded(saved.in_spec, saved.types, saved.observation)
        if self.archive.calls is not None:
            calls.give(self.archive.calls, self.blocks)
        notes = len(self.attributes.notes)
        self.attributes.finish(Decoder(self.archive.attribute_tensors, self.blocks, self.match.parameters))
        self.match.notes += self.attributes.notes[notes:]
        aux = self.archive.aux(self.blocks, self.match.parameters)
        restored = False
        if restorable and states is not None and self.trainer is not None:
            states.restore(self.trainer)
            restored = True
        for _, saved_trainer, trainer in self.further:
            saved_trainer.restore(trainer)
        path = self.archive.path if isinstance(self.archive, Archive) else None
        if self.is_whole and not self.differences and path is not None:
            note_file(self.net, os.path.abspath(path), "loaded")
            ledger.note(self.net, path)
        if interrupt is not None:
            raise interrupt
        graphs = sum(map(len, pins.values())) if self.from_file else len(members)
        return self._report(aux, states, restored, len(fitting), graphs)

    def _parameters(self) -> dict[str, NDArray]:
        """The file's values: a parameter that has values copies them, another one takes them over."""
        return {key: NDArray.wrap(self.archive.weights[key]) for key in self.match.loadable}

    def _apply(self, fitting: dict[str, NDArray]) -> KeyboardInterrupt | None:
        """Set all values. An interrupt in between is returned at the end: everything was checked, so all is loaded."""
        interrupt = None
        for key, values in fitting.items():
            try:
                access.load_values(self.match.parameters[key], values)
            except KeyboardInterrupt as error:
                interrupt = error
                access.load_values(self.match.parameters[key], values)
        return interrupt

    def _trainer_states(self) -> TrainerStates | None:
        if self.archive.trainer is None:
            return None
        settings, arrays = self.archive.trainer
        return TrainerStates(settings, arrays, self.archive.random, self.match.parameters, self.archive.path)

    def _check_trainer(self, states: TrainerStates | None, trainer: Trainer) -> bool:
        """Whether the file's states fit this Trainer; misfits are listed among the differences."""
        if not hasattr(trainer, "set_states"):
            raise SettingError(f"trainer= takes a gluon.Trainer, not {type(trainer).__name__}")
        if states is None:
            raise HybridLabError("the file holds no trainer, because it was saved without trainer=")
        problems = states.differences(trainer)
        self.differences += [f"trainer: {problem}" for problem in problems]
        return not problems

    def _report(
        self, aux: dict[str, object], states: TrainerStates | None, restored: bool, parameters: int, count: int
    ) -> LoadReport:
        path, notes = os.path.abspath(self.archive.path or ""), self.match.notes
        report = LoadReport(
            path,
            len(self.seen) - access.is_group(self.net),
            parameters,
            count,
            self.differences,
            notes,
            aux,
            states,
            restored,
        )
        report.attributes = self.attributes.found
        for note in report.notes:
            logger.warning(f"{called(self.net)}: {note}")
        logger.info(f"{called(self.net)}: {str(report).splitlines()[0]}")
        return report

    # -- graphs='file' ---------------------------------------------------------------------------------------------

    def _attach(self) -> dict[int, list[NeutralGraph]]:
        """The file's graphs on the live parameters; a graph that reads a parameter without a partner is a
        difference.
        """
        found: dict[int, list[NeutralGraph]] = {}
        for place, block, saved_graphs in self.pairs:
            for saved in saved_graphs:
                usable = self.match.parameters.keys() - self.match.misfits
                lacking = [key for key in saved.parameters if key not in usable]
                if lacking:
                    names = layout.shorten(lacking)
                    self.differences.append(
                        f"graph: {place or block.name} reads {names}, which the model does not have"
                    )
                else:
                    found.setdefault(id(block), []).append(saved.attach(self.match.parameters, block.name))
        return found

    # -- graphs='code' ---------------------------------------------------------------------------------------------

    def _compare_code(self) -> None:
        own = [block for _, block, _ in self.pairs if not access.is_its_graph(block)]
        pinned = [(block, access.graphs(block).pinned) for block in own]
        for block, _ in pinned:
            access.graphs(block).pinned = {}
        try:
            with passing(self.net):
                for place, block, saved_graphs in self.pairs:
                    for saved in saved_graphs:
                        if not self.match.parameters.keys() >= set(saved.parameters):
                            continue  # its input is missing in the model, and is listed among the differences
                        problem = self._compare_graph(block, saved)
                        if problem:
                            self.differences.append(f"graph: {place or block.name}: {problem}")
        finally:
            for block, graphs_before in pinned:
                access.graphs(block).pinned = graphs_before

    def _compare_graph(self, block: HybridBlock, saved: SavedGraph) -> str | None:
        try:
            live = live_graph(block, saved.in_spec, saved.observation, saved.types, saved.named)
        except Exception as error:  # noqa: BLE001 - the user's code may raise anything when it is called on Symbols
            name, text = type(error).__name__, first_line(error)
            return f"tracing the code raised {name}" + (f": {text}" if text != name else "")
        if live is None:
            missing = "classes of the named tuples" if saved.named else "shapes"
            self.match.notes.append(
                f"{saved.member} was not compared: the {missing} that the code asks for are not in the file"
            )
            return None
        if plain(live.out_spec) != saved.out_spec:
            return f"the model returns {describe(live.out_spec)}, the file's graph {describe(saved.out_spec)}"
        owners = [self.match.ids.get(id(parameter), parameter.name) for parameter in live.parameters]
        ours = graphs.listing(live.graph, live.num_data, owners)
        return graphs.first_difference(ours, graphs.listing(saved.graph, saved.num_data, saved.parameters))
