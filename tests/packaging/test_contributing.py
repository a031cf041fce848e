"""CONTRIBUTING.md and the repository's forms name what is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
#: Where files stand that the text names by what is behind their folder.
FOLDERS = (
    "",
    "hybrid_lab",
    "hybrid_lab/ops",
    "hybrid_lab/lint/checks",
    "extension/src/view",
    "hybrid_lab/lab/messages",
    "hybrid_lab/graph/passes",
)


def test_paths_that_are_named_exist():
    named = {path for path in re.findall(r"`([\w./-]+/|[\w./-]+\.(?:py|md|ts|json|yaml))`", TEXT) if "<" not in path}
    named |= set(re.findall(r"\]\(([^)]+)\)", TEXT))
    assert len(named) > 25
    gone = {path for path in named if not any((ROOT / folder / path).exists() for folder in FOLDERS)}
    assert gone == set()


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("hybrid_lab/ops/elementwise/activation.py", "class HardSigmoid("),
        ("hybrid_lab/lint/checks/effects.py", "def python_random("),
        ("hybrid_lab/graph/passes/fold_norm.py", "def fold_norm("),
        ("hybrid_lab/graph/specialize.py", 'run_pass(stages, "fold_norm"'),
        ("hybrid_lab/graph/dump.py", "PASSES = ("),
        ("hybrid_lab/lab/messages/saving.py", "class SaveRequest("),
        ("hybrid_lab/lab/messages/requests.py", "REQUESTS: "),
        ("hybrid_lab/lab/kernel/session.py", "def _on_explain("),
        ("extension/src/view/file-part.ts", "export class"),
        ("extension/src/view/work-rows.ts", "export class"),
        ("extension/src/view/panel-view.ts", "private showChosen("),
        ("hybrid_lab/ops/updates/update_descent.py", "class SGDMomentumUpdate("),
        ("hybrid_lab/optimizer/sgd.py", "class Signum("),
    ],
)
def test_what_is_to_be_copied_is_there(file, name):
    assert name in (ROOT / file).read_text(encoding="utf-8")


def test_tests_and_scripts_that_are_named_are_there():
    commands = " ".join(re.findall(r"`(python (?:-m pytest |scripts/)[^`]+)`", TEXT.replace("\n   ", " ")))
    paths = re.findall(r"(?:tests|scripts)/[\w/.]+|tests/\{[\w,]+\}", commands)
    each = [f"tests/{name}" for path in paths for name in path[7:-1].split(",") if "{" in path]
    each += [path for path in paths if "{" not in path]
    assert len(each) > 12
    assert [path for path in each if not (ROOT / path).exists()] == []


def test_commands_are_in_the_makefile():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    files = [ROOT / "CONTRIBUTING.md", *(ROOT / ".github").rglob("*.yml")]
    targets = {
        target for file in files for target in re.findall(r"\bmake ([a-z][\w-]+)", file.read_text(encoding="utf-8"))
    }
    assert {"check", "test", "lab", "test-processors", "wheel"} <= targets
    assert {target for target in targets if not re.search(rf"^{target}:", makefile, re.MULTILINE)} == set()


def test_forms_and_workflows_are_yaml():
    yaml = pytest.importorskip("yaml")
    files = [*(ROOT / ".github").rglob("*.yml"), ROOT / ".pre-commit-config.yaml", ROOT / "CITATION.cff"]
    assert len(files) == 8
    for file in files:
        assert isinstance(yaml.safe_load(file.read_text(encoding="utf-8")), dict), file


def test_the_version_to_cite_is_this_one():
    from hybrid_lab import __version__

    assert f"version: {__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
