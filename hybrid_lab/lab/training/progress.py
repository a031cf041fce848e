"""`mx.lab.progress(loader)`: a bar for a loop, with step, rate and time left."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from time import perf_counter
from typing import Generic, TypeVar

from hybrid_lab.lab.training.current import runs
from hybrid_lab.lab.training.run import Loop, RunState

T = TypeVar("T")


class ProgressLoop(Generic[T]):
    """What `progress` returns: iterate over it, as often as you like. `len()` is the number of items."""

    def __init__(self, items: Iterable[T], title: str, unit: str, total: int | None):
        self._items, self._title, self._unit, self._total = items, title, unit, total

    def __len__(self) -> int:
        if self._total is None:
            raise TypeError(f"the number of steps is not known: {type(self._items).__name__} has no len()")
        return self._total

    def __iter__(self) -> Iterator[T]:
        run = runs.under_way()
        loop = Loop(self._title, self._unit, self._total, len(run.open_loops))
        run.open(loop)
        state: RunState = "stopped"
        try:
            for item in self._items:
                yield item
                loop.done += 1
                if perf_counter() >= run.due:
                    run.tick()
            state = "done"
        finally:
            run.close(loop, state)


def progress(items: Iterable[T], title: str = "", *, total: int | None = None, unit: str = "step") -> ProgressLoop[T]:
    """`for batch in mx.lab.progress(loader):` shows the step, the steps a second and the time left: below the cell, in
    the lab's panel, or in a terminal on standard error.

    items : a DataLoader or any other iterable; title : put before the bar
    total : number of steps; by default `len(items)`, if there is one. A generator without it has no time left
    unit : what a step is called, such as "batch"
    """
    if not isinstance(items, Iterable):
        raise TypeError(f"progress takes something to iterate over, such as a DataLoader, not {type(items).__name__}")
    if total is None:
        try:
            total = len(items)  # type: ignore[arg-type]
        except TypeError:  # a generator, or an object whose len() says that it has none
            total = None
    if total is not None and total < 0:
        raise ValueError(f"the total of a loop is a number of steps, not {total}")
    return ProgressLoop(items, title, unit, total)
