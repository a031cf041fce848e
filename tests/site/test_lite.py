"""The tutorial as a site of JupyterLite: what `make lite` puts into it."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def script(name="build_lite"):
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_notebook_installs_the_package_first():
    module = script()
    content = json.loads(module.with_installation(module.NOTEBOOK))
    original = json.loads(module.NOTEBOOK.read_text(encoding="utf-8"))
    installing = "".join(content["cells"][0]["source"])
    assert "\n%pip install -q hybrid-lab" in installing and "the NumPy engine runs" in installing
    assert content["metadata"]["kernelspec"]["name"] == "python"
    different = [
        (browser["source"], here["source"])
        for browser, here in zip(content["cells"][1:], original["cells"], strict=True)
        if browser != here
    ]
    (told, importing), *processes = different
    assert told[1:] == importing and "invalidate_caches()" in told[0]
    assert len(processes) == 2
    for browser, here in processes:
        assert "subprocess.run" in "".join(here) and "subprocess.run" not in "".join(browser)
        assert browser[-1].startswith("exec(") and browser[:-1] == here[:-1]


def test_a_lock_file_of_pyodide_names_what_the_roots_need():
    module = script("gather_pyodide")
    packages = {"a": {"depends": ["B_c"]}, "b-c": {"depends": ["a"]}, "d": {"depends": []}}
    assert module.closure(packages, ["a"]) == {"a", "b-c"}


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
