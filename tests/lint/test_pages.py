"""The examples on the rules' pages are true, and the index lists every page as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from hybrid_lab import lint
from hybrid_lab.diagnostics import rules

from .examples import as_module

PAGES = Path(rules.__file__).parent
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
    assert "{" not in record.message_for("x").replace("{'", "")
    assert record.rewrite_for("x") or record.code == "HL001"


def test_every_text_of_a_record_can_be_filled_in():
    for record in RECORDS:
        for fact in (*record.rewrites, None):
            assert record.rewrite_for(construct=fact), (record.code, fact)


def test_the_index_lists_every_page():
    def row(record):
        severity = "note (MXNet)" if record.portability else record.severity
        return f"| [{record.code}]({record.code}.md) | {record.name} | {severity} | {record.summary} |"

    index = (PAGES / "README.md").read_text(encoding="utf-8").replace("\\|", "|")
    assert [line for line in index.splitlines() if line.startswith("| [")] == [row(record) for record in RECORDS]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.code)
def test_a_page_says_how_to_silence_its_rule(record):
    page = (PAGES / f"{record.code}.md").read_text(encoding="utf-8")
    assert page.endswith(f"## Silence it\n\nEnd the line with `# hl: ignore[{record.code}] reason`.\n")


def test_a_page_without_the_form_is_an_error(monkeypatch, tmp_path):
    (tmp_path / "HL998.md").write_text("# HL998 no-form\n", encoding="utf-8")
    monkeypatch.setattr(rules, "_PAGES", tmp_path)
    with pytest.raises(ValueError, match="HL998"):
        rules.get("HL998")


def test_every_check_belongs_to_a_rule():
    from hybrid_lab.lint.walk import _CHECKS

    checked = {code for checks in _CHECKS.values() for code, _ in checks}
    assert {record.code for record in RECORDS} - checked == {"HL001", "HL002", "HL190"}  # found by the runner itself
    assert checked <= {record.code for record in RECORDS}
