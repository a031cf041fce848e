"""The training runs of this process: one for each cell that trains, and `mx.log`, which feeds the current one."""

from __future__ import annotations

import itertools
import sys
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hybrid_lab.gluon.step import boundary
from hybrid_lab.lab.places import running_cell
from hybrid_lab.lab.run import Run
from hybrid_lab.lab.shown import views_of
from hybrid_lab.logger import logger

if TYPE_CHECKING:
    from hybrid_lab.gluon.trainer import Trainer

KEPT = 6
"""Number of runs that are kept, the current one included."""


class Runs:
    """The runs of this process.

    kept : finished runs that have curves, oldest first; current : the run under way, or None
    pushes : called with a run where its pages should show it anew
    watched : a page shows the curves, so that Trainers are recorded in every cell
    """

    def __init__(self) -> None:
        self.kept: deque[Run] = deque(maxlen=KEPT - 1)
        self.current: Run | None = None
        self.watched = False
        self.pushes: list[Callable[[Run], None]] = []
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()

    def under_way(self, steps: int = 0) -> Run:
        """The current run; one starts where there is none.

        steps : how many of the cell's steps so far it will still be told of
        """
        run = self.current
        if run is None:
            with self._lock:
                run = self.current
                if run is None:
                    run = Run(next(self._numbers), _cell())
                    run.steps = max(0, boundary.steps - boundary.steps_before_cell - steps)
                    self.current = run
                    run.views = [*views_of(lambda: list(self.kept)), *self.pushes]
            boundary.listen(_stepped, True)
        return run

    def connect(self, push: Callable[[Run], None]) -> None:
        """Call `push` with each run, the current one included: a page may connect while a cell trains."""
        with self._lock:
            self.pushes.append(push)
            if self.current is not None:
                self.current.views = [*self.current.views, push]

    def disconnect(self, push: Callable[[Run], None]) -> None:
        """Call `push` no longer."""
        with self._lock:
            self.pushes = [each for each in self.pushes if each != push]
            if self.current is not None:
                self.current.views = [each for each in self.current.views if each != push]

    def watch(self, watched: bool) -> None:
        """A page shows the curves from now on, or no longer."""
        self.watched = watched
        boundary.listen(_stepped, watched or self.current is not None)

    def all(self) -> list[Run]:
        """The kept runs and the current one, oldest first."""
        current = self.current
        return [*self.kept, *([] if current is None else [current])]

    def finish(self, error: BaseException | None = None) -> None:
        """The cell ended, with this error."""
        run, self.current = self.current, None
        boundary.steps_before_cell = boundary.steps
        boundary.listen(_stepped, self.watched)
        if run is None:
            return
        if run.series:
            self.kept.append(run)
        if error is None:
            run.finish("done")
        elif isinstance(error, KeyboardInterrupt):
            run.finish("interrupted")
        else:
            run.finish("failed", type(error).__name__)


def _cell() -> str:
    """`cell 5`, under IPython."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return "" if shell is None else f"cell {running_cell(shell)}"


runs = Runs()
"""The runs of this process."""


def _stepped(trainer: Trainer) -> None:
    try:
        (runs.current or runs.under_way(steps=1)).stepped(trainer)
    except Exception as error:  # a fault of this package must not end a training
        logger.debug("a training step could not be recorded", exc_info=error)


def log(**values: Any) -> None:
    """`mx.log(loss=loss, accuracy=0.93)`: add a value to the curve of each name, in the lab's panel and below the cell.

    values : numbers or arrays, of which the mean is taken. Every value counts: a curve has the smallest, the largest
        and the mean value of each piece of it, and the step of every NaN. The mean of an array on a GPU is computed
        there at once and read later, so that the program does not wait for it
    The step is that of the Trainer; without one, the number of calls with this name. Raises TypeError for other values.
    """
    (runs.current or runs.under_way()).log(values)
