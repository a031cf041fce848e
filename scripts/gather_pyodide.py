"""Gather Pyodide with NumPy, and the wheels that the tutorial needs in a browser, in a folder:

    python scripts/gather_pyodide.py build/pyodide
    python scripts/build_lite.py dist/hybrid_lab-0.2.0-py3-none-any.whl build/lite --pyodide build/pyodide

The site then loads nothing from other hosts. PyPI's NumPy has no wheel for Pyodide, and npm's package `pyodide` has no
packages. The wheel of `open-webui` holds a copy of Pyodide with NumPy, SciPy, scikit-learn and Matplotlib, and it is
taken from there. Its lock file names the versions of pure Python packages, which come from PyPI.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

#: Has Pyodide 314.0.3 with NumPy 2.4.3 (106 MB).
CARRIER = "open-webui==0.12.4"
INSIDE = "open_webui/frontend/pyodide/"
#: The files of Pyodide itself.
CORE = ("package.json", "pyodide.asm.mjs", "pyodide.asm.wasm", "pyodide.mjs", "python_stdlib.zip")
#: What JupyterLite's kernel and the notebook import, as the lock file of Pyodide calls it.
ROOTS = (
    "ipython",
    "jedi",
    "matplotlib",
    "micropip",
    "numpy",
    "platformdirs",
    "scikit-learn",
    "tqdm",
    "typing-extensions",
)
#: Packages that Pyodide does not have. JupyterLite's kernel brings widgetsnbextension itself.
WHEELS = ("anywidget", "comm", "graphviz", "ipywidgets", "jupyterlab-widgets", "psygnal")


def download(requirements: Iterable[str], folder: Path) -> None:
    """Pure Python wheels of these requirements alone, without what they depend on."""
    pip = (sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "--platform=any")
    # The Python that imports them is Pyodide's, not this one.
    subprocess.run([*pip, "--ignore-requires-python", "-d", str(folder), *requirements], check=True)


def closure(packages: dict[str, Any], roots: Iterable[str]) -> set[str]:
    """The names of the roots and of all packages that they depend on."""
    found, left = set(), [*roots]
    while left:
        if (name := left.pop()) not in found:
            found.add(name)
            left += [dependency.lower().replace("_", "-") for dependency in packages[name]["depends"]]
    return found


def take_pyodide(carrier: Path, folder: Path) -> None:
    """Copy Pyodide and the packages of ROOTS into the folder, with a lock file that names no other package."""
    with zipfile.ZipFile(carrier) as archive:
        lock = json.loads(archive.read(f"{INSIDE}pyodide-lock.json"))
        wanted = closure(lock["packages"], ROOTS)
        lock["packages"] = {name: entry for name, entry in lock["packages"].items() if name in wanted}
        brought = {name.removeprefix(INSIDE) for name in archive.namelist()}
        files = {entry["file_name"]: entry for entry in lock["packages"].values()}
        for name in (*CORE, *(brought & set(files))):
            (folder / name).write_bytes(archive.read(INSIDE + name))
    missing = [entry for name, entry in files.items() if name not in brought]
    with tempfile.TemporaryDirectory() as temporary:
        download([f"{entry['name']}=={entry['version']}" for entry in missing], Path(temporary))
        wheels = {path.name.partition("-")[0].lower().replace("_", "-"): path for path in Path(temporary).iterdir()}
        for entry in missing:
            wheel = wheels[entry["name"].lower().replace("_", "-")]
            entry |= {"file_name": wheel.name, "sha256": hashlib.sha256(wheel.read_bytes()).hexdigest()}
            shutil.copy(wheel, folder)
    (folder / "pyodide-lock.json").write_text(json.dumps(lock), encoding="utf-8")


def gather(folder: Path) -> None:
    """Fill the folder: Pyodide with packages, and `wheels/` with those that JupyterLite installs besides."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as temporary:
        download([CARRIER], Path(temporary))
        (carrier,) = Path(temporary).glob("*.whl")
        take_pyodide(carrier, folder)
    download(WHEELS, folder / "wheels")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    gather(parser.parse_args(arguments).folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
