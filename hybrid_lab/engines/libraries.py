"""Imports of the engines' libraries, which take seconds.

Python cannot resume an import that an interrupt stopped: torch's raises AttributeError or SystemError from then on,
until the process ends. So the import runs in a thread, which an interrupt does not reach, and the caller waits for it.
"""

from __future__ import annotations

import importlib
import re
import sys
from types import ModuleType

from hybrid_lab import _telemetry
from hybrid_lab.engines.freed_memory import keep_freed_memory
from hybrid_lab.engines.threads import passive_waiting
from hybrid_lab.engines.waiting import run_in_thread
from hybrid_lab.logger import logger

#: As in pyproject.toml; a build under another name of the package may be older.
OLDEST_ONNXRUNTIME = (1, 27)


def import_library(name: str) -> ModuleType:
    """The module. Raises what its import raises, and KeyboardInterrupt at once: the import then goes on in its thread,
    and the next call waits for it.
    """
    if name not in sys.modules:
        if name == "torch":  # said here, as what another thread says is no output of the caller's cell
            logger.info("importing torch, which takes a few seconds, once per process")
        own = {"torch": _load_torch, "onnxruntime": _load_onnxruntime}
        load = own.get(name, lambda: importlib.import_module(name))
        return run_in_thread(load, f"hybrid-lab-import-{name}").result()
    return importlib.import_module(name)


def _load_torch() -> ModuleType:
    """Import torch, whose threads then sleep while they wait, and keep freed memory for what its kernels allocate.
    A torch that was imported before is used as its user set it up.
    """
    with passive_waiting():
        torch = importlib.import_module("torch")
        torch.get_num_threads()  # LLVM's OpenMP reads the environment when it is first asked something
    keep_freed_memory()
    return torch


def _load_onnxruntime() -> ModuleType:
    """Import ONNX Runtime, without telemetry. A version older than this package asks for is named in a warning."""
    _telemetry.switch_off()  # before the import, which reports already; the user may have changed the environment
    module = importlib.import_module("onnxruntime")
    _telemetry.switch_off()
    version = tuple(int(number) for number in re.findall(r"\d+", module.__version__)[:2])
    if version < OLDEST_ONNXRUNTIME:
        logger.warning(
            f"onnxruntime {module.__version__} gives other numbers than eager calls for LayerNorm of large values and "
            f"for the error function of NaN; install {'.'.join(map(str, OLDEST_ONNXRUNTIME))} or newer"
        )
    return module
