"""Places in the user's code as the protocol's Location data, with the notebook's id of the cell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hybrid_lab.diagnostics import location as source
from hybrid_lab.diagnostics.location import cell_number, display_file

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from hybrid_lab.lab.messages.common import Location

#: file name of a notebook cell -> the notebook's id of that cell; kept by the hooks.
cell_ids: dict[str, str] = {}


def running_cell(shell: InteractiveShell) -> int:
    """The number of the cell that an IPython shell runs, n of its In[n].

    IPython 9 raises `execution_count` before the cell and earlier ones after it; the number of Out[n] is right in both.
    """
    return shell.displayhook.prompt_count


def lines_above(code: str, cell: str) -> int:
    """How many lines of a cell stand above the code that Python sees: IPython removes leading empty lines, and a cell
    magic such as %%capture runs what is below it as a cell of its own.
    """
    body = code.rstrip()
    magic = cell.rstrip()[: -len(body)].count("\n") if body and cell.rstrip().endswith(body) else 0
    return magic + code[: len(code) - len(code.lstrip())].count("\n")


def location_data(location: source.Location | None) -> Location | None:
    """The protocol's Location."""
    return None if location is None else located(location)


def located(location: source.Location) -> Location:
    """The protocol's Location of a place that is known."""
    return place(location.file, location.line, location.col, location.end_line, location.end_col)


def place(file: str, line: int, col: int, end_line: int, end_col: int) -> Location:
    """The protocol's Location of a span; lines from 1, columns in characters from 0.

    line, end_line : as Python counts them. The Location has the lines of the cell
    """
    line, end_line = source.cell_line(file, line), source.cell_line(file, end_line)
    return {
        "file": file,
        "label": f"{display_file(file)}, line {line}",
        "cell": cell_number(file),
        "cell_id": cell_ids.get(file, ""),
        "line": line,
        "col": col,
        "end_line": end_line,
        "end_col": end_col,
    }
