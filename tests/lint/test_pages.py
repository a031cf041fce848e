"""The examples on the rules' pages are true, and the pages in docs/rules are current."""

from __future__ import annotations

from pathlib import Path

import pytest

from hybrid_lab import lint
from hybrid_lab.diagnostics import rules
from hybrid_lab.lint import docs
from hybrid_lab.lint.examples import as_module

DOCS = Path(__file__).parents[2] / "docs" / "rules"
RECORDS = rules.all()


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.code)
def test_the_bad_example_is_found(record):
    assert record.code in {finding.code for finding in lint.check(as_module(record.bad), target="mxnet")}


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.code)
def test_the_good_example_is_clean(record):
    findings = lint.check(as_module(record.instead))
    assert [str(finding) for finding in findings] == []
    assert record.code not in {finding.code for finding in lint.check(as_module(record.instead), target="mxnet")}


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.code)
def test_a_record_is_whole(record):
    assert record.summary and record.reason and record.bad and record.instead and record.message
    assert "{" not in record.format(record.message, "x").replace("{'", "")
    assert record.format(record.rewrite, "x") or record.code == "HL001"


def test_the_pages_are_current():
    expected = docs.pages()
    assert {path.name: path.read_text(encoding="utf-8") for path in DOCS.glob("*.md")} == expected
