"""Helpers of all subcommands: their error, the archive in an argument, the packages that are installed."""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from ..gluon import Block

#: What `ArgumentParser.add_subparsers` returns: each file of this room adds its commands to it.
Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # noqa: SLF001 - it has no public name


class CommandError(Exception):
    """A request that cannot be carried out; the message says what to do. status: the exit status, 2 by default."""

    def __init__(self, message: str, status: int = 2) -> None:
        super().__init__(message)
        self.status = status


def archive_file(path: Path) -> Path:
    """The archive that a user means by `path`; `.hlab` may be left out. Raises CommandError where there is no file."""
    from ..formats.archive.layout import SUFFIX, archive_path, shorten

    if path.is_dir():
        archives = sorted(item.name for item in path.glob(f"*{SUFFIX}"))
        inside = f"name an archive in it: {shorten(archives)}" if archives else f"no {SUFFIX} archive is in it"
        raise CommandError(f"{path} is a folder; {inside}")
    if path.is_file():
        return path
    other = Path(archive_path(path, ""))
    if other.is_file():
        return other
    near = get_close_matches(path.stem, [item.stem for item in path.parent.glob(f"*{SUFFIX}")], n=1, cutoff=0.75)
    meant = f"; did you mean {path.with_name(near[0] + SUFFIX)}?" if near else ""
    raise CommandError(f"there is no file {path}{meant}")


def block_in(archive: Path, root: Block, path: str) -> Block:
    """The Block at this path in an archive's model. Raises CommandError if the model has no such Block."""
    from ..gluon import access

    block = root
    for name in filter(None, path.split(".")):
        children = access.children(block)
        if name not in children:
            there = ", ".join(children) or "none"
            raise CommandError(f"{archive} has no block {path!r}; at {name!r} the children are: {there}")
        block = children[name]
    return block


def has_module(name: str) -> bool:
    """Whether `import name` would find a module. Nothing is imported (for a dotted name only its parents are)."""
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def version_of(distribution: str) -> str | None:
    """Version of an installed distribution, or None."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def install_hint(extra: str) -> str:
    """The command that installs one of hybrid-lab's extras."""
    return f'pip install "hybrid-lab[{extra}]"'
