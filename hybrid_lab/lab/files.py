"""File names from the panel: one component under the notebook's folder, nothing else."""

from __future__ import annotations

import os
from pathlib import Path

from hybrid_lab.lab.errors import RequestError


def folder() -> Path:
    """Where Save writes: the kernel's working folder, which is the notebook's."""
    return Path(os.getcwd()).resolve()


def checked(name: str) -> Path:
    """The absolute path of an archive named `name` in the folder; `.hlab` is appended where there is no suffix.

    Raises RequestError `bad-file-name` for separators, `..`, absolute paths, drives, control characters, leading dots and links.
    """

    def refuse(why: str) -> RequestError:
        return RequestError("bad-file-name", f"{name!r} is not usable as a file name: {why}", "Give a plain name such as net.hlab.")

    if not name or name in (".", ".."):
        raise refuse("it is empty" if not name else "it names a folder")
    if any(ord(character) < 32 or ord(character) == 127 for character in name):
        raise refuse("it has control characters")
    if "/" in name or "\\" in name or (len(name) > 1 and name[1] == ":"):
        raise refuse("it has folders or a drive; archives are saved beside the notebook")
    if name.startswith("."):
        raise refuse("it starts with a dot")
    if len(name.encode()) > 240:
        raise refuse("it is too long")
    base = folder()
    path = base / (name if Path(name).suffix else f"{name}.hlab")
    if path.is_symlink():
        raise refuse("it is a link")
    if path.is_dir():
        raise refuse("it is a folder")
    return path
