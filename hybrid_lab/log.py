"""The `hybrid_lab` logger: one line for what a user should know; standard output belongs to the user."""

from __future__ import annotations

import html
import logging
import sys
import threading
from typing import TextIO

logger = logging.getLogger("hybrid_lab")


class _StandardError(logging.StreamHandler[TextIO]):
    """Writes to whatever sys.stderr is at the time: notebooks replace it for every cell.

    A notebook shows standard error as if something had gone wrong, in red. So what is for information only becomes an
    output of the cell there; a standard error that somebody catches, and threads, have it as ever.
    """

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.WARNING or not (_in_cell() and self._display(self.format(record))):
            super().emit(record)

    @staticmethod
    def _display(text: str) -> bool:
        from IPython.display import display

        style = "margin:0;padding:0;background:none;color:inherit;opacity:.7;white-space:pre-wrap"
        try:
            display({"text/plain": text, "text/html": f'<pre style="{style}">{html.escape(text)}</pre>'}, raw=True)
        except Exception:  # IPython's publisher may be replaced by anything; a line of the log never fails a cell
            return False
        return True

    @property
    def stream(self) -> TextIO:
        return sys.stderr

    @stream.setter
    def stream(self, value: object) -> None:
        pass


def _in_cell() -> bool:
    """Whether standard error goes from the main thread to a notebook."""
    kernel = type(sys.stderr).__module__ == "ipykernel.iostream"
    return kernel and threading.current_thread() is threading.main_thread()


def install() -> None:
    """Show messages of level INFO on standard error, unless the application set up this logger itself."""
    if not logger.handlers:
        handler = _StandardError()
        handler.setFormatter(logging.Formatter("%(message)s"))
        logger.addHandler(handler)
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.INFO)
        logger.propagate = False
