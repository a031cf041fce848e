"""The changes that a script or notebook written for MXNet needs to run here: missing names, findings, differences.

Nothing of the code is run. `hybrid-lab migrate` prints the reports.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hybrid_lab import lint
from hybrid_lab.diagnostics.errors import HybridLabError
from hybrid_lab.lint.source import Source, notebook_cells, read_file, read_notebook

from .differences import differences
from .finder import THEIRS
from .uses import imported, is_of_mxnet, resolved, uses_of

LINE = "import hybrid_lab.compat"
"""The line that makes `import mxnet` this package."""
UNKNOWN_NAME = "HL166"
"""The finding of the linter for a name that does not exist: the report has it already."""


@dataclass(frozen=True)
class LineLocation:
    """A line of a script, or of a cell in a notebook.

    line : from 1; cell : the number of the cell in a notebook, from 1, or None
    """

    line: int
    cell: int | None = None

    def __str__(self) -> str:
        return f"line {self.line}" if self.cell is None else f"cell {self.cell}, line {self.line}"


@dataclass(frozen=True)
class Missing:
    """A name of MXNet's that is not here. name : "mxnet.nd.foo"; advice : the package's text about it"""

    name: str
    place: LineLocation
    advice: str


@dataclass(frozen=True)
class Report:
    """The needs of one file.

    imports : whether it imports mxnet; prepared : whether it imports hybrid_lab.compat already; uses : name of MXNet's
    -> how often the file uses it; missing : the names that this package lacks; findings : of the linter; differences :
    name -> how this package differs from MXNet on purpose, a text for each row of docs/differences.md; error : why the
    file could not be read, or None
    """

    path: str
    imports: bool
    prepared: bool
    uses: Mapping[str, int]
    missing: tuple[Missing, ...]
    findings: tuple[lint.Finding, ...]
    differences: Mapping[str, Sequence[str]]
    error: str | None = None

    @property
    def runs(self) -> bool:
        """Whether all names that the file uses are here; their arguments are not checked."""
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
            "differences": {name: list(texts) for name, texts in self.differences.items()},
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
    unread = next((why for source in sources if (why := _unread(source)) is not None), None)
    if unread is not None and document is None:
        return Report(str(path), THEIRS in text, False, {}, (), (), {}, unread)
    uses: dict[str, int] = {}
    missing: dict[tuple[str, LineLocation], Missing] = {}
    told: set[tuple[str, str]] = set()
    for source, found_uses in zip(sources, uses_of([source.tree for source in sources]), strict=True):
        for use in found_uses:
            found, advice = resolved(use.name or THEIRS)
            if use.name:
                uses[found] = uses.get(found, 0) + 1
            told |= {(found, row.text) for row in differences() if row.is_about(found, use)}
            if advice is not None:
                place = LineLocation(getattr(use.node, "lineno", 1), source.cell)
                missing.setdefault((found, place), Missing(found, place, advice))
    order = [kind for source in sources for kind in _order(source.tree)]
    prepared, imports = order[:1] == ["compat"], "mxnet" in order or unread is not None
    places = {(str(item.place.cell), item.place.line) for item in missing.values()}
    findings = tuple(
        finding
        for finding in (lint.check(text, file=str(path)) if imports else ())
        if finding.code != UNKNOWN_NAME or (str(finding.cell), finding.line) not in places
    )
    texts: dict[str, list[str]] = {}
    for name, difference in sorted(told):
        texts.setdefault(name, []).append(difference)
    used = dict(sorted(uses.items()))
    return Report(str(path), imports, prepared, used, tuple(missing.values()), findings, texts, unread)


def _unread(source: Source) -> str | None:
    """Why code that names mxnet could not be looked at, or None."""
    if THEIRS not in source.text or (source.error is None and source.unchecked is None):
        return None
    where = "it" if source.cell is None else f"cell {source.cell}"
    return f"{where} {source.unchecked}" if source.error is None else f"{where} is no Python: {source.error}"


def prepared_text(text: str) -> str | None:
    """The text of a script or notebook with the line that makes `import mxnet` this package before its first import of
    mxnet; None if there is no such import, the line is there already, or no line can stand there. Nothing else of
    the text changes.
    """
    document = read_notebook(text)
    if document is None:
        return _with_line(text)
    cells = [(index, "".join(source) if isinstance(source, list) else source)
             for index, cell in enumerate(document.get("cells") or [])
             if isinstance(cell, dict) and cell.get("cell_type") == "code"
             and isinstance(source := cell.get("source"), (str, list))]  # fmt: skip
    for index, whole in cells:
        if "compat" in _order(Source(whole, "").tree):
            return None
        changed = _with_line(whole)
        if changed is not None:
            return _with_source(text, index, whole, changed)
    return None


_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')


def _with_source(text: str, cell: int, old: str, new: str) -> str | None:
    """The text of a notebook with another source of one cell. Only that source's own strings are written anew."""
    strings: list[tuple[str, tuple[object, ...]]] = []

    def walk(value: object, path: tuple[object, ...]) -> None:
        if isinstance(value, _Pairs):
            for key, item in value:
                strings.append((key, ()))
                walk(item, (*path, key))
        elif isinstance(value, list):
            for index, item in enumerate(value):
                walk(item, (*path, index))
        elif isinstance(value, str):
            strings.append((value, path))

    walk(json.loads(text, object_pairs_hook=_Pairs), ())
    tokens = list(_STRING.finditer(text))
    own = [place for place, (_, path) in enumerate(strings) if path[:3] == ("cells", cell, "source")]
    if len(tokens) != len(strings) or "".join(strings[place][0] for place in own) != old:
        return None
    begun, choices = 0, []
    for place in own:
        value, path = strings[place]
        before, after = old[:begun], old[begun + len(value) :]
        if new.startswith(before) and new.endswith(after):
            made = new[len(before) : len(new) - len(after)]
            is_line = len(path) > 3 and made.endswith(value)  # the new line stands before this one, in a list of lines
            choices.append((not is_line, tokens[place], made.removesuffix(value) if is_line else made))
        begun += len(value)
    if not choices:
        return None
    is_whole, token, made = min(choices, key=lambda choice: choice[0])
    written = json.dumps(made, ensure_ascii=text.isascii())
    if is_whole:
        return text[: token.start()] + written + text[token.end() :]
    between = re.search(r"\s*\Z", text[: token.start()])
    return f"{text[: token.start()]}{written},{(between and between[0]) or ' '}{text[token.start() :]}"


class _Pairs(list[tuple[str, object]]):
    """The pairs of a JSON object, in order, repeated keys too."""


def _with_line(text: str) -> str | None:
    tree = Source(text, "").tree
    if "compat" in _order(tree):
        return None
    statements = [
        node for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom)) and is_of_mxnet(node)
    ]
    for statement in sorted(statements, key=lambda node: (node.lineno, node.col_offset))[:1]:
        lines = re.split(r"(\r\n|\r|\n)", text)  # lines as Python has them, and their ends
        place = 2 * (statement.lineno - 1)
        first = lines[place]
        indent = first[: len(first) - len(first.lstrip())]
        if statement.col_offset != len(indent.encode()) or (place and lines[place - 2].endswith("\\")):
            return None  # behind another statement on its line, or the rest of one
        end = next((lines[each] for each in (place + 1, place - 1) if 0 < each < len(lines)), "\n")
        lines[place] = f"{indent}{LINE}{end}{first}"
        changed = "".join(lines)
        return changed if _order(Source(changed, "").tree)[:2] == ["compat", "mxnet"] else None
    return None


def _order(tree: ast.AST) -> list[str]:
    """Imports of hybrid_lab.compat and of mxnet, in the order of the text: ["compat", "mxnet", "mxnet"]."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            kinds = ["compat"] if "hybrid_lab.compat" in imported(node) else ["mxnet"] if is_of_mxnet(node) else []
            found += [((node.lineno, node.col_offset), kind) for kind in kinds]
    return [kind for _, kind in sorted(found)]
