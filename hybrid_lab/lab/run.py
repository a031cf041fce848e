"""A training run: the loops that one cell, or one script, shows with a bar, and the curves of its values.

Values are kept as they are logged and read now and then: a read of an array makes the program wait for its GPU.
"""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from hybrid_lab.diagnostics.words import count
from hybrid_lab.lab.gradient_norm import gradient_norm
from hybrid_lab.lab.series import Series
from hybrid_lab.logger import logger
from hybrid_lab.ndarray import NDArray

if TYPE_CHECKING:
    from hybrid_lab.gluon.trainer import Trainer

RunState = Literal["running", "done", "stopped", "interrupted", "failed"]

SHARE = 3000
"""Reading, measuring and the norm of the gradients each take at most one part in so many of the time, drawing nine:
together 0.4%."""
NAMES = 32
"""Most series of one run."""
LOOPS = 8
"""Most loops of one run that are shown one by one, apart from those inside of others."""
ON_DEVICE, DRAW = 0.25, 0.5
"""Least seconds between two reads from a GPU, and between two drawings."""


class Pace:
    """When an action is due again: at least `least` seconds later, and when SHARE times its own duration, over `parts`,
    has passed. The first time does not count, which imports and allocates.
    """

    def __init__(self, least: float = 0.0, parts: int = 1):
        self.least, self.parts = least, parts
        self.due = -math.inf

    def ended(self, started: float) -> float:
        """Note that the action took place since `started`; returns its seconds."""
        now, is_first = perf_counter(), self.due == -math.inf
        self.due = now + max(self.least, 0.0 if is_first else SHARE / self.parts * (now - started))
        return now - started


class Loop:
    """One `progress` loop.

    done : steps that ended; total : all steps, or None; depth : number of loops around it
    rate : steps a second of late, 0.0 while it is not known
    """

    def __init__(self, title: str, unit: str, total: int | None, depth: int):
        self.title, self.unit, self.total, self.depth = title, unit, total, depth
        self.done, self.rate = 0, 0.0
        self.state: RunState = "running"
        self.started = perf_counter()
        self.ended: float | None = None
        self._mark = (self.started, 0)

    @property
    def seconds(self) -> float:
        """How long it has run."""
        return (perf_counter() if self.ended is None else self.ended) - self.started

    def measure(self) -> None:
        """Bring `rate` up to date: a mean in which each second counts a third less than the one after it."""
        now = perf_counter()
        then, done = self._mark
        if now - then < 0.2 or self.done == done:
            return
        recent, weight = (self.done - done) / (now - then), 1 - 0.67 ** (now - then)
        self.rate = self.rate + weight * (recent - self.rate) if self.rate else recent
        self._mark = (now, self.done)

    def close(self, state: RunState) -> None:
        """Note how it ended."""
        if self.ended is None:
            self.ended, self.state = perf_counter(), state


class Run:
    """One run.

    number : unique in this process; label : `cell 5`, or ""; reason : the error that ended it, or ""
    loops : those under way, and the last ones that ended; earlier_loops : number of those before them
    lock : held while values are added and read
    steps : calls of `step` of the first Trainer, over which the curves are drawn
    overhead : seconds that reading, measuring and drawing took
    """

    def __init__(self, number: int, label: str):
        self.number, self.label = number, label
        self.state: RunState = "running"
        self.reason = ""
        self.loops: list[Loop] = []
        self.earlier_loops = 0
        self.series: dict[str, Series] = {}
        self.left_out: set[str] = set()
        self.steps, self.overhead = 0, 0.0
        self.started = perf_counter()
        self.ended: float | None = None
        self.views: list[Callable[[Run], None]] = []
        self.logged = False
        self._waiting: dict[str, tuple[int, Any]] = {}
        self._counts: dict[str, int] = {}
        self._read, self._draw, self._train, self._norm = Pace(), Pace(DRAW, parts=9), Pace(), Pace()
        self._trainer: Callable[[], object] = lambda: None
        self._last_step: tuple[float, int, float] | None = None
        self.lock = threading.RLock()
        self.due = -math.inf

    @property
    def seconds(self) -> float:
        """How long it has run."""
        return (perf_counter() if self.ended is None else self.ended) - self.started

    @property
    def open_loops(self) -> list[Loop]:
        """The loops under way, outer ones first."""
        return [loop for loop in self.loops if loop.ended is None]

    # -- told by the training -----------------------------------------------------------------------------

    def log(self, values: dict[str, Any]) -> None:
        """Take one value of each name. Raises TypeError, at the latest at a later call, for what is no number."""
        self.logged = True
        for name, value in values.items():
            own = self._counts[name] = self._counts.get(name, 0) + 1
            self._waiting[name] = (self.steps or own, value)
        self.tick()

    def stepped(self, trainer: Trainer) -> None:
        """A Trainer ended a step."""
        if self._trainer() is not trainer:
            if self._trainer() is not None:
                return  # a second one, of the same run
            self._trainer = weakref.ref(trainer)
        self.steps += 1
        started = perf_counter()
        if started >= self._train.due and self.lock.acquire(blocking=False):
            try:
                self._measure(trainer, started)
                self.overhead += self._train.ended(started)
                self._measure_norm(trainer)
            finally:
                self.lock.release()
        self.tick()

    def _measure(self, trainer: Trainer, now: float) -> None:
        """Step time and learning rate."""
        if self._last_step is not None:
            then, steps, overhead = self._last_step
            own = self.overhead - overhead
            self._add("step time", self.steps, 1e3 * max(0.0, now - then - own) / (self.steps - steps))
        self._last_step = now, self.steps, self.overhead
        self._add("learning rate", self.steps, float(trainer.learning_rate))

    def _measure_norm(self, trainer: Trainer) -> None:
        """The norm of the gradients, at a pace of its own: it reads all of them."""
        started = perf_counter()
        if started < self._norm.due:
            return
        norm, on_device = gradient_norm(trainer)
        self._norm.least = ON_DEVICE if on_device else 0.0
        if norm is not None:
            self._add("gradient norm", self.steps, norm)
        self.overhead += self._norm.ended(started)

    def tick(self) -> None:
        """Read the values that wait and draw, where that is due."""
        started = perf_counter()
        if started < self.due or not self.lock.acquire(blocking=False):
            return
        try:
            if started >= self._read.due:
                self._read_values()
                self.overhead += self._read.ended(started)
            started = perf_counter()
            if started >= self._draw.due:
                self._show()
                self.overhead += self._draw.ended(started)
            self.due = min(self._read.due, self._draw.due)
        finally:
            self.lock.release()

    def _read_values(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for name, (step, value) in waiting.items():
            if is_on_device(value):
                self._read.least = ON_DEVICE
            self._add(name, step, as_number(name, value))

    def _add(self, name: str, step: int, value: float) -> None:
        series = self.series.get(name)
        if series is None:
            if len(self.series) >= NAMES:
                self.left_out.add(name)
                return
            series = self.series[name] = Series()
        series.add(step, value)

    def _show(self) -> None:
        for loop in self.open_loops:
            loop.measure()
        for view in self.views:
            try:
                view(self)
            except Exception as error:  # a front end of any kind: a drawing must not end a training
                logger.debug("the progress of a training could not be shown", exc_info=error)

    # -- the end ------------------------------------------------------------------------------------------

    def open(self, loop: Loop) -> None:
        """A loop starts."""
        with self.lock:
            outer = [each for each in self.loops if each.ended is not None and each.depth == 0]
            dropped = outer[: max(0, len(outer) - LOOPS + 1)] if loop.depth == 0 else []
            self.earlier_loops += len(dropped)
            inner = [each for each in self.loops if each.ended is not None and each.depth >= max(1, loop.depth)]
            self.loops = [each for each in self.loops if each not in dropped and each not in inner]
            self.loops.append(loop)
            self.due = self._draw.due = min(self._draw.due, 0.0)
        self.tick()

    def close(self, loop: Loop, state: RunState) -> None:
        """A loop ended."""
        loop.close(state)
        if loop.depth == 0:
            if state == "done":
                self.loops = [each for each in self.loops if each.depth == 0]
            self.show_all()

    def show_all(self) -> None:
        """Read everything that waits and draw it."""
        with self.lock:
            self._read_values()
            self._show()

    def finish(self, state: RunState, reason: str = "") -> None:
        """The cell ended, and with it the loops that it left open."""
        for loop in self.open_loops:
            loop.close("stopped" if state == "done" else state)
        with self.lock:
            self.ended, self.state, self.reason = perf_counter(), state, reason
            try:
                self._read_values()
            except Exception as error:  # a value that is no number, in a training that ended by an error of its own
                logger.debug("a logged value could not be read", exc_info=error)
            self._show()
            self._waiting.clear()
            self._trainer = lambda: None

    @property
    def note(self) -> str:
        """A sentence about names that were left out, or ""."""
        if not self.left_out:
            return ""
        return f"A run keeps {NAMES} curves: {count(len(self.left_out), 'name')} more were logged."


def is_on_device(value: object) -> bool:
    """Whether a read of the value waits for a GPU."""
    return isinstance(value, NDArray) and value.buffer.device is not None and value.buffer.host_stale


def as_number(name: str, value: object) -> float:
    """A number, or the mean of an array. Raises TypeError."""
    if isinstance(value, (float, int)):
        return float(value)
    array = value.asnumpy() if isinstance(value, NDArray) else np.asarray(value)
    try:
        if array.size and array.dtype.kind not in "OSUcmM":
            return float(np.mean(array, dtype=np.float64))
    except (TypeError, ValueError):
        pass
    what = "an empty array" if array.size == 0 else type(value).__name__
    raise TypeError(f"mx.log takes a number or an array of numbers for {name!r}, not {what}")
