"""Store: what engines keep on disk for later processes, in one folder for each kind of entry.

An entry is one file. Its name is a digest of kind, version and key, and it starts with a digest of that name and of its
content: an entry that is damaged, cut short, renamed or of another version counts as missing. Entries appear by one
rename, so other processes see a whole entry or no entry. Each kind has a limit in bytes, beyond which the entries that
were used longest ago are removed.

Some entries are code: binaries run on the GPU. A user who can write a file can also write its digest. So a file is read
only if no user but this one and root can have written it: the store's folder, the folder of the kind and the file
belong to this user or to root, and group and others may not write to them. Only the store's folder may be a symbolic
link, of this user or root. Everything else counts as missing, which a warning says once. On Windows the user's cache
folder is taken to be the user's own.

Nothing here raises OSError. If an entry cannot be written, a warning says so once, and the work goes on without it.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import json
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from hybrid_lab.diagnostics.file_errors import special_file_error
from hybrid_lab.system import temporary
from hybrid_lab.system.logger import logger

#: A read marks its entry as used at most once in this many seconds.
DAY = 86400.0


class Store:
    """The entries of one kind, by key.

    kind : the name of the folder
    version : of format, packages and whatever else decides whether an entry of an earlier process may be used
    limit : in bytes, for all entries together. A process looks at the folder's size before its first write, and again
        when it has written a sixteenth of the limit; each other process that writes meanwhile may exceed it by as much
    root : the store's folder, if it is not `root_folder()`
    """

    def __init__(self, kind: str, version: Callable[[], str], limit: int, root: Path | None = None):
        self.kind, self.version, self.limit, self.root = kind, version, limit, root
        self._unchecked: dict[Path, int] = {}
        """Folder -> bytes that this process may write before it looks at the folder's size."""
        self._newest: dict[Path, int] = {}
        """Folder -> the latest time of use among its entries, in nanoseconds, when this process last looked."""

    def folder(self) -> Path | None:
        """The folder of the entries; it may not exist yet. None if nothing is kept on disk: HYBRID_LAB_CACHE is
        empty, there is no home, or others may write to the folder, which a warning says once.
        """
        root = self.root or root_folder()
        if root is None:
            return None
        for path in (root, root / self.kind):
            reason = why_untrusted(path, may_be_link=path is root)
            if reason is not None:
                _warn_once(f"the cache {path} is not used, as it could run another user's code: {reason}")
                return None
        return root / self.kind

    def get(self, key: str) -> bytes | None:
        """The content of an entry; None if there is none."""
        folder, name = self.folder(), self._name(key)
        data = None if folder is None else _read(folder / name)
        if data is None:
            return None
        head, _, content = data.partition(b"\n")
        return content if head == _head(name, content) else None

    def put(self, key: str, content: bytes) -> bool:
        """Write an entry, in the place of an earlier one. Returns whether it is on disk."""
        name = self._name(key)
        return self.put_file(name, _head(name, content) + b"\n" + content)

    def get_json(self, key: str) -> Any:
        """The value that `put_json` was given; None if there is none."""
        content = self.get(key)
        return None if content is None else json.loads(content)

    def put_json(self, key: str, value: object) -> bool:
        return self.put(key, json.dumps(value, separators=(",", ":")).encode())

    def put_file(self, name: str, content: bytes) -> bool:
        """Write a file that is just this content, for people and their tools: nothing reads it back."""
        folder = self.folder()
        if folder is None or len(content) > self.limit:
            return False
        try:
            _make_folder(folder)
            self._make_room(folder, len(content))
            _check_replaceable(folder / name)
            with temporary.replacement(os.fspath(folder / name), _create) as file:
                file.write(content)
            self._mark_newest(folder / name)
        except OSError as error:
            _warn_once(
                f"the cache {folder.parent} cannot be written ({error.strerror or error}): what would be kept in it "
                "lasts as long as this process. HYBRID_LAB_CACHE names another folder"
            )
            return False
        return True

    def _mark_newest(self, path: Path) -> None:
        """Let a new entry count as the last used, even if the clock was set back after other entries were used."""
        newest = self._newest.get(path.parent, 0)
        if newest >= time.time_ns():
            self._newest[path.parent] = newest + 1_000_000
            with contextlib.suppress(OSError):
                os.utime(path, ns=(newest + 1_000_000, newest + 1_000_000))

    def is_empty(self) -> bool:
        """Whether there are no entries, of other versions neither."""
        folder = self.folder()
        if folder is not None:
            with contextlib.suppress(OSError), os.scandir(folder) as entries:
                return next(entries, None) is None
        return True

    def _name(self, key: str) -> str:
        return hashlib.sha256(f"{self.kind}\n{self.version()}\n{key}".encode()).hexdigest()

    def _make_room(self, folder: Path, size: int) -> None:
        """Remove the files of killed writers. If `size` more bytes would exceed the limit, also remove the entries used
        longest ago, until a quarter of the limit is free. Raises OSError.
        """
        self._unchecked[folder] = self._unchecked.get(folder, 0) - size
        if self._unchecked[folder] >= 0:
            return
        temporary.remove_stale(os.fspath(folder))
        entries = []
        with os.scandir(folder) as files:
            for file in files:
                with contextlib.suppress(FileNotFoundError):  # another process was quicker
                    state = file.stat(follow_symlinks=False)
                    if stat.S_ISREG(state.st_mode) and not file.name.startswith("."):  # not of live writers
                        entries.append((state.st_mtime_ns, state.st_size, file.path))
        self._newest[folder] = max((entry[0] for entry in entries), default=0)
        total = size + sum(entry[1] for entry in entries)
        if total > self.limit:
            for _, freed, path in sorted(entries):
                if total <= max(self.limit * 3 // 4, size):
                    break
                with contextlib.suppress(PermissionError):  # on Windows: another process is reading it
                    Path(path).unlink(missing_ok=True)
                    total -= freed
        self._unchecked[folder] = min(self.limit - total, self.limit // 16)


def root_folder() -> Path | None:
    """The folder of all kinds, whether it is trusted or not: $HYBRID_LAB_CACHE, else hybrid_lab in the platform's cache
    folder of this user. None if nothing is kept on disk.

    A relative HYBRID_LAB_CACHE counts from the working folder of the first call that finds it so, wherever the process
    goes later.
    """
    chosen = os.environ.get("HYBRID_LAB_CACHE")
    if chosen is not None:
        return _absolute(chosen) if chosen else None
    import platformdirs

    try:
        folder = platformdirs.user_cache_dir("hybrid_lab", appauthor=False)
    except RuntimeError:  # there is no home; older releases give a path below "~"
        return None
    return None if folder.startswith("~") else _absolute(folder)


@functools.cache
def _absolute(folder: str) -> Path:
    return Path(folder).absolute()


@functools.cache
def versions_of(*packages: str) -> str:
    """The installed versions of packages, for a store's `version`."""
    versions = []
    for package in packages:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions.append(f"{package} {importlib.metadata.version(package)}")
    return "; ".join(versions)


@functools.lru_cache(maxsize=64)
def _warn_once(text: str) -> None:
    logger.warning(text)


# -- who may write -----------------------------------------------------------------------------------------------------


def why_untrusted(path: Path, may_be_link: bool = False) -> str | None:
    """Who else may have written a folder or file, in words and with the next step; None if nobody else may, or if there
    is no such file.

    may_be_link : a symbolic link of this user or root is followed
    """
    if os.name != "posix":
        return None
    try:
        state = os.lstat(path)
        if may_be_link and stat.S_ISLNK(state.st_mode) and state.st_uid in _owners():
            state = os.stat(path)
    except OSError:
        return None  # reading it will fail, and making it may
    return _reason(state, path)


def _owners() -> tuple[int, ...]:
    """Who may own a file: root and this user. Python in a browser has no users."""
    return (0, os.geteuid()) if hasattr(os, "geteuid") else (0,)


def _reason(state: os.stat_result, path: Path) -> str | None:
    if os.name != "posix":
        return None
    if stat.S_ISLNK(state.st_mode):
        return "it is a symbolic link; HYBRID_LAB_CACHE names another folder"
    if state.st_uid not in _owners():
        return f"it belongs to the user {state.st_uid}; HYBRID_LAB_CACHE names a folder of your own"
    if stat.S_IMODE(state.st_mode) & 0o022:
        mode = f"{stat.S_IMODE(state.st_mode):04o}"
        return f"others may write to it (mode {mode}); if none of them did: chmod -R go-w {path}"
    return None


# -- files -------------------------------------------------------------------------------------------------------------


def _head(name: str, content: bytes) -> bytes:
    return hashlib.sha256(name.encode() + content).hexdigest().encode()


def _read(path: Path) -> bytes | None:
    """A file's content, which counts as used now; None if there is no such file, or others may have written it."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        with open(path, "rb", opener=lambda name, _: os.open(name, flags)) as file:
            state = os.fstat(file.fileno())
            if _reason(state, path) is not None:
                _warn_once(
                    f"files in {path.parent} to which others may write, or which are theirs, are not used but made "
                    "anew, as they could run another user's code; if none of them did: "
                    f"chmod -R go-w {path.parent}"
                )
                return None
            content = file.read()
    except OSError:
        return None
    if time.time() - state.st_mtime > DAY:
        with contextlib.suppress(OSError):  # an entry of root's
            os.utime(path)
    return content


def _make_folder(folder: Path) -> None:
    """Make a folder and the missing ones above it, for this user alone. Raises OSError."""
    if not folder.is_dir():
        if folder.parent != folder:
            _make_folder(folder.parent)
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)


def _check_replaceable(path: Path) -> None:
    """Raise OSError for a device, FIFO or socket, which a file must not replace; a link is replaced itself."""
    with contextlib.suppress(FileNotFoundError):
        mode = os.lstat(path).st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
            raise special_file_error(mode, path)


def _create(path: str) -> BinaryIO:
    """A new file that this user alone may read and write. Raises OSError."""
    return open(path, "xb", opener=lambda name, flags: os.open(name, flags, 0o600))
