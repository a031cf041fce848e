"""The actions of the buttons, save, reload, undo and open; while a cell trains they wait for a step boundary."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from hybrid_lab.diagnostics.errors import ArchiveError, FewerGraphsError, LoadMismatchError
from hybrid_lab.diagnostics.words import count
from hybrid_lab.formats import archive
from hybrid_lab.gluon import access
from hybrid_lab.gluon.block import Block
from hybrid_lab.gluon.step import boundary
from hybrid_lab.insight.states import block_at, blocks_below, hybrid_blocks
from hybrid_lab.lab import archives, files, history
from hybrid_lab.lab.autosaves import autosave, autosave_of
from hybrid_lab.lab.errors import RequestError
from hybrid_lab.lab.messages.differences import CompareReply, Difference
from hybrid_lab.lab.messages.saving import AutosaveUnit, GraphSource, ReloadReply, SaveReply, UndoReply
from hybrid_lab.lab.quiet import quiet
from hybrid_lab.lab.registry import LiveModel
from hybrid_lab.lab.snapshot import Snapshot
from hybrid_lab.lab.variables import why_no_variable

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
    fewer_graphs: bool = False,
) -> SaveReply:
    """Write the archive of a model beside the notebook; see `save` in docs/protocol.md. Raises RequestError.

    at : path of the Block to save, "" for the model; replaces : the version of the file that may be overwritten
    fewer_graphs : the file may be overwritten although it has more graphs
    """
    net = _block(entry, at)
    path = files.checked_for_writing(name or _proposed(entry, at), overwrite)
    if replaces is not None and replaces != history.version(path):
        raise RequestError(
            "exists", f"{path.name} was changed meanwhile by somebody else", "Look at it and save again."
        )
    start = time.perf_counter()

    def write() -> tuple[Path | None, list[str]]:
        with as_request(), quiet() as warnings, history.replacing(path) as kept:
            archive.save_cached_graphs(net, os.fspath(path), overwrite=archive.FEWER_GRAPHS if fewer_graphs else None)
        return kept, warnings

    (kept, warnings), how = boundary.run(write)
    seconds = time.perf_counter() - start
    if not at:
        entry.file = path.name
    written = archive.inspect(path)
    return {
        "path": os.fspath(path),
        "file": path.name,
        "host": host(),
        "bytes": path.stat().st_size,
        "graphs": archives.graphs_in(path),
        "blocks": written["blocks"],
        "parameters": written["parameters"],
        "seconds": round(seconds, 4),
        "note": "; ".join(filter(None, [_NOTES[how], *warnings])),
        "kept": "" if kept is None else f"{history.FOLDER}/{kept.name}",
    }


def reload(entry: LiveModel, name: str, graphs: GraphSource, at: str = "") -> ReloadReply:
    """Load an archive into a model, and keep what an undo needs. Raises RequestError; then nothing changed.

    at : path of the Block to load into, "" for the model
    """
    net = _block(entry, at)
    path = files.existing(name or _proposed(entry, at))
    start = time.perf_counter()

    def apply() -> tuple[Snapshot, list[str], archive.ModelDifference, list[str]]:
        snapshot = Snapshot(net)
        try:
            with as_request(), quiet():
                file = archive.Archive(path)
                difference = archive.diff_sides(_side(entry, net, at, "before"), archive.FileSide(file, path.name))
                report = archive.load_opened(net, file, graphs)
        except BaseException:
            snapshot.restore()  # an interrupt comes when all is loaded
            raise
        return snapshot, snapshot.differences(), difference.by_load(), report.notes

    (snapshot, diff, difference, notes), _ = boundary.run(apply)
    entry.undo_token, entry.undo = secrets.token_hex(8), snapshot.restore
    if not at and path.parent.name != history.FOLDER:
        entry.file = path.name
    parameters = len({id(p) for _, block in blocks_below(net) for p in access.own_parameters(block).values()})
    changed = f"{len(diff)} of {count(parameters, 'parameter')} changed"
    unchanged = "no parameter changed: file and model hold the same values"
    from_file = ", and the file's graphs replace the code" if graphs == "file" else ""
    return {
        "path": os.fspath(path),
        "file": path.name,
        "host": host(),
        "summary": (changed if diff else unchanged) + from_file,
        "graphs": sum(len(access.graphs(block).graphs()) for _, block in hybrid_blocks(net)),
        "parameters": parameters,
        "diff": diff,
        "undo": entry.undo_token,
        "seconds": round(time.perf_counter() - start, 4),
        "difference": _data(difference),
        "notes": notes,
    }


def compare(entry: LiveModel, name: str, at: str = "") -> CompareReply:
    """What differs between an archive and a model; nothing changes. Raises RequestError."""
    net = _block(entry, at)
    path = files.existing(name or _proposed(entry, at))

    def look() -> archive.ModelDifference:
        with as_request(), quiet():
            file = archive.FileSide(archive.Container.open(path), path.name)
            return archive.diff_sides(file, _side(entry, net, at, "now"))

    difference, _ = boundary.run(look)
    return {"path": os.fspath(path), "file": path.name, "host": host(), "difference": _data(difference)}


def set_autosave(entry: LiveModel, name: str, unit: AutosaveUnit, every: int) -> None:
    """Save a model while it trains, or no longer. Raises RequestError."""
    saver = autosave_of(entry.block)
    if unit == "off":
        if saver is not None:
            saver.stop()
        return
    if unit == "step" and every < 1:
        raise RequestError("bad-request", "the number of steps between two saves must be 1 or more")
    path = files.checked_for_writing(name or f"{entry.name}.autosave.hlab", overwrite=True)
    autosave(entry.block, path, every if unit == "step" else "epoch")


def _block(entry: LiveModel, at: str) -> Block:
    try:
        return block_at(entry.block, at)
    except KeyError:
        raise RequestError("unknown-block", f"{entry.name} has no block {at!r}", "Refresh the tree.") from None


def _proposed(entry: LiveModel, at: str) -> str:
    """The name of the archive of a model, or of one of its Blocks."""
    return f"{entry.name}.{at}.hlab" if at else entry.proposed_file


def _side(entry: LiveModel, net: Block, at: str, when: str) -> archive.LiveSide:
    return archive.LiveSide(net, f"{entry.name}{f'.{at}' if at else ''} {when}")


def _data(difference: archive.ModelDifference) -> Difference:
    return cast(Difference, difference.data())


def undo(entry: LiveModel, token: str) -> UndoReply:
    """Restore what the last reload replaced. Raises RequestError `nothing-to-undo`."""
    if entry.undo is None or token != entry.undo_token:
        raise RequestError(
            "nothing-to-undo", "there is no reload to undo", "Only the last Reload of a model can be undone."
        )
    summary, _ = boundary.run(entry.undo)
    entry.undo, entry.undo_token = None, ""
    return {"summary": summary}


def open_archive(name: str, variable: str, replace: bool, namespace: dict[str, object]) -> tuple[Block, Path]:
    """Load an archive without its code, and bind it to a variable. Raises RequestError; nothing is bound then."""
    from hybrid_lab import gluon

    why = why_no_variable(variable)
    if why is not None:
        raise RequestError("bad-request", why, "Choose another name, such as net.")
    path = files.existing(name)
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
    except FewerGraphsError as error:
        raise RequestError(
            "fewer-graphs",
            f"the file has {count(error.before, 'graph')}, this save {error.now}: these graphs would be lost",
            "Call the model as it was called before and save again, or save without these graphs.",
            error.lost,
        ) from error
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
