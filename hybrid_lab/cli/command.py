"""Helpers of all subcommands: their error, the archive in an argument, the packages that are installed."""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from hybrid_lab.gluon import Block

#: What `ArgumentParser.add_subparsers` returns: each file of this room adds its commands to it.
Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # noqa: SLF001 - it has no public name


class CommandError(Exception):
    """A request that cannot be carried out; the message says what to do. status : the exit status, 2 by default."""

    def __init__(self, message: str, status: int = 2) -> None:
        super().__init__(message)
        self.status = status


def archive_file(path: Path) -> Path:
    """The archive that a user means by `path`; `.hlab` may be left out. Raises FileError if there is no file."""
    from hybrid_lab.formats.archive.layout import existing_path

    return Path(existing_path(path))


def block_in(archive: Path, root: Block, path: str) -> Block:
    """The Block at this path in an archive's model. Raises CommandError if the model has no such Block."""
    from hybrid_lab.gluon import access

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
