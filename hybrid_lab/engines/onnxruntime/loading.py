"""Making a session within limits: an interrupt comes through, and a session that takes too long is given up.

ONNX Runtime makes a session in one call, which Python cannot interrupt and which has no time limit. So the call runs in
a thread of its own, and whoever needs the session waits for that thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any

from hybrid_lab.diagnostics.errors import EngineError

#: Seconds that a session may take, and seconds more per node: twenty times what a busy machine was seen to take.
LONGEST, LONGEST_PER_NODE = 20.0, 0.02
#: Seconds between two looks for an interrupt, where waiting for a lock cannot be interrupted (Windows).
_LOOK = 0.1


class TooLong(EngineError):
    """ONNX Runtime took longer over a session than it may."""


def load(make: Callable[[], Any], cancel: Callable[[], object], longest: float) -> Any:
    """The result of `make()`, which runs in a thread. Raises what it raises, TooLong after `longest` seconds, and
    KeyboardInterrupt as soon as it comes.

    cancel : asks `make` to stop, where it is given up. The thread ends by itself; only the end of the process waits for
        it, because ONNX Runtime aborts a process that ends meanwhile
    """
    outcome: Future[Any] = Future()
    thread = threading.Thread(target=_fulfil, args=(outcome, make), name="hybrid-lab-session")
    left = longest
    try:
        thread.start()
        while not wait([outcome], min(_LOOK, left)).done:
            left -= _LOOK
            if left <= 0:
                raise TooLong(f"ONNX Runtime had no session ready after {longest:.0f} s")
    except BaseException:
        cancel()
        raise
    return outcome.result()


def _fulfil(outcome: Future[Any], make: Callable[[], Any]) -> None:
    try:
        outcome.set_result(make())
    except BaseException as error:
        outcome.set_exception(error)
