"""File names for the code of `%%time`, `%%timeit` and `%time`, which IPython compiles as `<timed exec>` and the like:
messages, findings and tracebacks then name the cell and its line, and find its source.
"""

from __future__ import annotations

import re
from ast import AST
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from IPython.core.compilerop import CachingCompiler
    from IPython.core.interactiveshell import InteractiveShell

_NAMES = ("<timed exec>", "<timed eval>", "<magic-timeit>")
#: `%%time` with what stands before it and the empty lines below it; the cell's code is what follows.
_WHOLE = re.compile(r"\s*%%\w+[^\n]*\n(?:[ \t]*\n)*")
#: The code of the first `%time code` in a cell.
_LINE = re.compile(r"^[^\n#]*%time(?:it)?(?:\s+-\w+)*\s+(.+)$", re.MULTILINE)


class _Naming:
    """A shell's compiler that gets other file names. Everything but its calls comes from the shell's own.

    file_name : gives the name to compile by for the one that IPython has given
    """

    def __init__(self, compiler: CachingCompiler, file_name: Callable[[str], str]) -> None:
        self._compiler, self._file_name = compiler, file_name

    def __call__(self, source: str | AST, filename: str, *args: Any, **options: Any) -> object:
        return self._compiler(source, self._file_name(filename), *args, **options)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> object:
        return getattr(self._compiler, name)


class TimedCells:
    """Changes the names that the compiler of one shell gets.

    cell : the text of the running cell, None if it is not known
    named : gives the file name for code below a given number of lines of the cell
    """

    def __init__(
        self, shell: InteractiveShell, cell: Callable[[], str | None], named: Callable[[str, int], str]
    ) -> None:
        self._shell, self._cell, self._named = shell, cell, named
        self._compiler: CachingCompiler | None = None  # the shell's own, while another one takes its place

    def install(self) -> None:
        """Compile by these names from now on."""
        if self._compiler is None:
            self._compiler = self._shell.compile
            self._shell.compile = _Naming(self._compiler, self._file_name)  # type: ignore[assignment]

    def remove(self) -> None:
        """Let the shell name its code again."""
        if self._compiler is not None:
            self._shell.compile, self._compiler = self._compiler, None

    def _file_name(self, given: str) -> str:
        cell = self._cell() if given in _NAMES else None
        if cell is None:
            return given
        if (magic := _WHOLE.match(cell)) is not None:
            return self._named(cell[magic.end() :], magic[0].count("\n"))
        line = _LINE.search(cell)
        return given if line is None else self._named(line[1], cell[: line.start(1)].count("\n"))
