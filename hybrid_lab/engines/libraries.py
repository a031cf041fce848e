"""Imports of the engines' libraries, which take seconds.

Python cannot resume an import that an interrupt stopped: torch's raises AttributeError or SystemError from then on,
until the process ends. So the import runs in a thread, which an interrupt does not reach, and the caller waits for it.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

from hybrid_lab.engines.freed_memory import keep_freed_memory
from hybrid_lab.engines.threads import passive_waiting
from hybrid_lab.engines.waiting import run_in_thread
from hybrid_lab.log import logger


def import_library(name: str) -> ModuleType:
    """The module. Raises what its import raises, and KeyboardInterrupt at once: the import then goes on in its thread,
    and the next call waits for it.
    """
    if name not in sys.modules:
        load = _load_torch if name == "torch" else lambda: importlib.import_module(name)
        return run_in_thread(load, f"hybrid-lab-import-{name}").result()
    return importlib.import_module(name)


def _load_torch() -> ModuleType:
    """Import torch, whose threads then sleep while they wait, and keep freed memory for what its kernels allocate.
    A torch that was imported before is used as its user set it up.
    """
    logger.info("importing torch, which takes a few seconds, once per process")
    with passive_waiting():
        torch = importlib.import_module("torch")
        torch.get_num_threads()  # LLVM's OpenMP reads the environment when it is first asked something
    keep_freed_memory()
    return torch
