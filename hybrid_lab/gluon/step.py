"""Step boundaries: the places in a running training where a model may be saved or changed by another thread.

Between two `Trainer.step` calls parameters and running statistics belong together. Work that comes from another
thread - the lab's Save and Reload while a cell trains - is handed to the training thread, which runs it at its next
boundary.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from hybrid_lab.diagnostics.errors import HybridLabError
from hybrid_lab.hybridize.interrupts import interrupts
from hybrid_lab.system import forks

PATIENCE = 5.0
"""Seconds to wait for a boundary in a cell that has not ended a training step yet."""
TRAINING_PATIENCE = 60.0
"""Seconds to wait in a cell that has ended one: the next step may take long."""
RECENT = 2.0
"""If a step ended less than this many seconds ago, a training is running, in a cell or not."""


class _WaitingWork:
    """One piece of work that waits for a boundary."""

    def __init__(self, action: Callable[[], Any]):
        self.action = action
        self.done = threading.Event()
        self.result: Any = None
        self.error: Exception | None = None

    def run(self) -> None:
        """Keep the result or the error for the thread that asked. An interrupt is also raised in the running thread."""
        try:
            self.result = self.action()
        except Exception as error:  # raised again in the thread that waits for the result
            self.error = error
        except BaseException:
            self.error = HybridLabError(
                "the kernel was interrupted during this request, which may be incomplete; please repeat it"
            )
            raise
        finally:
            self.done.set()


class StepBoundary:
    """One per process.

    lock : held while a Trainer changes parameters and while work from other threads runs
    interrupts : holds interrupts back while a Trainer changes parameters and while work from other threads runs
    busy : a cell is running; outside of cells work runs at once
    steps : how many boundaries were passed; steps_before_cell : of those before the cell that is running
    listeners : called with the Trainer after each step; the lab's autosave and curves
    epoch_listeners : called each time that a DataLoader gave its last batch
    """

    def __init__(self) -> None:
        self.lock = forks.rlock()
        self.interrupts = interrupts
        self.busy = False
        self.steps = 0
        self.listeners: list[Callable[[Any], None]] = []
        self.epoch_listeners: list[Callable[[], None]] = []
        self._waiting: deque[_WaitingWork] = deque()
        self.steps_before_cell = 0
        self._last = float("-inf")
        self._thread: int | None = None

    # -- told by the training thread ----------------------------------------------------------------------

    def passed(self) -> None:
        """A training step ended: run what waits. Costs nothing when nothing does."""
        self.steps += 1
        self._last = time.monotonic()
        self._thread = threading.get_ident()
        if self._waiting:
            self._run_waiting()

    def until_epoch_end(self, batches: Iterator[Any]) -> Iterator[Any]:
        """The batches of a DataLoader; `epoch_listeners` are called when there are no more."""
        yield from batches
        for listener in self.epoch_listeners:
            listener()

    def listen(self, listener: Callable[[Any], None], wanted: bool) -> None:
        """Call `listener` with the Trainer after each step from now on, or no longer."""
        others = [each for each in self.listeners if each is not listener]
        self.listeners = [*others, listener] if wanted else others

    def cell_started(self) -> None:
        """A cell starts. Waits until work of another thread, if any, is done."""
        self.busy = True
        self.steps_before_cell = self.steps
        with self.lock:
            pass

    def cell_ended(self) -> None:
        """A cell ended: run what waits."""
        self.busy = False
        self._last = float("-inf")
        self._run_waiting()

    def _run_waiting(self) -> None:
        while (work := self._take()) is not None:
            with self.lock, self.interrupts:
                work.run()

    def _take(self, wanted: _WaitingWork | None = None) -> _WaitingWork | None:
        """Remove `wanted`, or the first work, from the queue; None if another thread has taken it."""
        with self.lock:
            if wanted is None:
                return self._waiting.popleft() if self._waiting else None
            if wanted not in self._waiting:
                return None
            self._waiting.remove(wanted)
            return wanted

    # -- asked by other threads ---------------------------------------------------------------------------

    def run(self, action: Callable[[], Any], patience: float | None = None) -> tuple[Any, str]:
        """Run `action` at the next boundary and return (its result, how it came about).

        patience : seconds to wait for a boundary; by default PATIENCE, or TRAINING_PATIENCE once the cell ended a step
        "idle": nothing was running; "boundary": between two training steps; "unsynchronized": something runs, but no
        step ended in time. Raises what `action` raises.
        """
        if threading.current_thread() is threading.main_thread() or not (self.busy or self._trains_elsewhere()):
            with self.lock:
                return action(), "idle"
        work, how, start = _WaitingWork(action), "boundary", time.monotonic()
        with self.lock:
            self._waiting.append(work)
        while not work.done.wait(0.05):
            if time.monotonic() - start < (self._patience() if patience is None else patience):
                continue
            if self._take(work) is not None:
                how = "unsynchronized"
                with self.lock:
                    work.run()
            else:
                work.done.wait()
        if work.error is not None:
            raise work.error
        return work.result, how

    @property
    def is_passed_by(self) -> bool:
        """Whether the code of a cell may go on writing to arrays while this thread reads them: the cell runs in another
        thread, and none of its steps ended in time for this thread's work.
        """
        return self.busy and threading.current_thread() is not threading.main_thread()

    def _trains_elsewhere(self) -> bool:
        """Whether another thread trains, outside of a cell: in a thread of its own, or in a widget's callback."""
        return time.monotonic() - self._last < RECENT and self._thread != threading.get_ident()

    def _patience(self) -> float:
        trains = self.steps > self.steps_before_cell if self.busy else False
        return TRAINING_PATIENCE if trains else PATIENCE


boundary = StepBoundary()
"""The boundary of this process."""
