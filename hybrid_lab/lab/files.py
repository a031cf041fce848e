"""File names from the panel: one component under the notebook's folder, nothing else."""

from __future__ import annotations

import errno
import os
import unicodedata
from collections.abc import Callable
from pathlib import Path

from hybrid_lab.formats.archive import layout, why_no_archive
from hybrid_lab.lab import history
from hybrid_lab.lab.errors import RequestError

LONGEST = 240
"""Bytes of a name: file systems take 255, and atomic writes need a few for themselves."""
_HIDDEN = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Unicode categories that a name must not have: controls, invisible characters, surrogates, line ends."""


def folder() -> Path:
    """Where Save writes: the kernel's working folder, which is the notebook's."""
    return Path(os.getcwd()).resolve()


def checked(name: str) -> Path:
    """The absolute path that an archive named `name` is saved to: in the folder, with `.hlab` unless the name ends so.

    Raises RequestError `bad-file-name` for separators, `..`, absolute paths, drives, control and invisible characters,
    leading dots, links, and what is no plain file.
    """

    refuse = _refusal(name)
    if not name.strip() or name in (".", ".."):
        raise refuse("it names a folder" if name.strip() else "it is empty")
    if any(unicodedata.category(character) in _HIDDEN for character in name):
        raise refuse("it has control or invisible characters")
    if "/" in name or "\\" in name or name[1:2] == ":":
        raise refuse("it has folders or a drive; archives are saved beside the notebook")
    if name.startswith("."):
        raise refuse("it starts with a dot")
    if name != name.strip() or name.endswith("."):
        raise refuse("it starts or ends with a space, or ends with a dot")
    return _regular(Path(layout.archive_path(folder() / name, "")), refuse)


def _refusal(name: str) -> Callable[[str], RequestError]:
    def refuse(why: str) -> RequestError:
        return RequestError(
            "bad-file-name", f"{name!r} is not usable as a file name: {why}", "Give a plain name such as net.hlab."
        )

    return refuse


def _regular(path: Path, refuse: Callable[[str], RequestError]) -> Path:
    """The same path, where a regular file is or none."""
    if len(path.name.encode()) > LONGEST:
        raise refuse("it is too long")
    if path.is_symlink():
        raise refuse("it is a link")
    if path.exists() and not path.is_file():
        raise refuse("it is a folder" if path.is_dir() else "it is not a regular file")
    return path


def checked_for_reading(name: str) -> Path:
    """The same for a file that is only read: it may have another ending, if none of that name ends with `.hlab`, and
    may be an earlier save, `.hybrid_lab_history/NAME`.
    """
    folder_name, slash, rest = name.partition("/")
    if folder_name != history.FOLDER or not slash:
        path = checked(name)
        other = path.with_name(name)
        return path if path.exists() or not os.path.lexists(other) else _regular(other, _refusal(name))
    path = checked(rest)
    inner = path.parent / history.FOLDER
    if inner.is_symlink():
        raise RequestError(
            "bad-file-name", f"{history.FOLDER} is a link", "Give the name of a file beside the notebook."
        )
    entry = inner / path.name
    if entry.is_symlink() or (entry.exists() and not entry.is_file()):
        raise RequestError("bad-file-name", f"{name!r} is not a regular file", "Choose another one of the list.")
    return entry


def existing(name: str) -> Path:
    """The same for a file that must be there. Raises RequestError `not-found` besides."""
    path = checked_for_reading(name)
    if not path.exists():
        raise RequestError(
            "not-found",
            f"there is no file {path.name} in {path.parent}",
            "Save the model first, or choose another file.",
        )
    return path


def checked_for_writing(name: str, overwrite: bool) -> Path:
    """The same for a file that is to be written.

    Raises RequestError `bad-file-name` where it exists and is no archive, and `exists` unless it may be overwritten.
    """
    path = checked(name)
    if path.exists():
        reason = why_no_archive(path)
        if reason is not None:
            raise RequestError(
                "bad-file-name",
                f"{path.name} exists and is not an intact archive ({reason}); only archives are overwritten",
                "Choose another name, such as net.hlab, or remove the file yourself.",
            )
        if not overwrite:
            raise RequestError("exists", f"{path.name} exists already", "Choose another name, or overwrite it.")
    return path


def what_to_do(error: OSError) -> str:
    """The next step after an error of the system."""
    where = os.path.dirname(error.filename) if isinstance(error.filename, str) else ""
    return _NEXT.get(error.errno or 0, _NEXT[0]).format(folder=where or os.curdir)


_ELSEWHERE = "or save to another folder from a cell: net.save('/another/folder/net.hlab')."
_NEXT = {
    0: f"Try again, {_ELSEWHERE}",
    errno.EACCES: f"Allow the kernel's user to write in {{folder}}, {_ELSEWHERE}",
    errno.EPERM: f"The system does not let the kernel write in {{folder}}: change that, {_ELSEWHERE}",
    errno.EROFS: f"{{folder}} is on a disk that can only be read: mount it for writing, {_ELSEWHERE}",
    errno.ENOSPC: f"The disk is full: delete something, {_ELSEWHERE}",
    errno.EDQUOT: f"Your share of the disk is used up: delete something, {_ELSEWHERE}",
    errno.ENOENT: "The folder of the notebook may have been moved or deleted: run os.chdir('/an/existing/folder').",
    errno.ENOTDIR: f"Remove or rename {{folder}}, {_ELSEWHERE}",
    errno.EISDIR: "Choose a name that is no folder.",
    errno.ENAMETOOLONG: "Choose a shorter name.",
}
"""Number of an error -> what to do."""
