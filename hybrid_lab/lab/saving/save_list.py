"""`mx.lab.saves()`: the saves of a model over time, and what the values and gradients of a parameter were in each."""

from __future__ import annotations

import contextlib
import difflib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, cast

from hybrid_lab.diagnostics.errors import HybridLabError, InputError
from hybrid_lab.diagnostics.formatting import count, first_line, visible
from hybrid_lab.formats.archive import (
    Container,
    SavedHistograms,
    layout,
    ledger,
    live_histograms,
)
from hybrid_lab.gluon import access
from hybrid_lab.gluon.block import Block
from hybrid_lab.gluon.parameter import Parameter
from hybrid_lab.insight.report import InsightReport
from hybrid_lab.insight.states import block_at, blocks_below
from hybrid_lab.insight.summary import Summary, number
from hybrid_lab.insight.table import Column, Row, Table
from hybrid_lab.lab.messages.saving import Histogram, HistogramsReply, SavedValues
from hybrid_lab.lab.saving import file_names, history, save_facts

_NAMED = 1000
"""Most parameters of a Block that are listed."""
_GONE = "the file is gone"


@dataclass
class Save:
    """An archive. modified : when it was written, seconds since 1970; step, loss, loss_name, note : as the panel shows
    them; problem : why it cannot be read, else ""
    """

    path: str
    modified: float
    bytes: int
    step: int | None = None
    loss: float | None = None
    loss_name: str = ""
    note: str = ""
    problem: str = ""

    @property
    def training(self) -> str:
        """`step 1200, loss 0.31`, as far as it is known."""
        parts = [f"step {self.step:,}"] if self.step is not None else []
        parts += [f"{self.loss_name or 'loss'} {self.loss:.4g}"] if self.loss is not None else []
        return ", ".join(parts)

    @property
    def when(self) -> str:
        """Local date and time."""
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.modified))


@dataclass
class SaveHistograms:
    """A parameter in one save, or now, in the live model: then `save` is None.

    values, gradient : None if there are none; recorded : False for an archive of an older release, whose values were
    read; problem : why they cannot be read, else ""
    """

    save: Save | None
    values: Summary | None = None
    gradient: Summary | None = None
    recorded: bool = True
    problem: str = ""


@dataclass(repr=False)
class HistogramHistory(InsightReport):
    """A parameter over the saves, oldest first; the last row is the live model's, if there is one."""

    name: str
    rows: list[SaveHistograms]

    @property
    def headline(self) -> str:
        """`fc.weight in 3 saves`."""
        saved = sum(row.save is not None and row.values is not None for row in self.rows)
        return f"{visible(self.name)} in {count(saved, 'save')}"

    def _table(self) -> Table:
        names = ("min", "max", "mean", "std", "zeros", "NaN", "gradient's std")
        columns = (
            Column("save"),
            Column("step"),
            *(Column(name, right=True) for name in names),
            Column("", flexible=True),
        )
        return Table(columns, [Row(self._cells(row)) for row in self.rows])

    def _cells(self, row: SaveHistograms) -> list[str]:
        values, save = row.values, row.save
        when, training = ("now", "") if save is None else (save.when, save.training)
        note = row.problem or (save.note if save is not None else "")
        gradient = "" if row.gradient is None or row.gradient.std is None else number(row.gradient.std)
        if values is None:
            return [when, training, *[""] * 7, visible(note or "no values of it")]
        numbers = [values.minimum, values.maximum, values.mean, values.std]
        sample = f"sample of {values.sample}" if values.sample else ""
        return [
            *(when, training, *("" if each is None else number(each) for each in numbers)),
            *(f"{values.zeros:,}", f"{values.nans:,}" if values.nans else "", gradient),
            "; ".join(filter(None, (visible(note), sample))),
        ]


@dataclass(repr=False)
class SaveList(InsightReport):
    """The saves of a model, oldest first; iterate over it for each Save.

    path : the file or folder; saves : the existing saves
    """

    path: str
    saves: list[Save]
    name: str = "saves"
    _parameter: Callable[[str], Parameter | None] = field(default=lambda name: None, compare=False)

    @property
    def headline(self) -> str:
        """How many there are, and of what."""
        return f"{count(len(self.saves), 'save')} of {self.path}" if self.saves else f"no saves of {self.path} yet"

    def __len__(self) -> int:
        return len(self.saves)

    def __iter__(self) -> Iterator[Save]:
        return iter(self.saves)

    def __getitem__(self, index: int) -> Save:
        return self.saves[index]

    @property
    def parameters(self) -> list[str]:
        """The paths of the parameters of the newest save that can be read."""
        for save in reversed(self.saves):
            with contextlib.suppress(HybridLabError, OSError):
                return SavedHistograms(Container.open(save.path)).names
        return []

    def histograms(self, parameter: str) -> HistogramHistory:
        """The values of a parameter and its gradients in each save, and, if a model was given, now.

        parameter : its path, as in `net.get_params()`: "features.0.weight"
        Read are the records of the archives, no weights; of archives of older releases the weights of this parameter.
        Raises InputError for a parameter without values in any save.
        """
        rows = [_of_path(Path(save.path), parameter) or SaveHistograms(save, problem=_GONE) for save in self.saves]
        live = self._parameter(parameter)
        if live is not None and (now := live_histograms(live)) is not None:
            rows.append(SaveHistograms(None, now.values, now.gradient))
        if all(row.values is None and not row.problem for row in rows):
            near = difflib.get_close_matches(parameter, self.parameters, n=3)
            raise InputError(
                f"no save of {self.path} has a parameter {parameter!r}"
                + (f"; did you mean {', '.join(near)}?" if near else "")
            )
        return HistogramHistory(parameter, rows)

    def data(self) -> dict[str, Any]:
        """Everything as dicts, lists, strings and numbers."""
        return {"name": self.name, "path": self.path, "saves": [asdict(save) for save in self.saves]}

    def _table(self) -> Table:
        columns = (Column("saved"), Column("step"), Column("MB", right=True), Column("file"), Column("", flexible=True))
        rows = [
            Row(
                (
                    save.when,
                    save.training,
                    f"{save.bytes / 1e6:.1f}",
                    Path(save.path).name,
                    visible(save.problem or save.note),
                )
            )
            for save in self.saves
        ]
        return Table(columns, rows)


def _cells(save: Save) -> tuple[str, ...]:
    note = visible(save.problem or save.note)
    return save.when, save.training, f"{save.bytes / 1e6:.1f}", visible(Path(save.path).name), note


def saves(of: Block | str | PathLike[str]) -> SaveList:
    """The saves of a model over time, for the histograms of its parameters: `mx.lab.saves(net).histograms("0.weight")`.

    of : a model: the file that it was last saved to or loaded from; or the path of an archive, without a model. The
        archive's earlier saves in `.hybrid_lab_history` come with it. Or a folder, such as one of `mx.checkpoint`: all
        archives in it
    Raises InputError for a model that was never saved, and for any other value, FileError if the file is missing.
    """
    if isinstance(of, Block):
        known = ledger.files(of)
        if not known:
            raise InputError(f"{of.name} was neither saved nor loaded in this process: give the path of its archive")
        ids = _ids(of)
        return SaveList(known[-1], _saves_of(Path(known[-1])), _parameter=lambda name: ids.get(name))
    if not isinstance(of, (str, PathLike)):
        raise InputError(f"mx.lab.saves takes a model, or the path of an archive or folder, not {type(of).__name__}")
    path = Path(os.path.abspath(of))
    if path.is_dir():
        found = sorted(path.glob(f"*{layout.SUFFIX}"), key=lambda each: (each.stat().st_mtime_ns, each.name))
        return SaveList(os.fspath(path), [_save(each) for each in found if each.is_file()])
    path = Path(layout.existing_path(path))
    return SaveList(os.fspath(path), _saves_of(path))


def _saves_of(path: Path) -> list[Save]:
    """A file and its earlier saves, oldest first."""
    found = []
    for each in _files_of(path):
        with contextlib.suppress(FileNotFoundError):  # it went away meanwhile, or there is none
            found.append(_save(each))
    return found


def _files_of(path: Path) -> list[Path]:
    """A file after its earlier saves, oldest first."""
    return [*reversed(history.entries(Path(os.path.realpath(path)))), path]


def _of_path(path: Path, parameter: str) -> SaveHistograms | None:
    """A parameter in an archive; None if the file is gone."""
    try:
        return _histograms(*_opened(path), parameter)
    except FileNotFoundError:
        return None


def _save(path: Path) -> Save:
    return _opened(path)[0]


def _opened(path: Path) -> tuple[Save, Container | None]:
    """A save, and its archive if it can be opened. Raises FileNotFoundError."""
    state = path.stat()
    save = Save(os.fspath(path), state.st_mtime, state.st_size)
    try:
        archive = Container.open(path)
    except (HybridLabError, OSError) as error:
        save.problem = first_line(error)
        return save, None
    known = save_facts.read(history.folder_of(path), archive)
    save.step, save.loss, save.loss_name, save.note = known.step, known.loss, known.loss_name, known.note
    return save, archive


def _histograms(save: Save, archive: Container | None, parameter: str) -> SaveHistograms:
    if archive is None:
        return SaveHistograms(save, problem=save.problem)
    try:
        records = SavedHistograms(archive)
        found = records.of(parameter)
    except (HybridLabError, OSError) as error:
        return SaveHistograms(save, problem=first_line(error))
    if found is None:
        return SaveHistograms(save)
    return SaveHistograms(save, found.values, found.gradient, records.is_recorded)


def _ids(net: Block) -> dict[str, Parameter]:
    """Id of a parameter in the archives of a model -> the parameter: the path of its first place."""
    found: dict[int, tuple[str, Parameter]] = {}
    for path, block in layout.places(net, lambda each: access.children(each).items()):
        for name, parameter in access.own_parameters(block).items():
            found.setdefault(id(parameter), (layout.join(path, name), parameter))
    return dict(found.values())


def histograms_reply(net: Block, file: str, path: str, name: str) -> HistogramsReply:
    """The protocol's reply to `histograms`: a parameter of the Block at `path` over the saves of a file.

    name : the parameter's path below the Block; "" for the first one. Raises KeyError for an unknown path, RequestError
    """
    below: dict[str, Parameter] = {}
    for place, block in blocks_below(block_at(net, path)):
        for key, parameter in access.own_parameters(block).items():
            below[f"{place}.{key}" if place else key] = parameter
    names = list(below)[:_NAMED]
    chosen = name if name in below else next(iter(names), "")
    reply: HistogramsReply = {"parameters": names, "name": chosen, "saves": [], "live": None, "live_gradient": None}
    if not chosen:
        return reply
    parameter = below[chosen]
    key = next(key for key, each in _ids(net).items() if each is parameter)
    for each in _files_of(file_names.checked(file)):
        if (row := _of_path(each, key)) is not None:
            reply["saves"].append(_column(row))
    now = live_histograms(parameter)
    if now is not None:
        reply["live"], reply["live_gradient"] = _histogram(now.values), _histogram(now.gradient)
    return reply


def _column(row: SaveHistograms) -> SavedValues:
    save = row.save
    assert save is not None
    return {
        "file": file_names.shown(Path(save.path)),
        "modified": save.modified,
        "step": save.step,
        "loss": save.loss,
        "loss_name": save.loss_name,
        "note": save.note,
        "problem": visible(row.problem),
        "recorded": row.recorded,
        "values": _histogram(row.values),
        "gradient": _histogram(row.gradient),
    }


def _histogram(summary: Summary | None) -> Histogram | None:
    if summary is None:
        return None
    fields = {key: value for key, value in vars(summary).items() if key not in ("shape", "dtype")}
    return cast(Histogram, fields | {"bins": list(summary.bins)})
