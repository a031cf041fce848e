"""docs/triton-operators.md tells which operators have kernels today, and the census counts what it says."""

import importlib.util
from pathlib import Path

import pytest

pytest.importorskip("triton")
pytest.importorskip("torch")

from hybrid_lab import ops
from hybrid_lab.engines.triton.census import census, summary, table
from tests.engines.test_triton import interpreter  # noqa: F401

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "write_operators_doc.py"


def entries(*names):
    return census([ops.get(name) for name in names])


def test_the_page_of_operators_is_that_of_today():
    spec = importlib.util.spec_from_file_location("write_operators_doc", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.page() == module.TARGET.read_text(encoding="utf-8"), "run scripts/write_operators_doc.py"


def test_an_entry_says_whether_all_samples_have_kernels_and_what_runs_the_others():
    tanh, norm, take, sort = (entries(name)[0] for name in ("tanh", "LayerNorm", "take", "sort"))
    assert (tanh.verdict, norm.verdict) == ("whole", "in parts")
    assert (take.verdict, dict(take.refused)) == ("for some attributes", {"take with mode='raise'": 1})
    assert sort.verdict == "none" and sort.elsewhere == {"torch"}
    assert not tanh.refused and tanh.kinds == {"pointwise": tanh.samples}


def test_it_prints_as_a_table_with_a_summary():
    found = entries("tanh", "sort")
    assert "| elementwise | `tanh` | whole | pointwise |  |" in table(found)
    assert "| order | `sort` | none |  | no kernel kind for it yet - torch |" in table(found)
    assert summary(found).startswith("1 of 2 operators run in kernels (1 whole, 0 in parts)")
