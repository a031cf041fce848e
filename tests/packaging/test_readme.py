"""The README's example runs as it is printed, and does what its comments say."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_example_runs(tmp_path):
    (example,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    script = tmp_path / "example.py"
    script.write_text(example)
    done = subprocess.run(
        [sys.executable, script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("<Symbol ") == 1, "the Symbol is printed once, however often the hybrid net is called"
    assert (tmp_path / "net.hlab").is_file()


def test_its_links_lead_somewhere_and_every_document_is_listed():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", text) if not link.startswith("http")]
    assert all((ROOT / link).exists() for link in links), [link for link in links if not (ROOT / link).exists()]
    assert {f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")} <= set(links)
