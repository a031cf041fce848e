"""Functions whose modules are imported when they are called."""

import importlib
import sys
import threading

import pytest

from hybrid_lab import nd, sym
from hybrid_lab.ops.framework import operator
from hybrid_lab.system import provided

PACKAGE = """
import events
events.begun.set()
events.go_on.wait(60)
from .runner import answer
"""
RUNNER = """
import events
events.entered.set()
from . import helper
def answer():
    return 3
"""


@pytest.fixture
def events(tmp_path, monkeypatch):
    """A package that stops in the middle of its import, and the events that tell of it."""
    folder = tmp_path / "provided_package"
    folder.mkdir()
    (folder / "__init__.py").write_text(PACKAGE)
    (folder / "runner.py").write_text(RUNNER)
    (folder / "helper.py").write_text("")
    (tmp_path / "events.py").write_text(
        "import threading\nbegun, go_on, entered = threading.Event(), threading.Event(), threading.Event()"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(provided._providers, "answer", ("provided_package.runner", "answer"))
    yield importlib.import_module("events")
    for name in [name for name in sys.modules if name.startswith(("provided_package", "events"))]:
        del sys.modules[name]


def test_a_call_waits_for_a_thread_that_imports_the_package(events):
    answers = []
    importing = threading.Thread(target=lambda: importlib.import_module("provided_package"))
    importing.start()
    assert events.begun.wait(60)
    calling = threading.Thread(target=lambda: answers.append(provided.Provided("answer")()))
    calling.start()
    assert not events.entered.wait(0.2)  # it would find the package half imported
    events.go_on.set()
    importing.join(60)
    calling.join(60)
    assert answers == [3] and "provided_package" in sys.modules


NAMESPACES = {"nd": nd, "nd.random": nd.random, "nd.contrib": nd.contrib, "sym": sym, "sym.random": sym.random}


@pytest.mark.parametrize("module", NAMESPACES.values(), ids=list(NAMESPACES))
def test_what_python_asks_of_a_module_loads_no_operators(module, monkeypatch):
    """The first hybrid call asks the modules among the code's globals for `__module__`."""
    monkeypatch.setattr(operator, "_unloaded", ["hybrid_lab.there_is_no_such_module"])
    assert not hasattr(module, "__no_such_name__")
