"""docs/kernels.md shows what the engine prints today."""

import importlib.util
from pathlib import Path

import pytest

pytest.importorskip("triton")

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "write_kernels_doc.py"


def test_the_page_of_kernels_is_that_of_today():
    spec = importlib.util.spec_from_file_location("write_kernels_doc", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    page = module.page()
    assert page == module.TARGET.read_text(encoding="utf-8"), "run scripts/write_kernels_doc.py and look at the changes"
    assert page.count("```python") >= 6 and "<function" not in page
