"""Saves and loads that the user did not ask for in a cell: what they print or log must not become its output."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator

from hybrid_lab.insight.silent import silent
from hybrid_lab.system.logger import logger


@contextlib.contextmanager
def quiet() -> Iterator[list[str]]:
    """Drop what this thread prints and logs in the block; gives a list that gets the warnings among it."""
    warnings: list[str] = []
    thread = threading.get_ident()

    def keep(record: logging.LogRecord) -> bool:
        if record.thread != thread:
            return True
        if record.levelno >= logging.WARNING:
            warnings.append(record.getMessage())
        return False

    logger.addFilter(keep)
    try:
        with silent():
            yield warnings
    finally:
        logger.removeFilter(keep)
