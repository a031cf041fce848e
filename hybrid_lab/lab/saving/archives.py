"""The contents of the archives beside a notebook, read without loading a model."""

from __future__ import annotations

import contextlib
import os
import re
import socket
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import cast

from hybrid_lab.diagnostics.errors import HybridLabError
from hybrid_lab.diagnostics.formatting import first_line
from hybrid_lab.formats.archive import Container, graphs, inspect, layout, tree
from hybrid_lab.lab.errors import RequestError
from hybrid_lab.lab.messages.connection import FolderReply
from hybrid_lab.lab.messages.saving import Archive, ArchivesReply, HistoryReply, KeptSave, SavedGraph, Target
from hybrid_lab.lab.models.variables import why_no_variable
from hybrid_lab.lab.saving import file_names, history, one_save


def graphs_in(path: Path) -> list[SavedGraph]:
    """The graphs of an archive as the reply of `save` has them: path of the Block, number of operators.

    Raises ArchiveError for a damaged file, FileError.
    """
    archive = Container.open(path)
    saved: list[SavedGraph] = []
    for block in tree.from_json(archive.read_json(layout.TREE), archive.path).blocks:
        for member in block.graphs:
            saved.append({"path": block.path, "operators": graphs.count_operators(archive, member)})
    return saved


def archives_reply(below: str, namespace: Mapping[str, object]) -> ArchivesReply:
    """The archives, and the folders, in a folder below the kernel's. Raises RequestError `bad-file-name`."""
    found = folder_reply("", below)
    rows = listing(namespace, below)
    return {"folder": found["folder"], "host": found["host"], "archives": rows, "folders": found["folders"]}


def listing(namespace: Mapping[str, object] = MappingProxyType({}), below: str = "") -> list[Archive]:
    """The protocol's data of the archives in a folder, newest first; a file that cannot be read has the reason.

    namespace : whose names are taken; below : the folder, by its path below the kernel's
    """
    rows: list[Archive] = []
    start = f"{below.strip('/')}/" if below.strip("/") else ""
    for path in file_names.checked_folder(below).glob("*.hlab"):
        try:
            if path.is_symlink() or not path.is_file() or path.name.startswith("."):
                continue
            row = facts(path, start + path.name)
        except OSError:  # it went away meanwhile
            continue
        rows.append(row | {"variable": free_name(path.stem, namespace)})
    rows.sort(key=lambda row: row["modified"], reverse=True)
    return rows


def facts(path: Path, name: str = "") -> Archive:
    """Size, date and contents of a file; a file that cannot be read has the reason. name : its name in the reply.
    Raises OSError
    """
    state = path.stat()
    row: Archive = {
        "file": name or path.name,
        "bytes": state.st_size,
        "modified": state.st_mtime,
        "class": "",
        "blocks": 0,
        "graphs": 0,
        "problem": "",
    }
    try:
        contents = inspect(path)
        row |= {"class": contents["class"], "blocks": contents["blocks"], "graphs": contents["graphs"]}
    except (HybridLabError, OSError) as error:
        row["problem"] = first_line(error)
    except Exception as error:  # a damaged file may fail in any parser; the others are listed all the same
        row["problem"] = f"{type(error).__name__}: {error}"
    return row


def target(name: str) -> Target:
    """What a save under this name would replace; `problem` says why it cannot be written."""
    nothing: Target = {
        "file": name, "path": "", "version": "", "bytes": 0, "modified": 0.0, "class": "", "blocks": 0, "graphs": 0,
        "problem": "",
    }  # fmt: skip
    try:
        path = file_names.checked_for_writing(name)
        nothing |= {"file": file_names.shown(path), "path": str(path), "version": history.version(path)}
        if nothing["version"]:
            nothing |= facts(path, file_names.shown(path))  # type: ignore[typeddict-item]  # all of its fields are fields of a Target
        return nothing
    except RequestError as error:
        return nothing | {"problem": error.message}
    except OSError as error:
        return nothing | {"problem": error.strerror or str(error)}


def earlier(name: str) -> HistoryReply:
    """A file and its earlier saves, newest first, each with its step and loss."""
    path = file_names.checked(name)
    kept = []
    for entry in history.entries(path):
        with contextlib.suppress(OSError):  # it went away meanwhile
            kept.append(_kept(entry))
    current = None
    with contextlib.suppress(OSError):
        current = _kept(path)
    return {"folder": str(path.parent / history.FOLDER), "current": current, "saves": kept}


def _kept(path: Path) -> KeptSave:
    """A save with the step and the loss of the training at that time. Raises OSError."""
    known = one_save.facts_of(path)
    more = {"step": known.step, "loss": known.loss, "loss_name": known.loss_name, "note": known.note}
    return cast(KeptSave, facts(path, file_names.shown(path)) | more)


_LISTED = 500
"""Names of one folder that are listed."""


def folder_reply(notebook: str, below: str) -> FolderReply:
    """The kernel's folder, whether the notebook lies in it, and the folders and archives in a folder below it."""
    start, place = file_names.folder(), file_names.checked_folder(below)
    names: dict[bool, list[str]] = {True: [], False: []}
    with contextlib.suppress(OSError):  # a folder that does not exist yet has nothing in it
        for each in sorted(os.scandir(place), key=lambda each: each.name):
            is_folder = each.is_dir(follow_symlinks=False)
            if not each.name.startswith(".") and (is_folder or _is_archive(each)):
                names[is_folder].append(each.name)
    return {
        "folder": str(start),
        "host": socket.gethostname(),
        "beside": notebook == "" or (start / notebook.rpartition("/")[2]).is_file(),
        "path": below,
        "folders": names[True][:_LISTED],
        "archives": names[False][:_LISTED],
    }


def _is_archive(entry: os.DirEntry[str]) -> bool:
    return entry.name.endswith(layout.SUFFIX) and entry.is_file(follow_symlinks=False)


def free_name(stem: str, namespace: Mapping[str, object]) -> str:
    """A variable for the model of a file, which is not taken: `net`, `net_2`."""
    name = re.sub(r"\W", "_", stem, flags=re.ASCII).lstrip("_") or "net"
    name = f"net_{name}" if name[0].isdigit() else name
    number, free = 1, name
    while free in namespace or why_no_variable(free) is not None:
        number += 1
        free = f"{name}_{number}"
    return free
