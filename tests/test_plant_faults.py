"""scripts/plant_faults.py: each fault changes one place, is Python, and follows from the seed."""

from __future__ import annotations

import ast
import importlib.util
import sys
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
