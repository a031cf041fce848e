"""File names for the code of `%%time`, `%%timeit` and `%time`, which IPython compiles as `<timed exec>` and the like:
messages, findings and tracebacks then name the cell and its line, and find its source.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

_NAMES = ("<timed exec>", "<timed eval>", "<magic-timeit>")
#: `%%time` with what stands before it and the empty lines below it; the cell's code is what follows.
_WHOLE = re.compile(r"\s*%%\w+[^\n]*\n(?:[ \t]*\n)*")
#: The code of the first `%time code` in a cell.
_LINE = re.compile(r"^[^\n#]*%time(?:it)?(?:\s+-\w+)*\s+(.+)$", re.MULTILINE)


class TimedCells:
    """Changes the names that the compiler of one shell gets.

    cell : the text of the running cell, None where it is not known
    named : gives the file name for code that begins below so many lines of the cell
    """

    def __init__(
        self, shell: InteractiveShell, cell: Callable[[], str | None], named: Callable[[str, int], str]
    ) -> None:
        self._compiler, self._cell, self._named = shell.compile, cell, named
        self._kind: type = type(self._compiler)

    def install(self) -> None:
        """Compile by these names from now on."""
        file_name = self._file_name

        class Naming(self._kind):  # type: ignore[name-defined, misc]  # the shell chooses the class
            """The shell's compiler."""

            def __call__(self, source: object, filename: str, *args: object, **options: object) -> object:
                return super().__call__(source, file_name(filename), *args, **options)

        self._compiler.__class__ = Naming

    def remove(self) -> None:
        """Let the shell name its code again."""
        self._compiler.__class__ = self._kind

    def _file_name(self, given: str) -> str:
        cell = self._cell() if given in _NAMES else None
        if cell is None:
            return given
        if (magic := _WHOLE.match(cell)) is not None:
            return self._named(cell[magic.end() :], magic[0].count("\n"))
        line = _LINE.search(cell)
        return given if line is None else self._named(line[1], cell[: line.start(1)].count("\n"))
