"""The README as a package index shows it: with links that lead out of the page. Hatch calls it for the metadata."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

ROOT = Path(__file__).resolve().parent.parent


def text() -> str:
    """The text, in Markdown."""
    spec = importlib.util.spec_from_file_location("sources", ROOT / "docs" / "site" / "sources.py")
    assert spec is not None and spec.loader is not None
    sources = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sources)
    whole: str = sources.absolute((ROOT / "README.md").read_text(encoding="utf-8"), "README.md")
    return whole


class Readme(MetadataHookInterface):
    """Fills in `readme`, which pyproject.toml leaves to it."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the readme of the metadata."""
        metadata["readme"] = {"content-type": "text/markdown", "text": text()}
