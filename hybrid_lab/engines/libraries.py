"""Imports of the engines' libraries, which take seconds.

Python cannot resume an import that an interrupt stopped: torch's raises AttributeError or SystemError from then on,
until the process ends. So the import runs in a thread, which an interrupt does not reach, and the caller waits for it.
"""

from __future__ import annotations

import importlib
import sys
import threading
from concurrent.futures import Future, wait
from typing import Any

#: Seconds between two checks for an interrupt, where waiting for a lock cannot be interrupted (Windows).
_CHECK = 0.1


def import_library(name: str) -> Any:
    """The module. Raises what its import raises, and KeyboardInterrupt at once: the import then goes on in its thread,
    and the next call waits for it.
    """
    if name not in sys.modules:
        outcome: Future[None] = Future()
        threading.Thread(target=_import, args=(name, outcome), name=f"hybrid-lab-import-{name}").start()
        while not wait([outcome], _CHECK).done:
            pass
        outcome.result()
    return importlib.import_module(name)


def _import(name: str, outcome: Future[None]) -> None:
    try:
        importlib.import_module(name)
    except BaseException as error:
        outcome.set_exception(error)
    else:
        outcome.set_result(None)
