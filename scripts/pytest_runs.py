"""Runs of pytest under several circumstances, and the table of what passed."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Result:
    """What pytest reported. `failed` has the names of tests, or what stopped the run."""

    passed: int
    skipped: int
    failed: list[str]
    seconds: float


def run_pytest(
    python: str, arguments: Sequence[str], jobs: int, folder: Path, environment: Mapping[str, str] | None = None
) -> Result:
    """Run pytest in the repository; its output and its report go to pytest.txt and report.xml in `folder`.

    environment : variables that differ from those of this process
    """
    folder.mkdir(parents=True, exist_ok=True)
    report, log = folder / "report.xml", folder / "pytest.txt"
    report.unlink(missing_ok=True)
    command = [python, "-m", "pytest", *arguments, "-q", "--timeout", "600", f"--junitxml={report}"]
    command += ["-m", "not wheel", "-p", "no:cacheprovider"]
    if jobs > 1:
        command += ["-n", str(jobs), "--dist", "worksteal"]
    began = time.monotonic()
    # Tests start processes in other folders, and an environment need not have the package installed.
    variables = {**os.environ, "PYTHONPATH": str(ROOT), **(environment or {})}
    with log.open("w", encoding="utf-8") as output:
        status = subprocess.run(command, cwd=ROOT, env=variables, stdout=output, stderr=subprocess.STDOUT).returncode
    seconds = time.monotonic() - began
    cases = list(ElementTree.parse(report).iter("testcase")) if report.exists() else []
    failed = [
        f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}"
        for case in cases
        if case.find("failure") is not None or case.find("error") is not None
    ]
    skipped = sum(case.find("skipped") is not None for case in cases)
    passed = len(cases) - skipped - len(failed)
    if status and not failed:
        failed = [f"pytest ended with status {status}, see {log.relative_to(ROOT)}"]
    return Result(passed, skipped, failed, seconds)


def table(title: str, results: Mapping[str, Result]) -> str:
    """One line for each run, and below it the tests that failed."""
    width = max(map(len, [title, *results]))
    lines = [f"{title:<{width}}  {'passed':>8}  {'skipped':>8}  {'failed':>8}  {'seconds':>8}"]
    for name, result in results.items():
        counts = (result.passed, result.skipped, len(result.failed), round(result.seconds))
        lines.append(f"{name:<{width}}" + "".join(f"  {count:>8,}" for count in counts))
        lines += [f"    {test}" for test in result.failed]
    return "\n".join(lines)
