"""docs/triton-operators.md tells which operators have kernels today."""

import importlib.util
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")
pytest.importorskip("torch")

from hybrid_lab import ops
from tests.engines.test_triton import interpreter  # noqa: F401

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "write_operators_doc.py"


@pytest.fixture(scope="module")
def doc():
    spec = importlib.util.spec_from_file_location("write_operators_doc", SCRIPT)
    module = sys.modules.setdefault(spec.name, importlib.util.module_from_spec(spec))
    spec.loader.exec_module(module)
    return module


def rows(doc, *names):
    return doc.census([ops.get(name) for name in names])


def test_the_page_of_operators_is_that_of_today(doc):
    assert doc.page() == doc.TARGET.read_text(encoding="utf-8"), "run scripts/write_operators_doc.py"


def test_a_row_says_whether_all_samples_have_kernels_and_what_runs_the_others(doc):
    tanh, norm, take, sort = (rows(doc, name)[0] for name in ("tanh", "LayerNorm", "take", "sort"))
    assert (tanh.verdict, norm.verdict) == ("whole", "in parts")
    assert (take.verdict, dict(take.refused)) == ("for some attributes", {"take with mode='raise'": 1})
    assert sort.verdict == "none" and sort.elsewhere == {"torch on the device"}
    assert not tanh.refused and tanh.kinds == {"pointwise": tanh.samples}


def test_it_prints_as_a_table_with_a_summary(doc):
    found = rows(doc, "tanh", "sort")
    assert "| elementwise | `tanh` | whole | pointwise |  |" in doc.table(found)
    assert "| order | `sort` | none |  | the operator has no Triton kernel - torch on the device |" in doc.table(found)
    assert doc.summary(found).startswith("1 of 2 operators run in kernels (1 whole, 0 in parts)")
