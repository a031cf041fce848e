"""Progress of work of more than a second: a bar (tqdm) on a terminal's standard error or as an output of a cell, and
what listeners such as the lab's panel are told.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from hybrid_lab.system import forks

if TYPE_CHECKING:
    from IPython.display import DisplayHandle
    from tqdm import tqdm

PATIENCE = 1.0
"""Seconds before tqdm is loaded and a bar is drawn."""
_BETWEEN = 0.2
"""Seconds between two words to the listeners about one piece of work."""

_P = ParamSpec("_P")
_R = TypeVar("_R")


@dataclass(eq=False)
class WorkUnderWay:
    """A piece of work under way. title : "importing ResNet"; part : what of it is done now, or ""

    done, total, unit : the amount done so far; total is 0 if unknown
    in_cell : it is done on the main thread, as a notebook's cells are
    """

    title: str
    part: str = ""
    done: int = 0
    total: int = 0
    unit: str = ""
    number: int = field(default_factory=itertools.count(1).__next__)
    started: float = field(default_factory=time.perf_counter)
    told: float = 0.0
    in_cell: bool = field(default_factory=lambda: threading.current_thread() is threading.main_thread())
    timer: threading.Timer | None = None

    @property
    def seconds(self) -> float:
        """Since it began."""
        return time.perf_counter() - self.started


listeners: list[Callable[[list[WorkUnderWay]], object]] = []
"""Told of the work that has taken more than a second, the outermost of each thread, and at its end of what is left.
They are called from any thread and must not raise.
"""
_running: list[WorkUnderWay] = []
_lock = forks.lock()


class _Current(threading.local):
    """Per thread: the work under way."""

    work: WorkUnderWay | None = None


_current = _Current()


def _tell() -> None:
    now = time.perf_counter()
    with _lock:
        shown = [work for work in _running if work.seconds >= PATIENCE]
        for work in shown:
            work.told = now
    for listener in tuple(listeners):
        listener(shown)


@contextlib.contextmanager
def working(title: str) -> Iterator[None]:
    """Tell the listeners of work that may take more than a second; inside of other work it is a part of that."""
    outer = _current.work
    if not listeners or outer is not None:
        before = "" if outer is None else outer.part
        if outer is not None:
            outer.part = title
        try:
            yield
        finally:
            if outer is not None:
                outer.part = before
        return
    work = _current.work = WorkUnderWay(title)
    work.timer = threading.Timer(PATIENCE, _tell)  # for work that gives no sign of its own in the first second
    work.timer.daemon = True
    with _lock:
        _running.append(work)
    if sys.platform != "emscripten":  # Python in a browser has no threads: only work that gives signs is told there
        work.timer.start()
    try:
        yield
    finally:
        _current.work = None
        work.timer.cancel()
        with _lock:
            _running.remove(work)
        if work.told:
            _tell()


def shows_work(verb: str) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Let a function be `working`: titled by the verb and the file or Block that is its first argument."""

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        @functools.wraps(function)
        def call(*args: _P.args, **keywords: _P.kwargs) -> _R:
            if not listeners:
                return function(*args, **keywords)
            with working(f"{verb} {_named(args[0]) if args else ''}".strip()):
                return function(*args, **keywords)

        return call

    return decorate


def _named(item: object) -> str:
    if isinstance(item, (str, os.PathLike)):
        return os.path.basename(os.fspath(item))
    name = getattr(item, "name", None)
    return name if isinstance(name, str) else "" if isinstance(item, type) else type(item).__name__


class Progress:
    """title : "compiling for gfx942"; total : kernels, or other units. Draws nothing if standard error is a file or
    a pipe, and leaves nothing when it is closed.

    patience : seconds before the bar is drawn; 0 if the first step alone may take many
    """

    def __init__(self, title: str, total: int, unit: str = "kernels", patience: float = PATIENCE):
        self._title, self._total, self._unit, self._patience = title, total, unit, patience
        self._started = time.perf_counter()
        self._bar: tqdm | None = None
        self._output: DisplayHandle | None = None
        self._work = contextlib.ExitStack()
        self._work.enter_context(working(title))
        self._under = _current.work

    def step(self, done: int, current: str = "") -> None:
        """`done` units are done; `current` names the item under way."""
        work = self._under
        if work is not None:
            own = "" if work.title == self._title else self._title
            work.part = ": ".join(filter(None, (own, current)))
            work.done, work.total, work.unit = done, self._total, self._unit
            if work.seconds >= PATIENCE and time.perf_counter() - work.told >= _BETWEEN:
                _tell()
        if self._bar is None and time.perf_counter() - self._started >= self._patience:
            self._open(done)
        if self._bar is not None:
            self._bar.set_postfix_str(current, refresh=False)
            self._bar.update(done - self._bar.n)
            if not self._patience:
                self._bar.refresh()  # the next step may be far

    def close(self) -> None:
        """Remove the bar."""
        if self._under is not None:
            self._under.done = self._under.total = 0
        self._work.close()
        if self._bar is not None:
            self._bar.close()
        if self._output is not None:
            self._output.update({"text/plain": "", "text/html": ""}, raw=True)

    def _open(self, done: int) -> None:
        in_kernel = type(sys.stderr).__module__ == "ipykernel.iostream"
        if sys.stderr is None or in_kernel and threading.current_thread() is not threading.main_thread():
            return
        from tqdm.auto import tqdm  # the notebook form in a kernel, if ipywidgets is installed
        from tqdm.notebook import tqdm_notebook

        is_widget = issubclass(tqdm, tqdm_notebook)
        self._bar = tqdm(
            total=self._total,
            initial=done,
            desc=self._title,
            unit=f" {self._unit}",
            leave=False,
            disable=False if in_kernel else None,
            file=sys.stdout if in_kernel else sys.stderr,  # a notebook shows standard error in red
            **({"display": False} if is_widget else {}),
        )
        if is_widget:
            from IPython.display import display

            # With a handle, so that a saved notebook does not refer to the widget of a closed bar.
            self._output = display(self._bar.container, display_id=True)
