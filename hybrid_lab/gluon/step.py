"""Step boundaries: the places in a running training where a model may be saved or changed by another thread.

Between two `Trainer.step` calls the parameters belong together. Work that comes from another thread - the lab's Save
and Reload
while a cell trains - is handed to the training thread, which runs it at its next boundary.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any


class _Work:
    """One piece of work that waits for a boundary."""

    def __init__(self, action: Callable[[], Any]):
        self.action = action
        self.done = threading.Event()
        self.taken = False
        self.result: Any = None
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.result = self.action()
        except BaseException as error:  # noqa: BLE001 - handed to the thread that asked
            self.error = error
        finally:
            self.done.set()


class StepBoundary:
    """One per process.

    lock : held while parameters change and while such work runs
    busy : set by the lab while a cell runs; outside cells work runs at once
    steps : how many boundaries were passed
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._waiting: deque[_Work] = deque()
        self.busy = False
        self.steps = 0

    def passed(self) -> None:
        """Called at the end of every training step, and when a cell ends: run what waits. Costs nothing when
        nothing does.
        """
        self.steps += 1
        while self._waiting:
            work = self._take()
            if work is not None:
                with self.lock:
                    work.run()

    def _take(self, wanted: _Work | None = None) -> _Work | None:
        with self.lock:
            if wanted is None:
                wanted = self._waiting[0] if self._waiting else None
            if wanted is None or wanted.taken:
                return None
            wanted.taken = True
            self._waiting.remove(wanted)
            return wanted

    def run(self, action: Callable[[], Any], patience: float = 5.0) -> tuple[Any, str]:
        """Run `action` at the next boundary and return (its result, how it came about).

        "idle": no cell was running; "boundary": between two training steps; "unsynchronized": a cell runs, but no
        step ended within
        `patience` seconds. Raises what `action` raises.
        """
        if not self.busy or threading.current_thread() is threading.main_thread():
            with self.lock:
                return action(), "idle"
        work = _Work(action)
        with self.lock:
            self._waiting.append(work)
        how = "boundary"
        if not work.done.wait(patience):
            if self._take(work) is not None:
                how = "unsynchronized"
                with self.lock:
                    work.run()
            else:
                work.done.wait()
        if work.error is not None:
            raise work.error
        return work.result, how


boundary = StepBoundary()
"""The boundary of this process."""
