"""The wheel as a user meets it: an empty environment, no Node, nothing of the repository."""

import json
import os
import re
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from hybrid_lab._version import __version__

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.wheel

# 07_gluoncv installs GluonCV, so it comes last. 06_workers needs torch: `make test-workers` runs it.
NOTEBOOKS = ("01_tutorial", "02_compiler", "03_gpu", "04_inspect", "05_save_reload", "08_d2l", "07_gluoncv")


def run(command, **keywords) -> str:
    """Standard output and error of a command that must succeed."""
    done = subprocess.run(
        [str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **keywords
    )
    assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout[-6000:]}"
    return done.stdout


def plain(text: str) -> str:
    """Text without the terminal's colours."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


@pytest.fixture(scope="session")
def wheel(tmp_path_factory) -> Path:
    """The wheel, built anew from the tree (the front end is built already: `make build`)."""
    folder = tmp_path_factory.mktemp("dist")
    run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder], cwd=ROOT)
    (wheel,) = folder.glob("hybrid_lab-*.whl")
    return wheel


class Environment:
    """An environment made of nothing but the wheel and its requirements, and the settings of a process in it."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        self.folder = folder
        venv.create(folder / "env")
        self.bin = folder / "env" / "bin"
        self.home = folder / "home"
        self.home.mkdir()
        dropped = ("PYTHON", "JUPYTER", "VIRTUAL_ENV", "HYBRID_LAB", "IPYTHON")
        # pip's own settings (an index, a certificate) may lie in the real home; everything else starts clean.
        self.variables_of_pip = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
        # Only the environment's commands: no node, no compiler.
        self.variables = self.variables_of_pip | {"HOME": str(self.home), "PATH": str(self.bin)}
        self.install("--no-compile", f"{wheel}[lab,cpu,notebooks]")

    def install(self, *arguments: str) -> None:
        # By the pip that runs the tests: the environment needs none, and to install one takes seconds.
        pip = [sys.executable, "-m", "pip", "--python", self.bin / "python"]
        run([*pip, "install", "-q", *arguments], cwd=self.folder, env=self.variables_of_pip)

    def run(self, command) -> str:
        return run(command, cwd=self.folder, env=self.variables)


@pytest.fixture(scope="session")
def environment(tmp_path_factory, wheel) -> Environment:
    return Environment(tmp_path_factory.mktemp("empty"), wheel)


def test_wheel_carries_everything_once(wheel):
    members = zipfile.ZipFile(wheel).namelist()
    data = [name.partition(".data/data/")[2] for name in members if ".data/data/" in name]
    assert "share/jupyter/labextensions/hybrid-lab/package.json" in data
    assert "share/jupyter/labextensions/hybrid-lab/install.json" in data
    assert any(name.startswith("share/jupyter/labextensions/hybrid-lab/static/remoteEntry.") for name in data)
    assert "etc/jupyter/jupyter_server_config.d/hybrid_lab.json" in data
    for name in ("py.typed", "lab/static/view.js", *(f"notebooks/{name}.ipynb" for name in NOTEBOOKS)):
        assert f"hybrid_lab/{name}" in members
    assert any(name.startswith("hybrid_lab/") and name.endswith(".pyi") for name in members)
    strangers = ("hybrid_lab/labextension", "notebooks/", "tests/", "extension/", "benchmarks/")
    assert not any(name.startswith(strangers) for name in members)
    notebooks = [name for name in members if name.startswith("hybrid_lab/notebooks/")]
    assert all(name.endswith(".ipynb") for name in notebooks), notebooks
    assert len(members) == len(set(members))


def test_graphviz_is_in_the_wheel_once(wheel):
    """It is a quarter of the wheel: the server and the kernel give it to the front ends."""
    scripts = [info for info in zipfile.ZipFile(wheel).infolist() if info.filename.endswith(".js")]
    assert [each.filename for each in scripts if each.file_size > 600_000] == ["hybrid_lab/lab/static/graphviz.js"]


def test_two_builds_have_the_same_bytes(wheel, tmp_path):
    run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path], cwd=ROOT)
    (again,) = tmp_path.glob("hybrid_lab-*.whl")
    assert again.read_bytes() == wheel.read_bytes()


def test_the_contents_of_the_wheel_are_as_packaging_tools_expect(wheel):
    """W005: hybrid_lab/notebooks is no module, and hybrid_lab-stubs belongs beside the package."""
    run([sys.executable, "-m", "check_wheel_contents", "--toplevel", "hybrid_lab,hybrid_lab-stubs", wheel])


def test_what_it_installs_may_be_passed_on(environment):
    """The licences of all packages that the wheel brings with [lab,cpu,notebooks]: none that forbids or infects."""
    environment.install("pip-licenses")
    listed = environment.run([environment.bin / "pip-licenses", "--from=mixed", "--format=json"])
    refused = [
        f"{each['Name']}: {each['License']}"
        for each in json.loads(listed)
        if re.search(r"\bA?GPL|Affero|Proprietary|UNKNOWN", each["License"]) and "LGPL" not in each["License"]
    ]
    assert not refused, refused


def test_wheel_has_the_licences_of_what_it_bundles(wheel):
    archive = zipfile.ZipFile(wheel)
    text = archive.read("hybrid_lab/lab/static/licenses.txt").decode()
    for name in ("@hpcc-js/wasm-graphviz", "@lumino/widgets", "dompurify"):
        assert re.search(rf"^{name} \d+\.\d+\.\d+: \S", text, re.MULTILINE), name
    assert "Eclipse Public License" in text and "https://gitlab.com/graphviz/graphviz" in text
    (bundled,) = (name for name in archive.namelist() if name.endswith("static/third-party-licenses.json"))
    packages = {each["name"] for each in json.loads(archive.read(bundled))["packages"]}
    assert {"dompurify", "@codemirror/lint"} <= packages


def test_a_package_index_takes_the_files(wheel):
    """Their metadata and the README as a package index shows it."""
    checked = run([sys.executable, "-m", "twine", "check", "--strict", wheel], cwd=wheel.parent, env=os.environ)
    assert "PASSED" in plain(checked)


def test_package_comes_from_the_wheel_and_needs_no_node(environment):
    assert not (environment.bin / "node").exists()
    where = environment.run([environment.bin / "python", "-c", "import hybrid_lab; print(hybrid_lab.__file__)"])
    assert Path(where.strip()).is_relative_to(environment.folder)


def test_jupyterlab_lists_both_extensions_as_enabled(environment):
    listed = environment.run([environment.bin / "jupyter", "labextension", "list"])
    assert re.search(rf"^\s*hybrid-lab v{__version__} enabled OK", plain(listed), re.MULTILINE)
    listed = environment.run([environment.bin / "jupyter", "server", "extension", "list"])
    assert re.search(r"hybrid_lab\.lab\.server enabled", plain(listed))
    assert re.search(r"hybrid_lab\.lab\.server .*OK", plain(listed))


def test_env_reports_a_complete_installation(environment):
    report = environment.run([environment.bin / "hybrid-lab", "env"])
    assert "broken" not in report
    assert re.search(r"^default engine +chosen for each call", report, re.MULTILINE)
    assert re.search(r"^engine onnxruntime +usable$", report, re.MULTILINE)


@pytest.mark.long
def test_tutorial_works_in_the_browser(environment):
    """The browser tests' tutorial, with the JupyterLab of the empty environment instead of this one's."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rs", "tests/browser/test_lab.py::test_tutorial[lab]"],
        cwd=ROOT,
        env=os.environ | {"JUPYTER_PYTHON": str(environment.bin / "python")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-6000:]
    if "1 skipped" in done.stdout:
        pytest.skip(done.stdout.partition("SKIPPED")[2].strip())
    assert "1 passed" in done.stdout


def installations(notebook: Path) -> list[list[str]]:
    """The arguments of every `pip install` that a notebook's first cell tells its reader to type."""
    text = "".join(json.loads(notebook.read_text(encoding="utf-8"))["cells"][0]["source"])
    return [line.split() for line in re.findall(r"^ {4}pip install (.+)$", text, re.MULTILINE)]


@pytest.mark.long
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_tutorials_are_copied_and_run(environment, name):
    """Each tutorial runs, after the packages that it tells its reader to install."""
    hybrid_lab = environment.bin / "hybrid-lab"
    environment.run([hybrid_lab, "tutorial", "--copy-only"])
    notebook = environment.folder / "hybrid-lab-tutorial" / f"{name}.ipynb"
    assert notebook.is_file()
    for arguments in installations(notebook):
        environment.install(*arguments)
    environment.run([environment.bin / "jupyter", "execute", "--timeout=600", notebook])
