"""Files that engines keep on disk: in $HYBRID_LAB_CACHE, else hybrid_lab in the user's cache folder.

Some of them are code: recipes hold the text of kernels, binaries run on the GPU. Digests in them find damage, but
whoever can write a file can write its digest. So a file is read only if nobody but this user (or root) can have
written it: the cache folder, the folders below it and the file belong to this user or to root, group and others may
not write to them, and none below the cache folder is a symbolic link. Everything else is as if it were not there, and
a warning says so once. On Windows the user's cache folder is taken to be the user's own.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from hybrid_lab import temporary
from hybrid_lab.log import logger


class UntrustedFileError(OSError):
    """A file of the cache that somebody else may have written."""


def cache_folder(kind: str) -> Path | None:
    """The folder for files of one kind; it may not exist yet. None where HYBRID_LAB_CACHE is set to nothing, there is
    no home, or others may write to the folder, which a warning says once: then nothing is kept on disk.

    It is an absolute path. A relative HYBRID_LAB_CACHE counts from the working folder of the first call that finds it
    so, wherever the process goes later.
    """
    root = cache_root()
    if root is None:
        return None
    reason = why_untrusted(root)
    if reason is not None:
        _tell(root, reason)
        return None
    folder = root / kind
    reason = why_untrusted(folder)
    if reason is not None:
        _tell(folder, reason)
        return None
    return folder


def cache_root() -> Path | None:
    """The folder of all kinds, whether it is trusted or not; None where nothing is kept on disk."""
    chosen = os.environ.get("HYBRID_LAB_CACHE")
    if chosen is not None:
        return _absolute(chosen) if chosen else None
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return (_absolute(base) if base else Path.home() / ".cache") / "hybrid_lab"
    except RuntimeError:
        return None


@functools.cache
def _absolute(folder: str) -> Path:
    return Path(folder).absolute()


# -- who may write -----------------------------------------------------------------------------------------------------


def why_untrusted(path: Path) -> str | None:
    """Who else may have written a folder or file, in words and with the next step; None where nobody, or no such file.

    The cache folder itself may be a link that this user or root made.
    """
    if os.name != "posix":
        return None
    try:
        state = os.lstat(path)
        if stat.S_ISLNK(state.st_mode) and path == cache_root() and state.st_uid in (0, os.geteuid()):
            state = os.stat(path)
    except OSError:
        return None  # reading it will fail, and making it may
    return _reason(state, path)


def _reason(state: os.stat_result, path: str | os.PathLike[str]) -> str | None:
    if os.name != "posix":
        return None
    if stat.S_ISLNK(state.st_mode):
        return "it is a symbolic link; HYBRID_LAB_CACHE names another folder"
    if state.st_uid not in (0, os.geteuid()):
        return f"it belongs to the user {state.st_uid}; HYBRID_LAB_CACHE names a folder of your own"
    if stat.S_IMODE(state.st_mode) & 0o022:
        return (
            f"others may write to it (mode {stat.S_IMODE(state.st_mode):04o}); if none of them did: "
            f"chmod -R go-w {os.fspath(path)}"
        )
    return None


@functools.lru_cache(maxsize=64)
def _tell(path: Path, reason: str) -> None:
    logger.warning(f"the cache {path} is not used, as it could run another user's code: {reason}")


# -- reading and writing -----------------------------------------------------------------------------------------------


def read_file(path: Path) -> bytes:
    """The contents of a file below a folder that `cache_folder` gave. Raises OSError; UntrustedFileError for files that
    others may write to, which a warning says once for each folder.
    """
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    with open(os.open(path, flags), "rb") as file:
        state = os.fstat(file.fileno())
        reason = _reason(state, path)
        if reason is not None:
            _tell_of_file(path.parent)
            raise UntrustedFileError(None, reason, os.fspath(path))
        return file.read()


@functools.lru_cache(maxsize=64)
def _tell_of_file(folder: Path) -> None:
    logger.warning(
        f"files in {folder} to which others may write, or which are theirs, are not used but made anew, as they could "
        f"run another user's code; if none of them did: chmod -R go-w {folder}"
    )


def make_folder(folder: Path) -> None:
    """Make a folder and the missing ones above it, for this user alone. Raises OSError."""
    if not folder.is_dir():
        if folder.parent != folder:
            make_folder(folder.parent)
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)


def write_file(path: Path, content: bytes) -> None:
    """Write a file in one step, for this user alone, and make its folder. Raises OSError."""
    make_folder(path.parent)
    _clean(path.parent)
    while True:
        partial = temporary.temporary_path(os.fspath(path))
        descriptor = create_file(partial)
        with open(descriptor, "wb") as file:
            if not temporary.lock(descriptor):
                continue
            try:
                file.write(content)
                file.flush()
                if os.name != "posix":
                    file.close()
                os.replace(partial, path)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(partial)
                raise
            return


def create_file(path: str | os.PathLike[str]) -> int:
    """A descriptor of a new file that this user alone may read and write. Raises OSError."""
    return os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_BINARY", 0), 0o600)


@contextlib.contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A folder for this user alone that becomes `path` in one step, unless there is one already. Raises OSError."""
    make_folder(path.parent)
    _clean(path.parent)
    while True:
        partial = temporary.temporary_path(os.fspath(path))
        os.mkdir(partial, 0o700)
        descriptor = os.open(partial, os.O_RDONLY) if os.name == "posix" else None
        if descriptor is None or temporary.lock(descriptor):
            break
        os.close(descriptor)
    try:
        yield Path(partial)
        with contextlib.suppress(OSError):  # another process was quicker
            os.rename(partial, path)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        if descriptor is not None:
            os.close(descriptor)


@functools.lru_cache(maxsize=64)
def _clean(folder: Path) -> None:
    """Once in this process: remove what killed writers left."""
    temporary.remove_stale(os.fspath(folder))
