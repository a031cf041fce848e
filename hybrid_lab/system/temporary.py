"""Temporary files and folders beside the files that they will replace: a lock tells files of live writers from stale
files.

A writer creates `.<name>.<12 hexadecimal digits>.tmp` and holds a lock (`flock`) on it until it has been renamed. The
system drops the lock when the writer's process ends in any way, on this machine or on another machine that shares the
folder. A temporary file without a lock was left by a killed process and may go. On Windows, where there is no `flock`,
open files cannot be removed, which comes to the same. If a file system or JupyterLite's Python has no locks nothing is
removed.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from typing import BinaryIO

try:
    # By name: the kernel of JupyterLite puts an empty module in the place of fcntl.
    from fcntl import LOCK_EX, LOCK_NB, flock
except ImportError:  # Windows, JupyterLite
    HAS_LOCKS = False
else:
    HAS_LOCKS = True

_NAME_KEPT = 48
"""Characters of the target's name in the temporary one: at most 192 bytes, where file systems take 255."""
_TEMPORARY = re.compile(r"\.(.+)\.[0-9a-f]{12}\.tmp", re.DOTALL)


def temporary_path(target: str) -> str:
    """A new name beside `target`."""
    folder, name = os.path.split(target)
    return os.path.join(folder, f".{name[:_NAME_KEPT]}.{secrets.token_hex(6)}.tmp")


@contextlib.contextmanager
def replacement(target: str, create: Callable[[str], BinaryIO]) -> Iterator[BinaryIO]:
    """A new, locked file that becomes `target` by one rename when the block ends, or is removed when the block raises.

    create : makes and opens the file, which must not exist
    """
    while True:
        path = temporary_path(target)
        try:
            file = create(path)
        except OSError as error:
            raise type(error)(error.errno, error.strerror, target) from None
        if lock(file.fileno()):
            break
        file.close()
    try:
        with file:
            yield file
            file.flush()
            if os.name != "posix":
                file.close()  # Windows renames no open file
            os.replace(path, target)  # before the lock goes, with the file's descriptor
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(path)
        raise


def lock(descriptor: int) -> bool:
    """Hold the lock until `descriptor` is closed. False if the file was just removed as stale: make another."""
    if not HAS_LOCKS:
        return True
    try:
        flock(descriptor, LOCK_EX | LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return os.fstat(descriptor).st_nlink > 0


def remove_stale(folder: str, target: str | None = None) -> None:
    """Remove files that killed writers left in a folder: the temporary files of `target`, or of all targets."""
    kept = None if target is None else os.path.basename(target)[:_NAME_KEPT]
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            match = _TEMPORARY.fullmatch(entry.name)
            if match is not None and kept in (None, match[1]):
                with contextlib.suppress(OSError):
                    _remove_if_stale(entry.path)


def _remove_if_stale(path: str) -> None:
    """Raises OSError if it cannot be removed, or a live writer holds it."""
    mode = os.lstat(path).st_mode
    if not HAS_LOCKS:
        if os.name == "nt":  # elsewhere a file may go while another kernel writes it
            os.unlink(path)
        return
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        return
    descriptor = os.open(path, (os.O_RDONLY if stat.S_ISDIR(mode) else os.O_RDWR) | os.O_NOFOLLOW)
    try:
        flock(descriptor, LOCK_EX | LOCK_NB)
        if stat.S_ISDIR(mode):
            shutil.rmtree(path)
        else:
            os.unlink(path)
    finally:
        os.close(descriptor)
