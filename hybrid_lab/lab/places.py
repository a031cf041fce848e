"""Places in the user's code as the protocol's Location data, with the notebook's id of the cell."""

from __future__ import annotations

from typing import Any

from hybrid_lab.diagnostics.location import Location, cell_number, display_file

#: file name of a notebook cell -> the notebook's id of that cell; kept by the hooks.
cell_ids: dict[str, str] = {}


def running_cell(shell: Any) -> int:
    """The number of the cell that an IPython shell runs, n of its In[n].

    IPython 9 raises `execution_count` before the cell and earlier ones after it; the number of Out[n] tells for both.
    """
    return shell.displayhook.prompt_count


def location_data(location: Location | None) -> dict[str, Any] | None:
    """The protocol's Location."""
    if location is None:
        return None
    return place(location.file, location.line, location.col, location.end_line, location.end_col)


def place(file: str, line: int, col: int, end_line: int, end_col: int) -> dict[str, Any]:
    """The protocol's Location of a span; lines from 1, columns in characters from 0."""
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
