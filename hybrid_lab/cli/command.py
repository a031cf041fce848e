"""What the subjects of the command line share: their error, and looking for a distribution without importing it."""

from __future__ import annotations

import importlib.metadata
import importlib.util


class CommandError(Exception):
    """A request that cannot be carried out; the message says what to do. status: the exit status, 2 by default."""

    def __init__(self, message: str, status: int = 2) -> None:
        super().__init__(message)
        self.status = status


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
