"""Records events of the profiler: calls of operators, compiled graphs and Executors, and the user's own events."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any, NamedTuple

from hybrid_lab.diagnostics.errors import HybridLabError
from hybrid_lab.hybridize.calls import GraphCalls
from hybrid_lab.mxnet.executor.executor import Executor
from hybrid_lab.ndarray import backward as backwards
from hybrid_lab.ndarray import invoke as invoking

OPERATOR, GRAPH, BACKWARD, EXECUTOR = "operator", "compiled graph", "backward", "executor"
"""Categories of what is recorded without the user's doing."""


class ProfilerError(HybridLabError, RuntimeError):
    """The profiler cannot run, or was used in a wrong way."""


class Event(NamedTuple):
    """Something that took a time, or happened at one.

    phase : X for a span of time, C for the value of a counter, i for an instant
    start, duration : nanoseconds; value : of a counter; scope : of an instant: g, p or t
    """

    name: str
    category: str
    phase: str
    start: int
    duration: int = 0
    thread: int = 0
    value: float = 0
    scope: str = "p"

    def as_trace(self) -> dict[str, object]:
        """The event in Chrome's trace format, in microseconds."""
        trace: dict[str, object] = {
            "name": self.name,
            "cat": self.category,
            "ph": self.phase,
            "ts": self.start / 1000,
            "pid": os.getpid(),
            "tid": self.thread,
        }
        if self.phase == "X":
            trace["dur"] = self.duration / 1000
        elif self.phase == "C":
            trace["args"] = {self.name: self.value}
        else:
            trace["s"] = self.scope
        return trace


class _Watched(NamedTuple):
    """A function of this package whose calls are recorded. name : from the frame of the call"""

    category: str
    name: Callable[[FrameType], str]


def _watched() -> dict[CodeType, _Watched]:
    def operator(frame: FrameType) -> str:
        return str(frame.f_locals["op"].name)

    def block(frame: FrameType) -> str:
        return str(frame.f_locals["self"].block.name)

    def executor(frame: FrameType) -> str:
        return f"{frame.f_locals['self'].symbol.name or 'group'}.{frame.f_code.co_name}"

    return {
        invoking.invoke.__code__: _Watched(OPERATOR, operator),
        invoking.invoke_pair.__code__: _Watched(OPERATOR, operator),
        GraphCalls.__call__.__code__: _Watched(GRAPH, block),
        GraphCalls.call_one.__code__: _Watched(GRAPH, block),
        backwards.backward.__code__: _Watched(BACKWARD, lambda frame: "backward"),
        Executor.forward.__code__: _Watched(EXECUTOR, executor),
        Executor.backward.__code__: _Watched(EXECUTOR, executor),
    }


class _Running(threading.local):
    """Per thread: the watched calls that have not returned, outermost first, and the names of the user's scopes."""

    def __init__(self) -> None:
        self.calls: list[tuple[FrameType, _Watched, str, int]] = []
        self.scopes: list[str] = []


class EventRecorder:
    """The events of this process. It listens as Python's profile function (`sys.setprofile`), so that calls have no
    cost from it while it does not run.

    categories : the recorded categories
    """

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.categories: frozenset[str] = frozenset()
        self.running = False
        self.paused = False
        self._watched = _watched()
        self._local = _Running()

    def start(self) -> None:
        """Listen in this thread, and in threads that start from now on. Raises ProfilerError beside another profiler
        of Python.
        """
        if self.running:
            return
        if sys.getprofile() is not None:
            raise ProfilerError("another profiler of Python is running in this thread, such as cProfile; stop it first")
        self.running, self.paused = True, False
        threading.setprofile(self._hear)
        sys.setprofile(self._hear)

    def stop(self) -> None:
        """Listen no longer; the events stay."""
        if self.running:
            self.running = False
            threading.setprofile(None)
            if sys.getprofile() == self._hear:
                sys.setprofile(None)
        self._local.calls.clear()

    def add(self, event: Event) -> None:
        """Keep an event, unless the profiler is stopped or paused."""
        if self.running and not self.paused:
            self.events.append(event)

    @contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """Put `name` before the names of events recorded inside, in this thread."""
        self._local.scopes.append(name)
        try:
            yield
        finally:
            self._local.scopes.pop()

    def _hear(self, frame: FrameType, event: str, result: object) -> None:
        watched = self._watched.get(frame.f_code)
        if watched is None:
            return
        calls = self._local.calls
        if event == "call" and self.running:
            if watched.category in self.categories and not any(call[1].category == watched.category for call in calls):
                calls.append((frame, watched, watched.name(frame), time.perf_counter_ns()))
        elif event == "return" and calls and calls[-1][0] is frame:
            _, _, name, start = calls.pop()
            duration = time.perf_counter_ns() - start
            name = "".join(f"{scope}:" for scope in self._local.scopes) + name
            self.add(Event(name, watched.category, "X", start, duration, threading.get_ident()))


def span(name: str, category: str, start: int) -> Event:
    """The event of something that began at `start` and ends now."""
    return Event(name, category, "X", start, time.perf_counter_ns() - start, threading.get_ident())


def moment(name: str, category: str, phase: str, **facts: Any) -> Event:
    """An event without duration, now."""
    return Event(name, category, phase, time.perf_counter_ns(), 0, threading.get_ident(), **facts)


recorder = EventRecorder()
