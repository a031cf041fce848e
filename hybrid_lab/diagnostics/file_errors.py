"""Errors of the system about files, in the user's words and with the next step."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from difflib import get_close_matches
from os import PathLike

from .errors import HybridLabError

_LONG_ENDINGS = ("-symbol.json", ".safetensors.index.json")
"""Endings of names that have more than one dot, or a hyphen."""
_LOADABLE = (".hlab", ".safetensors.index.json", ".safetensors", ".params", ".onnx")
"""Endings of files that are proposed in place of their folder."""
_SHOWN = 6
"""Names of files that a message lists."""
_LONGEST = 120
"""Characters of a path that a message shows."""


class FileError(HybridLabError, OSError):
    """A file that cannot be read or written. errno, strerror, filename : as of the system's error."""

    def __init__(self, number: int, text: str, path: str, message: str) -> None:
        super().__init__(number, text, path)
        self.message = message

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.errno, self.strerror, self.filename, self.message)


class MissingFileError(FileError, FileNotFoundError):
    """There is no such file, or no such folder to write a file into."""


class IsFolderError(FileError, IsADirectoryError):
    """A folder was given where a file is needed."""


class NotFolderError(FileError, NotADirectoryError):
    """A path goes through a file as if it were a folder."""


class RefusedFileError(FileError, PermissionError):
    """The system does not let this user read or write a file."""


class SpecialFileError(FileError):
    """A device, FIFO or socket was given where a regular file is needed."""


_KINDS: dict[int, type[FileError]] = {
    errno.ENOENT: MissingFileError,
    errno.EISDIR: IsFolderError,
    errno.ENOTDIR: NotFolderError,
    errno.EACCES: RefusedFileError,
    errno.EPERM: RefusedFileError,
}


def reading(path: str | PathLike[str]) -> AbstractContextManager[None]:
    """Raise the errors of the system in the block, which opens or reads the file at `path`, as FileErrors."""
    return _raising(read_error, path)


def writing(path: str | PathLike[str]) -> AbstractContextManager[None]:
    """Raise the errors of the system in the block, which writes the file or makes the folder `path`, as FileErrors."""
    return _raising(write_error, path)


@contextlib.contextmanager
def _raising(file_error: Callable[[int, str | PathLike[str]], FileError], path: str | PathLike[str]) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        number = _number(error, path)
        if number is None:
            raise
        raise file_error(number, path) from None


def read_error(number: int, path: str | PathLike[str]) -> FileError:
    """The error of this number (`errno`) while the file at `path` is read."""
    name = os.fsdecode(path)
    folder = os.path.dirname(name) or os.curdir
    if not name:
        message = _NO_NAME
    elif number == errno.ENOENT and os.path.isdir(folder):
        message = f"there is no file {_shown(name)}{_instead(name, folder)}"
    elif number == errno.ENOENT:
        message = f"there is no folder {_shown(folder)}, so there is no file {_shown(name)}; give the path of a file"
    elif number == errno.EISDIR:
        message = f"{_shown(name)} is a folder; give the path of a file{_inside(name)}"
    elif number in (errno.EACCES, errno.EPERM):
        message = f"{_shown(name)} cannot be read: {os.strerror(number)}; let this user read it, or give another file"
    else:
        message = _other(number, name) or f"{_shown(name)} cannot be read: {os.strerror(number)}; try again"
    return _error(number, name, message)


def write_error(number: int, path: str | PathLike[str]) -> FileError:
    """The error of this number (`errno`) while the file at `path` is written, or the folder made."""
    name = os.fsdecode(path)
    folder = os.path.dirname(name) or os.curdir
    if not name:
        message = _NO_NAME
    elif number == errno.ENOENT:
        message = f"there is no folder {_shown(folder)} to write {_shown(name)} into; create it, or give another path"
    elif number == errno.EISDIR:
        message = f"{_shown(name)} is a folder; give the name of a file in it, or another name"
    elif number == errno.EEXIST:
        message = f"{_shown(name)} is a file where a folder is needed; give another name, or remove the file"
    else:
        step = _STEPS.get(number, "try again, or give another path")
        message = _other(number, name) or f"{_shown(name)} cannot be written: {os.strerror(number)}; {step}"
    return _error(number, name, message)


def open_regular(path: str | PathLike[str]) -> io.BufferedReader:
    """A regular file, open for reading. Raises FileError, for devices, FIFOs and sockets too, which it does not wait
    for.
    """

    def opener(name: str, flags: int) -> int:
        descriptor = os.open(name, flags | getattr(os, "O_NONBLOCK", 0))
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISREG(mode) or stat.S_ISDIR(mode):  # Python says of a folder that it is one
            return descriptor
        os.close(descriptor)
        raise special_file_error(mode, path, "not a regular file; give the path of a file")

    with reading(path):
        return open(path, "rb", opener=opener)


def special_file_error(mode: int, path: str | PathLike[str], problem: str = "") -> FileError:
    """The error for something that is neither a file nor a folder.

    mode : its `st_mode`; problem : the problem, and the next step; by default the problem of a write
    """
    name = os.fsdecode(path)
    kinds = ((stat.S_ISFIFO, "a FIFO"), (stat.S_ISSOCK, "a socket"))
    kind = next((words for is_kind, words in kinds if is_kind(mode)), "a device")
    problem = problem or "which a file must not replace; give the name of a file"
    return SpecialFileError(errno.EINVAL, os.strerror(errno.EINVAL), name, f"{_shown(name)} is {kind}, {problem}")


_NO_NAME = "'' names no file; give a name such as 'model'"
_STEPS = {
    errno.EACCES: "let this user write there, or give another path",
    errno.EPERM: "the system does not allow it there: give another path",
    errno.EROFS: "give a path on a disk that can be written",
    errno.ENOSPC: "delete something, or give a path on another disk",
    errno.EDQUOT: "delete something, or give a path on another disk",
}
"""Number of an error -> the next step where a file cannot be written."""


def _number(error: OSError | ValueError, path: str | PathLike[str]) -> int | None:
    """The number of an error of the system; None for other errors and for typed errors."""
    if isinstance(error, HybridLabError):
        return None
    if isinstance(error, OSError):
        return error.errno
    return errno.EINVAL if "\0" in os.fsdecode(path) else None


def _error(number: int, name: str, message: str) -> FileError:
    return _KINDS.get(number, FileError)(number, os.strerror(number), name, message)


def _other(number: int, name: str) -> str:
    """The words where reading and writing fail alike; "" for other errors."""
    if "\0" in name:
        return f"{_shown(name)} has a NUL character, which no path may have; give another name"
    if number == errno.ENAMETOOLONG:
        return f"the name {_shown(os.path.basename(name))} is too long; file systems take up to 255 bytes"
    if number == errno.ENOTDIR:
        if os.path.isfile(name):
            return f"{_shown(name)} is a file where a folder is needed; give another name, or remove the file"
        file = os.path.dirname(name)
        while file and not os.path.lexists(file):
            file = os.path.dirname(file)
        return f"{_shown(file)} is a file, not a folder, so {_shown(name)} cannot be in it; give another path"
    return ""


def _instead(name: str, folder: str) -> str:
    """What to read in place of a file that is not there."""
    ending = next((each for each in _LONG_ENDINGS if name.endswith(each)), os.path.splitext(name)[1])
    there = _files(folder, ending)
    stems = {each.removesuffix(ending): each for each in there}
    near = get_close_matches(os.path.basename(name).removesuffix(ending), stems, n=1, cutoff=0.75)
    if near:
        return f"; did you mean {_shown(os.path.join(os.path.dirname(name), stems[near[0]]))}?"
    absolute = "" if os.path.isabs(name) else f" in {_shown(os.path.abspath(folder))}"
    return f"{absolute}; {'the folder has ' + _list(there) if there else 'give the path of a file'}"


def _inside(folder: str) -> str:
    """The advice for a folder given as a file: the files in it, or the call that takes the folder."""
    if _files(folder, "-symbol.json"):
        return " in it, or let net.load(folder) or gluon.load(folder) read MXNet's files in it, one pair for each Block"
    checkpoints = [name for name in _files(folder, ".hlab") if name.startswith("step-")]
    if checkpoints:
        return f" in it: {_list(checkpoints)}. mx.checkpoint.Manager(folder, net, trainer).restore() loads the newest"
    found = next((files for ending in _LOADABLE if (files := _files(folder, ending))), [])
    if found:
        return f" in it: {_list(found)}"
    if os.path.isfile(os.path.join(folder, "saved_model.pb")):
        return ". It is a SavedModel of TensorFlow; convert it to ONNX (tf2onnx), and mx.onnx.imports(file) reads that"
    return ""


def _files(folder: str, ending: str) -> list[str]:
    """The files of a folder whose names end so; none if the ending is empty or the folder cannot be read."""
    with contextlib.suppress(OSError):
        found = [each.name for each in os.scandir(folder) if ending and each.name.endswith(ending) and each.is_file()]
        return sorted(name for name in found if name[0] != ".")
    return []


def _list(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(map(_shown, names[:_SHOWN])) + more


def _shown(name: str) -> str:
    return repr(name if len(name) <= _LONGEST else name[: _LONGEST - 1] + "…")
