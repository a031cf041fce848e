"""Imports of the engines' libraries, which take seconds.

Python cannot resume an import that an interrupt stopped: torch's raises AttributeError or SystemError from then on,
until the process ends. So the import runs in a thread, which an interrupt does not reach, and the caller waits for it.
"""

from __future__ import annotations

import functools
import importlib
import re
import sys
from collections.abc import Callable
from concurrent.futures import Future
from types import ModuleType

from hybrid_lab import _telemetry
from hybrid_lab.engines.freed_memory import keep_freed_memory
from hybrid_lab.engines.threads import passive_waiting
from hybrid_lab.engines.waiting import finished, started
from hybrid_lab.logger import logger

#: As in pyproject.toml; a build under another name of the package may be older.
OLDEST_ONNXRUNTIME = (1, 27)


def import_library(name: str) -> ModuleType:
    """The module. Raises what its import raises, and KeyboardInterrupt at once: the import then goes on in its thread,
    and the next call waits for it.
    """
    outcome = _begun.get(name)
    if name not in sys.modules or (outcome is not None and not outcome.done()):
        if name == "torch":  # said here, as what another thread says is no output of the caller's cell
            logger.info("importing torch, which takes a few seconds, once per process")
        if outcome is None or outcome.done():
            outcome = started(functools.partial(load, name), _thread_name(name))
        return finished(outcome).result()
    return importlib.import_module(name)


def load(name: str) -> ModuleType:
    """Import a library as this package uses it, in this thread."""
    own = {"torch": _load_torch, "onnxruntime": _load_onnxruntime}
    return own[name]() if name in own else importlib.import_module(name)


# -- imports that are begun before they are needed ----------------------------------------------------------

_begun: dict[str, Future[ModuleType]] = {}
_used: set[str] = set()
#: Packages whose modules name torch although nobody has computed with it.
_OF_TORCH = frozenset({"functorch", "hybrid_lab", "torch", "torchgen", "triton"})


def begin_import(name: str, load: Callable[[], ModuleType]) -> None:
    """Begin an import in a thread; `import_library` waits for its end. An import that fails is tried again there."""
    _begun[name] = started(load, _thread_name(name))


def is_begun(name: str) -> bool:
    """Whether `begin_import` was called for this library."""
    return name in _begun


def outcome_of(name: str) -> Future[ModuleType] | None:
    """The Future of an import that was begun."""
    return _begun.get(name)


def use(name: str) -> None:
    """Note that an engine computes with a library from now on."""
    _used.add(name)


def is_idle(name: str) -> bool:
    """Whether a library was imported by `begin_import` alone, and nobody has computed with it: its threads are not
    started then, and a forked child may use it.
    """
    library = sys.modules.get(name)
    if library is None or name not in _begun or name in _used:
        return False
    others = [module for path, module in list(sys.modules.items()) if path.partition(".")[0] not in _OF_TORCH]
    return not any(value is library for module in others for value in list(getattr(module, "__dict__", {}).values()))


def _thread_name(name: str) -> str:
    return f"hybrid-lab-import-{name}"


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
