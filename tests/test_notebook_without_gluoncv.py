"""The notebook about GluonCV runs to its end where GluonCV is not installed, and says so at its top."""

import importlib.util
from pathlib import Path

import pytest

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")

NOTEBOOK = Path(__file__).parents[1] / "notebooks" / "07_gluoncv.ipynb"


@pytest.mark.long
@pytest.mark.skipif(importlib.util.find_spec("gluoncv") is not None, reason="GluonCV is installed")
def test_it_runs_with_a_detector_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(NOTEBOOK.parents[1]))
    notebook = nbformat.read(NOTEBOOK, 4)
    assert "Without it the notebook runs to its end" in notebook.cells[0].source
    for cell in notebook.cells:
        cell.source = cell.source.replace("range(80)", "range(2)")
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert "GluonCV is not installed" in code[0].outputs[0].text
    assert (tmp_path / "detector.hlab").exists()
