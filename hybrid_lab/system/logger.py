"""The `hybrid_lab` logger: one line for each thing a user should know; a program's standard output belongs to the
user.
"""

from __future__ import annotations

import html
import logging
import sys
import threading
from types import SimpleNamespace
from typing import Any

logger = logging.getLogger("hybrid_lab")
_KERNEL = "ipykernel.iostream"
"""The module of a notebook's standard streams."""

_FORMAT = logging.Formatter("%(message)s")
#: Writes to whatever sys.stderr is at the time: notebooks replace it for every cell, and it is None without a console.
_STANDARD_ERROR: Any = SimpleNamespace(
    write=lambda text: sys.stderr and sys.stderr.write(text), flush=lambda: sys.stderr and sys.stderr.flush()
)


def _goes_to_standard_error(record: logging.LogRecord) -> bool:
    """Whether a record goes there. A notebook shows standard error as if something had gone wrong, in red. So records
    for information only become an output of the cell; from another thread, which has no cell, a line of standard
    output.
    """
    if record.levelno >= logging.WARNING or type(sys.stderr).__module__ != _KERNEL:
        return True
    text = _FORMAT.format(record)
    if threading.current_thread() is threading.main_thread():
        return not displayed(text)
    if type(sys.stdout).__module__ != _KERNEL:
        return True
    print(text)
    return False


def _make_encodable(record: logging.LogRecord) -> bool:
    """Write characters without an encoding (as in a file name that is not UTF-8) as `\\udcff`: streams, notebooks and
    log files refuse them. Every record passes.
    """
    text = record.getMessage()
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        record.msg, record.args = text.encode("utf-8", "backslashreplace").decode("utf-8"), None
    return True


logger.addFilter(_make_encodable)


def displayed(text: str) -> bool:
    """Whether the text could be shown as an output of the cell."""
    from IPython.display import display

    # As Jupyter indents the text of other outputs; and lines break between words.
    style = "margin:0;padding:0 1ch;background:none;color:inherit;opacity:.7;white-space:pre-wrap;word-break:normal"
    try:
        display({"text/plain": text, "text/html": f'<pre style="{style}">{html.escape(text)}</pre>'}, raw=True)
    except Exception:  # IPython's publisher may be replaced by anything; a line of the log never fails a cell
        return False
    return True


def install() -> None:
    """Show messages of level INFO on standard error, unless the application set up this logger itself."""
    if not logger.handlers:
        handler = logging.StreamHandler(_STANDARD_ERROR)
        handler.setFormatter(_FORMAT)
        handler.addFilter(_goes_to_standard_error)
        logger.addHandler(handler)
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.INFO)
        logger.propagate = False
