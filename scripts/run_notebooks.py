"""Executes every notebook headless, each in an empty folder of its own, and fails on the first error in a cell.

A notebook may name packages in its metadata, as {"hybrid_lab": {"requires": ["torch"]}}: where one is not installed,
the notebook is skipped.
"""

import argparse
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

ROOT = Path(__file__).resolve().parents[1]


def execute(notebook: Path, timeout: int, output: Path | None) -> str | None:
    """Run one notebook; returns what went wrong, or None. `timeout` (seconds) bounds the whole notebook."""
    document = nbformat.read(notebook, as_version=4)
    started = time.perf_counter()
    # What a notebook writes (archives, exported files) must not land in the repository.
    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(document, kernel_name="python3", resources={"metadata": {"path": folder}})
        client.timeout_func = lambda cell: max(1, int(timeout - (time.perf_counter() - started)))
        try:
            client.execute()
        except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
            return str(error)
        finally:
            if output is not None:
                output.mkdir(parents=True, exist_ok=True)
                nbformat.write(document, output / notebook.name)
    return None


def missing(notebook: Path) -> list[str]:
    """The packages that a notebook needs and that are not installed."""
    metadata = nbformat.read(notebook, as_version=4).metadata
    return [name for name in metadata.get("hybrid_lab", {}).get("requires", []) if find_spec(name) is None]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("notebooks", nargs="*", type=Path, help="default: all of notebooks/")
    parser.add_argument("--timeout", type=int, default=600, help="seconds one notebook may take")
    parser.add_argument("--output", type=Path, help="write the executed notebooks to this folder")
    arguments = parser.parse_args()
    notebooks = arguments.notebooks or sorted((ROOT / "notebooks").rglob("*.ipynb"))
    notebooks = [path for path in notebooks if ".ipynb_checkpoints" not in path.parts]
    if not notebooks:
        print("no notebooks found", file=sys.stderr)
        return 1
    failures = 0
    for notebook in notebooks:
        if absent := missing(notebook):
            print(f"skipped: {notebook} needs {', '.join(absent)}", flush=True)
            continue
        started = time.perf_counter()
        problem = execute(notebook, arguments.timeout, arguments.output)
        verdict = "ok" if problem is None else "FAILED"
        print(f"{verdict:6} {time.perf_counter() - started:6.1f} s  {notebook}", flush=True)
        if problem is not None:
            failures += 1
            print(problem, file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
