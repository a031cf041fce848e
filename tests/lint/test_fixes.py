"""Automatic repairs: what the text is afterwards, and which are safe."""

from __future__ import annotations

import json

import pytest

from hybrid_lab import lint

from .conftest import net

SAFE = [
    ("return x.reshape((x.shape[0], -1))", "return x.reshape((0, -1))"),
    ("return x.reshape([x.shape[0], -1])", "return x.reshape([0, -1])"),
    ("return x.reshape(x.shape[0], -1)", "return x.reshape(0, -1)"),
    ("return x.reshape(shape=(x.shape[0], -1))", "return x.reshape(shape=(0, -1))"),
    ("return F.reshape(x, (x.shape[0], 2, -1))", "return F.reshape(x, (0, 2, -1))"),
    ("return F.relu(x).reshape((F.relu(x).shape[0], -1))", "return F.relu(x).reshape((0, -1))"),
    ("return F.dot(x.T, y)", "return F.dot(F.transpose(x), y)"),
    ("z = x * 2\nz.wait_to_read()\nreturn z", "z = x * 2\nreturn z"),
    ("if self.units:\n    x.wait_to_read()\nreturn x", "if self.units:\n    pass\nreturn x"),
    ("return x.copy() + y.detach()", "return F.identity(x) + F.BlockGrad(y)"),
    ("return max(x, y) + min(x, 0)", "return F.maximum(x, y) + F.minimum(x, 0)"),
    ("return round(x)", "return F.round(x)"),
    ("z = F.relu(x)\nz += y\nreturn z", "z = F.relu(x)\nz = z + y\nreturn z"),
    ("z = x * 2\nz *= y - 1\nreturn z", "z = x * 2\nz = z * (y - 1)\nreturn z"),
    ("return np.exp(x)", "return F.exp(x)"),
    ("return np.exp(np.sin(x))", "return F.exp(F.sin(x))"),
    ("return mx.nd.relu(x) * nd.ones((1,))", "return F.relu(x) * F.ones((1,))"),
    ("return nd.contrib.arange_like(x)", "return F.contrib.arange_like(x)"),
    ("return x  # hl: ignore[HL101] old", "return x"),
]

UNSAFE = [
    ("x += y\nreturn x", "x = x + y\nreturn x"),  # x is the caller's array
    ("z = F.relu(x)\nw = z\nz += y\nreturn w", "z = F.relu(x)\nw = z\nz = z + y\nreturn w"),
    ("z = x.reshape((0, -1))\nz += y\nreturn x", "z = x.reshape((0, -1))\nz = z + y\nreturn x"),  # a view of x
    ("z = F.relu(x)\nout = [z]\nz += y\nreturn out", "z = F.relu(x)\nout = [z]\nz = z + y\nreturn out"),
    ("return np.concatenate([x, y], axis=1)", "return F.concat(x, y, dim=1)"),
    ("return np.stack((x, y))", "return F.stack(x, y, axis=0)"),
    ("return np.sum(x)", "return F.sum(x)"),
]

NONE = [
    "return x.reshape((x.shape[1], -1))",  # only the first dimension can be kept by 0 there
    "return x.reshape((y.shape[0], -1))",  # the shape of another tensor
    "return F.zeros((x.shape[0], 3))",
    "return x.reshape((-1, x.shape[0]))",  # 0 in second place keeps the second dimension
    "return x.asnumpy()",
]


@pytest.mark.parametrize(("body", "repaired"), SAFE)
def test_a_safe_fix(body, repaired):
    source = net(body)
    assert lint.apply_fixes(source, lint.check(source)) == net(repaired)


@pytest.mark.parametrize(("body", "repaired"), UNSAFE)
def test_an_unsafe_fix_is_applied_on_demand(body, repaired):
    source = net(body)
    findings = lint.check(source)
    assert lint.apply_fixes(source, findings) == source
    assert lint.apply_fixes(source, findings, unsafe=True) == net(repaired)


@pytest.mark.parametrize("body", NONE)
def test_no_fix_where_the_meaning_would_change(body):
    source = net(body)
    findings = lint.check(source)
    assert findings
    assert lint.apply_fixes(source, findings, unsafe=True) == source


def test_a_repaired_source_has_no_such_finding_left():
    source = net("\n".join(body for body, _ in SAFE if "return" in body).replace("return ", "r = "))
    repaired = lint.apply_fixes(source, lint.check(source))
    again = lint.apply_fixes(repaired, lint.check(repaired))
    assert lint.apply_fixes(again, lint.check(again)) == again
    assert all(finding.fix is None or not finding.fix.safe for finding in lint.check(again))


def test_other_line_ends_and_scripts_are_kept():
    source = net("größe = 'größe 🙂'; return x.reshape((x.shape[0], -1))").replace("\n", "\r\n")
    assert lint.apply_fixes(source, lint.check(source)) == source.replace("x.shape[0]", "0")


def test_a_notebook_is_repaired_cell_by_cell():
    source = net("return x.reshape((x.shape[0], -1))")
    cells = [
        {"cell_type": "code", "source": text, "metadata": {}} for text in ("x = 1", source.splitlines(keepends=True))
    ]
    notebook = json.dumps({"cells": cells, "nbformat": 4, "nbformat_minor": 5, "metadata": {}})
    repaired = json.loads(lint.apply_fixes(notebook, lint.check(notebook)))
    assert repaired["cells"][0]["source"] == "x = 1"
    assert "".join(repaired["cells"][1]["source"]) == net("return x.reshape((0, -1))")


def test_findings_of_an_older_text_do_no_harm():
    assert lint.apply_fixes("x = 1\n", lint.check(net("return x.T"))) == "x = 1\n"
