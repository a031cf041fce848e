"""Rooms import only downward, and no module needs itself: read from the source text by scripts/measure_code.py."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path

import pytest

from hybrid_lab import provided

SCRIPT = Path(__file__).parent.parent / "scripts" / "measure_code.py"


@pytest.fixture(scope="module")
def measure():
    spec = importlib.util.spec_from_file_location("measure_code", SCRIPT)
    module = sys.modules.setdefault(spec.name, importlib.util.module_from_spec(spec))
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def modules(measure):
    return measure.sources()


def test_every_module_is_in_a_room_of_the_order(measure, modules):
    assert {source.room for source in modules} <= measure.LEVEL.keys()


def test_rooms_import_only_downward(measure, modules):
    """Imports in functions and those for type checkers count too."""
    assert measure.upward(modules) == []


def test_no_circle_of_modules(measure, modules):
    """Imports in functions count too, those for type checkers do not."""
    assert measure.cycles(modules) == []


@pytest.mark.parametrize("name", provided._providers)
def test_provided_functions_exist(name):
    module, attribute = provided._providers[name]
    assert callable(getattr(importlib.import_module(module), attribute))


def test_nobody_provides_an_unknown_name():
    with pytest.raises(KeyError, match="no_such_function"):
        provided.Provided("no_such_function")
