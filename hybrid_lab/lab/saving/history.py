"""Earlier saves of an archive: a save moves the replaced file to a folder beside it, which keeps the last ones."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import shutil
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from hybrid_lab.diagnostics.file_errors import NotFolderError, writing
from hybrid_lab.formats.archive.ledger import version as version
from hybrid_lab.formats.atomic import keep_permissions
from hybrid_lab.lab.saving import save_facts

FOLDER = ".hybrid_lab_history"
"""Beside the archive, as Jupyter's own `.ipynb_checkpoints`."""
KEPT = 5
"""Earlier saves of one file."""
_LONGEST = 180
"""Bytes of a file's name that stand in the names of its earlier saves."""
_TIME = r"\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d"
_NUMBERED = rf"(?P<number>\d{{6,12}})\.{_TIME}|{_TIME}-\d{{6}}(?:-\d+)?"
"""Name of an earlier save, between the file's stem and suffix: its number in the order of the saves, and the file's
local time for people. Names without a number are of older releases.
"""


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path | None]:
    """Save to `path` in the block: the file that was there is kept; gives where, or None if there was none.

    An error in the block leaves file and history as they were. Raises FileError, before the block, if nothing can be
    kept: then nothing is replaced either.
    """
    with writing(path):
        path = Path(os.path.realpath(path))  # a save through a link replaces what the link leads to
    with writing(path.parent / FOLDER):
        entry, is_new = _keep(path)
    try:
        yield entry
    except BaseException:
        if entry is not None and is_new:
            with contextlib.suppress(OSError):
                entry.unlink()
        raise
    for old in entries(path)[KEPT:]:
        with contextlib.suppress(OSError):
            save_facts.forget(old.parent, old)
            old.unlink()


def put_back(path: Path, entry: Path) -> Path | None:
    """Make an earlier save the file again. What is there goes to the history; gives where, None if nothing was.

    An error leaves file and history as they were. Raises FileError.
    """
    path = Path(os.path.realpath(path))
    if path.exists() and path.samefile(entry):
        return None
    with replacing(path) as kept, writing(path):
        partial = path.with_name(f".{_stem(path)}.{os.getpid()}.tmp")
        partial.unlink(missing_ok=True)
        try:
            _link(entry, partial)
        except (OSError, NotImplementedError):
            _copy(entry, partial)
        os.replace(partial, path)
        entry.unlink()
    return kept


def take_away(path: Path) -> Path | None:
    """Move a file to the history; gives where. Raises FileError."""
    with replacing(path) as kept, writing(path):
        path.unlink()
    return kept


def folder_of(path: Path) -> Path:
    """The history's folder of an archive, which may be an earlier save itself."""
    return path.parent if path.parent.name == FOLDER else path.parent / FOLDER


def make_folder(folder: Path) -> None:
    """Create the history's folder. Raises FileError if a link or a file is in its place."""
    if folder.is_symlink():
        text = "earlier saves cannot be kept in a link"
        raise NotFolderError(errno.ENOTDIR, text, str(folder), f"{text}: remove or rename {str(folder)!r}")
    if not folder.is_dir():
        folder.mkdir()
        with contextlib.suppress(OSError):
            (folder / ".gitignore").write_text("*\n")


def entries(path: Path) -> list[Path]:
    """The earlier saves of a file, newest first. The numbers in their names tell which save is newer, not the clock or
    the time zone.
    """
    return [entry for _, entry in _numbered(path)]


def _numbered(path: Path) -> list[tuple[int, Path]]:
    """Number and path of each earlier save, newest first; 0 for saves of older releases, which their files' times
    order.
    """
    pattern = re.compile(rf"{re.escape(_stem(path))}\.(?:{_NUMBERED}){re.escape(path.suffix)}", re.ASCII)
    folder = path.parent / FOLDER
    if folder.is_symlink() or not folder.is_dir():
        return []
    found = []
    for entry in folder.iterdir():
        match = pattern.fullmatch(entry.name)
        if match is not None and entry.is_file() and not entry.is_symlink():
            with contextlib.suppress(FileNotFoundError):  # another process removed it
                found.append((int(match["number"] or 0), entry.stat().st_mtime_ns, entry))
    return [(number, entry) for number, _, entry in sorted(found, reverse=True)]


def _keep(path: Path) -> tuple[Path | None, bool]:
    """A second name for the file in the history: a hard link, or a copy if the file system has no links.

    Gives it, and whether it is new: a save that was killed may have left it.
    """
    try:
        state = path.stat()
    except FileNotFoundError:
        return None, False
    if not stat.S_ISREG(state.st_mode):
        return None, False  # the save will refuse it
    folder = path.parent / FOLDER
    make_folder(folder)
    number, newest = next(iter(_numbered(path)), (0, None))
    if newest is not None and _is_same(newest.stat(), state):
        return newest, False
    moment = time.strftime("%Y-%m-%d_%H-%M-%S", time.localtime(state.st_mtime_ns // 10**9))
    while True:
        number += 1
        entry = folder / f"{_stem(path)}.{number:06d}.{moment}{path.suffix}"
        try:
            _link(path, entry)
        except FileExistsError:
            continue
        except (OSError, NotImplementedError):
            _copy(path, entry)
        return entry, True


def _link(path: Path, other: Path) -> None:
    """Give the file a second name. Raises OSError or NotImplementedError where there are no hard links."""
    if not hasattr(os, "link"):
        raise NotImplementedError("Python in a browser has no hard links")
    os.link(path, other)


def _is_same(entry: os.stat_result, state: os.stat_result) -> bool:
    """Whether an earlier save is the file itself, or its copy."""
    if (entry.st_dev, entry.st_ino) == (state.st_dev, state.st_ino):
        return True
    return (entry.st_size, entry.st_mtime_ns) == (state.st_size, state.st_mtime_ns)


def _copy(path: Path, entry: Path) -> None:
    """Copy under a name that is no entry, then rename. Raises OSError; then there is no copy. Until the copy has the
    file's permissions, only this user can open it.
    """
    partial = entry.with_name(f".{entry.name}.tmp")
    partial.unlink(missing_ok=True)
    try:
        os.close(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        shutil.copy2(path, partial)
        with partial.open("rb") as copy:
            keep_permissions(copy.fileno(), path.stat(), os.fspath(path))
        os.replace(partial, entry)
    except BaseException:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise


def _stem(path: Path) -> str:
    """The file's name without its suffix; of a long one its start and a digest."""
    stem = path.stem
    if len(os.fsencode(stem)) <= _LONGEST:
        return stem
    return f"{stem[:40]}~{hashlib.sha256(os.fsencode(stem)).hexdigest()[:12]}"
