"""scripts/plant_faults.py: each fault changes one place, is Python, and follows from the seed."""

from __future__ import annotations

import ast
import importlib.util
import json
import shutil
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "scripts" / "plant_faults.py"
SOURCE = '''
def clipped(values: "list[int]", most: int = 3) -> "list[int]":
    """At most so many; é is two bytes."""
    found = []
    for value in values[1:]:
        if value > 2.5 and value != 7:
            found.append(value * 2)
    if not found:
        raise ValueError("no value " + "at all")
    return found if most else []
'''.encode()


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("plant_faults", SCRIPT)
    module = sys.modules.setdefault(spec.name, importlib.util.module_from_spec(spec))
    spec.loader.exec_module(module)
    return module


def test_every_kind_of_fault_in_a_function(script):
    found = {(fault.kind, fault.before, fault.text) for fault in script.faults("clipped.py", SOURCE)}
    assert found == {
        ("off by one", "1", "2"),
        ("off by one", "7", "8"),
        ("off by one", "2", "3"),
        ("constant", "2.5", "5.0"),
        ("operator", "value > 2.5", "(value >= 2.5)"),
        ("operator", "value != 7", "(value == 7)"),
        ("operator", "value > 2.5 and value != 7", "(value > 2.5 or value != 7)"),
        ("operator", "value * 2", "(value + 2)"),
        ("negated", "value > 2.5 and value != 7", "(not (value > 2.5 and value != 7))"),
        ("negated", "not found", "(not (not found))"),
        ("negated", "most", "(not (most))"),
        ("dropped", "found.append(value * 2)", "pass"),
    }


def test_a_planted_fault_is_python_and_changes_its_place_alone(script):
    for fault in script.faults("clipped.py", SOURCE):
        planted = fault.planted(SOURCE)
        ast.parse(planted)
        assert planted != SOURCE
        assert planted.startswith(SOURCE[: fault.first]) and planted.endswith(SOURCE[fault.last :])
        assert SOURCE[fault.first : fault.last].decode() == fault.before


def test_the_seed_chooses(script):
    first, again, other = (script.chosen(["graph", "formats"], 6, seed) for seed in (0, 0, 1))
    assert first == again != other
    assert [fault.path.split("/")[1] for fault in first] == ["graph", "formats"] * 3


@pytest.fixture
def copy(script, tmp_path):
    """A package hybrid_lab of one module with tests, and the suite of its faults."""
    (tmp_path / "tree/hybrid_lab").mkdir(parents=True)
    (tmp_path / "tree/hybrid_lab/__init__.py").write_text("")
    (tmp_path / "tree/hybrid_lab/sizes.py").write_text(
        "def half(size):\n    return size // 2\n\n\ndef upper(sizes):\n    return max(size + 1 for size in sizes)\n"
    )
    (tmp_path / "tree/scripts").mkdir()
    for name in ("plant_faults.py", "planting.py"):
        shutil.copy(SCRIPT.parent / name, tmp_path / "tree/scripts")
    (tmp_path / "tree/test_sizes.py").write_text(
        "import pytest\nfrom hybrid_lab import sizes\n\n"
        "@pytest.fixture(scope='module')\ndef four():\n    return sizes.half(8)\n\n"
        "def test_nothing(four):\n    pass\n\n"
        "def test_half(four):\n    assert four == 4\n\n"
        "@pytest.mark.parametrize('size', [3, 5])\ndef test_upper(size):\n    assert sizes.upper([size]) > 0\n"
    )
    source = (tmp_path / "tree/hybrid_lab/sizes.py").read_bytes()
    planted = script.faults("hybrid_lab/sizes.py", source)
    (tmp_path / "faults.json").write_text(json.dumps([asdict(fault) for fault in planted]))
    return script.Suite(tmp_path, None, planted)


def test_the_tests_that_reach_a_fault_run_until_one_fails(copy):
    copy.record(["test_sizes.py"], 0)
    of_fault, of_file = copy.reached()
    texts = {number: fault.text for number, fault in enumerate(copy.planted)}
    reached = {texts[number]: {each.test for each in tests} for number, tests in of_fault.items()}
    half = {"test_sizes.py::test_nothing", "test_sizes.py::test_half"}
    upper = {"test_sizes.py::test_upper[3]", "test_sizes.py::test_upper[5]"}
    # What a fixture of a module reaches belongs to each test that takes it.
    assert reached == {"(size * 2)": half, "3": half, "(size - 1)": upper, "2": upper}
    assert {each.test for each in of_file["hybrid_lab/sizes.py"]} == half | upper
    killed = {texts[number]: test for number, test in copy.killers().items()}
    assert killed == {
        "(size * 2)": "test_sizes.py::test_half",
        "3": "test_sizes.py::test_half",
        "(size - 1)": "",
        "2": "",
    }


def test_a_fault_in_a_file_is_found_and_the_file_put_back(copy):
    source = (copy.tree / "hybrid_lab/sizes.py").read_bytes()
    fault = next(each for each in copy.planted if each.line == 2)
    tests = ["test_sizes.py::test_upper", "test_sizes.py::test_half"]
    assert copy.kills_in_file(fault, tests, 60) == "test_sizes.py::test_half"
    assert (copy.tree / "hybrid_lab/sizes.py").read_bytes() == source


def test_a_few_tests_of_each_function_come_first(script):
    tests = [script.Reached(f"a.py::test_cheap[{number}]", 0.01 * number) for number in range(5)]
    other = script.Reached("a.py::test_other", 1.0)
    assert script.in_order([other, *reversed(tests)]) == [*tests[:3], other, *tests[3:]]
