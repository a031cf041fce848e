"""docs/coverage.md says which names of MXNet are here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_page_is_up_to_date():
    """In a process of its own, since the script makes `mxnet` this package."""
    script = [sys.executable, str(ROOT / "scripts" / "write_coverage_doc.py"), "--check"]
    ran = subprocess.run(script, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
