"""The tutorial as a site of JupyterLite: what `make lite` puts into it."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def script():
    spec = importlib.util.spec_from_file_location("build_lite", ROOT / "scripts" / "build_lite.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_notebook_installs_the_package_first():
    module = script()
    content = json.loads(module.with_installation(module.NOTEBOOK))
    original = json.loads(module.NOTEBOOK.read_text(encoding="utf-8"))
    installing = "".join(content["cells"][0]["source"])
    assert "\n%pip install -q hybrid-lab" in installing and "the NumPy engine runs" in installing
    assert content["cells"][1:] == original["cells"] and content["metadata"]["kernelspec"]["name"] == "python"


@pytest.mark.long
def test_the_site_has_notebook_and_wheel(tmp_path):
    pytest.importorskip("jupyterlite_core")
    pytest.importorskip("jupyterlite_pyodide_kernel")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path], cwd=ROOT, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    assert script().main([str(wheel), str(tmp_path / "site")]) == 0
    assert (tmp_path / "site" / "files" / "01_tutorial.ipynb").is_file()
    index = json.loads((tmp_path / "site" / "pypi" / "all.json").read_text(encoding="utf-8"))
    assert "hybrid-lab" in index
