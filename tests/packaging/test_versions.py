"""`make test-versions`: interpreters are found, and tests are collected in environments without torch and triton."""

import ast
import importlib.util
import os
import platform
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent.parent
#: Packages that the environments lack.
ABSENT = {"torch", "triton", "playwright", "sklearn", "matplotlib", "ipyparallel", "pygls", "cv2"}
#: tests/torch/conftest.py leaves them out; the browser has tests of its own.
LEFT_OUT = ("torch/test_sizes.py", "torch/test_states_of_modules.py", "torch/test_tables.py", "browser/")


def imported_first(file):
    """The absent packages that a module imports before anything could skip it."""
    found, tested = set(), set()
    source = file.read_text(encoding="utf-8")
    for statement in ast.parse(source).body:
        if isinstance(statement, ast.Import):
            found |= {name.name.partition(".")[0] for name in statement.names} & ABSENT - tested
        elif isinstance(statement, ast.ImportFrom) and not statement.level:
            found |= {(statement.module or "").partition(".")[0]} & ABSENT - tested
        if "importorskip" in source:
            text = ast.unparse(statement)
            tested |= {name for name in ABSENT if f"importorskip('{name}" in text}
    return found


def test_tests_are_collected_without_torch():
    files = [file for file in TESTS.rglob("test_*.py") if not file.relative_to(TESTS).as_posix().startswith(LEFT_OUT)]
    assert len(files) > 200
    found = {str(file.relative_to(TESTS)): names for file in files if (names := imported_first(file))}
    assert found == {}


@pytest.mark.skipif(os.name != "posix", reason="uv and pyenv have other folders there")
@pytest.mark.parametrize(
    "place", [".local/share/uv/python/cpython-{}-linux/bin/python3", ".pyenv/versions/{}/bin/python"]
)
def test_interpreters_beside_the_path_are_found(place, tmp_path, monkeypatch):
    python = tmp_path / place.format(platform.python_version())
    python.parent.mkdir(parents=True)
    python.symlink_to(Path(sys._base_executable).resolve())
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    monkeypatch.setenv("PATH", "")
    monkeypatch.syspath_prepend(TESTS.parent / "scripts")
    spec = importlib.util.spec_from_file_location("versions_script", TESTS.parent / "scripts" / "test_versions.py")
    script = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    release = platform.python_version().rpartition(".")[0]
    assert script.interpreters().keys() == {release}
