"""Pools of threads. Python in a browser starts no threads: a pool runs its work in the caller's thread there."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")


class CallersThread(Executor):
    """An executor whose work is done when `submit` returns."""

    def submit(self, fn: Callable[_P, _R], /, *args: _P.args, **kwargs: _P.kwargs) -> Future[_R]:
        """The Future of a call that has ended, with its result or its error."""
        future: Future[_R] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


def thread_pool(count: int, name: str = "") -> Executor:
    """A pool of at most `count` threads, whose names begin with `name`."""
    if sys.platform == "emscripten":
        return CallersThread()
    return ThreadPoolExecutor(count, thread_name_prefix=name)
