"""Calls that Python cannot interrupt run in a thread, and the caller, who can be interrupted, waits for that thread."""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

#: Seconds between two checks for an interrupt, if waiting for a lock cannot be interrupted (Windows).
_CHECK = 0.1

T = TypeVar("T")


def run_in_thread(function: Callable[[], T], name: str, longest: float = math.inf) -> Future[T]:
    """The finished Future of `function()`. Raises TimeoutError after `longest` seconds, and KeyboardInterrupt as soon
    as it comes; the thread then goes on by itself.
    """
    return finished(started(function, name), longest)


def finished(outcome: Future[T], longest: float = math.inf) -> Future[T]:
    """The Future once it has finished. Raises as `run_in_thread` does."""
    left = longest
    while not wait([outcome], min(_CHECK, left)).done:
        left -= _CHECK
        if left <= 0:
            raise TimeoutError
    return outcome


def started(function: Callable[[], T], name: str, outcome: Future[T] | None = None) -> Future[T]:
    """The Future of `function()`, which runs in a thread of its own; `outcome`, if one is given."""
    outcome = Future() if outcome is None else outcome
    if sys.platform == "emscripten":  # Python in a browser has no threads: the caller does the work
        _fulfil(outcome, function)
        return outcome
    threading.Thread(target=_fulfil, args=(outcome, function), name=name).start()
    return outcome


def _fulfil(outcome: Future[T], function: Callable[[], T]) -> None:
    try:
        outcome.set_result(function())
    except BaseException as error:
        outcome.set_exception(error)
