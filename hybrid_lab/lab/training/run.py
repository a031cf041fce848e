"""A training run: the loops that one cell, or one script, shows with a bar, and the curves of its values.

Every value counts. Values on the host are kept as they are logged, and brought into the curves some dozens at a time.
Values on a GPU are read later, so that the program does not wait for them.
"""

from __future__ import annotations

import math
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from hybrid_lab.diagnostics.formatting import count
from hybrid_lab.gluon import access
from hybrid_lab.gluon.step import boundary
from hybrid_lab.lab.training.gradient_norm import gradient_norm, is_of_last_step
from hybrid_lab.lab.training.logged import SMALL, OnDevice, Ring, means_of, number_of
from hybrid_lab.lab.training.series import Series
from hybrid_lab.ndarray import NDArray
from hybrid_lab.system import forks
from hybrid_lab.system.logger import logger

if TYPE_CHECKING:
    from hybrid_lab.gluon.trainer import Trainer
    from hybrid_lab.lab.training.keeper import RunKeeper

RunState = Literal["running", "done", "stopped", "interrupted", "failed"]

SHARE, NORM_SHARE = 1000, 4000
"""Drawing takes at most one part in so many of the time, the norm of the gradients one in so many: together 0.13%."""
WAITING = 256
"""So many values wait until they are brought into their series: many at once take a tenth of the time. More would not
stay in the processor's cache.
"""
NAMES = 32
"""Most series of one run."""
MORE_NAMES = 1000
"""Most names that are counted beyond them."""
LOOPS = 8
"""Most loops of one run that are shown one by one, apart from those inside of others."""
DRAW, ON_DEVICE = 0.5, 0.25
"""Least seconds between two drawings, and between two norms of gradients on a GPU."""
OTHER_STEPS = 8
"""After so many steps of another Trainer in a row the run follows that one: a second training in the same cell."""


_Logged: TypeAlias = tuple[int, dict[str, Any]]
"""A step, and the values of one call: numbers, the `ArrayBytes` of small arrays, and means that a GPU computes."""
_Step: TypeAlias = tuple[int, float, float]
"""A step, when it ended by a clock that stood still during the overhead, and its learning rate."""


class Pace:
    """When an action is due again: at least `least` seconds later, and when `share` times its usual duration has
    passed, the mean of the last ones. The first time does not count, which imports and allocates.
    """

    def __init__(self, share: int, least: float = 0.0):
        self.share, self.least = share, least
        self.due = -math.inf
        self._recent: deque[float] = deque(maxlen=5)

    def ended(self, started: float) -> float:
        """Note that the action took place since `started`; returns its seconds."""
        now, is_first = perf_counter(), self.due == -math.inf
        if not is_first:
            self._recent.append(now - started)
        usual = sum(self._recent) / len(self._recent) if self._recent else 0.0
        self.due = now + max(self.least, self.share * usual)
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


@dataclass(frozen=True)
class TrainerFacts:
    """The settings of a Trainer's optimizer, and one of its parameters, by which its model is found."""

    settings: dict[str, object]
    parameter: Callable[[], object]

    @staticmethod
    def of(trainer: Trainer) -> TrainerFacts:
        """The facts of a Trainer after its first step."""
        optimizer = trainer.optimizer
        known = {"lr": "learning_rate", "wd": "wd"}
        settings: dict[str, object] = {"optimizer": type(optimizer).__name__}
        for name, value in optimizer.hyperparameters().items():
            if name not in _SAYS_NOTHING and value is not None:
                settings[known.get(name, name)] = value
        if optimizer.lr_scheduler is not None:
            settings["lr_scheduler"] = type(optimizer.lr_scheduler).__name__
        batch = 1 / optimizer.rescale_grad if optimizer.rescale_grad else 0.0
        if batch >= 1 and abs(batch - round(batch)) < 1e-6 * batch:
            settings["batch_size"] = round(batch)
        trained = access.trainer_parameters(trainer)
        return TrainerFacts(settings, weakref.ref(trained[0]) if trained else lambda: None)


_SAYS_NOTHING = frozenset({"rescale_grad", "begin_num_update", "multi_precision", "lazy_update", "lr_scheduler"})
"""Settings of optimizers by which trainings do not differ."""


_T = TypeVar("_T")


def _taken(queue: deque[_T]) -> list[_T]:
    """Take what is in the queue. Others may add more meanwhile, at the end."""
    return [queue.popleft() for _ in range(len(queue))]


def _forwards(series: Series, steps: Sequence[int]) -> Sequence[int]:
    """The steps of values that come now: none is before the last one of the series. Step 0 is before the first step of
    a Trainer; there the number of the value counts.
    """
    if not steps or (steps[0] >= max(1, series.last_step) and sorted(steps) == list(steps)):
        return steps
    numbered = [step or series.count + place for place, step in enumerate(steps, 1)]
    return list(accumulate(numbered, max, initial=series.last_step))[1:]


class Run:
    """One run.

    number : unique in this process; label : `cell 5`, or ""; reason : the error that ended it, or ""
    loops : the loops under way, and the last ones that ended; earlier_loops : number of the loops before them
    lock : held while values are added and read
    steps : calls of `step` of the Trainer that the run follows, over which the curves are drawn
    overhead : seconds that reading from a GPU, norms and drawing took
    trainer_facts : of the first Trainer; keeper : writes the run into a file; problem : why it is not kept, or ""
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
        self.trainer_facts: TrainerFacts | None = None
        self.keeper: RunKeeper | None = None
        self.problem = ""
        self._waiting: deque[_Logged] = deque()
        self._steps: deque[_Step] = deque()
        self._on_device = Ring()
        self._draw, self._norm = Pace(SHARE, DRAW), Pace(NORM_SHARE)
        #: the Trainer that the run follows, also after its end, for as long as it lives
        self.trainer: Callable[[], Trainer | None] = lambda: None
        self._trainer: Callable[[], object] = lambda: None
        self._optimizer: Any = None
        self._other: Callable[[], object] = lambda: None
        self._other_steps = 0
        self._just_stepped = False
        self._last_step: float | None = None
        self._norm_step = 0
        self.lock = forks.rlock()
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
        """Take one value of each name; the dict is kept. Raises TypeError for what is no number; then none is taken."""
        for name, value in values.items():
            if type(value) is float:
                continue
            if (
                isinstance(value, NDArray)
                and not value.buffer.host_stale
                and 0 < (host := value.host_view).size <= SMALL
            ):
                values[name] = host.tobytes(), host.dtype  # its mean can wait
            else:
                values[name] = number_of(name, value)
        self._waiting.append((self.steps, values))
        self.logged = True
        if len(self._waiting) * len(values) >= WAITING or self.ended is not None:
            self.take()
        if self._just_stepped:
            self._just_stepped = False  # the step looked at the clock, and so will the next one, or the next value
        elif perf_counter() >= self.due:
            self.tick()

    def stepped(self, trainer: Trainer) -> None:
        """A Trainer ended a step."""
        now = perf_counter()
        if self._trainer() is not trainer and not self._follows(trainer):
            return
        self._other_steps = 0
        self.steps += 1
        optimizer = self._optimizer
        rate = optimizer.lr if optimizer.lr_scheduler is None else optimizer.learning_rate
        self._steps.append((self.steps, now - self.overhead, rate))
        if len(self._steps) >= WAITING:
            self.take()
        if now >= self._norm.due:
            self._measure_norm(trainer)
        if now >= self.due:
            self.tick()
        self._just_stepped = True

    def _follows(self, trainer: Trainer) -> bool:
        """Whether the steps of the run are now this other Trainer's: it is the first, or it has stepped alone for a
        while.
        """
        with self.lock:
            if self._trainer() is not None:
                self._other_steps = self._other_steps + 1 if self._other() is trainer else 1
                self._other = weakref.ref(trainer)
                if self._other_steps < OTHER_STEPS:
                    return False
            self.take()
            self._trainer = self.trainer = weakref.ref(trainer)
            self._optimizer, self._last_step = trainer.optimizer, None
            if self.trainer_facts is None:
                self.trainer_facts = TrainerFacts.of(trainer)
            return True

    def _measure_last_norm(self) -> None:
        """The norm at the last step, so that the curve comes to the run's end. A norm of 0 was reset."""
        trainer: Any = self._trainer()
        if trainer is not None and self._norm_step != self.steps and is_of_last_step(trainer):
            norm, _ = gradient_norm(trainer)
            if norm:
                self._waiting.append((self.steps, {"gradient norm": norm}))

    def _measure_norm(self, trainer: Trainer) -> None:
        """The norm of the gradients, at a pace of its own: it reads all gradients."""
        started = perf_counter()
        self._norm_step = self.steps
        try:
            norm, on_device = gradient_norm(trainer)
            self._norm.least = ON_DEVICE if on_device else 0.0
            if norm is not None:
                self._waiting.append((self.steps, {"gradient norm": norm}))
        finally:
            self.overhead += self._norm.ended(started)

    def tick(self) -> None:
        """Read the finished values from the GPU and draw, if due."""
        started = perf_counter()
        if started < self.due or not self.lock.acquire(blocking=False):
            return
        try:
            self.take()
            self._show()
            self.overhead += self._draw.ended(started)
            self.due = self._draw.due
        finally:
            self.lock.release()

    def take(self, wait: bool = False) -> None:
        """Bring what came since the last time into the series. wait : also for values that a GPU still computes"""
        # An interrupt between two lines would lose a value.
        with self.lock, boundary.interrupts:
            self._take_steps()
            logged: dict[str, tuple[list[int], list[Any]]] = {}
            for step, values in _taken(self._waiting):
                for name, value in values.items():
                    if (own := logged.get(name)) is None:
                        own = logged[name] = [], []
                    own[0].append(step)
                    own[1].append(value)
            for name, (steps, found) in logged.items():
                if (series := self._series_of(name)) is not None:
                    self._take_logged(name, series, steps, found)
            if self._on_device.values:
                self._add_read(self._on_device.all() if wait else self._on_device.ready())

    def _take_steps(self) -> None:
        """The time and the learning rate of each step, without what the run itself did meanwhile."""
        ended = _taken(self._steps)
        if not ended:
            return
        steps, times, rates = zip(*ended, strict=True)
        begins = self._last_step is None
        if (series := self._series_of("step time")) is not None:
            then = times[0] if self._last_step is None else self._last_step
            seconds = [1e3 * (now - then) if now > then else 0.0 for then, now in pairwise((then, *times))]
            series.extend(_forwards(series, steps[begins:]), seconds[begins:])
        self._last_step = times[-1]
        if (series := self._series_of("learning rate")) is not None:
            series.extend(_forwards(series, steps), [float(rate) for rate in rates])

    def _take_logged(self, name: str, series: Series, steps: list[int], values: list[Any]) -> None:
        """The values of one name. What comes after a value that waits on a GPU waits too."""
        kinds = set(map(type, values))
        if tuple in kinds:
            means = iter(means_of([value for value in values if type(value) is tuple]))
            values = [next(means) if type(value) is tuple else value for value in values]
        if kinds <= {float, tuple} and not self._on_device.count(name):
            series.extend(_forwards(series, steps), values)
            return
        for step, value in zip(steps, values, strict=True):
            unread = self._on_device.count(name)
            step = max(step or series.count + unread + 1, series.last_step)
            if unread or isinstance(value, OnDevice):
                self._add_read(self._on_device.put(name, step, value))
            else:
                series.extend([step], [value])

    def _add_read(self, values: Iterable[tuple[str, int, float]]) -> None:
        """Add values that were read from a GPU."""
        for name, step, value in values:
            if (series := self._series_of(name)) is not None:
                series.extend([max(step, series.last_step)], [value])

    def _series_of(self, name: str) -> Series | None:
        """The series of a name; a new one if there is none; None if there are NAMES of them."""
        series = self.series.get(name)
        return self._new_series(name) if series is None else series

    def _new_series(self, name: str) -> Series | None:
        """A series for a new name; None if there are NAMES of them."""
        if len(self.series) >= NAMES:
            if len(self.left_out) < MORE_NAMES:
                self.left_out.add(name)
            return None
        self.series[name] = Series()
        return self.series[name]

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
            self.take(wait=True)
            self._show()

    def finish(self, state: RunState, reason: str = "") -> None:
        """The cell ended, and with it the loops that it left open."""
        for loop in self.open_loops:
            loop.close("stopped" if state == "done" else state)
        with self.lock:
            self.ended, self.state, self.reason = perf_counter(), state, reason
            try:
                self._measure_last_norm()
                self.take(wait=True)
            except Exception as error:  # of a GPU, in a training that may have ended by this error
                logger.debug("a logged value could not be read", exc_info=error)
            self._show()
            self._trainer = self._other = lambda: None
            self._optimizer = None

    @property
    def note(self) -> str:
        """Sentences about values that are not in the curves, or ""."""
        notes = []
        if self._on_device.values and self.ended is not None:
            notes.append(f"{count(len(self._on_device.values), 'value')} could not be read from the GPU.")
        if self.problem:
            notes.append(self.problem)
        if not self.left_out:
            return " ".join(notes)
        more = "at least " if len(self.left_out) == MORE_NAMES else ""
        notes.append(f"A run keeps {NAMES} curves: {more}{count(len(self.left_out), 'name')} more were logged.")
        return " ".join(notes)
