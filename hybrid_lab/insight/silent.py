"""Dropping output of the user's code in calls that the user did not ask for."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from typing import TextIO


class _SilentHere:
    """A stream that drops this thread's output; other threads, such as a running cell, go on printing."""

    def __init__(self, stream: TextIO):
        self._stream, self._thread = stream, threading.get_ident()

    def write(self, text: str) -> int:
        return len(text) if threading.get_ident() == self._thread else self._stream.write(text)

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)


@contextlib.contextmanager
def silent() -> Iterator[None]:
    """Drop this thread's output in the block."""
    before = sys.stdout
    mine = sys.stdout = _SilentHere(before)
    try:
        yield
    finally:
        if sys.stdout is mine:  # a cell that began meanwhile may have put its own stream there
            sys.stdout = before
