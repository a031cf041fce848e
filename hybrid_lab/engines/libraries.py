"""Imports of the engines' libraries, which take seconds.

Python cannot resume an import that an interrupt stopped: torch's raises AttributeError or SystemError from then on,
until the process ends. So the import runs in a thread, which an interrupt does not reach, and the caller waits for it.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

from hybrid_lab.engines.waiting import run_in_thread


def import_library(name: str) -> Any:
    """The module. Raises what its import raises, and KeyboardInterrupt at once: the import then goes on in its thread,
    and the next call waits for it.
    """
    if name not in sys.modules:
        return run_in_thread(lambda: importlib.import_module(name), f"hybrid-lab-import-{name}").result()
    return importlib.import_module(name)
