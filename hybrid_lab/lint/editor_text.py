"""The text of a document that an editor shows, and its positions in the units that the editor counts.

The documents of pygls (2.1) do not serve for this: their lines also end at form feeds and line separators, unlike lines
of Python and of editors. Edits and marks behind such a character would be in wrong places.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import cached_property

_LINE_END = re.compile(r"\r\n|\r|\n")
"""As Python's parser and the Language Server Protocol split lines: a form feed ends none."""

UTF_8, UTF_16, UTF_32 = "utf-8", "utf-16", "utf-32"
"""The encodings in which an editor may count the characters of a line."""


class EditorText:
    """A text at one version. A position is (line from 0, units from 0); outside of this class columns are characters.

    encoding : UTF_8, UTF_16 or UTF_32
    """

    def __init__(self, text: str, version: int | None, encoding: str, language: str = "python") -> None:
        self.text, self.version, self.encoding, self.language = text, version, encoding, language

    @cached_property
    def _lines(self) -> list[tuple[int, int]]:
        """(start, end without its line end) of each line in the text."""
        starts, ends = [0], []
        for match in _LINE_END.finditer(self.text):
            ends.append(match.start())
            starts.append(match.end())
        return list(zip(starts, [*ends, len(self.text)], strict=True))

    @property
    def line_count(self) -> int:
        """The number of lines."""
        return len(self._lines)

    def position(self, line: int, column: int) -> tuple[int, int]:
        """The position of a column in characters. line : from 1, as in findings"""
        start, end = self._lines[min(line, len(self._lines)) - 1]
        return line - 1, self._units(self.text[start : min(start + column, end)])

    def position_of(self, offset: int) -> tuple[int, int]:
        """The position of an index in the text."""
        line = bisect_right(self._lines, offset, key=lambda line: line[0]) - 1
        return line, self._units(self.text[self._lines[line][0] : offset])

    def offset(self, line: int, units: int) -> int:
        """The index in the text of a position; a position outside of the text is moved into it."""
        if line >= len(self._lines):
            return len(self.text)
        start, end = self._lines[max(line, 0)]
        if self.text[start:end].isascii():
            return min(start + max(units, 0), end)
        offset, counted = start, 0
        while offset < end and counted < units:
            counted += self._units(self.text[offset])
            offset += 1
        return offset

    def changed(self, start: tuple[int, int], end: tuple[int, int], new: str, version: int | None) -> EditorText:
        """The text with `new` between two positions."""
        first, last = self.offset(*start), self.offset(*end)
        return EditorText(self.text[:first] + new + self.text[last:], version, self.encoding, self.language)

    def _units(self, text: str) -> int:
        if self.encoding == UTF_32 or text.isascii():
            return len(text)
        if self.encoding == UTF_8:
            return len(text.encode("utf-8", "surrogatepass"))
        return len(text.encode("utf-16-le", "surrogatepass")) // 2
