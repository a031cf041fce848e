"""The pages about the code name files and folders that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    ROOT / "docs" / "architecture.md",
    ROOT / "docs" / "glossary.md",
    *sorted((ROOT / "docs" / "rooms").glob("*.md")),
]
FOLDERS = ("hybrid_lab", "extension", "scripts", "tests", "docs", "benchmarks")
#: Every file and folder with its parents: "hybrid_lab/graph/node.py".
PATHS = {
    path.relative_to(ROOT).as_posix()
    for folder in FOLDERS
    for path in (ROOT / folder).rglob("*")
    if "node_modules" not in path.parts and "__pycache__" not in path.parts
}


def exists(path: str) -> bool:
    """Whether a path, or the end of one as the page of a room names its files, exists."""
    path = path.strip("/")
    return path in PATHS or any(each.endswith(f"/{path}") for each in PATHS) or (ROOT / path).exists()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_paths_exist(page):
    named = re.findall(r"`([a-z_0-9][a-z_0-9./]*?(?:\.py|/))`", page.read_text(encoding="utf-8"))
    older = {"gluon/hybridized/"} if page.stem == "hybridize" else set()  # its paragraph on earlier names
    assert [path for path in named if path not in older and not exists(path)] == []
