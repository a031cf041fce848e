"""Modules that a test writes."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType


def written_module(path: str | Path) -> ModuleType:
    """A file that was written, as a module. Python's own import would take the compiled module of an earlier file of
    the same size that was written in the same second.
    """
    module = ModuleType("written")
    module.__file__ = str(path)
    exec(compile(Path(path).read_bytes(), str(path), "exec"), module.__dict__)
    return module
