"""Imports of the engines' libraries, which take seconds.

Python cannot resume an import that an interrupt stopped: torch's raises AttributeError or SystemError from then on,
until the process ends. So the import runs in a thread, which an interrupt does not reach, and the caller waits for it.

A fork waits for the end of such imports, because a child has none of its parent's threads: a module that is half
imported at the fork (in Python, in C++ or in the loader of shared libraries) would stay half imported in the child.
"""

from __future__ import annotations

import functools
import importlib
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from types import ModuleType

from hybrid_lab.engines.waiting import finished, started
from hybrid_lab.system import forks
from hybrid_lab.system import telemetry as _telemetry
from hybrid_lab.system.logger import logger
from hybrid_lab.system.memory import keep_freed_memory
from hybrid_lab.system.threads import passive_waiting

#: As in pyproject.toml; a build under another name of the package may be older.
OLDEST_ONNXRUNTIME = (1, 27)


def driver_seen() -> bool:
    """Whether the system shows the driver of an AMD or NVIDIA GPU. If not, nothing of Triton need be loaded to tell
    that it cannot run here.
    """
    return any(map(os.path.exists, ("/dev/kfd", "/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg")))


def import_library(name: str) -> ModuleType:
    """The module. Raises the errors of the import, and KeyboardInterrupt at once: the import then goes on in its
    thread, and the next call waits for it. ImportError in a process that was forked in the middle of its import.
    """
    if name in sys.modules and not _is_running(name):
        if name in cut_off:
            raise ImportError(
                f"this process was forked while its parent imported {name}, and cannot import it any more; import it "
                "before the fork, or use multiprocessing.get_context('spawn')",
                name=name,
            )
        return importlib.import_module(name)
    if name == "torch":  # said here, as what another thread says is no output of the caller's cell
        logger.info("importing torch, which takes a few seconds, once per process")
    return finished(_begun(name, functools.partial(load, name))).result()


def load(name: str) -> ModuleType:
    """Import a library as this package uses it, in this thread."""
    own = {"torch": _load_torch, "onnxruntime": _load_onnxruntime}
    return own[name]() if name in own else importlib.import_module(name)


# -- imports in threads -------------------------------------------------------------------------------------

_imports: dict[str, Future[ModuleType]] = {}
"""The last import of each library that was begun in a thread."""
_threads: dict[str, int] = {}
"""The system's number of the thread of each of these imports, until a fork has seen that the thread is gone."""
_early: set[str] = set()
_used: set[str] = set()
_lock = forks.lock()
#: Packages whose modules name torch although it has computed nothing.
_OF_TORCH = frozenset({"functorch", "hybrid_lab", "torch", "torchgen", "triton"})


def begin_import(name: str, load: Callable[[], ModuleType]) -> None:
    """Begin an import in a thread, before it is needed; `import_library` waits for its end. An import that fails is
    tried again there.
    """
    _early.add(name)
    _begun(name, load)


def is_begun(name: str) -> bool:
    """Whether `begin_import` was called for this library."""
    return name in _early


def outcome_of(name: str) -> Future[ModuleType] | None:
    """The Future of the last import of this library in a thread."""
    return _imports.get(name)


def _begun(name: str, load: Callable[[], ModuleType]) -> Future[ModuleType]:
    """The import that is running, or a new one."""
    with _lock:
        if not _is_running(name):
            _wait_at_forks()
            outcome: Future[ModuleType] = Future()

            def noted() -> ModuleType:
                _imports[name] = outcome  # here, too: an interrupt of the caller may come once this thread has started
                _threads[name] = threading.get_native_id()
                return load()

            _imports[name] = started(noted, _thread_name(name), outcome)
        return _imports[name]


def _is_running(name: str) -> bool:
    outcome = _imports.get(name)
    return outcome is not None and not outcome.done()


def use(name: str) -> None:
    """Note that an engine computes with a library from now on."""
    _used.add(name)


def is_idle(name: str) -> bool:
    """Whether a library was imported by `begin_import` alone, and has computed nothing: its threads are not started
    then, and a forked child may use it.
    """
    library = sys.modules.get(name)
    if library is None or name not in _early or name in _used:
        return False
    others = [module for path, module in list(sys.modules.items()) if path.partition(".")[0] not in _OF_TORCH]
    return not any(value is library for module in others for value in list(getattr(module, "__dict__", {}).values()))


def _thread_name(name: str) -> str:
    return f"hybrid-lab-import-{name}"


# -- forks in the middle of an import ------------------------------------------------------------------------

#: Seconds that a fork waits at most. An import takes longer only if it needs a lock that the forking thread holds; then
#: the process forks all the same, and the child cannot use the library.
LONGEST_WAIT = 120.0
#: Libraries whose native code cannot be loaded anew if a part of it is loaded.
_NATIVE = ("torch", "onnxruntime", "triton")
#: In a forked child: libraries that it can neither use nor import, because the fork was in the middle of their import.
cut_off: set[str] = set()
_interrupted = False


@functools.cache
def _wait_at_forks() -> None:
    """Called before the first import begins: the hooks registered last run first, so that no lock of an earlier hook,
    such as logging's, is held during the wait.
    """
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=_wait_before_fork, after_in_parent=_interrupt_after_fork)


def _wait_before_fork() -> None:
    """Wait for the imports that other threads are at, and for the end of these threads. An interrupt is kept until the
    fork is done: Python ignores exceptions of a function that runs before a fork, and the child needs the whole import.
    """
    global _interrupted
    until, told = time.monotonic() + LONGEST_WAIT, False
    while True:
        try:
            thread = threading.current_thread().name
            running = {name: outcome for name, outcome in list(_imports.items()) if thread != _thread_name(name)}
            running = {name: outcome for name, outcome in running.items() if not outcome.done()}
            if not running:
                _wait_for_threads(until)
                return
            names = " and ".join(running)
            if not told:
                told = True
                logger.info(f"a fork waits for the end of the import of {names}, once per process")
            wait(running.values(), max(0.0, until - time.monotonic()))
            if time.monotonic() >= until:
                logger.warning(
                    f"the import of {names} did not end within {LONGEST_WAIT:g} s, and the process forks: the child "
                    f"cannot use {names}. Processes of multiprocessing.get_context('spawn') can"
                )
                return
        except KeyboardInterrupt:
            _interrupted = True


def _wait_for_threads(until: float) -> None:
    """Wait until the system has ended the threads of finished imports, at most until this time of `time.monotonic`.
    After its last Python code a thread runs the destructors of libraries, which hold locks: of MKL's memory, for one.
    """
    for name, thread in list(_threads.items()):
        if thread != threading.get_native_id():
            while os.path.exists(f"/proc/self/task/{thread}") and time.monotonic() < until:
                time.sleep(0.001)
            _threads.pop(name, None)


def _interrupt_after_fork() -> None:
    global _interrupted
    if _interrupted:
        _interrupted = False
        main = threading.main_thread().ident
        # Soon the caller of os.fork runs again, which can raise. A signal also wakes one who waits.
        threading.Timer(0.1, signal.pthread_kill, (main, signal.SIGINT)).start()


def _forked() -> None:
    """In the child: importing a library raises ImportError if a thread of the parent was importing it at the fork."""
    global _interrupted
    _interrupted = False
    _threads.clear()
    for name in _NATIVE:
        if name in forks.half_imported:
            sys.modules[name] = None  # type: ignore[assignment]  # Python's own sign for it
            cut_off.add(name)
    for name in list(_imports):  # none is asked whether it is done: a thread that is not here may hold its lock
        if threading.current_thread().name != _thread_name(name):
            del _imports[name]
            if name not in sys.modules:
                _early.discard(name)


forks.in_child(_forked)


# -- how each library is imported ----------------------------------------------------------------------------


def _load_torch() -> ModuleType:
    """Import torch, whose threads then sleep while they wait, and keep freed memory for its kernels. A torch that was
    imported before is used as its user set it up.
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
    if problem := _of_old_onnxruntime(module):
        logger.warning(problem)
    return module


def _of_old_onnxruntime(module: ModuleType) -> str:
    version = tuple(int(number) for number in re.findall(r"\d+", module.__version__)[:2])
    if version >= OLDEST_ONNXRUNTIME:
        return ""
    return (
        f"onnxruntime {module.__version__} gives other numbers than eager calls for LayerNorm of large values and "
        f"for the error function of NaN; install {'.'.join(map(str, OLDEST_ONNXRUNTIME))} or newer"
    )


def problems() -> list[str]:
    """Unexpected behaviour of the imported libraries; `mx.explain` tells it."""
    module = sys.modules.get("onnxruntime")
    return [] if module is None or not (problem := _of_old_onnxruntime(module)) else [problem]
