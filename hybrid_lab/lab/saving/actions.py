"""The actions of the buttons, save, reload, undo and open; while a cell trains they wait for a step boundary."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

from hybrid_lab.diagnostics.errors import ArchiveError, LoadMismatchError
from hybrid_lab.diagnostics.formatting import count
from hybrid_lab.formats import archive
from hybrid_lab.formats.archive import ledger
from hybrid_lab.gluon import access
from hybrid_lab.gluon.block import Block
from hybrid_lab.gluon.step import boundary
from hybrid_lab.insight.states import block_at, blocks_below, hybrid_blocks
from hybrid_lab.lab.errors import RequestError
from hybrid_lab.lab.messages.differences import ComparedValuesReply, CompareReply, Difference
from hybrid_lab.lab.messages.saving import (
    AutosaveUnit,
    GraphSource,
    NoteReply,
    ReloadReply,
    RestoreReply,
    SaveReply,
    UndoReply,
)
from hybrid_lab.lab.models.block_names import below
from hybrid_lab.lab.models.registry import LiveModel
from hybrid_lab.lab.models.variables import why_no_variable
from hybrid_lab.lab.picture.compared import compared_graphs, compared_values
from hybrid_lab.lab.saving import archives, file_names, history, one_save, save_facts
from hybrid_lab.lab.saving.autosaves import autosave, autosave_of
from hybrid_lab.lab.saving.quiet import quiet
from hybrid_lab.lab.saving.snapshot import Snapshot
from hybrid_lab.lab.saving.undo import Undo, restored, undo_of_reload, undo_of_save

_NOTES = {
    "idle": "",
    "boundary": "saved between two training steps",
    "unsynchronized": "a cell runs, but no training step ended meanwhile",
}


def host() -> str:
    """The name of the machine that the kernel runs on."""
    return socket.gethostname()


def save(
    entry: LiveModel,
    name: str,
    overwrite: bool,
    at: str = "",
    replaces: str | None = None,
    note: str = "",
) -> SaveReply:
    """Write the archive of a model below the notebook's folder; see `save` in docs/protocol.md. Raises RequestError.

    at : path of the Block to save, "" for the model; overwrite : the user agreed to what was asked about this file
    replaces : the version of the file that the user agreed to replace; note : a line about this save
    """
    net = _block(entry, at)
    path = file_names.checked_for_writing(name or _proposed(entry, at))
    start = time.perf_counter()

    def write() -> tuple[Undo, Path | None, list[str]]:
        now = history.version(path)
        if replaces is not None and replaces != now:
            raise RequestError(
                "exists", f"{path.name} was changed meanwhile by somebody else", "Look at it and save again."
            )
        was_own, before = now in ("", ledger.noted(net, path)), entry.file
        with as_request(), quiet() as warnings, file_names.folders_made(path):
            if now and not overwrite:
                _ask_first(net, path, entry.is_in_use)
            kept = one_save.write(net, path, note, fewer_graphs=True)
        return undo_of_save(entry, net, path, kept, was_own, before), kept, warnings

    (undo_step, kept, warnings), how = boundary.run(write)
    seconds = time.perf_counter() - start
    if not at:
        entry.file = path
    entry.can_undo(undo_step)
    written = archive.inspect(path)
    return {
        "path": os.fspath(path),
        "file": file_names.shown(path),
        "host": host(),
        "bytes": path.stat().st_size,
        "graphs": archives.graphs_in(path),
        "blocks": written["blocks"] - access.is_group(net),
        "parameters": written["parameters"],
        "seconds": round(seconds, 4),
        "note": "; ".join(filter(None, [_NOTES[how], *warnings])),
        "kept": "" if kept is None else file_names.shown(kept),
        "undo": undo_step.token,
    }


def _ask_first(net: Block, path: Path, is_in_use: Callable[[Block], bool]) -> None:
    """Raise RequestError if the user must be asked before a file is replaced: it may be another model's or another
    program's, or it has graphs, tensors or other parts that the save would lose.
    """
    reason = one_save.whose(net, path, is_in_use)
    lost = archive.would_lose(net, path)
    if reason:
        loss = f", and has {_counted(lost)} that this save would lose" if lost else ""
        raise RequestError(
            "exists", f"{path.name} {reason}{loss}", "If you replace it, it is kept among the earlier saves.", lost
        )
    if lost:
        raise RequestError(
            "would-lose",
            f"{path.name} has {_counted(lost)} that this save would lose:",
            "Call the model as before and save again, or save without the listed parts. The present file is "
            "kept among the earlier saves.",
            lost,
        )


def _counted(lost: Sequence[str]) -> str:
    """`2 graphs, 49 tensors` of what `archive.would_lose` lists."""
    graphs = sum(text.startswith("the graph of ") for text in lost)
    tensors = sum(text.startswith("the values of ") for text in lost)
    numbers = (graphs, "graph"), (tensors, "tensor"), (len(lost) - graphs - tensors, "other part")
    return ", ".join(count(number, noun) for number, noun in numbers if number)


def restore(entry: LiveModel, name: str) -> RestoreReply:
    """Put an earlier save back as the file that it was. Raises RequestError."""
    kept = file_names.existing(name)
    if kept.parent.name != history.FOLDER:
        raise RequestError("bad-request", f"{name} is no earlier save", "Choose one of the list of earlier saves.")
    path = next((path for path in _files_of(entry, kept) if kept in history.entries(path)), None)
    if path is None:
        raise RequestError("not-found", f"{name} is no earlier save of a file of {entry.name}", "Reload it instead.")
    file_names.checked_for_writing(file_names.shown(path))
    net = entry.block
    step, _ = boundary.run(lambda: restored(entry, net, path, kept))
    if step is not None:
        entry.can_undo(step)
    return {
        "path": os.fspath(path),
        "file": file_names.shown(path),
        "host": host(),
        "summary": f"{path.name} is what it was in that save; what was there is among the earlier saves"
        if step is not None
        else f"{path.name} is this save already",
        "undo": "" if step is None else step.token,
    }


def _files_of(entry: LiveModel, kept: Path) -> list[Path]:
    """The files that an earlier save may be of: the model's, and any other archive beside the history."""
    folder = kept.parent.parent
    own = file_names.checked(entry.proposed_file)
    return [*([own] if own.parent == folder else []), *sorted(folder.glob("*.hlab"))]


def set_note(name: str, note: str) -> NoteReply:
    """Note a line about a save. Raises RequestError."""
    path = file_names.existing(name)
    line = save_facts.one_line(note)
    with as_request():
        one_save.set_facts(path, replace(one_save.facts_of(path), note=line))
    return {"note": line}


def reload(entry: LiveModel, name: str, graphs: GraphSource, at: str = "") -> ReloadReply:
    """Load an archive into a model, and keep what an undo needs. Raises RequestError; then nothing changed.

    at : path of the Block to load into, "" for the model
    """
    net = _block(entry, at)
    path = file_names.existing(name or _proposed(entry, at))
    start = time.perf_counter()

    def apply() -> tuple[Snapshot, list[str], archive.ModelDifference, list[str]]:
        snapshot = Snapshot(net)
        try:
            with as_request(), quiet():
                file = archive.Archive(path)
                difference = archive.diff_sides(_side(entry, net, at, "before"), archive.FileSide(file, _label(path)))
                report = archive.load_opened(net, file, graphs)
            snapshot.reloaded()
        except BaseException:
            snapshot.reloaded()
            snapshot.restore()  # an interrupt comes when all is loaded
            raise
        return snapshot, snapshot.differences(), difference.by_load(), report.notes

    (snapshot, diff, difference, notes), _ = boundary.run(apply)
    step = undo_of_reload(entry, net, path, snapshot, entry.file)
    entry.can_undo(step)
    if not at and path.parent.name != history.FOLDER:
        entry.file = path
    parameters = len({id(p) for _, block in blocks_below(net) for p in access.own_parameters(block).values()})
    changed = f"{len(diff)} of {count(parameters, 'parameter')} changed"
    unchanged = "no parameter changed: file and model hold the same values"
    from_file = ", and the file's graphs replace the code" if graphs == "file" else ""
    return {
        "path": os.fspath(path),
        "file": file_names.shown(path),
        "host": host(),
        "summary": (changed if diff else unchanged) + from_file,
        "graphs": sum(len(access.graphs(block).graphs()) for _, block in hybrid_blocks(net)),
        "parameters": parameters,
        "diff": diff,
        "undo": step.token,
        "seconds": round(time.perf_counter() - start, 4),
        "difference": _data(difference),
        "notes": notes,
    }


def compare(
    entry: LiveModel, name: str, at: str = "", other: str | None = None, with_graphs: bool = False
) -> CompareReply:
    """What differs between an archive and a model, or another archive; nothing changes. Raises RequestError.

    with_graphs : whether the graphs are wanted side by side
    """
    net = _block(entry, at)
    path, second = _compared_files(entry, name, at, other)

    def look() -> CompareReply:
        with as_request(), quiet():
            compared = archive.compare_sides(*_compared_sides(entry, net, at, path, second))
            reply: CompareReply = {
                "path": os.fspath(path),
                "file": file_names.shown(path),
                "host": host(),
                "difference": _data(compared.difference),
            }
            if with_graphs:
                now = net if second is None else archive.structure(second)
                reply["graphs"] = compared_graphs(compared, archive.structure(path), now)
            return reply

    return boundary.run(look)[0]


def compare_values(
    entry: LiveModel, name: str, at: str, other: str | None, first: str, second: str
) -> ComparedValuesReply:
    """The numbers of one parameter on both sides of a comparison. Raises RequestError."""
    net = _block(entry, at)
    path, other_path = _compared_files(entry, name, at, other)

    def look() -> ComparedValuesReply:
        with as_request(), quiet():
            return compared_values(*_compared_sides(entry, net, at, path, other_path), first, second)

    return boundary.run(look)[0]


def _compared_files(entry: LiveModel, name: str, at: str, other: str | None) -> tuple[Path, Path | None]:
    path = file_names.existing(name or _proposed(entry, at))
    return path, None if other is None else file_names.existing(other or _proposed(entry, at))


def _compared_sides(
    entry: LiveModel, net: Block, at: str, path: Path, other: Path | None
) -> tuple[archive.Side, archive.Side]:
    """The file, and the model now or the other file."""
    first = archive.FileSide(archive.Container.open(path), _label(path))
    if other is None:
        return first, _side(entry, net, at, "now")
    return first, archive.FileSide(archive.Container.open(other), _label(other))


def _label(path: Path) -> str:
    """What to call a file in a comparison."""
    return path.name


def set_autosave(entry: LiveModel, name: str, unit: AutosaveUnit, every: int, overwrite: bool = False) -> None:
    """Save a model while it trains, or no longer. Raises RequestError `exists` if a file may be another model's or
    another program's.

    overwrite : the user agreed to replace it
    """
    saver = autosave_of(entry.block)
    if unit == "off":
        if saver is not None:
            saver.stop()
        return
    if unit == "step" and every < 1:
        raise RequestError("bad-request", "the number of steps between two saves must be 1 or more")
    path = file_names.checked_for_writing(name or file_names.name_for(entry.name, ".autosave"))
    if not overwrite and (reason := one_save.whose(entry.block, path, entry.is_in_use)):
        raise RequestError("exists", f"{path.name} {reason}", "If it is replaced, it is kept among the earlier saves.")
    with file_names.folders_made(path):
        autosave(entry.block, path, every if unit == "step" else "epoch")


def _block(entry: LiveModel, at: str) -> Block:
    try:
        return block_at(entry.block, at)
    except KeyError:
        raise RequestError("unknown-block", f"{entry.name} has no Block {at!r}", "Refresh the tree.") from None


def _proposed(entry: LiveModel, at: str) -> str:
    """The name of the archive of a model, or of one of its Blocks."""
    return file_names.name_for(entry.name, below=at) if at else entry.proposed_file


def _side(entry: LiveModel, net: Block, at: str, when: str) -> archive.LiveSide:
    return archive.LiveSide(net, f"{below(entry.block, entry.name, at)} {when}")


def _data(difference: archive.ModelDifference) -> Difference:
    return cast(Difference, difference.data())


def undo(entry: LiveModel, token: str) -> UndoReply:
    """Undo a save or a reload of the model. Raises RequestError `nothing-to-undo`."""
    step = next((each for each in entry.undos if each.token == token), None)
    if step is None:
        raise RequestError(
            "nothing-to-undo",
            "there is no save or reload to undo",
            "Only the last Reload of a model, and its last saves, can be undone.",
        )

    def act() -> str:
        if step.kind == "save" and (changed := step.changed()):
            raise RequestError(
                "nothing-to-undo", f"{changed}, so it stays as it is", "Look at the earlier saves of the file."
            )
        return step.act()

    try:
        with as_request():
            summary, _ = boundary.run(act)
    except RequestError:
        entry.undos = [each for each in entry.undos if each is not step]
        raise
    entry.undos = [each for each in entry.undos if each is not step]
    return {"summary": summary}


def open_archive(name: str, variable: str, replace: bool, namespace: dict[str, object]) -> tuple[Block, Path]:
    """Load an archive without its code, and bind it to a variable. Raises RequestError; nothing is bound then."""
    from hybrid_lab import gluon

    why = why_no_variable(variable)
    if why is not None:
        raise RequestError("bad-request", why, "Choose another name, such as net.")
    path = file_names.existing(name)
    if not replace and variable in namespace:
        raise RequestError(
            "name-taken", f"the variable {variable} exists already", "Choose another name, or replace it."
        )
    with as_request():
        net = gluon.load(os.fspath(path))
    namespace[variable] = net
    return net, path


@contextlib.contextmanager
def as_request() -> Iterator[None]:
    """Turn the errors of archives into the protocol's errors."""
    try:
        yield
    except LoadMismatchError as error:
        raise RequestError(
            "differs",
            f"the file and the model differ in {count(len(error.differences), 'place')}; the model is unchanged",
            "Repair the code, or load with the file's graphs, or open the file without code.",
            [str(item) for item in error.differences],
        ) from error
    except ArchiveError as error:
        other = error.reason.startswith("not a")
        what = "Choose an archive (.hlab); the list of files has them." if other else "Load another copy of the file."
        raise RequestError("corrupt", str(error), what) from error
