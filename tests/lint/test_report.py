"""The forms a report takes."""

from __future__ import annotations

import json

from hybrid_lab import lint
from hybrid_lab.diagnostics import rules

from .conftest import net

SOURCE = net("print(x)\nreturn x.reshape((x.shape[0], -1))")


def test_text():
    lines = lint.text(lint.check(SOURCE, file="net.py")).splitlines()
    assert lines == [
        "net.py:19:36: HL197 the input `y` is never used.",
        "net.py:20:9: HL171 `print` of the tensor `x` happens once, when the graph is made, and shows a Symbol.",
        "net.py:21:27: HL101 `.shape` of the tensor `x` cannot be read while a graph is made.",
        "1 error, 2 warnings",
    ]
    assert lint.text([]) == "nothing found"


def test_text_with_rewrites():
    assert "    instead: x.reshape((0, -1))" in lint.text(lint.check(SOURCE), rewrites=True)


def test_json_gives_every_field():
    finding = json.loads(lint.to_json(lint.check(SOURCE)))[-1]
    assert finding["code"] == "HL101"
    assert finding["severity"] == "error"
    assert finding["fix"]["safe"] is True
    assert finding["fix"]["edits"] == [{"line": 21, "col": 26, "end_line": 21, "end_col": 36, "text": "0"}]


def test_sarif_counts_columns_from_one_and_describes_the_rules_it_uses():
    run = lint.sarif(lint.check(SOURCE, file="net.py"))["runs"][0]
    result = run["results"][-1]
    assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == "HL101"
    region = result["locations"][0]["physicalLocation"]["region"]
    assert region == {"startLine": 21, "startColumn": 27, "endLine": 21, "endColumn": 34}
    assert result["fixes"][0]["artifactChanges"][0]["replacements"][0]["insertedContent"] == {"text": "0"}
    json.dumps(run)


def test_jupyter_counts_from_zero_in_utf16():
    source = SOURCE.replace("return x", "s = '🙂'; return x")
    finding = lint.check(source)[-1]
    (diagnostic,) = lint.jupyter([finding], source)
    assert diagnostic["range"]["start"] == {"line": 20, "character": finding.col + 1}
    assert diagnostic["severity"] == 1
    assert "0 keeps the dimension" in diagnostic["data"]["help"]


def test_help_shows_the_code_beside_its_repaired_form():
    for record in rules.all():
        text = lint.help_text(record.code)
        assert record.reason in text
        assert "Instead:" in text
