"""Save, reload, undo and open: what the buttons do, at a step boundary while a cell trains."""

from __future__ import annotations

import keyword
import os
import secrets
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from hybrid_lab.diagnostics.errors import ArchiveError, HybridLabError, LoadMismatchError
from hybrid_lab.formats import archive
from hybrid_lab.gluon.block import Block
from hybrid_lab.gluon.hybrid import HybridBlock
from hybrid_lab.gluon.step import boundary
from hybrid_lab.insight.states import walk
from hybrid_lab.lab import files
from hybrid_lab.lab.errors import RequestError
from hybrid_lab.lab.registry import Entry

_NOTES = {"idle": "", "boundary": "saved between two training steps", "unsynchronized": "a cell runs, but no training step ended meanwhile"}


def host() -> str:
    return socket.gethostname()


def save(entry: Entry, name: str, overwrite: bool) -> dict[str, Any]:
    """Write the archive of a model beside the notebook; see `save` in docs/protocol.md."""
    path = files.checked(name or entry.file or f"{entry.name}.hlab")
    if path.exists() and not overwrite:
        raise RequestError("exists", f"{path.name} exists already", "Choose another name, or overwrite it.")
    net, start = entry.block, time.perf_counter()
    _, how = boundary.run(lambda: archive.save_cached_graphs(net, os.fspath(path)))
    entry.file = path.name
    blocks = [(block_path, block) for block_path, _, block, before in walk(net) if before is None]
    graphs = []
    for block_path, block in blocks:
        for neutral in block._graphs.graphs() if isinstance(block, HybridBlock) else ():
            graphs.append({"path": block_path, "operators": len(neutral.graph.operators)})
    return {
        "path": os.fspath(path),
        "file": path.name,
        "host": host(),
        "bytes": path.stat().st_size,
        "graphs": graphs,
        "blocks": len(blocks),
        "parameters": len({id(p) for _, block in blocks for p in block._reg_params.values()}),
        "seconds": round(time.perf_counter() - start, 4),
        "note": _NOTES[how],
    }


def reload(entry: Entry, name: str, graphs: str) -> dict[str, Any]:
    """Load an archive into a model at once, keeping what is needed to undo it. Raises RequestError; then nothing changed."""
    path = files.checked(name or entry.file or f"{entry.name}.hlab")
    if not path.exists():
        raise RequestError("not-found", f"there is no file {path.name} in {path.parent}", "Save the model first, or choose another file.")
    net, start = entry.block, time.perf_counter()

    def apply() -> tuple[Callable[[], str], list[str]]:
        held = Snapshot(net)
        with as_request():
            archive.load_cached_graphs(net, os.fspath(path), graphs=graphs)
        return held.restore, held.differences()

    (restore, diff), _ = boundary.run(apply)
    entry.undo_token, entry.undo, entry.file = secrets.token_hex(8), restore, path.name
    hybrid = [block for _, _, block, before in walk(net) if before is None and isinstance(block, HybridBlock)]
    parameters = len({id(p) for _, _, block, before in walk(net) if before is None for p in block._reg_params.values()})
    count = sum(len(block._graphs.graphs()) for block in hybrid)
    return {
        "path": os.fspath(path),
        "file": path.name,
        "host": host(),
        "summary": f"{len(diff)} of {parameters} parameters changed" if diff else "nothing changed: the file holds what the model has",
        "graphs": count,
        "parameters": parameters,
        "diff": diff,
        "undo": entry.undo_token,
        "seconds": round(time.perf_counter() - start, 4),
    }


def undo(entry: Entry, token: str) -> dict[str, Any]:
    """Put back what the last reload replaced."""
    if entry.undo is None or token != entry.undo_token:
        raise RequestError("nothing-to-undo", "there is no reload to undo", "Only the last Reload of a model can be undone.")
    restore = entry.undo
    summary, _ = boundary.run(restore)
    entry.undo, entry.undo_token = None, ""
    return {"summary": summary}


def open_archive(name: str, variable: str, replace: bool, namespace: dict[str, Any]) -> tuple[Block, Path]:
    """Load an archive without the model's code and bind it to a variable."""
    from hybrid_lab import gluon

    if not variable.isidentifier() or keyword.iskeyword(variable):
        raise RequestError("bad-request", f"{variable!r} is not a Python variable name", "Use letters, digits and underscores.")
    path = files.checked(name)
    if not path.exists():
        raise RequestError("not-found", f"there is no file {path.name} in {path.parent}")
    if variable in namespace and not replace:
        raise RequestError("name-taken", f"the variable {variable} exists already", "Choose another name, or replace it.")
    with as_request():
        net = gluon.load(os.fspath(path))
    namespace[variable] = net
    return net, path


def archives() -> dict[str, Any]:
    """The archives beside the notebook, newest first."""
    base, rows = files.folder(), []
    for path in base.glob("*.hlab"):
        if path.is_symlink() or not path.is_file():
            continue
        row = {"file": path.name, "bytes": path.stat().st_size, "modified": path.stat().st_mtime, "class": "", "blocks": 0, "graphs": 0, "problem": ""}
        try:
            found = archive.inspect(os.fspath(path))
            row.update({"class": found["class"], "blocks": found["blocks"], "graphs": found["graphs"]})
        except (HybridLabError, OSError) as error:
            row["problem"] = str(error).splitlines()[0]
        rows.append(row)
    rows.sort(key=lambda row: -row["modified"])
    return {"folder": os.fspath(base), "host": host(), "archives": rows}


class as_request:  # noqa: N801 - a context manager used like a function
    """Turn archive errors into the protocol's errors."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if isinstance(error, LoadMismatchError):
            raise RequestError(
                "differs",
                f"the file and the model differ in {len(error.differences)} places; the model is as it was",
                "Repair the code, or load with the file's graphs, or open the file without code.",
                [str(item) for item in error.differences],
            ) from None
        if isinstance(error, ArchiveError):
            raise RequestError("corrupt", str(error), "Load another copy of the file.") from None


class Snapshot:
    """The parameters and graphs of a model, kept to be put back."""

    def __init__(self, net: Block):
        self._parameters: dict[int, Any] = {}
        self._names: dict[int, str] = {}
        self._graphs: list[tuple[Any, dict[Any, Any]]] = []
        for path, _, block, before in walk(net):
            if before is not None:
                continue
            for name, parameter in block._reg_params.items():
                self._parameters[id(parameter)] = parameter
                self._names.setdefault(id(parameter), f"{path}.{name}" if path else name)
            if isinstance(block, HybridBlock):
                self._graphs.append((block._graphs, dict(block._graphs.pinned)))
        self._values = {
            key: None if parameter._array is None else parameter._array.asnumpy().copy() for key, parameter in self._parameters.items()
        }

    def differences(self) -> list[str]:
        """One line per parameter that is no longer what it was."""
        lines = []
        for key, parameter in self._parameters.items():
            before, array = self._values[key], parameter._array
            name = self._names[key]
            if array is None:
                continue
            now = array.asnumpy()
            if before is None:
                lines.append(f"{name}: {now.size} numbers, not initialized before")
            elif before.shape != now.shape or before.dtype != now.dtype:
                lines.append(f"{name}: {now.dtype.name}{list(now.shape)} instead of {before.dtype.name}{list(before.shape)}")
            elif not np.array_equal(before, now, equal_nan=now.dtype.kind == "f"):
                largest = float(np.max(np.abs(now.astype("float64") - before.astype("float64"))))
                lines.append(f"{name}: {now.size} numbers, largest change {largest:.3g}")
        return lines

    def restore(self) -> str:
        """Put everything back; returns what was done in one sentence."""
        changed = 0
        for key, parameter in self._parameters.items():
            before, array = self._values[key], parameter._array
            if before is not None and array is not None and not np.array_equal(array.asnumpy(), before):
                from hybrid_lab import nd

                parameter.set_data(nd.array(before, dtype=before.dtype))
                changed += 1
        for cache, pinned in self._graphs:
            if cache.pinned != pinned:
                cache.pin(list(pinned.values()))
        return f"{changed} parameter{'s' if changed != 1 else ''} put back"
