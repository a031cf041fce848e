"""tests: the tests of the Triton engine on the GPU instead of in Triton's interpreter.

Each worker is one run of pytest that has collected all tests and executes those whose names it is given. The first
case of every test function comes first, then the second of every one, and so on: where the time is up, what is missing
are further cases of functions with many.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpu_day.options import Item, Options
from gpu_day.pool import WorkersFailed, end_process

JOBS = 14
LIMIT = 90.0
ROOT = Path(__file__).resolve().parents[2]
#: What `make test-gpu SIMULATE=sm90` runs too.
PLACES = ("tests/engines", "tests/gluon/rnn", "tests/gluon/test_control_flow.py")
CHOICE = "triton or device"
#: Tests of compiling, which no GPU is needed for, and which want a cache of their own.
ELSEWHERE = ("tests/engines/test_triton_compiling.py",)


def items(options: Options, seconds: float = 0.0) -> list[Item]:
    """Every test by its pytest name, collected in another process, because collecting imports torch.

    seconds : that collecting may take; by default as many as the stage
    Raises WorkersFailed.
    """
    import importlib.util

    if importlib.util.find_spec("pytest") is None:
        raise WorkersFailed("the stage `tests` needs pytest, which is not installed here")
    script = ROOT / "scripts" / "gpu_day.py"
    command = [sys.executable, str(script), "--list", options.text()]
    limit = seconds or 60 * options.minutes
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        names, said = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired as error:
        raise WorkersFailed(f"the tests were not collected after {limit:.0f} s") from error
    finally:
        end_process(process)
    if process.returncode:
        raise WorkersFailed(f"the tests could not be collected:\n{said[-2000:]}")
    return [Item(name, LIMIT) for name in breadth_first(json.loads(names))]


def breadth_first(names: list[str]) -> list[str]:
    """The first case of every test function, the second of every one ..."""
    seen: Counter[str] = Counter()
    places = []
    for name in names:
        function = name.partition("[")[0]
        places.append(seen[function])
        seen[function] += 1
    return [name for _, name in sorted(zip(places, names, strict=True), key=lambda pair: pair[0])]


def around(options: Options, serve: Callable[[], None]) -> None:
    """Serve inside a run of pytest, in the place of its own loop over tests."""
    _pytest(options, serve)


def collect(options: Options) -> None:
    """Print the names of all tests as JSON; what pytest prints goes to standard error."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    _pytest(options, lambda: json.dump(list(_tests), answers))
    answers.close()


def run(name: str, options: Options) -> dict[str, Any]:
    """One test's outcome."""
    _reports.clear()
    item = _tests[name]
    item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
    failed = [report for report in _reports if report.failed]
    if failed:
        return {"status": "failed", "error": "\n".join(report.longreprtext[-2000:] for report in failed)}
    skipped = [report for report in _reports if report.skipped]
    return {"status": "skipped", "error": str(skipped[0].longrepr)} if skipped else {"status": "passed"}


_tests: dict[str, Any] = {}
_reports: list[Any] = []


class _Plugin:
    """Keeps the collected tests and the reports, and runs the loop of the worker."""

    def __init__(self, loop: Callable[[], None]):
        self.loop = loop

    def pytest_collection_finish(self, session: Any) -> None:
        _tests.update({item.nodeid: item for item in session.items})

    def pytest_runtest_logreport(self, report: Any) -> None:
        _reports.append(report)

    def pytest_runtestloop(self, session: Any) -> bool:
        self.loop()
        return True


def _pytest(options: Options, loop: Callable[[], None]) -> None:
    import pytest

    from hybrid_lab.engines.triton.build.binaries import BINARIES

    os.chdir(ROOT)
    os.environ["HYBRID_LAB_TEST_GPU"] = os.environ["HYBRID_LAB_ALL"] = "1"
    # Tests share compiled binaries on disk and nothing else.
    os.environ["HYBRID_LAB_CACHE"] = ""
    BINARIES.disk.root = Path(options.cache) / "hybrid_lab"
    arguments = ["-q", "-p", "no:cacheprovider", "-k", CHOICE]
    if options.simulate:
        os.environ["SIMULATED_GPU"] = options.simulate
        arguments += ["-p", "tests.simulated_gpu.plugin"]
    # `--only tests/engines/test_triton.py::` need not collect the rest.
    places = [*PLACES] if options.simulate else [*PLACES, "tests/test_tutorial.py"]
    if "::" in options.only:
        places = [options.only.partition("::")[0]]
    arguments += [f"--ignore={place}" for place in ELSEWHERE]
    code = pytest.main([*arguments, *places], plugins=[_Plugin(loop)])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise SystemExit(f"pytest ended with {code!r}")
