"""A line of progress on standard error, in a terminal or a notebook, for work that takes more than a second."""

from __future__ import annotations

import sys
import time

#: Seconds before a bar is drawn at all, and between two drawings.
PATIENCE, PACE = 1.0, 0.1
_WIDTH = 24


class Progress:
    """title : "compiling for gfx942"; total : of the pieces. Draws nothing where standard error is a file or a pipe."""

    def __init__(self, title: str, total: int):
        self.title, self.total, self.done = title, total, 0
        self._started = self._drawn = time.perf_counter()
        self._length = 0
        self._shows = _is_seen(sys.stderr)

    def step(self, done: int, current: str = "") -> None:
        """So many are done; `current` says what is under way."""
        self.done, now = done, time.perf_counter()
        if self._shows and now - self._started > PATIENCE and now - self._drawn > PACE:
            self._drawn = now
            filled = _WIDTH * done // max(self.total, 1)
            bar = "\N{FULL BLOCK}" * filled + "\N{LIGHT SHADE}" * (_WIDTH - filled)
            self._write(f"{self.title} {bar} {done} of {self.total} kernels, {now - self._started:.0f} s  {current}")

    def close(self) -> None:
        """Leave an empty line behind."""
        if self._length:
            self._write("")
            self._put("\r")

    def _write(self, text: str) -> None:
        text = text[:110]
        self._put("\r" + text.ljust(self._length))
        self._length = len(text)

    def _put(self, text: str) -> None:
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except (OSError, ValueError, UnicodeError):
            self._shows = False


def _is_seen(stream: object) -> bool:
    """Whether somebody looks at it: a terminal, or a notebook's output."""
    if type(stream).__module__.partition(".")[0] == "ipykernel":
        return True
    isatty = getattr(stream, "isatty", None)
    return bool(isatty is not None and isatty())
