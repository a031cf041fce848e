"""The training runs of this process: one for each cell that trains, and `mx.log`, which feeds the current one."""

from __future__ import annotations

import atexit
import itertools
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from hybrid_lab.gluon.step import boundary
from hybrid_lab.lab.places import running_cell
from hybrid_lab.lab.training.keeper import RunKeeper, setting
from hybrid_lab.lab.training.run import Run
from hybrid_lab.lab.training.shown import views_of
from hybrid_lab.system.logger import logger

if TYPE_CHECKING:
    from hybrid_lab.gluon.trainer import Trainer

KEPT = 6
"""Number of runs that are kept, the current one included."""


class Runs:
    """The runs of this process.

    kept : finished runs that have curves, oldest first; current : the run under way, or None
    pushes : called with a run when its pages should show it anew
    watched : a page shows the curves, so that Trainers are recorded in every cell
    """

    def __init__(self) -> None:
        self.kept: deque[Run] = deque(maxlen=KEPT - 1)
        self.current: Run | None = None
        self.watched = False
        self.pushes: list[Callable[[Run], None]] = []
        self._numbers = itertools.count(1)
        self._outer: list[Run] = []
        self._lock = threading.Lock()

    def under_way(self, steps: int = 0) -> Run:
        """The current run; one starts if there is none.

        steps : how many of the cell's steps so far it will still be told of
        """
        run = self.current
        if run is None:
            with self._lock:
                run = self.current
                if run is None:
                    run = self._new(_cell())
                    run.steps = max(0, boundary.steps - boundary.steps_before_cell - steps)
                    self.current = run
            boundary.listen(_stepped, True)
        return run

    def _new(self, label: str, title: str = "", parameters: Mapping[str, object] | None = None) -> Run:
        run = Run(next(self._numbers), label)
        views = [*views_of(lambda: list(self.kept)), *self.pushes]
        run.keeper = RunKeeper(run, title, parameters) if setting.is_on else None
        if run.keeper is not None and "IPython" not in sys.modules:
            atexit.unregister(self._exit)
            atexit.register(self._exit)
        run.views = views if run.keeper is None else [run.keeper, *views]
        return run

    def begin(self, title: str, parameters: Mapping[str, object]) -> Run:
        """Start a run inside of the current one, which goes on when the new one ends."""
        with self._lock:
            if self.current is not None:
                self._outer.append(self.current)
            self.current = run = self._new(": ".join(filter(None, [_cell(), title])), title, parameters)
        boundary.listen(_stepped, True)
        return run

    def end(self, run: Run, error: BaseException | None) -> None:
        """End a run that `begin` started, with this error, and the runs inside that it left open."""
        while self.current is not None and (self.current is run or run in self._outer):
            ended = self.current
            self._end(error)
            if ended is run:
                return

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
        return sorted([*self.kept, *self._outer, *([] if current is None else [current])], key=lambda run: run.number)

    def _exit(self) -> None:
        """The script ended, perhaps with an error that Python has printed."""
        self.finish(getattr(sys, "last_value", None))

    def finish(self, error: BaseException | None = None) -> None:
        """The cell ended, with this error."""
        while self.current is not None:
            self._end(error)
        boundary.steps_before_cell = boundary.steps

    def _end(self, error: BaseException | None) -> None:
        with self._lock:
            run, self.current = self.current, self._outer.pop() if self._outer else None
        boundary.listen(_stepped, self.watched or self.current is not None)
        boundary.steps_before_cell = boundary.steps
        assert run is not None
        if error is None:
            run.finish("done")
        elif isinstance(error, KeyboardInterrupt):
            run.finish("interrupted")
        else:
            run.finish("failed", type(error).__name__)
        if run.series:
            self.kept.append(run)


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


class new_run:  # noqa: N801 - used as a function
    """`with mx.lab.new_run("small step", learning_rate=0.01):` makes the block a run of its own, with these parameters:
    of several trainings in one cell each has its curves, and `mx.lab.runs()` compares them.

    title : by default the parameters as text
    """

    def __init__(self, title: str = "", /, **parameters: object):
        self._title = title or ", ".join(f"{key}={value}" for key, value in parameters.items())[:100]
        self._parameters = parameters
        self._run: Run | None = None

    def __enter__(self) -> None:
        self._run = runs.begin(self._title, self._parameters)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._run is not None:
            runs.end(self._run, error)


def note(text: str = "", /, **parameters: object) -> None:
    """`mx.lab.note("with warm-up", width=64)`: keep a remark and parameters with the current training run, or with the
    one that starts here. `mx.lab.runs()` shows them. The optimizer's settings are kept without it.
    """
    keeper = runs.under_way().keeper
    if keeper is not None:
        keeper.note(text, parameters)


def log(**values: Any) -> None:
    """`mx.log(loss=loss, accuracy=0.93)`: add a value to the curve of each name, in the lab's panel and below the cell.

    values : numbers or arrays, of which the mean is taken. Every value counts: a curve has the smallest, the largest
        and the mean value of each piece of it, and the step of every NaN. The mean of an array on a GPU is computed
        there at once and read later, so that the program does not wait for it
    The step is the Trainer's; without one, the number of calls with this name. Raises TypeError for other values.
    """
    (runs.current or runs.under_way()).log(values)
