"""python -m tests.isolated_tutorial: run the code cells of the tutorial in this folder, in IPython without a kernel."""

from __future__ import annotations

import json
from pathlib import Path

NOTEBOOK = Path(__file__).parents[1] / "notebooks" / "01_tutorial.ipynb"


def main() -> None:
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell.instance()
    for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            code = "".join(cell["source"]).replace("%matplotlib inline", "")  # which needs a kernel
            shell.run_cell(code).raise_error()


if __name__ == "__main__":
    main()
