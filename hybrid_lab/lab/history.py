"""Earlier saves of an archive: what a save replaces goes to a folder beside it, which keeps the last ones."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from hybrid_lab.diagnostics.file_errors import NotFolderError, writing

FOLDER = ".hybrid_lab_history"
"""Beside the archive, as Jupyter's own `.ipynb_checkpoints`."""
KEPT = 5
"""Earlier saves of one file."""
_LONGEST = 180
"""Bytes of a file's name that stand in the names of its earlier saves."""
_TIME = r"\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d-\d{6}(?:-\d+)?"


def version(path: Path) -> str:
    """A text that changes with every save of the file; "" where there is none."""
    try:
        state = path.stat()
    except FileNotFoundError:
        return ""
    return f"{state.st_mtime_ns}-{state.st_size}-{state.st_ino}"


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path | None]:
    """Save to `path` in the block: the file that was there is kept; gives where, or None if there was none.

    An error in the block leaves file and history as they were. Raises FileError, before the block, where nothing can be
    kept: then nothing is replaced either.
    """
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
            old.unlink()


def entries(path: Path) -> list[Path]:
    """The earlier saves of a file, newest first."""
    pattern = re.compile(rf"{re.escape(_stem(path))}\.({_TIME}){re.escape(path.suffix)}")
    folder = path.parent / FOLDER
    if folder.is_symlink() or not folder.is_dir():
        return []
    found = [(match[1], entry) for entry in folder.iterdir() if (match := pattern.fullmatch(entry.name))]
    return [entry for _, entry in sorted(found, reverse=True) if entry.is_file() and not entry.is_symlink()]


def _keep(path: Path) -> tuple[Path | None, bool]:
    """A second name for the file in the history: a hard link, or a copy where the file system has none.

    Gives it, and whether it is new: a save that was killed may have left it.
    """
    try:
        modified = path.stat().st_mtime_ns
    except FileNotFoundError:
        return None, False
    folder = path.parent / FOLDER
    if folder.is_symlink():
        text = "earlier saves cannot be kept in a link"
        raise NotFolderError(errno.ENOTDIR, text, str(folder), f"{text}: remove or rename {str(folder)!r}")
    if not folder.is_dir():
        folder.mkdir()
        with contextlib.suppress(OSError):
            (folder / ".gitignore").write_text("*\n")
    moment = time.strftime("%Y-%m-%d_%H-%M-%S", time.localtime(modified // 10**9))
    name, number = f"{_stem(path)}.{moment}-{modified // 1000 % 10**6:06d}", 1
    while True:
        entry = folder / f"{name}{f'-{number}' if number > 1 else ''}{path.suffix}"
        try:
            os.link(path, entry)
        except FileExistsError:
            if entry.samefile(path):
                return entry, False
            number += 1
            continue
        except (OSError, NotImplementedError):
            _copy(path, entry)
        return entry, True


def _copy(path: Path, entry: Path) -> None:
    """Copy under a name that is no entry, then rename. Raises OSError; then there is no copy."""
    partial = entry.with_name(f".{entry.name}.tmp")
    try:
        shutil.copy2(path, partial)
        os.replace(partial, entry)
    except BaseException:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise


def _stem(path: Path) -> str:
    """The file's name without its suffix; of a long one its start and a digest."""
    stem = path.stem
    if len(stem.encode()) <= _LONGEST:
        return stem
    return f"{stem[:40]}~{hashlib.sha256(stem.encode()).hexdigest()[:12]}"
