"""Ledger: which archives hold the state of a live Block that wrote or read them, and the state of each file then."""

from __future__ import annotations

import os
from collections.abc import Iterator
from os import PathLike
from weakref import ref

from hybrid_lab.gluon.block import Block

_FILES = 32
"""Files that are remembered of one Block."""

_ALL_FILES = 1000
"""Files that are remembered of all Blocks together."""

_entries: dict[int, tuple[ref[Block], dict[str, str]]] = {}
"""id() of a Block -> the Block; real path of a file -> its version. No WeakKeyDictionary: the class of a Block may
define __eq__ and no __hash__.
"""

_last: dict[str, str] = {}
"""Real path of a file -> its version when any Block of this process was last written to it or loaded from it."""


def version(path: str | PathLike[str]) -> str:
    """A text that changes with every save of the file; "" if there is none."""
    try:
        state = os.stat(path)
    except FileNotFoundError:
        return ""
    return f"{state.st_mtime_ns}-{state.st_size}-{state.st_ino}"


def note(net: Block, path: str | PathLike[str]) -> None:
    """The file at `path` holds this Block: it was written from it, or loaded into it, just now."""
    try:
        state = version(path)
    except OSError:
        return
    key = id(net)
    if key not in _entries or _entries[key][0]() is not net:
        _entries[key] = ref(net, lambda _: _entries.pop(key, None)), {}
    files = _entries[key][1]
    real = os.path.realpath(path)
    for known, most in ((files, _FILES), (_last, _ALL_FILES)):
        known.pop(real, None)
        known[real] = state
        while len(known) > most:
            del known[next(iter(known))]


def forget(net: Block, path: str | PathLike[str]) -> None:
    """The file at `path` no longer holds this Block, nor anything of this process."""
    real = os.path.realpath(path)
    _last.pop(real, None)
    _entries.get(id(net), (None, {}))[1].pop(real, None)


def noted(net: Block, path: str | PathLike[str]) -> str:
    """The version that the file had when it was last written from this Block or loaded into it; "" if it never was."""
    reference, files = _entries.get(id(net), (lambda: None, {}))
    return files.get(os.path.realpath(path), "") if reference() is net else ""


def files(net: Block) -> list[str]:
    """The files that this Block was written to or loaded from, the last one at the end."""
    reference, known = _entries.get(id(net), (lambda: None, {}))
    return list(known) if reference() is net else []


def is_of_this_process(path: str | PathLike[str]) -> bool:
    """Whether the file is as this process wrote or read it last, be it from a Block that is gone."""
    return _last.get(os.path.realpath(path), "-") == version(path)


def owners(path: str | PathLike[str]) -> Iterator[Block]:
    """The living Blocks that the file's current content was written from or loaded into."""
    real, state = os.path.realpath(path), version(path)
    for reference, files in list(_entries.values()):
        block = reference()
        if block is not None and state and files.get(real) == state:
            yield block
