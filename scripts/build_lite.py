"""Build the tutorial as a site of JupyterLite: JupyterLab in a browser, with Python by Pyodide and no server.

    python scripts/build_lite.py dist/hybrid_lab-0.1.0-py3-none-any.whl build/lite

The site has the wheel, the extension that is installed in this environment, and the notebook with a cell before the
others that installs the wheel. Opened, it loads Pyodide and NumPy from the network, or from itself if
`--pyodide FOLDER` names a folder that scripts/gather_pyodide.py has filled.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOK = ROOT / "notebooks" / "01_tutorial.ipynb"
#: Extensions of this environment that ask a server for what it has, and open a dialog without one.
SERVER_ONLY = ("ipyparallel-labextension",)
SETTINGS = {"jupyter-lite-schema-version": 0, "jupyter-config-data": {"disabledExtensions": list(SERVER_ONLY)}}
#: How the notebook runs code in a new process. Python in a browser starts none.
IN_A_PROCESS = re.compile(r'print\(subprocess\.run\(\[sys\.executable, "-c", (\w+)\].*\)\.stdout\)')
IN_THE_KERNEL = r'exec(\1, {"__name__": "__main__"})      # in this process: a browser starts no other'
#: The import of a module that the notebook has just written. The file system of JupyterLite does not tell Python's
#: import system that a folder has a new file.
OF_A_NEW_FILE = "from dispersed import Model\n"
TOLD = "import importlib; importlib.invalidate_caches()      # dispersed.py is new\n"


def with_installation(notebook: Path) -> str:
    """The notebook for a browser: with a first cell that installs the package from the site, and without processes."""
    content = json.loads(notebook.read_text(encoding="utf-8"))
    for written in content["cells"]:
        if written["cell_type"] == "code":
            lines = [IN_A_PROCESS.sub(IN_THE_KERNEL, line) for line in written["source"]]
            written["source"] = [TOLD, *lines] if lines[0] == OF_A_NEW_FILE else lines
    cell = {
        "cell_type": "code",
        "execution_count": None,
        "id": "install-hybrid-lab",
        "metadata": {},
        "outputs": [],
        "source": ["# In the browser: the package from this site, then what the notebook draws with.\n",
                   "# Python in a browser has no ONNX Runtime, torch, threads and processes: the NumPy engine runs\n",
                   "# everything, and mx.lab.workers is an error. Code is marked once the kernel runs.\n",
                   "%pip install -q hybrid-lab ipywidgets anywidget matplotlib scikit-learn"],
    }  # fmt: skip
    content["cells"].insert(0, cell)
    content["metadata"]["kernelspec"] = {"display_name": "Python (Pyodide)", "language": "python", "name": "python"}
    return json.dumps(content, ensure_ascii=False, indent=1) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--pyodide", type=Path, help="a folder of scripts/gather_pyodide.py, copied to the site")
    asked = parser.parse_args(arguments)
    if not asked.wheel.is_file():
        parser.error(f"{asked.wheel} is no file: `make wheel` builds the wheel")
    shutil.rmtree(asked.output, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        contents = Path(folder) / "contents"
        contents.mkdir()
        (Path(folder) / "jupyter-lite.json").write_text(json.dumps(SETTINGS), encoding="utf-8")
        (contents / NOTEBOOK.name).write_text(with_installation(NOTEBOOK), encoding="utf-8")
        wheels = [asked.wheel]
        if asked.pyodide:
            wheels += sorted((asked.pyodide / "wheels").iterdir())
            shutil.copytree(asked.pyodide, Path(folder) / "static" / "pyodide", ignore=shutil.ignore_patterns("wheels"))
        command = [
            *(sys.executable, "-m", "jupyter", "lite", "build", "--contents", str(contents)),
            *("--output-dir", str(asked.output.resolve())),
            *(word for wheel in wheels for word in ("--piplite-wheels", str(wheel.resolve()))),
            *("--no-sourcemaps", "--apps", "lab"),
        ]
        done = subprocess.run(command, cwd=folder)
    if done.returncode == 0:
        print(f"{asked.output}: python -m http.server -d {asked.output}, then /lab/index.html?path={NOTEBOOK.name}")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
