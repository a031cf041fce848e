"""How jupyter-lsp starts the language server: an entry point of `pyproject.toml` names the function here."""

from __future__ import annotations

import sys
from importlib.util import find_spec


def spec(manager: object) -> dict[str, dict[str, object]]:
    """The server by its key, as jupyter-lsp's `manager` wants it; empty without pygls."""
    if find_spec("pygls") is None:
        return {}
    return {
        "hybrid-lab": {
            "version": 2,
            "argv": [sys.executable, "-m", "hybrid_lab", "lsp"],
            "languages": ["python"],
            "mime_types": ["text/python", "text/x-ipython"],
            "display_name": "Hybrid Lab",
            "requires_documents_on_disk": False,
        }
    }
