"""Rooms import only downward, no module needs itself, and a call runs through few functions: measured by
scripts/measure_code.py and scripts/measure_calls.py. Sentences read well: scripts/list_sentences.py.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import re
import sys
from pathlib import Path

import pytest

from hybrid_lab import aliases
from hybrid_lab.graph.memory.packing import Allocation
from hybrid_lab.hybridize.stale.user_state import Name
from hybrid_lab.system import provided

SCRIPTS = Path(__file__).parent.parent / "scripts"

#: What the calls of the network in README.md may run at most, and what `from hybrid_lab import gluon` may load. These
#: only get lower: a change that needs more shows what for. The aim of 36 classes in the first call is not reached: each
#: of the 44, except `NumPyEngine`, has state of its own.
BUDGETS = {
    "import gluon": {"modules loaded": 195},
    "first call": {"functions": 343, "files": 61, "classes": 44, "file switches": 653, "modules loaded": 12},
    "second call": {"functions": 17, "files": 9, "classes": 5, "file switches": 10, "modules loaded": 0},
    "new batch size": {"functions": 141, "files": 36, "classes": 27, "file switches": 155, "modules loaded": 0},
}
#: Calls upward that no import shows, see `measure_code.indirect`.
INDIRECT = 55
#: Sentences of hybrid_lab/ with two or more marks of a sentence that a reader parses twice, see
#: `python scripts/list_sentences.py`.
SENTENCES = 10
#: Circles of modules by imports for type checkers, at most: how many, the modules in all, and in the largest one, which
#: are the nodes and passes of `graph`.
TYPED_CIRCLES = 22, 86, 14


def script(name: str):
    """A module of scripts/."""
    spec = importlib.util.spec_from_file_location(name, SCRIPTS / f"{name}.py")
    module = sys.modules.setdefault(spec.name, importlib.util.module_from_spec(spec))
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def measure():
    return script("measure_code")


@pytest.fixture(scope="module")
def sentences():
    return script("list_sentences")


@pytest.fixture(scope="module")
def modules(measure):
    """The syntax trees of all modules. No garbage is collected while they exist, because a collection would walk
    through a million nodes.
    """
    gc.disable()
    try:
        yield measure.sources()
    finally:
        gc.enable()


def test_every_module_is_in_a_room_of_the_order(measure, modules):
    assert {source.room for source in modules} <= measure.LEVEL.keys()


def test_the_picture_has_every_room(modules):
    draw = script("draw_architecture")
    named = re.findall(r">([a-z_.]+)</text>", draw.TARGET.read_text(encoding="utf-8"))
    assert sorted(named) == sorted(draw.edges(modules)), "python scripts/draw_architecture.py draws it again"


def test_rooms_import_only_downward(measure, modules):
    """Imports in functions and those for type checkers count too."""
    assert measure.upward(modules) == []


def test_a_shelf_holds_rooms_alone(measure, modules):
    """A module that is in no room of its own would be below all others, and could be imported by every one."""
    assert [source.name for source in modules if source.room in measure.SHELVES] == sorted(measure.SHELVES)


def test_imports_name_modules_where_they_are(measure, modules):
    """Older names are for users: an import by one would be past the order of rooms."""
    found = [
        f"{source.where(node)}: {target}"
        for source in modules
        for node, target in [
            *((node, target) for node, target, _ in measure.imports(source, typing=True)),
            *measure._imports_by_text(source),
        ]
        if aliases.current_name(f"hybrid_lab.{target}") != f"hybrid_lab.{target}"
    ]
    assert found == []


def test_no_circle_of_modules(measure, modules):
    """Imports in functions count too, those for type checkers do not."""
    assert measure.cycles(modules) == []


def test_circles_for_type_checkers_are_small(measure, modules):
    sizes = [group.count(",") + 1 for group in measure.cycles(modules, typing=True)]
    number, most, largest = TYPED_CIRCLES
    assert (len(sizes) <= number, sum(sizes) <= most, max(sizes) <= largest) == (True, True, True), sizes


def test_no_object_gets_another_class(measure, modules):
    """Of Node: its constructor fills it in while it is not a Node yet, whose attributes cannot be set. Each by
    `object.__setattr__`, or by its descriptor, it would take four times as long, and a call of a new batch size makes
    all nodes anew.
    """
    assert measure.classes_assigned(modules) == ["graph.node: node.__class__"]


def test_no_module_changes_another_one(measure, modules):
    assert measure.modules_changed(modules) == []


def test_no_room_uses_private_names_of_another(measure, modules):
    """`tensor._version` is torch's."""
    assert [each.partition(": ")[2] for each in measure.private(modules)] == ["tensor._version"]


def test_calls_upward_past_the_imports(measure, modules):
    assert len(measure.indirect(modules)) <= INDIRECT


def test_a_call_runs_through_few_functions(measure):
    result = measure.measure_calls.measured()
    over = {
        (name, kind): (result[name][kind], most)
        for name, kinds in BUDGETS.items()
        for kind, most in kinds.items()
        if result[name][kind] > most
    }
    assert not over, "python scripts/measure_calls.py --list shows what runs"
    assert result["lint modules"] == []


def test_methods_that_python_writes_are_counted(measure):
    """`__init__` of a dataclass, also in a subclass that inherits it, and `__new__` of a NamedTuple."""

    class Further(Allocation):
        pass

    with measure.measure_calls.Watch() as watch:
        Further(100, 0, 1)
        Name(None, "", "", None)
    assert {(file, name) for file, name, _ in watch.functions} == {
        ("graph/memory/packing.py", "Allocation.__init__"),
        ("graph/memory/packing.py", "Allocation.__post_init__"),
        ("hybridize/stale/user_state.py", "Name.__new__"),
    }
    assert watch.classes == {"hybridize.stale.user_state.Name"}  # Further is not the package's
    assert watch.switches == 0


@pytest.mark.parametrize("name", provided._providers)
def test_provided_functions_exist(name):
    module, attribute = provided._providers[name]
    assert callable(getattr(importlib.import_module(module), attribute))


def test_nobody_provides_an_unknown_name():
    with pytest.raises(KeyError, match="no_such_function"):
        provided.Provided("no_such_function")


def test_sentences_read_once(sentences):
    """The number of marked sentences in docstrings, comments and messages does not grow."""
    found = sentences.listed(sentences.ROOT / "hybrid_lab")
    listed = "\n".join(f"{each.where} {each.text}" for each in found[:20])
    assert len(found) <= SENTENCES, f"rewrite a sentence: python scripts/list_sentences.py --in FOLDER\n{listed}"


def test_parameters_have_one_notation(sentences):
    assert sentences.other_parameters(sentences.ROOT / "hybrid_lab") == []
