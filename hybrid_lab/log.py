"""The `hybrid_lab` logger: one line for what a user should know; standard output belongs to the user."""

from __future__ import annotations

import logging
import sys
from typing import Any

logger = logging.getLogger("hybrid_lab")


class _StandardError(logging.StreamHandler[Any]):
    """Writes to whatever sys.stderr is at the time: notebooks replace it for every cell."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> Any:
        return sys.stderr

    @stream.setter
    def stream(self, value: Any) -> None:
        pass


def install() -> None:
    """Show messages of level INFO on standard error, unless the application set up this logger itself."""
    if not logger.handlers:
        handler = _StandardError()
        handler.setFormatter(logging.Formatter("%(message)s"))
        logger.addHandler(handler)
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.INFO)
        logger.propagate = False
