"""Which combinations of parameters `make test` runs: tests/combinations.py and tests/quick.py."""

from __future__ import annotations

from itertools import combinations, product

import pytest

from tests import quick
from tests.combinations import covering

pytest_plugins = ("pytester",)


@pytest.mark.parametrize("together", [1, 2])
@pytest.mark.parametrize("sizes", [(2, 2, 2), (5, 2), (7, 3, 4), (3, 3, 3, 3), (1,), ()])
def test_every_set_of_values_is_in_a_row(sizes, together):
    rows = [dict(enumerate(row)) for row in product(*map(range, sizes))]
    kept = covering(rows, together)

    def sets(some):
        return {each for row in some for each in combinations(sorted(row.items()), min(together, len(row)))}

    assert kept == sorted(kept) and sets([rows[position] for position in kept]) == sets(rows)
    if sizes == (7, 3, 4):
        assert len(kept) <= {1: 7, 2: 7 * 4 + 4}[together]


def test_single_values_are_used_about_equally_often():
    rows = [{"name": name, "mode": mode} for name in range(6) for mode in (True, False)]
    assert sum(rows[position]["mode"] for position in covering(rows, 1)) == 3


def test_loops_have_every_pair_and_all_combinations_in_test_all(monkeypatch):
    monkeypatch.setattr(quick, "ALL", False)
    assert len(list(quick.pairs(a="xy", b="xy", c="xy"))) == 4 and quick.count("UNSET_VARIABLE", 3, 9) == 3
    monkeypatch.setattr(quick, "ALL", True)
    assert len(list(quick.pairs(a="xy", b="xy", c="xy"))) == 8 and quick.count("UNSET_VARIABLE", 3, 9) == 9
    monkeypatch.setenv("SET_VARIABLE", "5")
    assert quick.count("SET_VARIABLE", 3, 9) == 5


FILE = """
import pytest

@pytest.mark.long
def test_long(): pass

@pytest.mark.parametrize("a", "xy")
@pytest.mark.parametrize("b", "xy")
@pytest.mark.parametrize("c", "xy")
def test_product(a, b, c): pass

@pytest.mark.parametrize("a, b, c", [(1, 1, 1), (1, 1, 2), (1, 2, 1), (1, 2, 2), (2, 1, 1), (2, 2, 2)])
def test_table(a, b, c): pass

@pytest.mark.parametrize("b", "xy")
@pytest.mark.parametrize("a", "xyz")
def test_pairs(a, b): pass

@pytest.mark.each_value
@pytest.mark.parametrize("b", "xy")
@pytest.mark.parametrize("a", ["x", "y", pytest.param("z", marks=pytest.mark.long)])
def test_values(a, b): pass
"""


@pytest.mark.parametrize(
    "everything, named, counts",
    [
        (False, (), {"test_product": 4, "test_table": 6, "test_pairs": 6, "test_values": 2}),
        (True, (), {"test_long": 1, "test_product": 8, "test_table": 6, "test_pairs": 6, "test_values": 6}),
        (False, ("test_a.py::test_long", "test_a.py::test_values"), {"test_long": 1, "test_values": 6}),
    ],
)
def test_items_that_run(pytester, monkeypatch, everything, named, counts):
    monkeypatch.setattr(quick, "ALL", everything)
    pytester.makepyfile(test_a=FILE)
    pytester.makeconftest(
        "from tests import quick\n"
        "def pytest_collection_modifyitems(config, items):\n"
        "    left = quick.left_out(items, config.args)\n"
        "    items[:] = [item for item in items if item not in left]\n"
    )
    run = pytester.inline_run("-p", "no:cacheprovider", "-W", "ignore", *named)
    passed, *_ = run.listoutcomes()
    found = [report.nodeid.partition("::")[2].partition("[")[0] for report in passed]
    assert {name: found.count(name) for name in found} == counts
