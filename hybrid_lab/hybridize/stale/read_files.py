"""Finds the functions that read files in the code of a model. Calls do not compare the contents of files."""

from __future__ import annotations

import builtins
import glob
import linecache
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from hybrid_lab.hybridize.stale.code import CodeFacts, facts_of, of_user, paths_of
from hybrid_lab.hybridize.stale.reached import READERS, Reached

_UNKNOWN = object()
"""Stands for a value that only running the code would tell."""
_FUNCTIONS: tuple[Any, ...] = (
    builtins.open, glob.glob, glob.iglob, linecache.getline, linecache.getlines, np.fromfile, np.genfromtxt, np.load,
    np.loadtxt, os.listdir, os.path.exists, os.path.getmtime, os.path.getsize, os.path.isdir, os.path.isfile,
    os.scandir, os.stat, os.walk,
)  # fmt: skip
_IDS = frozenset(map(id, _FUNCTIONS))
#: Methods of paths. Only paths have the methods of the first line.
_OF_PATHS_ALONE = frozenset({"read_bytes", "read_text"})
_OF_PATHS = _OF_PATHS_ALONE | {"exists", "glob", "is_dir", "is_file", "iterdir", "open", "rglob", "stat"}


def files_read(function: FunctionType, reached: Reached, blocks: Sequence[object]) -> Iterator[str]:
    """The names of readers of files in the code of a function, such as `open`, `np.load` and `read_text`.

    reached, blocks : of the trace
    """
    facts = facts_of(function.__code__)
    for path in paths_of(function.__code__):
        if len(path) == 1:
            if id(_value(function, path, facts)) in _IDS:
                yield path[0]
        elif path[-1] in READERS:
            *before, last = path
            owner = _value(function, before, facts)
            if isinstance(owner, ModuleType):
                if _reads(vars(owner).get(last)):
                    yield ".".join(path)
            elif owner is not _UNKNOWN:
                of_parser = last == "read" and type(owner).__module__ == "configparser"
                if of_parser or (last in _OF_PATHS and isinstance(owner, PurePath)):
                    yield ".".join(path)
            elif last in _OF_PATHS and not reached.has_method(last):
                if last in _OF_PATHS_ALONE or _names_paths(function, facts, blocks):
                    yield last


def _reads(value: object) -> bool:
    """Whether a function reads files: one of Python's or NumPy's, or `load` of this package."""
    return id(value) in _IDS or (
        isinstance(value, FunctionType) and value.__name__ == "load" and not of_user(value.__module__)
    )


def _value(function: FunctionType, path: Sequence[str], facts: CodeFacts) -> Any:
    """The value of a name with attributes, as far as it is known without running code."""
    first, *attributes = path
    value: Any = function.__globals__.get(first, vars(builtins).get(first, _UNKNOWN))
    if first in function.__code__.co_freevars:
        cell = (function.__closure__ or ())[function.__code__.co_freevars.index(first)]
        try:
            value = cell.cell_contents
        except ValueError:  # not set yet
            return _UNKNOWN
    elif first in facts.modules and first not in function.__globals__:  # imported by the function
        value = sys.modules.get(first, _UNKNOWN)
    for each in attributes:
        held = getattr(value, "__dict__", None) if isinstance(value, (ModuleType, type)) else None
        value = (held or {}).get(each, _UNKNOWN)
    return value


def _names_paths(function: FunctionType, facts: CodeFacts, blocks: Sequence[object]) -> bool:
    """Whether a function names `pathlib`, a class of it, or a path in a global or on a Block."""
    for path in paths_of(function.__code__):
        if isinstance(value := _value(function, path[:1], facts), PurePath) or (
            isinstance(value, type) and issubclass(value, PurePath)
        ):
            return True
        if isinstance(value, ModuleType) and value.__name__.partition(".")[0] == "pathlib":
            return True
        if any(isinstance(vars(block).get(name), PurePath) for block in blocks for name in path[1:]):
            return True
    return False
