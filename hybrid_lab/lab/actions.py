"""The actions of the buttons, save, reload, undo and open; while a cell trains they wait for a step boundary."""

from __future__ import annotations

import builtins
import contextlib
import keyword
import os
import secrets
import socket
import time
import unicodedata
from collections.abc import Iterator
from pathlib import Path

from hybrid_lab.diagnostics.errors import ArchiveError, LoadMismatchError
from hybrid_lab.diagnostics.words import count
from hybrid_lab.formats import archive
from hybrid_lab.gluon import access
from hybrid_lab.gluon.block import Block
from hybrid_lab.gluon.step import boundary
from hybrid_lab.insight.states import blocks_below, hybrid_blocks
from hybrid_lab.lab import archives, files
from hybrid_lab.lab.errors import RequestError
from hybrid_lab.lab.messages import GraphSource, ReloadReply, SaveReply, UndoReply
from hybrid_lab.lab.registry import LiveModel
from hybrid_lab.lab.snapshot import Snapshot

_NOTES = {
    "idle": "",
    "boundary": "saved between two training steps",
    "unsynchronized": "a cell runs, but no training step ended meanwhile",
}


IPYTHON_NAMES = frozenset({"In", "Out", "get_ipython", "exit", "quit", "open", "display"})
"""Names that IPython binds in every namespace, besides those with an underscore."""


def host() -> str:
    """The name of the machine that the kernel runs on."""
    return socket.gethostname()


def save(entry: LiveModel, name: str, overwrite: bool) -> SaveReply:
    """Write the archive of a model beside the notebook; see `save` in docs/protocol.md. Raises RequestError."""
    path = files.checked_for_writing(name or entry.proposed_file, overwrite)
    net, start = entry.block, time.perf_counter()
    _, how = boundary.run(lambda: archive.save_cached_graphs(net, os.fspath(path)))
    seconds = time.perf_counter() - start
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
        "note": _NOTES[how],
    }


def reload(entry: LiveModel, name: str, graphs: GraphSource) -> ReloadReply:
    """Load an archive into a model, and keep what an undo needs. Raises RequestError; then nothing changed."""
    path = _existing(name or entry.proposed_file)
    net, start = entry.block, time.perf_counter()

    def apply() -> tuple[Snapshot, list[str]]:
        snapshot = Snapshot(net)
        try:
            with as_request():
                archive.load_cached_graphs(net, os.fspath(path), graphs=graphs)
        except BaseException:
            snapshot.restore()  # an interrupt comes when all is loaded
            raise
        return snapshot, snapshot.differences()

    (snapshot, diff), _ = boundary.run(apply)
    entry.undo_token, entry.undo, entry.file = secrets.token_hex(8), snapshot.restore, path.name
    parameters = len({id(p) for _, block in blocks_below(net) for p in access.own_parameters(block).values()})
    return {
        "path": os.fspath(path),
        "file": path.name,
        "host": host(),
        "summary": f"{len(diff)} of {count(parameters, 'parameter')} changed"
        if diff
        else "no parameter changed: file and model hold the same values",
        "graphs": sum(len(access.graphs(block).graphs()) for _, block in hybrid_blocks(net)),
        "parameters": parameters,
        "diff": diff,
        "undo": entry.undo_token,
        "seconds": round(time.perf_counter() - start, 4),
    }


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

    why = _reserved(variable)
    if why is not None:
        raise RequestError("bad-request", why, "Choose another name, such as net.")
    path = _existing(name)
    if not replace and variable in namespace:
        raise RequestError(
            "name-taken", f"the variable {variable} exists already", "Choose another name, or replace it."
        )
    with as_request():
        net = gluon.load(os.fspath(path))
    namespace[variable] = net
    return net, path


def _reserved(variable: str) -> str | None:
    """The reason why a model cannot be bound to this name at all; None if it can."""
    if not variable.isidentifier() or keyword.iskeyword(variable):
        return f"{variable!r} is not a Python variable name: use letters, digits and underscores"
    if variable.startswith("_"):
        return f"{variable} starts with an underscore: IPython and the panel treat such names as hidden"
    if unicodedata.normalize("NFKC", variable) != variable:
        return f"{variable!r} cannot be typed as a variable: Python reads it as another name"
    if hasattr(builtins, variable):
        return f"{variable} is a builtin of Python, which a variable would hide from all code of the notebook"
    if variable in IPYTHON_NAMES:
        return f"{variable} is a name of IPython's own"
    return None


def _existing(name: str) -> Path:
    path = files.checked(name)
    if not path.exists():
        raise RequestError(
            "not-found",
            f"there is no file {path.name} in {path.parent}",
            "Save the model first, or choose another file.",
        )
    return path


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
        raise RequestError("corrupt", str(error), "Load another copy of the file.") from error
