"""Sources without end, and texts that are no Python, at every door of the linter: an answer in bounded work, or a
typed error; and what one cell asks for takes no finding of another.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from cProfile import Profile
from itertools import product

import pytest

from hybrid_lab import lint
from hybrid_lab.cli import main
from hybrid_lab.diagnostics.errors import HybridLabError
from hybrid_lab.lab.diagnostics import lint_cells
from hybrid_lab.lab.errors import RequestError
from hybrid_lab.lint import budget, runner

from .endless_sources import FOUND, HEAD, ODD, net, sources

SIZES = (300, 2_000)
ENDLESS = {f"{name}, {size}": text for size in SIZES for name, text in sources(size).items()}
MOST_CALLS = 12_000_000
"""Calls of Python functions that one check may make."""


@contextmanager
def bounded(most: int = MOST_CALLS) -> Iterator[None]:
    """Fail where a check calls too many functions: a count, as times differ from machine to machine.

    The profiler in C counts them in a fraction of the time that a callback in Python takes. A check that does not end
    at all meets the time limit of the tests.
    """
    profiler = Profile(builtins=False)
    with profiler:
        yield
    assert sum(entry.callcount for entry in profiler.getstats()) <= most, "the check takes too many steps"


@pytest.fixture
def a_tenth_of_the_limits(monkeypatch):
    """A check leaves out what it leaves out, after a tenth of the nodes."""
    monkeypatch.setattr(budget, "NODES", budget.NODES // 10)
    monkeypatch.setattr(runner, "NODES_OF_CLASS", runner.NODES_OF_CLASS // 10)
    monkeypatch.setattr(runner, "NODES", runner.NODES // 10)


def notebook(*cells: str) -> str:
    code = [{"cell_type": "code", "metadata": {}, "source": cell} for cell in cells]
    return json.dumps({"cells": code, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] * name.endswith(f", {SIZES[1]}")) for name in ENDLESS]
)
def test_a_source_without_end_is_checked_in_bounded_work_and_takes_nothing_of_its_neighbours(name):
    with bounded():
        before, _, after = lint.check_cells([HEAD + FOUND, ENDLESS[name], HEAD + FOUND])
    assert [item.code for item in before] == ["HL101"]
    left_out = {item.code for item in after} <= {"HL002"}
    assert left_out or [item.code for item in after] == ["HL101"]


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("door", ["text", "notebook", "cells", "request"])
def test_a_text_that_is_odd_takes_nothing_of_its_neighbours(name, door):
    with bounded():
        if door == "text":
            lint.check(ODD[name], file="odd", context=[ODD[name]])
            return
        if door == "notebook":
            found = [item.code for item in lint.check(notebook(HEAD + FOUND, ODD[name])) if item.cell == 1]
        elif door == "cells":
            found = [item.code for item in lint.check_cells([HEAD + FOUND, ODD[name]])[0]]
        else:
            server = pytest.importorskip("hybrid_lab.lab.server", exc_type=ImportError)
            cells = [{"id": "a", "source": HEAD + FOUND}, {"id": "b", "source": ODD[name]}]
            answer = server.lint(json.dumps({"cells": cells, "only": []}).encode())
            found = [item["code"] for item in answer["cells"]["a"]]
            json.dumps(answer).encode()
    assert found == ["HL101"]


def test_a_cell_that_python_cannot_read_has_one_note():
    cells = [{"id": "a", "source": HEAD + FOUND}, {"id": "b", "source": "-" * 50_000 + "1"}]
    reply = lint_cells({"cells": cells, "only": []})
    assert [item["code"] for item in reply["a"]] == ["HL101"]
    assert [item["message"] for item in reply["b"]] == ["Not checked: the code is nested too deeply."]


@pytest.mark.long
def test_a_notebook_of_endless_classes_says_once_what_was_not_checked():
    doubling = ENDLESS["doubling classes, 2000"].removeprefix(HEAD)
    with bounded():
        per_cell = lint.check_cells([HEAD, doubling, FOUND])
    (note,) = [item for cell in per_cell for item in cell if item.code == "HL002"]
    assert "of class `N" in note.message and "other classes takes too many steps" in note.message


def test_equal_sources_have_equal_findings(a_tenth_of_the_limits):
    text = ENDLESS["doubling classes, 300"]
    found = lint.check(text)
    assert "HL002" in [item.code for item in found] and lint.check(text) == found


def test_the_reply_of_very_many_findings_is_bounded():
    source = HEAD + net("x.shape\n" * 5000 + "return x")
    (found,) = lint_cells({"cells": [{"id": "a", "source": source}], "only": []}).values()
    assert len(found) == 2001 and found[-1]["message"].startswith("3000 more findings are not listed")
    source = ENDLESS["marks by calls, 300"]
    found = lint_cells({"cells": [{"id": "a", "source": source}], "only": []})["a"]
    assert sum(1 + len(item.get("calls", ())) for item in found) <= 2001


@pytest.mark.parametrize(
    "suffix, name",
    [
        *product((".py", ".ipynb"), [*ODD, "signs, 2000", "sums, 300"]),
        (".py", "doubling classes, 300"),
        pytest.param(".ipynb", "doubling classes, 300", marks=pytest.mark.long),
    ],
)
def test_a_file_is_checked_or_named(name, suffix, a_tenth_of_the_limits, tmp_path, monkeypatch, capfd):
    """The others are checked whatever it holds; files that are no text give status 2."""
    monkeypatch.chdir(tmp_path)
    text = {**ODD, **ENDLESS}[name]
    content = text if suffix == ".py" else notebook(text)
    (tmp_path / f"odd{suffix}").write_bytes(content.encode("utf-8", "surrogatepass"))
    (tmp_path / "z.py").write_text(HEAD + FOUND)
    assert main(["lint", "."]) in (1, 2)
    assert "z.py:5:16: HL101" in capfd.readouterr().out
    try:
        lint.check(f"odd{suffix}")
    except HybridLabError as error:
        assert f"odd{suffix}" in str(error)


@pytest.mark.parametrize(
    "content",
    [b"\xff\xfe\x00", b"# coding: nope\n", b"\x00" * 100, b"# coding: ascii\n# \xe4", "é".encode("latin-1")],
    ids=["UTF-16", "unknown", "zeros", "not ASCII", "Latin-1"],
)
def test_a_file_in_another_encoding_takes_no_finding_of_another(content, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.py").write_bytes(content)
    (tmp_path / "z.py").write_text(HEAD + FOUND)
    assert main(["lint", "."]) in (1, 2)
    assert "z.py:5:16: HL101" in capfd.readouterr().out


def test_a_file_may_name_its_encoding(tmp_path):
    file = tmp_path / "net.py"
    file.write_bytes(("# coding: latin-1\n" + HEAD + FOUND.replace("return", "é = 1; return")).encode("latin-1"))
    assert [item.code for item in lint.check(file)] == ["HL101"]


@pytest.mark.parametrize("make", [os.mkdir, getattr(os, "mkfifo", os.mkdir)], ids=["folder", "pipe"])
def test_what_is_no_file_is_not_read(make, tmp_path):
    make(tmp_path / "net.py")
    with pytest.raises(HybridLabError, match="not a regular file"):
        lint.check(tmp_path / "net.py")


CELLS: dict[str, Callable[[str], object]] = {
    "a number": lambda code: 3,
    "nothing": lambda code: None,
    "without a source": lambda code: {"cell_type": "code"},
    "a source of numbers": lambda code: {"cell_type": "code", "source": [1, None, [2]]},
    "a source that is a dict": lambda code: {"cell_type": "code", "source": {"a": 1}},
    "nested": lambda code: {"cell_type": "code", "source": [[[code]]]},
}


@pytest.mark.parametrize("cell", CELLS)
def test_a_notebook_whose_cells_are_no_cells(cell):
    code = HEAD + FOUND
    document = {"cells": [CELLS[cell](code), {"cell_type": "code", "source": code}]}
    found = [item.code for item in lint.check(json.dumps(document)) if item.code != "HL001"]
    assert found == ["HL101"]
    lint.apply_fixes(json.dumps(document), lint.check(json.dumps(document)), unsafe=True)


def test_nested_json_is_no_notebook():
    text = '{"cells": ' + "[" * 100_000
    assert [item.code for item in lint.check(text)] == ["HL001"]


def test_many_fixes_are_applied_in_bounded_work():
    """900 calls of functions for each of them; work that grows with the square of their number is found as soon with a
    thousand and a tenth of the calls as with five thousand and all.
    """
    source = HEAD + net("x = x.detach()\n" * 1000 + "return x")
    with bounded(MOST_CALLS // 10):
        repaired = lint.apply_fixes(source, lint.check(source))
    assert repaired.count("F.BlockGrad(x)") == 1000 and lint.check(repaired) == []


def test_a_notebook_with_a_lone_surrogate_can_be_repaired(tmp_path):
    text = notebook(HEAD + net("return x.detach()"), "'\ud800'")
    repaired = lint.apply_fixes(text, lint.check(text))
    assert "F.BlockGrad(x)" in repaired and repaired.encode()


def test_requests_without_end_leave_the_server_s_other_threads_free(monkeypatch):
    """All wait for one thread; more than it can take are refused with the protocol's error."""
    server = pytest.importorskip("hybrid_lab.lab.server", exc_type=ImportError)
    goes_on = threading.Event()
    monkeypatch.setattr(server, "lint", lambda request: goes_on.wait(30))
    linter = server._Linter()

    async def ask() -> tuple[list[object], int]:
        waiting = [asyncio.create_task(linter.answer(b"")) for _ in range(linter.MOST + 3)]
        free = await asyncio.wait_for(asyncio.to_thread(len, "free"), 10)
        goes_on.set()
        return await asyncio.gather(*waiting, return_exceptions=True), free

    answers, free = asyncio.run(ask())
    assert free == 4
    assert [type(each) for each in answers] == [bool] * linter.MOST + [RequestError] * 3
