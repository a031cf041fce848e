"""The user's own events: domains, tasks, frames, counters and markers."""

from __future__ import annotations

import time
from typing import Self

from hybrid_lab.diagnostics.errors import SettingError
from hybrid_lab.diagnostics.formatting import check_choice

from .recording import ProfilerError, moment, recorder, span

_MARKER_SCOPES = {"global": "g", "process": "p", "thread": "t"}


class Domain:
    """A group of events: the category under which they stand.

    name : shown in the trace and in the statistics
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def __str__(self) -> str:
        return self.name

    def new_task(self, name: str) -> Task:
        """A Task of this domain."""
        return Task(self, name)

    def new_frame(self, name: str) -> Frame:
        """A Frame of this domain."""
        return Frame(self, name)

    def new_counter(self, name: str, value: float | None = None) -> Counter:
        """A Counter of this domain."""
        return Counter(self, name, value)

    def new_marker(self, name: str) -> Marker:
        """A Marker of this domain."""
        return Marker(self, name)


class _Span:
    """Base of objects that are started and stopped; also a context manager. Raises ProfilerError for `stop` before
    `start`.
    """

    def __init__(self, name: str, category: str) -> None:
        self.name = name
        self._category = category
        self._start: int | None = None

    def start(self) -> None:
        """Begin to measure the time."""
        self._start = time.perf_counter_ns()

    def stop(self) -> None:
        """Record the time since `start`, if the profiler runs."""
        if self._start is None:
            raise ProfilerError(f"{type(self).__name__} {self.name!r} was not started")
        recorder.add(span(self.name, self._category, self._start))
        self._start = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def __str__(self) -> str:
        return self.name


class Task(_Span):
    """A piece of work that may run beside other work, `task.start()` and `task.stop()` or `with task:`."""

    def __init__(self, domain: Domain, name: str) -> None:
        super().__init__(name, domain.name)
        self.domain = domain


class Frame(_Span):
    """One of several pieces of work that follow each other, such as the steps of a training."""

    def __init__(self, domain: Domain, name: str) -> None:
        super().__init__(name, domain.name)
        self.domain = domain


class Event(_Span):
    """A piece of work without a domain."""

    def __init__(self, name: str) -> None:
        super().__init__(name, "event")


class Counter:
    """A number that is recorded whenever it changes: `counter += 1`. value : to begin with"""

    def __init__(self, domain: Domain, name: str, value: float | None = None) -> None:
        self.domain, self.name = domain, name
        self._value: float = 0
        if value is not None:
            self.set_value(value)

    def set_value(self, value: float) -> None:
        """Set the number and record it."""
        self._value = value
        recorder.add(moment(self.name, self.domain.name, "C", value=value))

    def increment(self, delta: float = 1) -> None:
        """Add to the number."""
        self.set_value(self._value + delta)

    def decrement(self, delta: float = 1) -> None:
        """Subtract from the number."""
        self.set_value(self._value - delta)

    def __iadd__(self, delta: float) -> Counter:
        self.increment(delta)
        return self

    def __isub__(self, delta: float) -> Counter:
        self.decrement(delta)
        return self

    def __str__(self) -> str:
        return self.name


class Marker:
    """A point in time."""

    def __init__(self, domain: Domain, name: str) -> None:
        self.domain, self.name = domain, name

    def mark(self, scope: str = "process") -> None:
        """Record it now. scope : how far the line reaches in the picture, 'global', 'process' or 'thread'"""
        check_choice("Marker.mark: scope", scope, tuple(_MARKER_SCOPES), SettingError)
        recorder.add(moment(self.name, self.domain.name, "i", scope=_MARKER_SCOPES[scope]))
