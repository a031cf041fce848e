"""One piece of source - a file, a cell, a class - parsed, with positions in its file and in characters."""

from __future__ import annotations

import ast
import json
import re
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from io import StringIO
from typing import Any

from ..diagnostics.finding import Edit, Finding, Severity
from ..diagnostics.rules import Rule

_MAGIC = re.compile(r"^(?P<indent>\s*)(?P<line>[%!?].*|[\w.]+\?{1,2}\s*|(?P<target>[\w\s,.\[\]]+=\s*)[%!].*)$")
_PYTHON_CELL_MAGICS = {
    "capture", "prun", "time", "timeit", "python", "python3", "hybrid_lint", "hybrid_explain", "debug", "snakeviz",
}  # fmt: skip


@dataclass
class Source:
    """Parsed source; if it does not parse, `error` is set and the tree is empty."""

    text: str
    file: str
    cell: int | None = None
    tree: ast.Module = field(init=False, repr=False)
    error: SyntaxError | None = field(init=False, default=None, repr=False)

    def __post_init__(self) -> None:
        self.tree = ast.Module(body=[], type_ignores=[])
        try:
            self.tree = ast.parse(self.text)
        except (SyntaxError, ValueError, RecursionError):
            try:
                self.tree = ast.parse(python_of_cell(self.text))
            except (SyntaxError, ValueError, RecursionError) as error:
                self.error = error if isinstance(error, SyntaxError) else SyntaxError(str(error))

    @cached_property
    def lines(self) -> list[str]:
        """The lines of the text."""
        # As the parser splits them: a form feed or other Unicode separators are no line ends.
        return re.split(r"\r\n|\r|\n", self.text)

    @cached_property
    def parents(self) -> dict[int, ast.AST]:
        """The node around each node, by identity."""
        return {id(child): parent for parent in ast.walk(self.tree) for child in ast.iter_child_nodes(parent)}

    def characters(self, line: int, byte: int) -> int:
        """The column in characters of a column in UTF-8 bytes."""
        text = self.lines[line - 1] if 0 < line <= len(self.lines) else ""
        if text.isascii():
            return byte
        return len(text.encode()[:byte].decode(errors="ignore"))

    def span(self, node: ast.AST) -> tuple[int, int, int, int]:
        """(line, col, end_line, end_col) of a node in its file."""
        line, col = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
        end_line = getattr(node, "end_lineno", None) or line
        end_col = getattr(node, "end_col_offset", None)
        end_col = col if end_col is None else end_col
        return (
            line,
            self.characters(line, col),
            end_line,
            self.characters(end_line, end_col),
        )

    def segment(self, node: ast.AST) -> str:
        """The source text of a node."""
        line, end_line = getattr(node, "lineno", None), getattr(node, "end_lineno", None)
        if line is None or end_line is None:
            return ""
        start = self.characters(line, node.col_offset)  # type: ignore[attr-defined]
        end = self.characters(end_line, node.end_col_offset)  # type: ignore[attr-defined]
        if line == end_line:
            return self.lines[line - 1][start:end]
        return "\n".join(
            [self.lines[line - 1][start:], *self.lines[line : end_line - 1], self.lines[end_line - 1][:end]]
        )

    def edit(self, node: ast.AST, text: str) -> Edit:
        """The edit that puts `text` in place of a node."""
        return Edit(*self.span(node), text)

    def insertion(self, line: int, byte: int, text: str) -> Edit:
        """The edit that puts `text` at a position as `ast` counts it."""
        col = self.characters(line, byte)
        return Edit(line, col, line, col, text)

    def finding(
        self,
        rule: Rule,
        message: str,
        place: ast.AST | tuple[int, int, int, int],
        severity: Severity | None = None,
        **details: Any,
    ) -> Finding:
        """A finding in this source. severity: None for the rule's; details: other fields of Finding"""
        span = self.span(place) if isinstance(place, ast.AST) else place
        level = severity or rule.severity
        return Finding(rule.code, rule.name, level, message, self.file, *span, cell=self.cell, **details)

    def comments(self) -> Iterator[tuple[int, int, str]]:
        """(line, column, text) of every comment, positions as in `lines`; none if the source cannot be read."""
        if "#" not in self.text:
            return
        try:
            for token in tokenize.generate_tokens(StringIO(python_of_cell(self.text)).readline):
                if token.type == tokenize.COMMENT:
                    yield token.start[0], token.start[1], token.string
        except (tokenize.TokenError, SyntaxError, IndentationError):
            return


@lru_cache(maxsize=8)
def parsed(text: str, file: str) -> Source:
    """The Source of a file that is asked for again and again, as a library is while a cell is typed."""
    return Source(text, file)


def nested_statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """All statements, those inside others too."""
    for statement in body:
        yield statement
        for block in ("body", "orelse", "finalbody", "handlers", "cases"):
            for inner in getattr(statement, block, ()):
                yield from nested_statements([inner] if isinstance(inner, ast.stmt) else inner.body)


def python_of_cell(text: str) -> str:
    """The Python of a notebook cell: magics and shell lines replaced, line by line, by statements of no effect."""
    lines = text.split("\n")
    first = next((index for index, line in enumerate(lines) if line.strip()), None)
    if first is None:
        return text
    if lines[first].startswith("%%"):
        magic = lines[first][2:].split()
        if not magic or magic[0] not in _PYTHON_CELL_MAGICS:
            return "\n" * (len(lines) - 1)
        lines[first] = ""
    for index, line in enumerate(lines):
        if match := _MAGIC.match(line):
            target = match["target"]
            lines[index] = f"{match['indent']}{target}None" if target else f"{match['indent']}pass"
    return "\n".join(lines)


def notebook_cells(document: dict[str, Any], file: str) -> list[Source]:
    """The code cells of a notebook (nbformat 4), numbered from 1 in their order."""
    codes = [cell for cell in document.get("cells", ()) if isinstance(cell, dict) and cell.get("cell_type") == "code"]
    sources = []
    for number, cell in enumerate(codes, 1):
        text = cell.get("source", "")
        sources.append(Source("".join(text) if isinstance(text, list) else str(text), file, cell=number))
    return sources


def read_notebook(text: str) -> dict[str, Any] | None:
    """The notebook in a JSON text, or None if it is none."""
    if not text.lstrip().startswith("{"):
        return None
    try:
        document = json.loads(text)
    except ValueError:
        return None
    return document if isinstance(document, dict) and isinstance(document.get("cells"), list) else None
