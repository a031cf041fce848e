"""pyproject.toml, package.json and the package agree with each other and with what the README promises."""

import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
README = (ROOT / "README.md").read_text(encoding="utf-8")
PROJECT = PYPROJECT["project"]
EXTRAS = PROJECT["optional-dependencies"]


def names(requirements: list[str]) -> set[str]:
    return {Requirement(text).name for text in requirements}


def test_kernel_and_front_end_have_one_version():
    from hybrid_lab._version import __version__

    front_end = json.loads((ROOT / "package.json").read_text(encoding="utf-8"))
    assert front_end["version"] == __version__
    assert front_end["name"] == PROJECT["name"] == "hybrid-lab"


def test_base_installation_is_thin():
    assert names(PROJECT["dependencies"]) == {"numpy", "graphviz", "platformdirs", "tqdm"}


def test_extras_are_the_documented_ones():
    assert set(EXTRAS) == {
        "lab",
        "cpu",
        "cuda",
        "dist",
        "rocm",
        "amd",
        "images",
        "lite",
        "lsp",
        "notebooks",
        "docs",
        "test",
    }
    assert names(EXTRAS["lab"]) == {"jupyterlab", "jupyter_server", "ipywidgets", "anywidget", "nh3"}
    assert names(EXTRAS["cpu"]) == {"onnx", "onnxruntime", "ml_dtypes"}
    assert names(EXTRAS["notebooks"]) == {"scikit-learn", "matplotlib"}


@pytest.mark.parametrize("ignored", [True, False])
def test_wheel_and_sdist_take_the_notebooks_and_nothing_that_lies_beside_them(tmp_path, ignored):
    """Also where there is no .gitignore, and git does not show what a run of the tutorial wrote."""
    from hatchling.builders.sdist import SdistBuilder
    from hatchling.builders.wheel import WheelBuilder

    notebooks = sorted(path.name for path in (ROOT / "notebooks").glob("*.ipynb"))
    written = ["dispersed.py", "dispersed_check.npz", "net.hlab", "model-0001.params", "model-symbol.json", "net.onnx"]
    for name in ("pyproject.toml", ".gitignore")[: 1 + ignored]:
        shutil.copy(ROOT / name, tmp_path)
    for folder in ("hybrid_lab", "notebooks/.ipynb_checkpoints", "notebooks/data"):
        (tmp_path / folder).mkdir(parents=True)
    for name in (*notebooks, *written, ".ipynb_checkpoints/01_tutorial-checkpoint.ipynb", "data/digits.csv"):
        (tmp_path / "notebooks" / name).write_text("")
    taken = sorted(file.distribution_path for file in WheelBuilder(str(tmp_path)).recurse_included_files())
    assert taken == [f"hybrid_lab/notebooks/{name}" for name in notebooks]
    carried = sorted(file.relative_path for file in SdistBuilder(str(tmp_path)).recurse_included_files())
    assert [path for path in carried if path.startswith("notebooks")] == [f"notebooks/{name}" for name in notebooks]
    if ignored:
        subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
        shown = subprocess.run(
            ["git", "status", "--short", "-uall", "notebooks"], cwd=tmp_path, check=True, capture_output=True, text=True
        )
        assert shown.stdout.split() == [word for name in notebooks for word in ("??", f"notebooks/{name}")]


def test_rocm_cannot_be_satisfied_by_what_pypi_has():
    requirement, bfloat16 = map(Requirement, EXTRAS["rocm"])
    assert (requirement.name, bfloat16.name) == ("pytorch-triton-rocm", "ml_dtypes")
    assert not requirement.specifier.contains("2.1.0")
    assert requirement.specifier.contains("3.4.0")


def test_amd_is_satisfied_beside_any_triton():
    """torch of ROCm brings its own, under one of three names."""
    assert names(EXTRAS["amd"]) == {"ml_dtypes"}


def test_readme_starts_with_what_works_today():
    first_command = re.search(r"^    (\w.*)$", README, re.MULTILINE)
    assert first_command is not None and first_command[1].startswith("make lab ")
    first_of_pip = re.search(r"^\s*pip install .*$", README, re.MULTILINE)
    assert first_of_pip is not None and '"hybrid-lab[lab,cpu,notebooks]"' in first_of_pip.group()


def test_readme_names_every_notebook_and_their_numbers_have_no_hole():
    notebooks = sorted(path.stem for path in (ROOT / "notebooks").glob("*.ipynb"))
    assert [int(name[:2]) for name in notebooks] == list(range(1, len(notebooks) + 1))
    assert re.findall(r"`(\d\d_\w+)`", README) == notebooks


def _readme_of_the_package(monkeypatch, address):
    from docs.site import sources

    monkeypatch.setattr(sources, "repository", lambda: address)
    return sources.absolute(README, "README.md")


@pytest.mark.parametrize("address", [None, "https://example.org/hybrid-lab"])
def test_the_readme_of_the_package_has_no_relative_link(monkeypatch, address):
    """A package index shows it on a page of its own."""
    text = _readme_of_the_package(monkeypatch, address)
    targets = re.findall(r"\]\(([^)\s]+)\)", text)
    assert [target for target in targets if not target.startswith("https://")] == []
    assert bool(targets) is (address is not None)
    assert ("https://example.org/hybrid-lab/raw/main/docs/images/lab_graph_light.png" in text) is bool(targets)
    assert "docs/saving.md" in text and "make lab" in text


def test_the_metadata_has_that_readme():
    from hatchling.metadata.core import ProjectMetadata
    from hatchling.plugin.manager import PluginManager

    core = ProjectMetadata(str(ROOT), PluginManager()).core
    assert core.readme_content_type == "text/markdown"
    assert core.readme.startswith("# Hybrid Lab") and "](docs/" not in core.readme


def test_readme_lists_every_extra_and_names_the_rocm_index():
    for extra in EXTRAS:
        assert f"`{extra}`" in README, extra
    assert "https://download.pytorch.org/whl/rocm" in README


def test_files_named_in_the_readme_exist():
    named = re.findall(r"\]\((?!https?://|#)([^)#]+)\)", README)
    assert named
    assert [file for file in named if not (ROOT / file).exists()] == []


def test_license_is_the_full_apache_text():
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in text and "END OF TERMS AND CONDITIONS" in text
    assert PROJECT["license"] == "Apache-2.0"


def _make(*words: str) -> str:
    done = subprocess.run(["make", *words], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(not shutil.which("make"), reason="there is no make")
def test_make_help_names_every_command():
    phony = re.findall(r"^\.PHONY:(.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    targets = {target for line in phony for target in line.split()} - {"help"}
    assert {"lab", "test", "install", "notebooks"} <= targets
    named = set(re.findall(r"[\w-]+", _make("help")))
    assert sorted(targets - named) == []


@pytest.mark.skipif(not shutil.which("make"), reason="there is no make")
def test_the_readme_names_only_commands_of_make_that_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    named = set(re.findall(r"(?:`|^    )make ([a-z][a-z-]*)", README, re.MULTILINE))
    assert {"lab", "test"} <= named
    assert sorted(name for name in named if not re.search(rf"^{name}:", makefile, re.MULTILINE)) == []


def test_constraints_allow_what_the_extras_need():
    from packaging.requirements import Requirement

    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    versions = dict(line.split("==") for line in lines if not line.startswith("#"))
    for extra in ("lab", "cpu", "notebooks", "test"):
        for text in PROJECT["optional-dependencies"][extra]:
            requirement = Requirement(text)
            version = versions.get(requirement.name.lower().replace("_", "-"))
            assert version is not None and requirement.specifier.contains(version), f"{text}: {version}"
