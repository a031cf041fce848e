"""No order of calls, changes and saves loses a graph without a word; see run.py.

HYBRID_LAB_ORDERS=5000 (make test-orders) checks the first 5,000; the default is a small share.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests import quick
from tests.orders.run import Opener, run_order

COUNT, CHUNK = quick.count("HYBRID_LAB_ORDERS", 40, 120), 20

_counts: Counter[str] = Counter()


@pytest.fixture(scope="module", autouse=True)
def hand_counts_over(totals):
    """They are printed at the end of the run."""
    yield
    totals.update({f"{what} in random orders": count for what, count in _counts.items()})


@pytest.fixture(scope="module")
def opener():
    """A process that opens files without the networks' code."""
    process = Opener()
    yield process
    process.close()


@pytest.mark.parametrize("first", range(0, COUNT, CHUNK))
def test_no_order_loses_a_graph(first, opener, tmp_path):
    for seed in range(first, min(first + CHUNK, COUNT)):
        folder = tmp_path / str(seed)
        folder.mkdir()
        _counts.update(run_order(seed, opener, str(folder)))
        _counts["orders"] += 1
