"""Making a session within limits: an interrupt comes through, and a session that takes too long is given up.

ONNX Runtime makes a session in one call, which Python cannot interrupt and which has no time limit. So the call runs in
its own thread, and callers that need the session wait for that thread.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from hybrid_lab.diagnostics.errors import EngineError
from hybrid_lab.engines.libraries import import_library
from hybrid_lab.engines.waiting import run_in_thread

#: Seconds that a session may take, and seconds more per node: twenty times the time measured on a busy machine.
LONGEST, LONGEST_PER_NODE = 20.0, 0.02


@functools.cache
def native_errors() -> tuple[type[Exception], ...]:
    """The exceptions that ONNX Runtime raises: its own, which have no common base class, and Python's, to which
    pybind11 converts C++ exceptions.
    """
    native = import_library("onnxruntime").capi._pybind_state  # noqa: SLF001 - its only name
    own = [item for item in vars(native).values() if isinstance(item, type) and issubclass(item, Exception)]
    return (*own, ArithmeticError, LookupError, MemoryError, RuntimeError, TypeError, ValueError)


class TooLong(EngineError):
    """ONNX Runtime took longer over a session than it may."""


def load(make: Callable[[], Any], cancel: Callable[[], object], longest: float) -> Any:
    """The result of `make()`, which runs in a thread. Raises the errors of `make`, TooLong after `longest` seconds, and
    KeyboardInterrupt as soon as it comes.

    cancel : asks `make` to stop, if it is given up. The thread ends by itself; only the end of the process waits for
        it, because ONNX Runtime aborts a process that ends meanwhile
    """
    try:
        outcome = run_in_thread(make, "hybrid-lab-session", longest)
    except TimeoutError:
        cancel()
        raise TooLong(f"ONNX Runtime had no session ready after {longest:.0f} s") from None
    except BaseException:
        cancel()
        raise
    return outcome.result()
