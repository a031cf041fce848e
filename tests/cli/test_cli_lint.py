"""`hybrid-lab lint`: places, forms and exit status."""

import json

import pytest

from hybrid_lab.cli import main

READS_SHAPE = """\
from hybrid_lab import gluon

class Net(gluon.HybridBlock):
    def hybrid_forward(self, F, x):
        return x.reshape((x.shape[0], -1))
"""
CLEAN = READS_SHAPE.replace("x.shape[0]", "0")


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(READS_SHAPE)
    (tmp_path / "clean.py").write_text(CLEAN)
    return tmp_path


def notebook(*cells: str) -> str:
    code = [
        {"cell_type": "code", "id": f"c{i}", "metadata": {}, "outputs": [], "execution_count": None, "source": cell}
        for i, cell in enumerate(cells)
    ]
    return json.dumps({"cells": code, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


def test_error_gives_its_place_and_status_1(here, capsys):
    assert main(["lint", "net.py"]) == 1
    assert capsys.readouterr().out.startswith("net.py:5:27: HL101 ")


def test_clean_file_gives_status_0(here, capsys):
    assert main(["lint", "clean.py"]) == 0
    assert capsys.readouterr().out == "nothing found\n"


def test_folder_is_searched_but_not_its_checkpoints(here, capsys):
    (here / ".ipynb_checkpoints").mkdir()
    (here / ".ipynb_checkpoints" / "net.py").write_text(READS_SHAPE)
    assert main(["lint", ".", "net.py", "--format", "json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert [(finding["file"], finding["code"]) for finding in found] == [("net.py", "HL101")]


def test_notebook_findings_name_their_cell(here, capsys):
    (here / "net.ipynb").write_text(notebook("%matplotlib inline", READS_SHAPE))
    assert main(["lint", "net.ipynb"]) == 1
    assert "net.ipynb:cell 2:5:27: HL101" in capsys.readouterr().out


def test_sarif_can_be_parsed(here, capsys):
    assert main(["lint", "net.py", "--format=sarif"]) == 1
    log = json.loads(capsys.readouterr().out)
    assert log["version"] == "2.1.0"
    assert log["runs"][0]["results"][0]["ruleId"] == "HL101"


@pytest.mark.parametrize(
    ("path", "message"),
    [("gone.py", "gone.py: no such file or folder"), ("data.csv", "data.csv: neither a .py nor an .ipynb file")],
)
def test_bad_paths_are_one_plain_line(here, capsys, path, message):
    (here / "data.csv").write_text("")
    assert main(["lint", path]) == 2
    assert capsys.readouterr().err == f"hybrid-lab lint: {message}\n"


def test_fix_repairs_the_file_and_reports_the_rest(here, capsys):
    assert main(["lint", "net.py", "--fix"]) == 0
    assert (here / "net.py").read_text() == CLEAN
    assert capsys.readouterr().out == "nothing found\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["-", "--fix"], "--fix: standard input cannot be repaired"),
        (["net.py", "--format=sarif", "--rewrites"], "--rewrites: a SARIF log has no place"),
    ],
)
def test_an_option_without_effect_is_refused(here, capsys, options, message):
    assert main(["lint", *options]) == 2
    assert message in capsys.readouterr().err


def test_file_that_is_no_text_is_one_plain_line(here, capsys):
    (here / "binary.py").write_bytes(b"\xff\xfe\x00")
    assert main(["lint", "binary.py"]) == 2
    assert "not a UTF-8 text" in capsys.readouterr().err
