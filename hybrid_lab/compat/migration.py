"""What a script or notebook written for MXNet needs to run here: names that are missing, findings, differences.

Nothing of the code is run. `hybrid-lab migrate` prints the reports.
"""

from __future__ import annotations

import ast
import importlib
import json
import types
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from hybrid_lab import lint
from hybrid_lab.diagnostics.errors import HybridLabError
from hybrid_lab.lint.source import Source, notebook_cells, read_file, read_notebook

from .finder import THEIRS, install

LINE = "import hybrid_lab.compat"
"""The line that makes `import mxnet` this package."""


@dataclass(frozen=True)
class Place:
    """A place in a file. line : from 1; cell : the number of the cell in a notebook, from 1, or None"""

    line: int
    cell: int | None = None

    def __str__(self) -> str:
        return f"line {self.line}" if self.cell is None else f"cell {self.cell}, line {self.line}"


@dataclass(frozen=True)
class Missing:
    """A name of MXNet's that is not here. name : "mxnet.nd.foo"; advice : what the package says about it"""

    name: str
    place: Place
    advice: str


@dataclass(frozen=True)
class Report:
    """What one file needs.

    imports : whether it imports mxnet; prepared : whether it imports hybrid_lab.compat already; uses : how often which
    name of MXNet's stands in it; missing : those that are not here; findings : of the linter; differences : name -> how
    this package differs from MXNet on purpose; error : why the file could not be read, or None
    """

    path: str
    imports: bool
    prepared: bool
    uses: Mapping[str, int]
    missing: tuple[Missing, ...]
    findings: tuple[lint.Finding, ...]
    differences: Mapping[str, str]
    error: str | None = None

    @property
    def runs(self) -> bool:
        """Whether all names that the file uses are here; what they are given is not looked at."""
        return self.error is None and not self.missing

    def data(self) -> dict[str, Any]:
        """The report as JSON holds it."""
        return {
            "path": self.path,
            "imports_mxnet": self.imports,
            "imports_compat": self.prepared,
            "runs": self.runs,
            "uses": dict(self.uses),
            "missing": [asdict(item) for item in self.missing],
            "findings": json.loads(lint.to_json(list(self.findings))),
            "differences": dict(self.differences),
            "error": self.error,
        }


def examine(path: Path) -> Report:
    """The report on one .py or .ipynb file. Raises nothing for a file that cannot be read: `error` says why."""
    try:
        text = read_file(str(path))
    except HybridLabError as error:
        return Report(str(path), False, False, {}, (), (), {}, str(error))
    document = read_notebook(text)
    sources = [Source(text, str(path))] if document is None else notebook_cells(document, str(path))
    broken = next((source for source in sources if source.error is not None), None)
    if broken is not None and document is None:
        return Report(str(path), THEIRS in text, False, {}, (), (), {}, f"it is no Python: {broken.error}")
    names: dict[str, str] = {}
    for source in sources:
        names |= _names(source.tree)
    uses: dict[str, int] = {}
    missing: dict[tuple[str, Place], Missing] = {}
    for source in sources:
        for name, node in _uses(source.tree, names):
            found, advice = _resolved(name)
            uses[found] = uses.get(found, 0) + 1
            if advice is not None:
                place = Place(getattr(node, "lineno", 1), source.cell)
                missing.setdefault((found, place), Missing(found, place, advice))
    prepared = any(name == "hybrid_lab.compat" for source in sources for name in _imported(source.tree))
    imports = bool(names)
    findings = tuple(lint.check(text, file=str(path))) if imports else ()
    told = {name: _differences()[name.rpartition(".")[2]] for name in sorted(uses)
            if name.rpartition(".")[2] in _differences()}  # fmt: skip
    return Report(str(path), imports, prepared, dict(sorted(uses.items())), tuple(missing.values()), findings, told)


def prepared_text(text: str) -> str | None:
    """The text of a script or notebook with the line that makes `import mxnet` this package before its first import of
    mxnet; None where there is no such import, or the line is there already.
    """
    document = read_notebook(text)
    if document is None:
        return _with_line(text)
    for cell in document.get("cells", []):
        if cell.get("cell_type") != "code":
            continue
        source = cell.get("source", "")
        whole = source if isinstance(source, str) else "".join(source)
        if LINE in whole:
            return None
        changed = _with_line(whole)
        if changed is not None:
            cell["source"] = changed if isinstance(source, str) else changed.splitlines(keepends=True)
            return json.dumps(document, indent=1, ensure_ascii=False) + "\n"
    return None


def _with_line(text: str) -> str | None:
    tree = Source(text, "").tree
    if any(name == "hybrid_lab.compat" for name in _imported(tree)):
        return None
    for statement in ast.walk(tree):
        if isinstance(statement, (ast.Import, ast.ImportFrom)) and _is_of_mxnet(statement):
            lines = text.splitlines(keepends=True)
            first = lines[statement.lineno - 1]
            indent = first[: len(first) - len(first.lstrip())]
            if statement.col_offset != len(indent.encode()):
                return None  # behind another statement on its line
            end = first[len(first.rstrip("\r\n")) :] or "\n"
            lines.insert(statement.lineno - 1, f"{indent}{LINE}{end}")
            return "".join(lines)
    return None


# -- names -----------------------------------------------------------------------------------------------------------


def _imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _is_of_mxnet(statement: ast.Import | ast.ImportFrom) -> bool:
    if isinstance(statement, ast.Import):
        return any(alias.name.partition(".")[0] == THEIRS for alias in statement.names)
    return not statement.level and (statement.module or "").partition(".")[0] == THEIRS


def _names(tree: ast.AST) -> dict[str, str]:
    """Names that imports of mxnet bind -> what they stand for: {"mx": "mxnet", "nn": "mxnet.gluon.nn"}."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import) and _is_of_mxnet(node):
            for alias in node.names:
                if alias.name.partition(".")[0] == THEIRS:
                    found[alias.asname or THEIRS] = alias.name if alias.asname else THEIRS
        elif isinstance(node, ast.ImportFrom) and _is_of_mxnet(node):
            for alias in node.names:
                if alias.name != "*":
                    found[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return found


def _uses(tree: ast.AST, names: Mapping[str, str]) -> Iterator[tuple[str, ast.AST]]:
    """The dotted names of MXNet's that code uses, each as long as it is written, and those that it imports."""
    inner: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node) for alias in node.names if alias.name.partition(".")[0] == THEIRS)
        elif isinstance(node, ast.ImportFrom) and _is_of_mxnet(node):
            for alias in node.names:
                yield node.module if alias.name == "*" else f"{node.module}.{alias.name}", node  # type: ignore[misc]
        elif isinstance(node, ast.Attribute) and id(node) not in inner:
            parts: list[str] = []
            value: ast.expr = node
            while isinstance(value, ast.Attribute):
                inner.add(id(value))
                parts.append(value.attr)
                value = value.value
            if isinstance(value, ast.Name) and value.id in names:
                yield ".".join([names[value.id], *reversed(parts)]), node


@cache
def _resolved(name: str) -> tuple[str, str | None]:
    """The part of a dotted name that is a name of a module, and why it is not here, or None."""
    install()
    parts = name.split(".")
    value: object = importlib.import_module(THEIRS)
    known = THEIRS
    for part in parts[1:]:
        if not isinstance(value, types.ModuleType):
            break  # an attribute of a class or function
        known = f"{known}.{part}"
        try:
            value = getattr(value, part)
        except (AttributeError, ImportError) as error:
            try:
                value = importlib.import_module(known)
            except ImportError:
                return known, str(error)
    return known, None


@cache
def _differences() -> Mapping[str, str]:
    """What docs/differences.md says of each name: scripts/write_differences.py writes the file from it."""
    text = (Path(__file__).parent / "differences.json").read_text(encoding="utf-8")
    return dict(json.loads(text))
