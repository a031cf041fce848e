"""Where things lie in an archive: the names of its members and the paths of blocks."""

from __future__ import annotations

import errno
import functools
import os
import re
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Sequence
from os import PathLike, fspath
from typing import TypeVar

from hybrid_lab.diagnostics import SettingError
from hybrid_lab.diagnostics.file_errors import read_error, reading

TREE = "tree.json"
CALLS = "calls.json"
WEIGHTS = "weights.safetensors"
TRAINER = "train/trainer.json"
TRAINER_ARRAYS = "train/trainer.safetensors"
RANDOM = "train/random.json"
ATTRIBUTES = "attributes.safetensors"
AUX = "train/aux.json"
AUX_ARRAYS = "train/aux.safetensors"
CHECKPOINT = "train/checkpoint.json"
CHECKPOINT_ARRAYS = "train/checkpoint.safetensors"
HISTOGRAMS = "histograms.safetensors"
EXAMPLE_ARRAYS = "examples/examples.safetensors"
ROOT = "__root__"
SUFFIX = ".hlab"

Block = TypeVar("Block")
_PLAIN = re.compile(r"[\w\-]+", re.ASCII)


@functools.lru_cache(maxsize=4096)
def quote(name: str) -> str:
    """A child's name as one part of a path: letters, digits, `_` and `-` unchanged, other bytes as %XX."""
    if _PLAIN.fullmatch(name) and name != ROOT:
        return name
    if name == ROOT:
        return "%5F" + name[1:]
    plain = [
        chr(byte) if _PLAIN.fullmatch(chr(byte)) else f"%{byte:02X}" for byte in name.encode("utf-8", "surrogatepass")
    ]
    return "".join(plain)


def unquote(part: str) -> str:
    """The name that `quote` wrote as this part of a path."""
    try:
        return urllib.parse.unquote(part, errors="surrogatepass")
    except UnicodeDecodeError:
        return part


def join(path: str, name: str) -> str:
    """The path of the child `name` of the block at `path`: `features.0`; the root's path is ""."""
    return f"{path}.{quote(name)}" if path else quote(name)


def join_attribute(path: str, name: str) -> str:
    """The attribute `name` of the block at `path`, as messages name it: `features.step`, `self.step`."""
    return f"{path or 'self'}.{name}"


def places(root: Block, children: Callable[[Block], Iterable[tuple[str, Block]]]) -> Iterator[tuple[str, Block]]:
    """(path, block) of every place in a tree, parents first; a shared block comes once per place.

    children : gives the names and children of a block, in order
    """
    stack = [("", root)]
    while stack:
        path, block = stack.pop()
        yield path, block
        stack += [(join(path, name), child) for name, child in reversed([*children(block)])]


def places_above(path: str) -> list[str]:
    """The paths of the Blocks above the one at a path, the outermost first."""
    parts = path.split(".") if path else []
    return [".".join(parts[:count]) for count in range(len(parts))]


def graph_member(path: str, number: int) -> str:
    """`graphs/features.0.json`, its second variant `graphs/features.0@2.json`; the root is `graphs/__root__.json`."""
    variant = "" if number == 1 else f"@{number}"
    return f"graphs/{path or ROOT}{variant}.json"


def is_graph(member: str) -> bool:
    """Whether a member holds a graph."""
    return member.startswith("graphs/") and member.endswith(".json")


def named_graph(member: str) -> str:
    """How messages call a graph: `features.0`, `features.0 (variant 2)`, `the model itself`."""
    path, _, number = member.removeprefix("graphs/").removesuffix(".json").partition("@")
    name = "the model itself" if path == ROOT else path
    return f"{name} (variant {number})" if number else name


def archive_path(path: str | PathLike[str] | None, name: str) -> str:
    """The file to write: `path`, with `.hlab` appended unless it ends so; by default `<block name>.hlab`.

    Raises SettingError for what names no file.
    """
    text = fspath(path) if path is not None else name or "model"
    if not _names_file(text):
        raise SettingError(f"{path!r} names no file; give a name such as 'model'")
    last = _last(text).lower()
    return text if last.endswith(SUFFIX) and last != SUFFIX else text + SUFFIX


def existing_path(path: str | PathLike[str] | None, name: str = "") -> str:
    """The file to read: the file that a save to `path` writes; if only a file named `path` itself exists, that file.

    Raises SettingError for what names no file, FileError if neither exists.
    """
    if path is not None and not _names_file(path) and os.path.isdir(path):
        raise read_error(errno.EISDIR, path)
    file = archive_path(path, name)
    if path is None or os.path.lexists(file):
        return file
    if os.path.isdir(path):
        raise read_error(errno.EISDIR, path)
    if not os.path.lexists(path):
        with reading(file):
            os.stat(file)
    return fspath(path)


def _names_file(path: str | PathLike[str]) -> bool:
    """Whether the last part of a path is a name, not "", "." or "..", of which the last two are folders."""
    return isinstance(path, (str, PathLike)) and bool(_last(path).strip("."))


def _last(path: str | PathLike[str]) -> str:
    text = fspath(path)
    return re.split(r"[/\\]", text)[-1] if isinstance(text, str) else ""


def has_file(path: str | PathLike[str]) -> bool:
    """Whether `existing_path` finds a file."""
    return os.path.isfile(archive_path(path, "")) or os.path.isfile(path)


def shorten(items: Sequence[str], count: int = 6) -> str:
    """`a, b, c and 12 more`."""
    shown = ", ".join(items[:count])
    return shown if len(items) <= count else f"{shown} and {len(items) - count} more"
