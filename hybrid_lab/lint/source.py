"""One piece of source - a file, a cell, a class - parsed, with positions in its file and in characters."""

from __future__ import annotations

import ast
import codecs
import json
import os
import re
import tokenize
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from io import BytesIO, StringIO
from itertools import accumulate
from typing import Any

from hybrid_lab.diagnostics.errors import HybridLabError
from hybrid_lab.diagnostics.finding import Edit, Finding, Severity
from hybrid_lab.diagnostics.rules import Rule

CHARACTERS = 1 << 20
"""Characters that one check parses, over all cells."""

CHARACTERS_OF_SOURCE = 1 << 19
"""Characters of one cell or file."""

_PARTS = 10_000
"""Parts of one f-string: Python's parser takes a time that grows with their square."""

_MAGIC = re.compile(r"^(?P<indent>\s*)(?P<line>[%!?].*|[\w.]+\?{1,2}\s*|(?P<target>(?=\S)[\w\s,.\[\]]+=\s*)[%!].*)$")
_PYTHON_CELL_MAGICS = {
    "capture", "prun", "time", "timeit", "python", "python3", "hybrid_lint", "hybrid_explain", "debug", "snakeviz",
}  # fmt: skip


@dataclass
class Source:
    """Parsed source. If the text does not parse, the tree is empty and `error` is set; if the text is too long or too
    deep to parse, the tree is empty and `unchecked` is set to the reason, as the end of a sentence about the code.

    limit : the characters that may be parsed
    """

    text: str
    file: str
    cell: int | None = None
    limit: int = CHARACTERS_OF_SOURCE
    tree: ast.Module = field(init=False, repr=False)
    error: SyntaxError | None = field(init=False, default=None, repr=False)
    unchecked: str | None = field(init=False, default=None, repr=False)

    def __post_init__(self) -> None:
        self.tree = ast.Module(body=[], type_ignores=[])
        if len(self.text) > min(self.limit, CHARACTERS_OF_SOURCE):
            self.unchecked = "is too long"
        elif _has_endless_fstring(self.text):
            self.unchecked = f"has an f-string of more than {_PARTS:,} parts"
        else:
            self._parse()

    def _parse(self) -> None:
        try:
            try:
                self.tree = ast.parse(self.text)
            except (SyntaxError, ValueError):
                if (python := python_of_cell(self.text)) == self.text:
                    raise
                self.tree = ast.parse(python)
        except (RecursionError, MemoryError):
            self.unchecked = "is nested too deeply"
        except (SyntaxError, ValueError) as error:
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
        if line not in self._ends:
            self._ends[line] = array("I", accumulate(len(character.encode()) for character in text))
        return bisect_right(self._ends[line], byte)

    @cached_property
    def _ends(self) -> dict[int, array[int]]:
        """The end of each character of a line, in bytes, by the line."""
        return {}

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
        """A finding in this source. severity : None for the rule's; details : other fields of Finding"""
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
        except (tokenize.TokenError, SyntaxError, ValueError):
            return


_LONGEST_FILE = 1 << 28
"""Bytes of a file that is read; notebooks are long, because of the outputs in them."""


def read_file(path: str) -> str:
    """The text of a Python file, in the encoding it names, or of a notebook, with unchanged line ends.

    Raises HybridLabError for anything but a regular file, for a file that cannot be read, or is no text in that
    encoding.
    """
    try:
        if not os.path.isfile(path):
            raise HybridLabError(f"{path}: not a regular file")
        if os.path.getsize(path) > _LONGEST_FILE:
            raise HybridLabError(f"{path}: larger than {_LONGEST_FILE >> 20} MiB")
        with open(path, "rb") as stream:
            content = stream.read(_LONGEST_FILE)
        return content.decode(_encoding(path, content))
    except (OSError, SyntaxError, ValueError, LookupError) as error:
        raise HybridLabError(f"{path}: {_why_unreadable(error)}") from None


def encoding_of(path: str) -> str:
    """The encoding in which `read_file` has read a file."""
    with open(path, "rb") as stream:
        return _encoding(path, stream.read(4096))


def _encoding(path: str, content: bytes) -> str:
    if path.endswith(".ipynb"):
        return "utf-8-sig" if content.startswith(codecs.BOM_UTF8) else "utf-8"
    return tokenize.detect_encoding(BytesIO(content).readline)[0]


def _why_unreadable(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        name = "UTF-8" if error.encoding in ("utf-8", "utf-8-sig") else error.encoding
        return f"not a {name} text ({error.reason} at byte {error.start})"
    if isinstance(error, OSError):
        return f"cannot be read ({error.strerror or error})"
    return "not a UTF-8 text, and its first lines name no other encoding"


@lru_cache(maxsize=8)
def parsed(text: str, file: str) -> Source:
    """The Source of a file that is asked for again and again, as a library is while a cell is typed."""
    return Source(text, file)


def nested_statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """All statements, those inside others too, in their order."""
    pending = list(body)[::-1]
    while pending:
        statement = pending.pop()
        yield statement
        inside: list[ast.stmt] = []
        for block in ("body", "orelse", "finalbody", "handlers", "cases"):
            for inner in getattr(statement, block, ()):
                inside += [inner] if isinstance(inner, ast.stmt) else inner.body
        pending += inside[::-1]


_FSTRING = re.compile("""[fF][rR]?['"]""")


def _has_endless_fstring(text: str) -> bool:
    """Whether an f-string has too many parts for parsing to end in a sensible time."""
    if text.count("{") <= _PARTS or not _FSTRING.search(text):
        return False
    try:
        for token in tokenize.generate_tokens(StringIO(text).readline):
            if token.type == tokenize.STRING and token.string.count("{") > _PARTS and _FSTRING.search(token.string[:3]):
                return True
    except (tokenize.TokenError, SyntaxError, ValueError):
        pass
    return False


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


def sources_within(texts: Iterable[tuple[str, str, int | None]]) -> list[Source]:
    """The Sources of (text, file, number of the cell): Sources beyond the limit of one check are not parsed."""
    sources: list[Source] = []
    left = CHARACTERS
    for text, file, cell in texts:
        sources.append(Source(text, file, cell, limit=left))
        left -= len(text) if len(text) <= left else 0
    return sources


def notebook_cells(document: dict[str, Any], file: str) -> list[Source]:
    """The code cells of a notebook (nbformat 4), numbered from 1 in their order."""
    texts = [text_of(cell.get("source", "")) for cell in code_cells(document)]
    return sources_within((text, file, number) for number, text in enumerate(texts, 1))


def code_cells(document: dict[str, Any]) -> list[dict[str, Any]]:
    """The code cells in a notebook's JSON."""
    cells = document.get("cells", ())
    return [cell for cell in cells if isinstance(cell, dict) and cell.get("cell_type") == "code"]


def text_of(source: object) -> str:
    """The text of a cell, which a notebook has as one string or as a list of lines."""
    return "".join(map(str, source)) if isinstance(source, list) else str(source)


def read_notebook(text: str) -> dict[str, Any] | None:
    """The notebook in a JSON text, or None if it is none."""
    if not text.lstrip().startswith("{"):
        return None
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) and isinstance(document.get("cells"), list) else None
