"""Where in the user's code something happened: cheap to note, resolved only when printed."""

from __future__ import annotations

import functools
import linecache
import re
import sys
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple, cast

_PACKAGE = str(Path(__file__).resolve().parent.parent) + "/"
if "\\" in _PACKAGE:  # co_filename uses the system's separator
    _PACKAGE = _PACKAGE[:-1] + "\\"


@functools.cache
def is_own(file: str) -> bool:
    """Whether a file belongs to this package; remembered, because every captured location asks."""
    return file.startswith(_PACKAGE)


_cells: dict[str, int] = {}
_lines_above: dict[str, int] = {}
_IPYTHON_INPUT = re.compile(r"<ipython-input-(\d+)-")
_IPYKERNEL_FILE = re.compile(r"[\\/]ipykernel_\d+[\\/]\d+\.py$")


cell_runs = 0
"""While a cell of a notebook runs, the id of its variables; else 0."""


def set_cell_runs(variables: int) -> None:
    """Note that a cell with these variables, by their id, runs from now on; 0: none does."""
    global cell_runs
    cell_runs = variables


def register_cell(file: str, number: int, lines_above: int = 0) -> None:
    """Name the notebook cell whose code object has `file` as its file name; a re-run cell gets its new number.

    lines_above : lines of the cell above the code, which Python does not count: empty lines, and a cell magic
    """
    _cells[file], _lines_above[file] = number, lines_above


def cell_line(file: str, line: int) -> int:
    """A line of the code compiled as `file` as a line of its cell; the same in other files."""
    return line + _lines_above.get(file, 0)


def cell_number(file: str) -> int | None:
    """The execution number of the cell compiled as `file`, or None if it is no cell or was never registered."""
    number = _cells.get(file)
    if number is None and (match := _IPYTHON_INPUT.match(file)):
        return int(match[1])
    return number


def is_cell(file: str) -> bool:
    """Whether `file` is the name IPython gave to a cell."""
    return file in _cells or bool(_IPYTHON_INPUT.match(file) or _IPYKERNEL_FILE.search(file))


def display_file(file: str) -> str:
    """The file as a user knows it: `cell 3` for a notebook cell, else the path."""
    number = cell_number(file)
    if number is not None:
        return f"cell {number}"
    return "a notebook cell" if is_cell(file) else file


class _Known(NamedTuple):
    """What Location needs of a code object, where there is none."""

    co_filename: str
    co_qualname: str
    co_firstlineno: int


def _width(character: str) -> int:
    """Columns a character takes in a terminal."""
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


@dataclass(slots=True, eq=False, repr=False)
class Location:
    """A place in source code, kept as (code object, instruction offset).

    Lines count from 1 and columns, in characters, from 0. Everything is computed on first use, so noting a
    location costs a fraction of a microsecond.

    code, lasti : as in a frame: the code object, and the offset of the instruction in it
    resolved : first line, first column, last line and last column; None until they are asked for
    """

    code: CodeType
    lasti: int
    resolved: tuple[int, int, int, int] | None = None

    @classmethod
    def known(
        cls, file: str, line: int, col: int = 0, end_line: int | None = None, end_col: int | None = None,
        function: str = "<module>",
    ) -> Location:  # fmt: skip
        """A place given in words, as a file or another process tells it."""
        resolved = (line, col, end_line or line, col if end_col is None else end_col)
        return cls(cast(CodeType, _Known(file, function, line)), -1, resolved)

    @property
    def file(self) -> str:
        return self.code.co_filename

    @property
    def _span(self) -> tuple[int, int, int, int]:
        if self.resolved is None:
            self.resolved = self._resolve()
        return self.resolved

    def _resolve(self) -> tuple[int, int, int, int]:
        positions = self.code.co_positions()
        line = end_line = col = end_col = None
        for index, span in enumerate(positions):
            if index == self.lasti // 2:
                line, end_line, col, end_col = span
                break
        line = line or self.code.co_firstlineno
        end_line = end_line or line
        start = self._characters(line, col or 0)
        end = self._characters(end_line, end_col) if end_col is not None else start
        return line, start, end_line, end

    def _characters(self, line: int, offset: int) -> int:
        """co_positions counts UTF-8 bytes; people and editors count characters."""
        text = linecache.getline(self.file, line)
        if not text or text.isascii():
            return offset
        return len(text.encode()[:offset].decode(errors="ignore"))

    @property
    def line(self) -> int:
        return self._span[0]

    @property
    def col(self) -> int:
        return self._span[1]

    @property
    def end_line(self) -> int:
        return self._span[2]

    @property
    def end_col(self) -> int:
        return self._span[3]

    @property
    def source_line(self) -> str:
        """The line's text without its line break; empty if the source is not at hand."""
        return linecache.getline(self.file, self.line).rstrip("\r\n")

    @property
    def function(self) -> str:
        """The function's qualified name, from the innermost class or function a user would name."""
        return self.code.co_qualname.rpartition("<locals>.")[2]

    def describe(self) -> str:
        """`cell 3, line 21, in Net.hybrid_forward`."""
        place = f"{display_file(self.file)}, line {cell_line(self.file, self.line)}"
        return place if self.function == "<module>" else f"{place}, in {self.function}"

    def excerpt(self, indent: str = "") -> str:
        """The source line with its number and carets under the expression; empty if the source is not at hand."""
        text = self.source_line
        if not text.strip():
            return ""
        end = self.end_col if self.end_line == self.line else len(text)
        width = max(end - self.col, 1)
        # A tab stays a tab in the caret line, so that both lines bend the same way.
        lead = "".join("\t" if c == "\t" else " " * _width(c) for c in text[: self.col])
        width = sum(map(_width, text[self.col : self.col + width])) or 1
        return f"{indent}{cell_line(self.file, self.line):>5} | {text}\n{indent}      | {lead}{'^' * width}"

    def __str__(self) -> str:
        return f"{display_file(self.file)}:{cell_line(self.file, self.line)}"

    def __repr__(self) -> str:
        return f"Location({self})"

    def __eq__(self, other: object) -> bool:
        # Code objects compare by value, which two copies of a cell may share; identity is required, and faster.
        if not isinstance(other, Location):
            return False
        if isinstance(self.code, _Known):
            return self.code == other.code and self._span == other._span
        return self.code is other.code and self.lasti == other.lasti

    def __hash__(self) -> int:
        return hash((self.file, self.lasti))

    def __reduce__(self) -> tuple[Callable[..., Location], tuple[Any, ...]]:
        return Location.known, (self.file, *self._span, self.function)


def user_frame() -> FrameType | None:
    """The frame of the nearest code outside this package and NumPy, which calls back into it; None without one."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and (is_own(frame.f_code.co_filename) or _room(frame) == "numpy"):
        frame = frame.f_back
    return frame


def _room(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def _cell_of_a_magic(frame: FrameType) -> FrameType:
    """The frame of the cell whose magic IPython runs; the frame itself if there is none."""
    outer: FrameType | None = frame
    while outer is not None and (is_own(outer.f_code.co_filename) or _room(outer) == "IPython"):
        outer = outer.f_back
    return outer if outer is not None and is_cell(outer.f_code.co_filename) else frame


def capture(skip_package: bool = True) -> Location | None:
    """The place of the caller: the nearest frame outside this package, or simply the calling frame.

    Returns None if there is no such frame.
    """
    frame: FrameType | None = sys._getframe(1)
    if skip_package:
        while frame is not None and is_own(frame.f_code.co_filename):
            frame = frame.f_back
        if frame is None:
            return None
        if _room(frame) == "IPython":
            frame = _cell_of_a_magic(frame)
    assert frame is not None
    return Location(frame.f_code, frame.f_lasti)
