"""Where engines keep what they made or measured: $HYBRID_LAB_CACHE, else hybrid_lab in the user's cache folder."""

from __future__ import annotations

import functools
import os
from pathlib import Path


def cache_folder(kind: str) -> Path | None:
    """The folder for files of one kind; it may not exist yet. None where HYBRID_LAB_CACHE is set to nothing, or there
    is no home: then nothing is kept on disk.

    It is an absolute path. A relative HYBRID_LAB_CACHE counts from the working folder of the first call that finds it
    so, wherever the process goes later.
    """
    chosen = os.environ.get("HYBRID_LAB_CACHE")
    if chosen is not None:
        return _absolute(chosen) / kind if chosen else None
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return (_absolute(base) if base else Path.home() / ".cache") / "hybrid_lab" / kind
    except RuntimeError:
        return None


@functools.cache
def _absolute(folder: str) -> Path:
    return Path(folder).absolute()
