"""A pytest plugin of scripts/plant_faults.py: it records what each test of the suite reaches in the library, and plants
faults in the running process.

    PLANTING=folder PLANTING_FEW=6 python -m pytest -p scripts.planting tests    # writes folder/reached-*.jsonl
    PLANTING=folder PLANTING_RUNS=runs.json python -m pytest -p scripts.planting tests/ops  # plants

`folder/faults.json` has the faults. While a test is recorded, every function of the library and every place of a fault
begins with a call that notes it: modules are compiled with these calls when they are imported, so that the numbers of
lines, `inspect.getsource` and the files stay as they are.

To plant a fault costs no import and no collection: the process that has collected all tests forks, the child gives
the functions of the file the code objects of the faulted source, and runs the tests until the first one fails.
"""

from __future__ import annotations

import ast
import builtins
import gc
import importlib.machinery
import json
import os
import select
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest

from scripts.plant_faults import Fault, nodes_of_faults, read_faults

ROOT = Path.cwd()
FOLDER = Path(os.environ["PLANTING"])
FAULTS = read_faults(FOLDER / "faults.json")
RUNS = os.environ.get("PLANTING_RUNS", "")
#: How many tests of each test function are recorded, of any other record than those of files with faults; 0 for all.
FEW = int(os.environ.get("PLANTING_FEW", 0))


# ---------------------------------------------------------------- recording

#: Functions ("hybrid_lab/file.py:Class.method") and faults (their numbers) that have run since the last test.
entered: set[str | int] = set()


def _noting(what: str | int, node: Any = None) -> Any:
    """A call that notes `what`; with an expression, the same expression after the call."""
    call = ast.Call(ast.Name("__entered__", ast.Load()), [ast.Constant(what)], [])
    return ast.BoolOp(ast.Or(), [call, node]) if node is not None else ast.Expr(call)


class _Noted(ast.NodeTransformer):
    """The source of a file in which functions and faults are noted."""

    def __init__(self, path: str, source: bytes) -> None:
        self.path, self.names = path, [""]
        self.tree = ast.parse(source)
        #: Node -> numbers of its faults.
        self.places: dict[int, list[int]] = {}
        numbers = {fault: number for number, fault in enumerate(FAULTS) if fault.path == path}
        for fault, node in nodes_of_faults(path, source, self.tree):
            if fault in numbers:
                place = node.value if isinstance(node, (ast.AugAssign, ast.Expr)) else node
                self.places.setdefault(id(place), []).append(numbers[fault])

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, ast.match_case):  # a pattern holds no calls
            node.body = [self.visit(each) for each in node.body]
            return node
        named = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        self.names.append(node.name if named else "<lambda>" if isinstance(node, ast.Lambda) else "")  # type: ignore[attr-defined]
        found: Any = self.generic_visit(node)
        name = f"{self.path}:{'.'.join(filter(None, self.names))}"
        self.names.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            found.body.insert(ast.get_docstring(node) is not None, _noting(name))
        elif isinstance(node, ast.Lambda):
            found.body = _noting(name, found.body)
        for number in self.places.get(id(node), ()):
            found = ast.copy_location(_noting(number, found), node)
        return found


def noted(path: str, source: bytes) -> Any:
    """The compiled module of a file in which functions and faults are noted."""
    visitor = _Noted(path, source)
    tree = ast.fix_missing_locations(visitor.visit(visitor.tree))
    return compile(tree, str(ROOT / path), "exec", dont_inherit=True)


class _Loader(importlib.machinery.SourceFileLoader):
    def get_code(self, fullname: str) -> Any:
        path = Path(self.get_filename(fullname))
        return noted(path.relative_to(ROOT).as_posix(), path.read_bytes())


class _Finder:
    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: Any = None) -> Any:
        if name.partition(".")[0] != "hybrid_lab":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec and type(spec.loader) is importlib.machinery.SourceFileLoader:
            spec.loader = _Loader(name, spec.loader.path)
        return spec


def few(items: Sequence[Any]) -> list[Any]:
    """`FEW` tests of each test function, spread evenly, and those of records in files with faults."""
    from hybrid_lab import ops

    modules = {fault.path.removesuffix(".py").replace("/", ".") for fault in FAULTS}
    records = {record.name for record in ops.records() if record.__module__ in modules}
    functions: dict[str, list[Any]] = {}
    for item in items:
        functions.setdefault(item.nodeid.partition("[")[0], []).append(item)
    chosen = set()
    for alike in functions.values():
        chosen |= set(alike[:: -(-len(alike) // FEW)])
        chosen |= {item for item in alike if records & set(item.nodeid.partition("[")[2].rstrip("]").split("-"))}
    return [item for item in items if item in chosen]


def _processor_time() -> float:
    return sum(os.times()[:4])


class Recording:
    """Writes a line for each test: its name, seconds of processor time, whether it passed, what it entered."""

    def __init__(self) -> None:
        builtins.__entered__ = entered.add  # type: ignore[attr-defined]
        sys.meta_path.insert(0, _Finder)  # type: ignore[arg-type]
        self.file = (FOLDER / f"reached-{os.getpid()}.jsonl").open("a", buffering=1)
        self.passed = True
        #: What was entered while a fixture of several tests was set up: it belongs to each of them.
        self.of_fixtures: dict[int, set[str | int]] = {}

    def write(self, name: str, seconds: float) -> None:
        functions = sorted(each for each in entered if isinstance(each, str))
        numbers = sorted(each for each in entered if isinstance(each, int))
        line = {"test": name, "seconds": round(seconds, 3), "passed": self.passed, "faults": numbers}
        self.file.write(json.dumps(line | {"functions": functions}, separators=(",", ":")) + "\n")
        entered.clear()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        if FEW:
            items[:] = few(items)

    def pytest_collection_finish(self, session: Any) -> None:
        self.write("", 0)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Iterator[None]:
        before = entered.copy()
        entered.clear()
        yield
        if fixturedef.scope != "function":
            self.of_fixtures[id(fixturedef)] = entered.copy()
        entered.update(before)

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.passed &= report.passed

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: Any) -> Iterator[None]:
        entered.clear()
        self.passed, started = True, _processor_time()
        yield
        for name in item.fixturenames:
            for definition in item._fixtureinfo.name2fixturedefs.get(name, ()):
                entered.update(self.of_fixtures.get(id(definition), ()))
        self.write(item.nodeid, _processor_time() - started)


# ---------------------------------------------------------------- planting


def _pairs(old: CodeType, new: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    yield old, new
    inner = ([each for each in code.co_consts if isinstance(each, CodeType)] for code in (old, new))
    for first, second in zip(*inner, strict=False):
        if first.co_name == second.co_name:
            yield from _pairs(first, second)


def plant(fault: Fault) -> bool:
    """Give all functions of the file that exist the code with the fault. False where none changes."""
    path = ROOT / fault.path
    source = path.read_bytes()
    old, new = (compile(text, str(path), "exec", dont_inherit=True) for text in (source, fault.planted(source)))
    changed = {first: second for first, second in _pairs(old, new) if first != second}
    gc.unfreeze()
    planted = False
    for function in gc.get_objects():
        if isinstance(function, FunctionType) and function.__code__.co_filename == str(path):
            code = changed.get(function.__code__)
            if code is not None:
                try:
                    function.__code__ = code
                    planted = True
                except ValueError:  # other variables of the functions around it
                    return False
    return planted


class Planting:
    """Runs the tests of each fault in a child process, and writes what killed it.

    PLANTING_RUNS : a file with a list of `[number of the fault, [tests or test functions], seconds]`. The file of this
        name with `.done` at its end gets a line `[number, test that failed]` for each, "" where none did and "?" where
        the fault could not be planted
    """

    def __init__(self) -> None:
        self.runs = json.loads(Path(RUNS).read_text())
        self.results = Path(RUNS + ".done").open("a", buffering=1)
        self.failed = False
        self.unsound: set[str] = set()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: Any, items: list[Any]) -> None:
        wanted = {name for _, names, _ in self.runs for name in names}
        items[:] = [item for item in items if item.nodeid in wanted or item.nodeid.partition("[")[0] in wanted]

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.failed |= report.failed

    def pytest_runtestloop(self, session: Any) -> bool:
        items: dict[str, list[Any]] = {}
        for item in session.items:
            items.setdefault(item.nodeid, []).append(item)
            if "[" in item.nodeid:
                items.setdefault(item.nodeid.partition("[")[0], []).append(item)
        for number, names, seconds in self.runs:
            killer = self.kills(FAULTS[number], [item for name in names for item in items.get(name, ())], seconds)
            self.results.write(json.dumps([number, killer]) + "\n")
        return True

    def kills(self, fault: Fault, items: list[Any], seconds: float) -> str:
        """The first test that fails with the fault and passes without it."""
        while True:
            sound = [item for item in items if item.nodeid not in self.unsound]
            killer = self.first_that_fails(fault, sound, seconds)
            if killer in ("", "?"):
                return killer
            if killer.startswith("the time limit"):  # does it take that long without the fault?
                return "" if self.first_that_fails(None, sound, seconds) else killer
            [item] = [item for item in sound if item.nodeid == killer]
            if not self.first_that_fails(None, [item], seconds):
                return killer
            self.unsound.add(killer)

    def first_that_fails(self, fault: Fault | None, items: list[Any], seconds: float) -> str:
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            os.setsid()
            os.close(reading)
            try:
                os.write(writing, b"\n!" + self.run(fault, items, writing) + b"\n")
            finally:
                os._exit(0)
        os.close(writing)
        told, deadline, ended = b"", time.monotonic() + seconds, False
        while not ended and time.monotonic() < deadline:
            if select.select([reading], [], [], 1)[0]:
                part = os.read(reading, 65536)
                told += part
                ended = not part
        os.close(reading)
        try:
            os.killpg(child, signal.SIGKILL)
        except ProcessLookupError:
            pass
        os.waitpid(child, 0)
        if b"\n!" in told:
            return told.partition(b"\n!")[2].decode().strip()
        # Without an end the process crashed in its last test.
        last = told.decode().rpartition("\n")[2]
        return last if ended else f"the time limit, in {last}"

    def run(self, fault: Fault | None, items: list[Any], writing: int) -> bytes:
        if fault and not plant(fault):
            return b"?"
        for item, following in zip(items, [*items[1:], None], strict=True):
            os.write(writing, b"\n" + item.nodeid.encode())
            self.failed = False
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if self.failed:
                return item.nodeid.encode()
        return b""


def pytest_configure(config: Any) -> None:
    config.pluginmanager.register(Planting() if RUNS else RECORDING, "planting")


# Before a test or a conftest.py imports the library.
RECORDING = None if RUNS else Recording()
