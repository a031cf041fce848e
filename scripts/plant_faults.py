"""Plant small random faults in the library, one at a time, and count which the tests notice: proof that a smaller suite
still sees what a larger one saw.

    python scripts/plant_faults.py --count 200 --seed 0 --beside main
    python scripts/plant_faults.py --count 20 --in ops --in graph --list

Each fault changes one place of one file: an operator is swapped, a number is off by one, a statement is dropped, a
constant is another one, a condition is negated. It is planted in a copy of the working tree, and the tests near the
file run there until the first one fails. With `--beside`, they run again with the tests of that revision in place of
the tree's own. Tests that fail without a fault are left out. Prints a line for each fault and the sum; the status is 1
where the tree's own tests kill fewer than those of the revision.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

#: Tests that every record goes through.
RECORDS = (
    *("tests/ops/test_records.py", "tests/ops/test_golden.py", "tests/ops/test_dtypes.py"),
    *("tests/ops/test_lowered_kernels.py", "tests/ops/test_no_dimensions.py", "tests/engines/test_samples.py"),
    *("tests/engines/test_small_numbers.py", "tests/engines/test_hostile_values.py", "tests/engines/test_bfloat16.py"),
    *("tests/gluon/test_second_gradients.py", "tests/gluon/test_written_gradients.py"),
    "tests/formats/test_every_operator.py",
)
#: Folder of the library -> the tests near it.
NEAR = {
    "ops": (*RECORDS, "tests/ops"),
    "graph": ("tests/graph", *RECORDS),
    "engines": ("tests/engines/test_samples.py", "tests/engines/test_numpy.py", "tests/engines", *RECORDS),
    "hybridize": ("tests/gluon/test_values_that_change.py", "tests/gluon", *RECORDS),
    "formats": ("tests/formats",),
}

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


def faults(path: str, source: bytes) -> list[Fault]:
    """All changes of a file inside of functions."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    tree = ast.parse(source)
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
                found[first, last, text] = Fault(path, part.lineno, kind, before, text, first, last)  # type: ignore[attr-defined]
    return list(found.values())


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


def near(fault: Fault) -> tuple[str, ...]:
    folder = max((each for each in NEAR if fault.path.startswith(f"hybrid_lab/{each}/")), key=len)
    return tuple(dict.fromkeys(NEAR[folder]))


def records_of(path: str) -> list[str]:
    """The names of the records that a file declares; none for what others share."""
    module = path.removesuffix(".py").replace("/", ".")
    code = f"from hybrid_lab import ops\nprint(*[r.name for r in ops.records() if r.__module__ == {module!r}])"
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True).stdout.split()


class Suite:
    """A copy of the tree, with the tests of some revision."""

    def __init__(self, folder: Path, revision: str | None):
        self.folder, self.name = folder, revision or "this tree"
        listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for name in listed.splitlines():
            if (ROOT / name).is_file() and not (revision and name.startswith("tests/")):
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, folder / name)
        if revision:
            packed = subprocess.run(["git", "archive", revision, "tests"], cwd=ROOT, capture_output=True, check=True)
            subprocess.run(["tar", "x"], cwd=folder, input=packed.stdout, check=True)
        #: Tests that fail without a fault.
        self.failing: list[str] = []

    def failed(self, tests: Sequence[str], words: str, seconds: int) -> str:
        """The first test that fails now; "" where none does."""
        # What the tree no longer has is passed over.
        there = [name for name in tests if (self.folder / name.partition("::")[0]).exists()]
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--tb=no", "--timeout", "120"]
        command += [f"--deselect={name}" for name in self.failing]
        environment = {**os.environ, "PYTHONPATH": str(self.folder), "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            done = subprocess.run(
                [*command, *(["-k", words] if words else []), *there],
                cwd=self.folder, env=environment, capture_output=True, text=True, timeout=seconds,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return "the time limit"
        if done.returncode in (0, 5):
            return ""
        first = re.search(r"^(?:FAILED|ERROR) ([^\n]*)", done.stdout, re.MULTILINE)
        return first[1].split(" - ")[0] if first else f"status {done.returncode}"

    def kills(self, fault: Fault, tests: Sequence[str], words: str, seconds: int) -> str:
        """The first test that fails with the fault and passes without it; "" where none does."""
        path = self.folder / fault.path
        source = path.read_bytes()
        while True:
            path.write_bytes(fault.planted(source))
            try:
                killer = self.failed(tests, words, seconds)
            finally:
                path.write_bytes(source)
            if "::" not in killer or not self.failed([killer], "", seconds):
                return killer
            self.failing.append(killer)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200, help="faults (default 200)")
    parser.add_argument("--seed", type=int, default=0, help="of the random choice (default 0)")
    parser.add_argument("--in", dest="folders", action="append", choices=list(NEAR), help="folder of the library")
    parser.add_argument("--beside", metavar="REVISION", help="run the tests of this revision, too")
    parser.add_argument("--tests", nargs="*", help="these tests in place of those near a file")
    parser.add_argument("--seconds", type=int, default=1200, help="limit of one run of the tests (default 1200)")
    parser.add_argument("--list", action="store_true", help="print the faults and run nothing")
    options = parser.parse_args()
    planted = chosen(options.folders or list(NEAR), options.count, options.seed)
    if options.list:
        print(*planted, sep="\n")
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        suites = []
        for revision in [*([options.beside] if options.beside else []), None]:
            folder = Path(scratch) / str(len(suites))
            folder.mkdir()
            suites.append(Suite(folder, revision))
        killed = dict.fromkeys(suites, 0)
        for number, fault in enumerate(planted, 1):
            print(f"{number}. {fault}", flush=True)
            tests = options.tests or near(fault)
            words = " or ".join(records_of(fault.path)) if fault.path.startswith("hybrid_lab/ops/") else ""
            for suite in suites:
                killer = suite.kills(fault, tests, words, options.seconds)
                killed[suite] += bool(killer)
                print(f"    {suite.name}: {'killed by ' + killer if killer else 'SURVIVES'}", flush=True)
        print(", ".join(f"{suite.name} kills {count} of {len(planted)}" for suite, count in killed.items()))
        return int(killed[suites[-1]] < max(killed.values()))


if __name__ == "__main__":
    sys.exit(main())
