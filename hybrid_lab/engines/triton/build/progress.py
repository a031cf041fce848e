"""A bar of progress for work of more than a second: on a terminal's standard error, or as an output in a notebook."""

from __future__ import annotations

import contextlib
import html
import sys
import threading
import time
from typing import Any

#: Seconds before a bar is drawn at all, and between two drawings.
PATIENCE, PACE = 1.0, 0.1
_WIDTH, _LONGEST = 24, 110


class Progress:
    """title : "compiling for gfx942"; total : kernels, or other units. Draws nothing where standard error is a file or
    a pipe.
    """

    def __init__(self, title: str, total: int, unit: str = "kernels"):
        self.title, self.total, self.unit = title, total, unit
        self._started = self._drawn = time.perf_counter()
        self._out = _Notebook() if _in_cell() else _Terminal() if sys.stderr is not None and _is_terminal() else None

    def step(self, done: int, current: str = "") -> None:
        """So many are done; `current` says what is under way."""
        now = time.perf_counter()
        if self._out is not None and now - self._started > PATIENCE and now - self._drawn > PACE:
            self._drawn = now
            text = f"{done} of {self.total} {self.unit}, {now - self._started:.0f} s  {current}"
            with contextlib.suppress(Exception):  # nobody's work ends because a bar cannot be drawn
                self._out.draw(self.title, done / max(self.total, 1), text)

    def close(self) -> None:
        """Take the bar away."""
        if self._out is not None:
            with contextlib.suppress(Exception):
                self._out.clear()


class _Terminal:
    """One line, written over and over."""

    def __init__(self) -> None:
        self._length = 0

    def draw(self, title: str, share: float, text: str) -> None:
        filled = int(_WIDTH * share)
        bar = "\N{FULL BLOCK}" * filled + "\N{LIGHT SHADE}" * (_WIDTH - filled)
        self._write(f"{title} {bar} {text}"[:_LONGEST])

    def clear(self) -> None:
        if self._length:
            self._write("")
            self._write("")

    def _write(self, text: str) -> None:
        sys.stderr.write("\r" + text.ljust(self._length))
        sys.stderr.flush()
        self._length = len(text)


class _Notebook:
    """An output of the cell, replaced again and again. Standard error would be shown in red, as if it had failed."""

    def __init__(self) -> None:
        self._handle: Any = None

    def draw(self, title: str, share: float, text: str) -> None:
        bar = f'<progress value="{share:.3f}" max="1" style="width:14em;vertical-align:middle"></progress>'
        page = f'<div style="color:inherit;opacity:.7">{html.escape(title)} {bar} {html.escape(text)}</div>'
        self._show({"text/plain": f"{title}: {text}", "text/html": page})

    def clear(self) -> None:
        if self._handle is not None:
            self._show({"text/plain": "", "text/html": ""})

    def _show(self, data: dict[str, str]) -> None:
        from IPython.display import display

        if self._handle is None:
            self._handle = display(data, raw=True, display_id=True)
        else:
            self._handle.update(data, raw=True)


def _in_cell() -> bool:
    """Whether this is the main thread of a notebook's kernel."""
    kernel = type(sys.stderr).__module__ == "ipykernel.iostream"
    return kernel and threading.current_thread() is threading.main_thread()


def _is_terminal() -> bool:
    isatty = getattr(sys.stderr, "isatty", None)
    return bool(isatty is not None and isatty())
