"""All tests run on one engine, from the same seeds, and leave nothing in the home folder; tests of the choice set what
they need.

At its end a run prints totals that tests counted, over all worker processes.
"""

from __future__ import annotations

import gc
import importlib.util
import os
import signal
from collections import Counter

import pytest

from tests import quick
from tests.seeds import same_random_numbers

os.environ.setdefault("HYBRID_LAB_CPU", "numpy" if quick.QUICK else "onnxruntime")
if os.environ.get("HYBRID_LAB_TEST_GPU"):  # kernels that were compiled before may be used on a real GPU
    os.environ.setdefault("HYBRID_LAB_CACHE", "")
else:  # a measurement of the user's must not decide which engine a test runs on
    os.environ["HYBRID_LAB_CACHE"] = ""
# A shell starts what runs in its background with interrupts ignored; tests interrupt themselves.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

#: The modules that an engine needs.
_NEEDED = {"onnxruntime": ("onnxruntime",), "torch": ("torch",), "triton": ("torch", "triton")}
#: Files with tests of many seconds run first, so that no worker process ends with one of them while others wait.
LONGEST = (
    *("checkpoint/", "distributed/", "gpu_day/", "random_programs/", "engines/test_triton_launches.py"),
    *(
        "engines/test_triton_compiling.py",
        "lab/distributed/test_notebook_workers.py",
        "test_privacy.py",
        "torch/test_imports.py",
    ),
)


def pytest_collection_modifyitems(config, items):
    """A test with an engine among its parameters is skipped where a module of that engine is not installed."""
    left_out = quick.left_out(items, config.args)
    if left_out:
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]
    items.sort(key=lambda item: not item.nodeid.removeprefix("tests/").startswith(LONGEST))
    missing = {
        engine: [name for name in modules if importlib.util.find_spec(name) is None]
        for engine, modules in _NEEDED.items()
    }
    for item in items:
        for value in item.callspec.params.values() if hasattr(item, "callspec") else ():
            if isinstance(value, str) and missing.get(value):
                item.add_marker(pytest.mark.skip(reason=f"needs {' and '.join(missing[value])}"))


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Syntax trees of 500 files and 30,000 tests are made, and none of them is garbage: collecting garbage meanwhile
    would take half of the time.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish():
    """A full garbage collection does not go through the 30,000 tests themselves: 0.1 s instead of 0.5 s."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure():
    gc.unfreeze()  # what libraries free when the process ends is freed


@pytest.fixture(autouse=True)
def each_test_draws_the_same_numbers():
    """What a test draws does not depend on the tests that ran before it in the same process."""
    same_random_numbers()


_TOTALS = pytest.StashKey[Counter[str]]()


@pytest.fixture(scope="session")
def totals(request) -> Counter[str]:
    """Numbers that are added up and printed when all tests have run."""
    return request.config.stash.setdefault(_TOTALS, Counter())


def pytest_sessionfinish(session):
    """A worker process hands its totals over."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["totals"] = dict(session.config.stash.get(_TOTALS, Counter()))


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node, error):
    node.config.stash.setdefault(_TOTALS, Counter()).update(getattr(node, "workeroutput", {}).get("totals", {}))


def pytest_terminal_summary(terminalreporter):
    totals = terminalreporter.config.stash.get(_TOTALS, Counter())
    if totals:
        terminalreporter.write_line(", ".join(f"{count:,} {what}" for what, count in sorted(totals.items())))
