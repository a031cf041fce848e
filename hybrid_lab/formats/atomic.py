"""Writing a file so that a crash at any moment leaves either the old file or the new one, whole."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO

from hybrid_lab.diagnostics.file_errors import special_file_error, writing
from hybrid_lab.system import temporary
from hybrid_lab.system.logger import logger
from hybrid_lab.system.progress import Progress

LARGE = 64 << 20
"""So many bytes keep a disk busy for longer than a few more system calls take."""
_PIECE = 16 << 20
WORTH_A_BAR = 100_000_000
"""So many bytes of arrays may take seconds to write: a bar shows how far the save is."""


_CANNOT_SYNC = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})
"""Errors by which a file system says that it forces nothing to the disk on request."""
_ACL = "system.posix_acl_access"


@contextlib.contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A binary file that becomes `path` when the block ends without an exception.

    The bytes go to a temporary file in the same folder, are forced to disk, and then renamed over `path`; the folder is
    forced to disk too. When anything raises, `path` is unchanged and the temporary file is gone. A symbolic link keeps
    pointing where it did: its target is replaced. Temporary files of `path` left by killed processes are removed at the
    end; temporary files of live processes stay. Errors of the system are raised as FileErrors.

    A replaced file passes on its permissions, and its owner and group if the system allows it; until then only this
    user can open the temporary file. A new file gets the permissions of the umask. Folders, devices, FIFOs and sockets
    are never replaced: they raise a FileError before the block.
    """
    with writing(path):
        target, replaced = write_target(path)
    with writing(target if os.path.islink(path) else path):
        with temporary.replacement(target, _create_new if replaced is None else _create) as file:
            yield file
            file.flush()
            if replaced is not None:
                keep_permissions(file.fileno(), replaced, target)
            _force_file(file.fileno())
    directory = os.path.dirname(target)
    _force_folder(directory)
    temporary.remove_stale(directory, target)


def write_target(path: str | os.PathLike[str]) -> tuple[str, os.stat_result | None]:
    """The file that a write to `path` creates or replaces (the target of a symbolic link), and the state of an existing
    file. Raises OSError for anything but a regular file that this user may write.
    """
    name = os.fsdecode(path)
    if os.path.basename(name) in ("", os.curdir, os.pardir):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
    target = os.path.realpath(name)
    try:
        state = os.stat(name)  # of a link's target; its name may be none, as of /dev/stdout
    except FileNotFoundError:
        return target, None
    if stat.S_ISDIR(state.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
    if not stat.S_ISREG(state.st_mode):
        raise special_file_error(state.st_mode, name)
    if not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), name)
    return target, state


def check_writable(path: str | os.PathLike[str]) -> None:
    """Raise a FileError if no file can be written at `path`, before one is opened, which would empty it."""
    with writing(path):
        folder = os.path.dirname(write_target(path)[0])
        if not os.path.isdir(folder):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), folder)


def _create_new(path: str) -> BinaryIO:
    """A new file with the umask's permissions. "x": never through a file or link that another user put there."""
    return open(path, "x+b")


def _create(path: str) -> BinaryIO:
    """A new file that only this user can open."""
    return open(path, "x+b", opener=lambda name, flags: os.open(name, flags, 0o600))


def keep_permissions(descriptor: int, replaced: os.stat_result, path: str) -> None:
    """Give an open file, which only this user can open, the owner, group and permissions of the file that it replaces.

    path : of that file. If the group cannot be kept, the new group may do no more than everybody.
    """
    if os.name != "posix":
        return
    mode, state = stat.S_IMODE(replaced.st_mode), os.fstat(descriptor)
    group_is_kept = True
    if (state.st_uid, state.st_gid) != (replaced.st_uid, replaced.st_gid):
        try:
            os.fchown(descriptor, replaced.st_uid, replaced.st_gid)
        except OSError:
            mode &= 0o1777  # without the bits that run a program as its owner or group
            try:
                os.fchown(descriptor, -1, replaced.st_gid)
            except OSError:
                group_is_kept = False
    if not (group_is_kept and _keep_access_list(descriptor, path)):
        mode &= ~0o070 | mode << 3 & 0o070
    with contextlib.suppress(OSError):  # a file system without permissions
        os.fchmod(descriptor, mode)


def _keep_access_list(descriptor: int, path: str) -> bool:
    """Copy the access control list of a file. False if the list cannot be copied."""
    if not hasattr(os, "getxattr"):
        return True
    try:
        access_list = os.getxattr(path, _ACL)
    except OSError:
        return True
    try:
        os.setxattr(descriptor, _ACL, access_list)
    except OSError:
        return False
    return True


def _force_file(descriptor: int) -> None:
    """Force a file to the disk. Raises OSError if the disk could not take the data."""
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _CANNOT_SYNC:
            raise


def _force_folder(folder: str) -> None:
    """Force the names in a folder to the disk, if its file system does that: the file is complete in any case."""
    if os.name != "posix":
        return
    try:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:  # network file systems refuse in many ways
        if error.errno in (errno.EIO, errno.ENOSPC, errno.EDQUOT):
            logger.warning(f"a file was written, but the disk of its folder {folder} reports: {error.strerror}")


@contextlib.contextmanager
def progress_of(title: str, size: int) -> Iterator[Callable[[int], object]]:
    """A function to be told how many of `size` bytes have been written; from 100 MB on it draws a progress bar."""
    if size < WORTH_A_BAR:
        yield int
        return
    progress = Progress(title, size // 1_000_000, "MB")
    try:
        yield lambda written: progress.step(min(written, size) // 1_000_000)
    finally:
        progress.close()


def write_early(file: BinaryIO, chunks: Iterable[bytes | memoryview], size: int) -> Iterator[bytes | memoryview]:
    """Write chunks of `size` bytes in all at the file's position; gives each piece of them once it is written.

    The disk begins with a large file while the rest is still being written, so that the fsync at the end finds little
    to do. Room for all bytes is reserved first, and each piece is sent to the disk without waiting for it. This is done
    on Linux; elsewhere the chunks are written and no more.
    """
    position = sent = file.tell()
    large = size >= LARGE and sys.platform == "linux"
    if large:
        with contextlib.suppress(OSError):  # a full disk is an error of the write that finds it
            os.posix_fallocate(file.fileno(), position, size)
    for chunk in chunks:
        for start in range(0, len(chunk), _PIECE):
            piece = chunk[start : start + _PIECE]
            file.write(piece)
            position += len(piece)
            if large and position - sent >= _PIECE:
                with contextlib.suppress(OSError):
                    # Linux begins to write pages that it is told to drop, and keeps them until they are on the disk.
                    os.posix_fadvise(file.fileno(), sent, position - sent, os.POSIX_FADV_DONTNEED)
                sent = position
            yield piece
