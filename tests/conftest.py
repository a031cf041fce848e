"""All tests run on one engine and leave nothing in the home folder; tests of the choice set what they need.

At its end a run prints totals that tests counted, over all worker processes.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest

os.environ.setdefault("HYBRID_LAB_CPU", "onnxruntime")
os.environ.setdefault("HYBRID_LAB_CACHE", "")

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
