"""Functions of other files, of the project or an installed library, found by a file's imports; nothing is imported."""

from __future__ import annotations

from functools import cache
from importlib.machinery import PathFinder
from pathlib import Path

from hybrid_lab.diagnostics.errors import HybridLabError

from .budget import NODES, Budget
from .checker import define
from .classes import Module
from .known_names import names_given
from .source import parsed, read_file
from .values import Kind, Value
from .walk import Walk


class Project:
    """Finds functions by the names under which a file imports them: relative names, names of packages beside the file
    or around it, and names of installed packages.
    """

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._modules: dict[Path, Module] = {}

    def imported(self, dotted: str, file: str) -> Value | None:
        """The function that `file` knows by this dotted name; None if its source is not found, or `file` is no file."""
        importing = Path(file)
        if not importing.is_file():
            return None
        for _ in range(8):  # a package may hand on names that it imports itself
            parent, _, name = dotted.rpartition(".")
            path = _file_of(parent or ".", importing)
            if path is None or path == importing:
                return None
            value = self._module(path).names.get(name)
            if value is None or value.kind is not Kind.MODULE:
                return value if value is not None and value.kind is Kind.FUNCTION else None
            dotted, importing = str(value.ref), path
        return None

    def _module(self, path: Path) -> Module:
        if path not in self._modules:
            file = str(path)
            try:
                text = "" if self._budget.is_spent else read_file(file)
            except HybridLabError:
                text = ""
            self._budget.nodes -= len(text) >> 6
            source = parsed(text, file)
            self._modules[path] = module = Module(
                source, imported=lambda dotted: self.imported(dotted, file), given=names_given(source)
            )
            define(Walk(NODES), module)
        return self._modules[path]


def _file_of(module: str, importing: Path) -> Path | None:
    """The file of a module, by the dotted name that another file imports it by."""
    folder = importing.parent
    rest = module.lstrip(".")
    if rest != module:
        for _ in range(len(module) - len(rest) - 1):
            folder = folder.parent
    else:
        while (folder / "__init__.py").is_file():
            folder = folder.parent
    return _module_in(folder, rest) or (_module_in(_installed(rest), rest) if rest == module else None)


def _module_in(folder: Path | None, module: str) -> Path | None:
    if folder is None:
        return None
    path = folder.joinpath(*module.split(".")) if module else folder
    candidates = [path.with_suffix(".py")] if module else []
    return next((each for each in [*candidates, path / "__init__.py"] if each.is_file()), None)


@cache
def _installed(module: str) -> Path | None:
    """The folder on Python's path with the module, or with the package that it is in."""
    spec = PathFinder.find_spec(module.partition(".")[0])
    if spec is None or spec.origin is None:
        return None
    origin = Path(spec.origin)
    return origin.parent.parent if spec.submodule_search_locations else origin.parent
