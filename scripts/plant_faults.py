"""Plant small random faults in the library, one at a time, and count which the tests notice: proof that a smaller suite
still sees what a larger one saw.

    python scripts/plant_faults.py --count 200 --seed 0 --beside main
    python scripts/plant_faults.py --count 20 --in ops --in graph --list

Each fault changes one place of one file: an operator is swapped, a number is off by one, a statement is dropped, a
constant is another one, a condition is negated. All happens in a copy of the working tree:

1. The tests run once, and write which of them reach which fault (scripts/planting.py). This map is kept in the folder
   that `--map` names, with the copy, and is used again for the same faults.
2. Each fault is planted, and the tests that reach it run until the first one fails: the cheapest first, a few of each
   test function. Tests that fail without the fault are left out.
3. What survives runs against all combinations of parameters of the test functions that reach it (HYBRID_LAB_ALL).
4. What runs while modules are imported is planted in the file; the tests that reach the file run in a new process.

With `--beside`, all of it is done again with the tests of that revision in place of the tree's own. Prints a line for
each fault and the sum; the status is 1 where the tree's own tests kill fewer than those of the revision.
"""

from __future__ import annotations

import argparse
import ast
import functools
import json
import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

#: Folders of the library with faults.
FOLDERS = ("ops", "graph", "engines", "hybridize", "formats")
#: Tests that are recorded: those that have killed a fault of these folders.
RECORDED = (
    *("tests/ops", "tests/graph", "tests/hybridize", "tests/formats", "tests/gluon", "tests/engines"),
    *("tests/checkpoint", "tests/hostile"),
)
#: Tests of one fault that run, and how many of one test function come before those of others.
MOST, OF_ONE_FUNCTION = 80, 3
#: Seconds that they may take.
SECONDS, SECONDS_OF_ALL = 60, 400

_SWAPPED: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Add,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.And: ast.Or,
    ast.Or: ast.And,
}


@dataclass(frozen=True)
class Fault:
    """One change. first, last : offsets of the bytes of the file that `text` replaces"""

    path: str
    line: int
    kind: str
    before: str
    text: str
    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line} {self.kind}: {' '.join(self.before.split())} -> {self.text}"[:160]

    def planted(self, source: bytes) -> bytes:
        return source[: self.first] + self.text.encode() + source[self.last :]


def _changes(node: ast.AST) -> Iterator[tuple[str, ast.AST, str]]:
    """(kind, the part of a node that is replaced, the new text)."""
    if isinstance(node, ast.BinOp) and type(node.op) in _SWAPPED:
        new: ast.AST = ast.BinOp(node.left, _SWAPPED[type(node.op)](), node.right)  # type: ignore[arg-type]
        yield "operator", node, f"({ast.unparse(new)})"
    elif isinstance(node, ast.Compare) and type(node.ops[0]) in _SWAPPED:
        new = ast.Compare(node.left, [_SWAPPED[type(node.ops[0])](), *node.ops[1:]], node.comparators)  # type: ignore[list-item]
        yield "operator", node, f"({ast.unparse(new)})"
    elif isinstance(node, ast.BoolOp):
        yield "operator", node, f"({ast.unparse(ast.BoolOp(_SWAPPED[type(node.op)](), node.values))})"  # type: ignore[arg-type]
    elif isinstance(node, ast.Constant):
        value = node.value
        if isinstance(value, bool):
            yield "constant", node, str(not value)
        elif isinstance(value, int):
            yield "off by one", node, str(value + 1)
        elif isinstance(value, float):
            yield "constant", node, repr(value * 2 if value else 1.0)
        elif isinstance(value, str) and value.isidentifier():
            yield "constant", node, repr(value + "_")
    elif isinstance(node, (ast.If, ast.IfExp, ast.While)):
        yield "negated", node.test, f"(not ({ast.unparse(node.test)}))"
    elif isinstance(node, ast.AugAssign) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
        yield "dropped", node, "pass"


def nodes_of_faults(path: str, source: bytes, tree: ast.Module) -> Iterator[tuple[Fault, ast.AST]]:
    """All changes of a file inside of functions, each with the node that it replaces."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    passed_over = {id(node) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for node in ast.walk(node)}
    for node in ast.walk(tree):  # what only type checkers and readers see, and the words of errors
        if isinstance(node, (ast.arg, ast.AnnAssign)) and node.annotation is not None:
            passed_over |= {id(each) for each in ast.walk(node.annotation)}
        if isinstance(node, ast.FunctionDef) and node.returns is not None:
            passed_over |= {id(each) for each in ast.walk(node.returns)}
        if isinstance(node, ast.Raise):
            passed_over |= {id(each) for each in ast.walk(node)}
    found = {}
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef):
            continue
        for node in (each for statement in function.body for each in ast.walk(statement)):
            if id(node) in passed_over:
                continue
            for kind, part, text in _changes(node):
                first = starts[part.lineno - 1] + part.col_offset  # type: ignore[attr-defined]
                last = starts[part.end_lineno - 1] + part.end_col_offset  # type: ignore[attr-defined]
                before = source[first:last].decode()
                found[first, last, text] = Fault(path, part.lineno, kind, before, text, first, last), part  # type: ignore[attr-defined]
    yield from found.values()


@functools.cache
def faults(path: str, source: bytes) -> Sequence[Fault]:
    """All changes of a file inside of functions."""
    return [fault for fault, _ in nodes_of_faults(path, source, ast.parse(source))]


def read_faults(path: Path) -> list[Fault]:
    """The faults of a file that `json.dumps([asdict(fault) ...])` has written."""
    return [Fault(**each) for each in json.loads(path.read_text())]


def chosen(folders: Sequence[str], count: int, seed: int) -> list[Fault]:
    """Random faults, spread evenly over the folders; in a folder every place is equally likely."""
    generator, found = random.Random(seed), []
    of_folder = {}
    for folder in folders:
        paths = sorted((ROOT / "hybrid_lab" / folder).rglob("*.py"))
        names = [path.relative_to(ROOT).as_posix() for path in paths]
        of_folder[folder] = [fault for name in names for fault in faults(name, (ROOT / name).read_bytes())]
        generator.shuffle(of_folder[folder])
    for number in range(count):
        found.append(of_folder[folders[number % len(folders)]].pop())
    return found


@dataclass(frozen=True)
class Reached:
    """A test that reaches a fault, or, without a name, the collection of all tests."""

    test: str
    seconds: float


class Suite:
    """A copy of the tree, with the tests of some revision, and the map of what they reach."""

    def __init__(self, folder: Path, revision: str | None, planted: Sequence[Fault]):
        self.folder, self.name, self.planted = folder, revision or "this tree", planted
        self.tree = folder / "tree"
        written = json.dumps([asdict(fault) for fault in planted])
        if (folder / "faults.json").is_file() and (folder / "faults.json").read_text() == written:
            return
        shutil.rmtree(folder, ignore_errors=True)
        self.tree.mkdir(parents=True)
        listed = subprocess.run(
            ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout
        for name in listed.splitlines():
            if (ROOT / name).is_file() and not (revision and name.startswith("tests/")):
                (self.tree / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self.tree / name)
        if revision:
            packed = subprocess.run(["git", "archive", revision, "tests"], cwd=ROOT, capture_output=True, check=True)
            subprocess.run(["tar", "x"], cwd=self.tree, input=packed.stdout, check=True)
        (folder / "faults.json").write_text(written)

    def pytest(self, *arguments: str, log: str, seconds: float | None = None, **environment: str) -> str:
        """The output of pytest in the copy."""
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=no", *arguments]
        variables = {**os.environ, "PYTHONPATH": str(self.tree), "PYTHONDONTWRITEBYTECODE": "1", **environment}
        try:
            done = subprocess.run(
                command, cwd=self.tree, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                timeout=seconds,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return "FAILED the time limit"
        (self.folder / log).write_text(done.stdout)
        return done.stdout

    def record(self, tests: Sequence[str], few: int, workers: int = 1) -> None:
        """Write what tests reach. few : how many of each test function, see `planting.few`; 0 for all"""
        if not list(self.folder.glob("reached-*.jsonl")):
            there = [name for name in tests if (self.tree / name).exists()]
            options = ["-p", "scripts.planting", "--timeout", "600", *(["-n", str(workers)] if workers > 1 else [])]
            self.pytest(*options, *there, log="record.log", PLANTING=str(self.folder), PLANTING_FEW=str(few))

    def reached(self) -> tuple[dict[int, list[Reached]], dict[str, list[Reached]]]:
        """(fault -> tests that reach it, file -> tests that reach one of its functions), in the order to run them."""
        of_fault: dict[int, list[Reached]] = {}
        of_file: dict[str, list[Reached]] = {}
        for path in self.folder.glob("reached-*.jsonl"):
            for line in path.read_text().splitlines():
                entry = json.loads(line)
                if entry["passed"]:
                    test = Reached(entry["test"], entry["seconds"])
                    for number in entry["faults"]:
                        of_fault.setdefault(number, []).append(test)
                    for name in {function.partition(":")[0] for function in entry["functions"] if test.test}:
                        of_file.setdefault(name, []).append(test)
        return {key: in_order(tests) for key, tests in of_fault.items()}, {k: in_order(v) for k, v in of_file.items()}

    def run(self, runs: Sequence[tuple[int, list[str], float]], log: str, **environment: str) -> dict[int, str]:
        """Plant faults in one process: fault -> the test that kills it, "" where none does, "?" if not planted."""
        file = self.folder / f"{log}.json"
        done = Path(f"{file}.done")
        found = dict(map(json.loads, done.read_text().splitlines())) if done.is_file() else {}
        left = [run for run in runs if run[0] not in found]
        if left:
            file.write_text(json.dumps(left))
            files = sorted({name.partition("::")[0] for _, names, _ in left for name in names})
            variables = {"PLANTING": str(self.folder), "PLANTING_RUNS": str(file), **environment}
            self.pytest("-p", "scripts.planting", "--timeout", "120", *files, log=f"{log}.log", **variables)
            found |= dict(map(json.loads, done.read_text().splitlines()))
        return {number: found.get(number, "?") for number, _, _ in runs}

    def kills_in_file(self, fault: Fault, tests: list[str], seconds: float) -> str:
        """The test that fails with the fault in the file and passes without it; "" where none does."""
        path = self.tree / fault.path
        source, tests = path.read_bytes(), list(tests)
        while tests:
            path.write_bytes(fault.planted(source))
            try:
                output = self.pytest("-x", "--timeout", "120", *tests, log="file.log", seconds=seconds)
            finally:
                path.write_bytes(source)
            first = re.search(r"^(?:FAILED|ERROR) ([^\n]*)", output, re.MULTILINE)
            killer = first[1].split(" - ")[0] if first else ""
            if "::" not in killer or "FAILED" not in self.pytest(killer, log="file.log", seconds=seconds):
                return killer
            tests.remove(killer)
        return ""

    def killers(self) -> dict[int, str]:
        """Fault -> the test that kills it, "" where it survives; only those that a test reaches."""
        of_fault, of_file = self.reached()
        here = {number: [each for each in of_fault.get(number, ()) if each.test] for number in range(len(self.planted))}
        found = self.run(
            [(number, [each.test for each in tests[:MOST]], SECONDS) for number, tests in here.items() if tests],
            "first",
        )
        again = []
        for number, killer in found.items():
            if not killer:
                functions = list(dict.fromkeys(each.test.partition("[")[0] for each in here[number]))
                again.append((number, functions, SECONDS_OF_ALL))
        found |= self.run(again, "all", HYBRID_LAB_ALL="1")
        for number, reached in of_fault.items():
            while_importing = any(not each.test for each in reached)
            if found.get(number, "?") == "?" or (not found[number] and while_importing):
                fault = self.planted[number]
                tests = [each.test for each in of_file.get(fault.path, ())[:MOST]]
                found[number] = self.kills_in_file(fault, tests, SECONDS_OF_ALL)
        return found


def in_order(tests: Sequence[Reached]) -> list[Reached]:
    """A few tests of each function first, of these the cheapest."""
    number_of: dict[str, int] = {}
    ranked = []
    for test in sorted(tests, key=lambda each: each.seconds):
        function = test.test.partition("[")[0]
        number_of[function] = number_of.get(function, -1) + 1
        ranked.append((number_of[function] // OF_ONE_FUNCTION, test.seconds, test.test, test))
    return [test for *_, test in sorted(ranked, key=lambda each: each[:3])]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200, help="faults (default 200)")
    parser.add_argument("--seed", type=int, default=0, help="of the random choice (default 0)")
    parser.add_argument("--in", dest="folders", action="append", choices=FOLDERS, help="folder of the library")
    parser.add_argument("--beside", metavar="REVISION", help="run the tests of this revision, too")
    parser.add_argument("--tests", nargs="*", default=RECORDED, help="the tests that are recorded")
    parser.add_argument("--few", type=int, default=0, help="record this many tests of each function (default 0: all)")
    parser.add_argument("--jobs", type=int, default=1, help="processes that record (default 1)")
    parser.add_argument("--map", type=Path, default=ROOT / "build/planting", help="folder of the copy and the map")
    parser.add_argument("--list", action="store_true", help="print the faults and run nothing")
    options = parser.parse_args()
    planted = chosen(options.folders or FOLDERS, options.count, options.seed)
    if options.list:
        print(*planted, sep="\n")
        return 0
    killed = {}
    for revision in [*([options.beside] if options.beside else []), None]:
        suite = Suite(options.map.resolve() / (revision or "this tree"), revision, planted)
        suite.record(options.tests, options.few, options.jobs)
        killed[suite.name] = suite.killers()
    for number, fault in enumerate(planted):
        print(f"{number}. {fault}")
        for name, killers in killed.items():
            killer = killers.get(number)
            end = f"killed by {killer}" if killer else "SURVIVES" if number in killers else "no test reaches it"
            print(f"    {name}: {end}")
    counts = {name: sum(map(bool, killers.values())) for name, killers in killed.items()}
    print(", ".join(f"{name} kills {count} of {len(planted)}" for name, count in counts.items()))
    return int(counts["this tree"] < max(counts.values()))


if __name__ == "__main__":
    sys.exit(main())
