"""Texts of kernels as files, which tracebacks and the line numbers in binaries refer to, for people and profilers."""

from __future__ import annotations

import hashlib
import os

from hybrid_lab.engines.store import Store

TEXTS = Store("kernels", str, 64 << 20)


def path_of(name: str, text: str) -> str:
    """The path of a kernel's text; if nothing is stored on disk, the path it would have."""
    return os.path.join(TEXTS.folder() or "hybrid_lab-kernels", _file(name, text))


def keep(name: str, text: str) -> None:
    """Write the text there, if it is not there yet."""
    if not os.path.exists(path_of(name, text)):
        TEXTS.put_file(_file(name, text), text.encode())


def _file(name: str, text: str) -> str:
    return f"{name[:60]}_{hashlib.sha256(text.encode()).hexdigest()[:16]}.py"
