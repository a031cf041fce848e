"""Saving and reloading every model of a notebook or a script at once: `mx.lab.save_all`, `mx.lab.reload_all`."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

from hybrid_lab.diagnostics.errors import HybridLabError, SettingError
from hybrid_lab.diagnostics.file_errors import writing
from hybrid_lab.diagnostics.formatting import check_choice, count, first_line
from hybrid_lab.formats import archive
from hybrid_lab.formats.archive import ledger
from hybrid_lab.gluon.block import Block
from hybrid_lab.gluon.step import boundary
from hybrid_lab.insight.report import InsightReport
from hybrid_lab.insight.states import class_name
from hybrid_lab.insight.table import Column, Row, Table
from hybrid_lab.lab.models import registry
from hybrid_lab.lab.models.registry import LiveModel, Registry
from hybrid_lab.lab.saving import file_names, one_save
from hybrid_lab.lab.saving.snapshot import Snapshot
from hybrid_lab.lab.saving.undo import Undo, undo_of_reload, undo_of_save


@dataclass
class EveryRow:
    """One model. file : its archive; did : what was done, or why not; ok : whether it was done"""

    model: str
    kind: str
    file: str
    did: str
    ok: bool


class PartlyDoneError(HybridLabError):
    """Some models could not be saved, reloaded or undone.

    report : the outcome for the others; its `undo()` undoes that
    """

    def __init__(self, message: str, report: EveryReport):
        super().__init__(message)
        self.report = report


@dataclass
class _RowUndo:
    """What undoes one row. entry : of the model in the panel, if it is listed there"""

    row: EveryRow
    undo: Undo
    entry: LiveModel | None


@dataclass(repr=False)
class EveryReport(InsightReport):
    """What became of each model. The report of a reload holds a copy of the values before it, for `undo()`."""

    name: str
    verb: str
    rows: list[EveryRow] = field(default_factory=list)
    _steps: list[_RowUndo] = field(default_factory=list, compare=False)

    def undo(self, overwrite: bool = False) -> EveryReport:
        """Put back what was there before: the files that a save replaced, the values that a reload replaced.

        A new file goes to the earlier saves, which also keep the files replaced now. A file or a model changed since is
        left unchanged, unless overwrite=True; a model's later values are lost then.

        Raises PartlyDoneError that names the steps that could not be undone, whose files and models are unchanged; the
        rest is undone, and a second call tries these steps again. Raises HybridLabError if nothing is left to undo.
        """
        if not self._steps:
            raise HybridLabError("there is nothing to undo, or it was undone already")
        rows: list[EveryRow] = []
        problems: list[str] = []
        with boundary.lock:
            found = [(step, step.undo.changed()) for step in self._steps]  # first: models may share parameters
        for step, changed in reversed(found):
            row = step.row
            try:
                if changed and not overwrite:
                    raise HybridLabError(f"{changed}, so it stays as it is unless you call undo(overwrite=True)")
                with boundary.lock:
                    did = step.undo.act()
            except (HybridLabError, OSError) as error:
                problems.append(f"{row.model}: {first_line(error)}")
                continue
            self._steps.remove(step)
            if step.entry is not None:
                step.entry.undos = [each for each in step.entry.undos if each is not step.undo]
                step.entry.rows.mark([])
            rows.append(EveryRow(row.model, row.kind, row.file, did, True))
        return _report("undo", "undone", rows[::-1], problems, [])

    def data(self) -> dict[str, Any]:
        """Everything as dicts, lists, strings and numbers."""
        return {"name": self.name, "verb": self.verb, "rows": [asdict(row) for row in self.rows]}

    @property
    def headline(self) -> str:
        """`3 models saved, 1 left out`."""
        done = sum(row.ok for row in self.rows)
        others = len(self.rows) - done
        return f"{count(done, 'model')} {self.verb}" + (f", {others} left out" if others else "")

    def _table(self) -> Table:
        columns = (Column("model"), Column("class"), Column("file"), Column("", flexible=True))
        return Table(columns, [Row((row.model, row.kind, _shown(row.file), row.did)) for row in self.rows])


def _shown(file: str, most: int = 60) -> str:
    """A file as the table has it: from the current folder on, and of a long path the end, which has the name."""
    path = Path(file)
    text = os.fspath(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file
    return text if len(text) <= most else f"…{text[1 - most :]}"


def save_all(
    folder: str | PathLike[str] | None = None,
    *,
    models: Mapping[str, Block] | None = None,
    note: str = "",
    overwrite: bool = False,
) -> EveryReport:
    """Save every model, each to an archive of its own; the files that are replaced are kept among the earlier saves.

    folder : where `<name>.hlab` goes, created if it is missing; by default the file that each model was last saved to
        or loaded from, else `<name>.hlab` in the current folder
    models : name -> Block; by default the models that the panel lists: Blocks bound to variables of the notebook, or of
        the script. Loss functions and models that were never called are left out, which the report says
    note : a line that the list of earlier saves shows
    overwrite : also replace archives of models of another class, and archives with graphs that this save lacks

    `undo()` of the report puts the files back that were there before.
    Raises PartlyDoneError that names the models that could not be saved; the others are saved then, and its `report`
    undoes that.
    """
    steps: list[_RowUndo] = []
    rows: list[EveryRow] = []
    problems: list[str] = []
    taken: dict[os.PathLike[str], str] = {}
    with writing(folder or os.curdir):
        if folder is not None:
            os.makedirs(folder, exist_ok=True)
    for name, net, entry in _models(models):
        path = _file(name, entry, folder)
        left_out = entry.left_out if entry is not None else ""
        if left_out:
            rows.append(EveryRow(name, class_name(net), "", f"left out: {left_out}", False))
            continue
        try:
            if path in taken:
                raise HybridLabError(f"{path} is the file of {taken[path]} already")
            taken[path] = name
            _check(net, path, overwrite)
            with boundary.lock:
                was_own = ledger.version(path) in ("", ledger.noted(net, path))
                before = None if entry is None else entry.file
                kept = one_save.write(net, path, note, fewer_graphs=overwrite)
                undo = undo_of_save(entry, net, path, kept, was_own, before)
        except (HybridLabError, OSError) as error:
            problems.append(f"{name}: {first_line(error)}")
            continue
        if entry is not None:
            entry.file = path
            entry.can_undo(undo)
        contents = archive.inspect(path)
        did = f"{count(contents['graphs'], 'graph')}, {count(contents['parameters'], 'parameter')}"
        did += "" if kept is None else "; what was there is kept among the earlier saves"
        rows.append(EveryRow(name, class_name(net), os.fspath(path), did, True))
        steps.append(_RowUndo(rows[-1], undo, entry))
    return _report("save_all", "saved", rows, problems, steps)


def reload_all(
    folder: str | PathLike[str] | None = None,
    *,
    models: Mapping[str, Block] | None = None,
    graphs: str = "code",
) -> EveryReport:
    """Load into every model the archive that `save_all` wrote of it; a model without a file is left out.

    folder, models : as in `save_all`; graphs : as in `net.load`: "file" lets the file's graphs win over the code

    `undo()` of the report restores the replaced values, of which it holds a copy.
    Raises PartlyDoneError that names the models that could not be loaded, which are unchanged; the other models are
    loaded, and the error's `report` undoes their loads.
    """
    check_choice("graphs", graphs, ("code", "file"), HybridLabError)
    rows: list[EveryRow] = []
    problems: list[str] = []
    loaded: list[tuple[EveryRow, LiveModel | None, Block, Path, Snapshot, Path | None]] = []
    for name, net, entry in _models(models):
        path = _file(name, entry, folder)
        if entry is not None and entry.is_saved_elsewhere:
            continue
        if not path.exists():
            if entry is None or not entry.left_out:
                rows.append(EveryRow(name, class_name(net), os.fspath(path), "left out: there is no such file", False))
            continue
        before = None if entry is None else entry.file
        try:
            with boundary.lock:
                snapshot = Snapshot(net)
                report = archive.load_cached_graphs(net, path, graphs=graphs)
                snapshot.reloaded()
        except (HybridLabError, OSError) as error:
            problems.append(f"{name}: {first_line(error)}")
            continue
        if entry is not None:
            entry.file = path
            entry.rows.mark([])
        rows.append(EveryRow(name, class_name(net), os.fspath(path), str(report).splitlines()[0], True))
        loaded.append((rows[-1], entry, net, path, snapshot, before))
    steps = []
    for row, entry, net, path, snapshot, before in loaded:  # at the end: models may share parameters
        steps.append(_RowUndo(row, undo_of_reload(entry, net, path, snapshot, before), entry))
        if entry is not None:
            entry.can_undo(steps[-1].undo)
    return _report("reload_all", "reloaded", rows, problems, steps)


def _report(name: str, verb: str, rows: list[EveryRow], problems: list[str], steps: list[_RowUndo]) -> EveryReport:
    """The report, or an error that names what could not be done."""
    report = EveryReport(name, verb, rows, steps)
    if problems:
        raise PartlyDoneError("; ".join([*problems, f"{report.headline} all the same"]), report)
    return report


def _check(net: Block, path: Path, overwrite: bool) -> None:
    """Raise HybridLabError if anything but an archive of this model's class would be replaced."""
    if not os.path.lexists(path):
        return
    reason = archive.why_no_archive(path)
    if reason is not None:
        raise HybridLabError(f"{path} exists and is not an intact archive ({reason}); choose another folder")
    kind = archive.inspect(path)["class"]
    if kind != class_name(net) and not overwrite:
        raise HybridLabError(
            f"{path} holds another model, {kind}, not {class_name(net)}: choose another folder, or pass overwrite=True"
        )


def _file(name: str, entry: LiveModel | None, folder: str | PathLike[str] | None) -> Path:
    if folder is not None:
        return Path(os.path.abspath(folder)) / file_names.name_for(name)
    if entry is not None and entry.file is not None:
        return entry.file
    return Path.cwd() / file_names.name_for(name)


def _models(models: Mapping[str, Block] | None) -> list[tuple[str, Block, LiveModel | None]]:
    """(name, model, its entry in the panel)."""
    if models is not None:
        if not isinstance(models, Mapping):
            raise SettingError("models= takes a dict of names and Blocks, such as {'net': net}")
        for name, net in models.items():
            if not isinstance(name, str) or not name or os.path.basename(name) != name or not isinstance(net, Block):
                raise SettingError("models= takes a dict of names and Blocks, such as {'net': net}")
        return [(name, net, None) for name, net in models.items()]
    entries = _registry().refresh()
    return [(entry.name, block, entry) for entry in entries if (block := entry.reference()) is not None]


def _registry() -> Registry:
    """The panel's, in a notebook; else one of the script's variables."""
    if registry.of_notebook is not None:
        return registry.of_notebook
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return Registry(lambda: vars(sys.modules["__main__"]) if shell is None else shell.user_ns)
