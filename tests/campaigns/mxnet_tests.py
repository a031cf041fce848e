"""MXNet's own unit tests on this package: what passes here of what passes with the real MXNet 1.9.1.

    python tests/campaigns/mxnet_tests.py FOLDER      FOLDER: tests/python/unittest of MXNet 1.9.1
    python tests/campaigns/mxnet_tests.py FOLDER --only test_loss test_gluon.test_dense
    python tests/campaigns/mxnet_tests.py FOLDER --oracle PYTHON      with the real MXNet, too; writes passes.json

The tests are not a part of this project. Each file runs in a process of its own and each test in a fork of it; results
are JSON files in --out, and a file that has some is not run again without --again. mxnet/passes.json has the names of
the tests that pass with the real MXNet, mxnet/on_purpose.json the reason of each that fails here on purpose.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WORKER = Path(__file__).with_name("mxnet_test_worker.py")
PASSES = Path(__file__).parent / "mxnet" / "passes.json"
ON_PURPOSE = Path(__file__).parent / "mxnet" / "on_purpose.json"
#: Seconds for a whole file; its tests have --seconds each.
PATIENCE = 3600


def run(python: str, file: Path, results: Path, seconds: int, compat: bool, tests: Sequence[str] = ()) -> None:
    """Run one file's tests; what they print goes to a log beside the results."""
    results.parent.mkdir(parents=True, exist_ok=True)
    variables = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MXNET_MKLDNN_ENABLED": "0"}
    if compat:
        variables["PYTHONPATH"] = os.pathsep.join([str(ROOT), variables.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    command = [python, str(WORKER), str(file), str(results), "--seconds", str(seconds)]
    command += [*(["--compat"] if compat else []), *tests]
    work = results.parent / "work"
    work.mkdir(exist_ok=True)
    with open(results.with_suffix(".log"), "wb") as log:
        try:
            subprocess.run(command, cwd=work, env=variables, stdout=log, stderr=log, timeout=PATIENCE, check=False)
        except subprocess.TimeoutExpired:
            print(f"{file.stem} was stopped after {PATIENCE} s", file=sys.stderr)


def read(results: Path) -> dict[str, str]:
    """The outcomes of a file's tests by name; none where it was not run."""
    found: dict[str, str] = json.loads(results.read_text(encoding="utf-8")) if results.exists() else {}
    return found


def table(files: Sequence[Path], out: Path, passes: dict[str, list[str]], purpose: dict[str, str]) -> list[str]:
    """Lines: per file how many tests pass, and each that passes with the real MXNet alone, with its reason."""
    lines = ["file                             MXNet   here   on purpose   not"]
    sums = [0, 0, 0]
    failing = []
    for file in files:
        theirs, ours = passes.get(file.stem, []), read(out / "here" / f"{file.stem}.json")
        lost = [name for name in theirs if ours.get(name) != "passed"]
        meant = [name for name in lost if f"{file.stem}.{name}" in purpose]
        counts = [len(theirs), len(theirs) - len(lost), len(meant)]
        sums = [total + count for total, count in zip(sums, counts, strict=True)]
        if theirs:
            lines.append(f"{file.stem:30} {counts[0]:7} {counts[1]:6} {counts[2]:12} {len(lost) - len(meant):5}")
        for name in lost:
            key = f"{file.stem}.{name}"
            failing.append(f"{key}\n    {purpose.get(key) or ours.get(name) or ours.get('(import)', 'not run')}")
    lines.append(f"{'all':30} {sums[0]:7} {sums[1]:6} {sums[2]:12} {sums[0] - sums[1] - sums[2]:5}")
    return [*lines, "", *failing]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="+", default=[], metavar="FILE[.TEST]", help="files, or single tests of them")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "mxnet_tests")
    parser.add_argument("--seconds", type=int, default=60, help="for one test")
    parser.add_argument("--again", action="store_true", help="run files that have results, too")
    parser.add_argument("--oracle", metavar="PYTHON", help="a Python with mxnet 1.9.1: writes passes.json")
    parser.add_argument("--list", action="store_true", help="print the table of the results that are there")
    arguments = parser.parse_args()
    wanted = {name.partition(".")[0] for name in arguments.only}
    files = [file for file in sorted(arguments.folder.glob("test_*.py")) if not wanted or file.stem in wanted]
    if not files:
        print(f"{arguments.folder} has no such files; it is tests/python/unittest of MXNet 1.9.1", file=sys.stderr)
        return 1
    out: Path = arguments.out.resolve()
    passes: dict[str, list[str]] = json.loads(PASSES.read_text(encoding="utf-8")) if PASSES.exists() else {}
    purpose: dict[str, str] = json.loads(ON_PURPOSE.read_text(encoding="utf-8")) if ON_PURPOSE.exists() else {}
    single: dict[str, list[str]] = {}
    for name in arguments.only:
        stem, _, test = name.partition(".")
        if test:
            single.setdefault(stem, []).append(test)
    for number, file in enumerate(files if not arguments.list else (), 1):
        tests = single.get(file.stem, [])
        if tests:
            results = out / "single" / f"{file.stem}.json"
            run(sys.executable, file.resolve(), results, arguments.seconds, True, tests)
            print(results.with_suffix(".log").read_text(encoding="utf-8", errors="replace"))
            print("\n".join(f"{file.stem}.{name}: {text}" for name, text in read(results).items()))
            continue
        if arguments.oracle:
            results = out / "mxnet" / f"{file.stem}.json"
            if arguments.again or not results.exists():
                run(arguments.oracle, file.resolve(), results, arguments.seconds, False)
            passes[file.stem] = [name for name, text in read(results).items() if text == "passed"]
            PASSES.parent.mkdir(exist_ok=True)
            PASSES.write_text(json.dumps(passes, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        results = out / "here" / f"{file.stem}.json"
        if arguments.again or not results.exists():
            run(sys.executable, file.resolve(), results, arguments.seconds, True)
        passed = sum(text == "passed" for text in read(results).values())
        print(f"[{number}/{len(files)}] {file.stem}: {passed} pass", flush=True)
    if not single:
        print("\n".join(table(files, out, passes, purpose)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
