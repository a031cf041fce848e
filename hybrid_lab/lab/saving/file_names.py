"""File names from the panel: plain names in the notebook's folder or in folders below it, nothing else."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path

from hybrid_lab.formats.archive import layout, why_no_archive
from hybrid_lab.lab.errors import RequestError
from hybrid_lab.lab.saving import history

LONGEST = 240
"""Bytes of a name: file systems take 255, and atomic writes need a few for themselves."""
_HIDDEN = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Unicode categories that a name must not have: controls, invisible characters, surrogates, line ends."""


def folder() -> Path:
    """The folder of saves: the kernel's working folder, which is the notebook's."""
    return Path(os.getcwd()).resolve()


def name_for(model: str, suffix: str = "", below: str = "") -> str:
    """The name of a model's archive: `net.hlab`, `nets_0.hlab` of `nets[0]`, `net.autosave.hlab` with a suffix.

    below : the path of a Block of the model, whose archive it is: `net.features.hlab`
    """
    plain = [re.sub(r"[^\w.\-]+", "_", part).strip("_.") for part in (model, below)]
    return (".".join(filter(None, plain)) or "net") + suffix + layout.SUFFIX


def checked(name: str) -> Path:
    """The absolute path that an archive named `name` is saved to: in the folder or below it, with `.hlab` unless the
    name ends so. Folders are separated by `/`.

    Raises RequestError `bad-file-name` for `..`, absolute paths, drives, backslashes, control and invisible characters,
    leading dots, links, folders that lead out, and what is no plain file.
    """
    refuse = _refusal(name)
    return _regular(Path(layout.archive_path(_below(name, refuse), "")), refuse)


def checked_folder(name: str) -> Path:
    """The absolute path of a folder below the kernel's; "" is the kernel's own. Raises RequestError `bad-file-name`."""
    if not name.strip("/"):
        return folder()
    refuse = _refusal(name)
    path = _below(name.strip("/"), refuse)
    if not path.resolve().is_relative_to(folder()):
        raise refuse("it leads out of the notebook's folder")
    return path


def _below(name: str, refuse: Callable[[str], RequestError]) -> Path:
    """The path of a name below the folder, of which each part is a plain name."""
    if any(unicodedata.category(character) in _HIDDEN for character in name):
        raise refuse("it has control or invisible characters")
    if "\\" in name or name[1:2] == ":":
        raise refuse("it has a backslash or a drive; folders are separated by /")
    if name.startswith("/"):
        raise refuse("it is an absolute path; archives are saved in the notebook's folder or below it")
    parts = name.split("/")
    for part in parts:
        if not part.strip() or part in (".", ".."):
            raise refuse("it is empty, or names a folder" if part in ("", ".") else f"it has the part {part!r}")
        if part.startswith((".", "~")):
            raise refuse(f"{part!r} starts with {part[0]!r}")
        if part != part.strip() or part.endswith("."):
            raise refuse("a part of it starts or ends with a space, or ends with a dot")
        if len(part.encode()) > LONGEST:
            raise refuse("it is too long")
    start = folder()
    path = start.joinpath(*parts)
    for place in reversed(path.relative_to(start).parents):
        inner = start / place
        if os.path.lexists(inner) and not inner.is_dir():
            raise refuse(f"{place} is not a folder")
    if not path.parent.resolve().is_relative_to(start):
        raise refuse("its folder is a link that leads out of the notebook's folder")
    return path


def shown(path: Path) -> str:
    """The name of a file below the folder, as `checked` takes it; of another one its absolute path."""
    start = folder()
    return path.relative_to(start).as_posix() if path.is_relative_to(start) else str(path)


def _refusal(name: str) -> Callable[[str], RequestError]:
    def refuse(why: str) -> RequestError:
        return RequestError(
            "bad-file-name",
            f"{name!r} is not usable as a file name: {why}",
            "Give a plain name such as net.hlab, or one with folders such as runs/a/net.hlab.",
        )

    return refuse


def _regular(path: Path, refuse: Callable[[str], RequestError]) -> Path:
    """The same path, if it names a regular file or none."""
    if len(path.name.encode()) > LONGEST:
        raise refuse("it is too long")
    if path.is_symlink():
        raise refuse("it is a link")
    if path.exists() and not path.is_file():
        raise refuse("it is a folder" if path.is_dir() else "it is not a regular file")
    return path


def checked_for_reading(name: str) -> Path:
    """As `checked`, for a file to read: it may have another ending, if no file of that name ends with `.hlab`, and may
    be an earlier save, `.hybrid_lab_history/NAME` in its folder.
    """
    *above, last = name.split("/")
    if above[-1:] != [history.FOLDER]:
        path = checked(name)
        other = path.with_name(last)
        return path if path.exists() or not os.path.lexists(other) else _regular(other, _refusal(name))
    path = checked("/".join([*above[:-1], last]))
    kept = path.parent / history.FOLDER
    if kept.is_symlink():
        raise RequestError(
            "bad-file-name", f"{history.FOLDER} is a link", "Give the name of a file beside the notebook."
        )
    entry = kept / path.name
    if entry.is_symlink() or (entry.exists() and not entry.is_file()):
        raise RequestError("bad-file-name", f"{name!r} is not a regular file", "Choose another one of the list.")
    return entry


def existing(name: str) -> Path:
    """The same for a file that must be there. Also raises RequestError `not-found`."""
    path = checked_for_reading(name)
    if not path.exists():
        raise RequestError(
            "not-found",
            f"there is no file {path.name} in {path.parent}",
            "Save the model first, or choose another file.",
        )
    return path


def checked_for_writing(name: str) -> Path:
    """As `checked`, for a file to write. Raises RequestError `bad-file-name` if it exists and is no archive.

    The folders of its name need not exist, see `folders_made`.
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
    return path


@contextlib.contextmanager
def folders_made(path: Path) -> Iterator[None]:
    """Create the folders of a path for the block; an error in it removes the new ones again. Raises OSError."""
    missing = [place for place in path.parents if not place.exists() and place.is_relative_to(folder())]
    made: list[Path] = []
    try:
        for place in reversed(missing):
            place.mkdir(exist_ok=True)
            made.append(place)
        yield
    except BaseException:
        for place in reversed(made):
            with contextlib.suppress(OSError):
                place.rmdir()
        raise


def what_to_do(error: OSError, saves: bool = True) -> str:
    """The next step after an error of the system. saves : whether it is one of a save, which code can do elsewhere"""
    path = error.filename if isinstance(error.filename, str) else ""
    step = _NEXT.get(error.errno or 0, _NEXT[0]).format(path=path, folder=os.path.dirname(path) or os.curdir)
    elsewhere = ", or save to another folder from a cell: net.save('/another/folder/net.hlab')"
    return step + elsewhere * (saves and error.errno not in _HERE) + "."


_NEXT = {
    0: "Try again",
    errno.EACCES: "Allow the kernel's user to write in {folder}",
    errno.EPERM: "The system does not let the kernel write in {folder}: change that",
    errno.EROFS: "{folder} is on a disk that can only be read: mount it for writing",
    errno.ENOSPC: "The disk is full: delete something",
    errno.EDQUOT: "Your share of the disk is used up: delete something",
    errno.EEXIST: "Remove or rename {path}",
    errno.ENOENT: "The folder of the notebook may have been moved or deleted: run os.chdir('/an/existing/folder')",
    errno.ENOTDIR: "Remove or rename {folder}",
    errno.EISDIR: "Choose a name that is no folder",
    errno.ENAMETOOLONG: "Choose a shorter name",
}
"""Number of an error -> what to do."""
_HERE = {errno.ENOENT, errno.EISDIR, errno.ENAMETOOLONG}
"""Errors that another name or folder of the kernel mends."""
