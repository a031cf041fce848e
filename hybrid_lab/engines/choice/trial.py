"""A rival that runs beside the leader of a long call."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from hybrid_lab.engines.engine import Kept, Training


@dataclass
class Trial:
    """What one part gave.

    results : the numbers
    kept : what some of them lie in
    seconds : of the fastest run
    """

    name: str
    results: Sequence[np.ndarray] = ()
    kept: Kept | None = None
    seconds: float = float("inf")

    def forget(self) -> None:
        """Let go of the numbers and their memory."""
        self.results, self.kept = (), None


class OwnWay:
    """The parts of a training that keeps something of its own (Training.plain is another one), run for their time: what
    can be compared with others are the numbers of the plain one.
    """

    def __init__(self, training: Training):
        self.training = training
        self._kept: Kept | None = None

    def can(self, part: int) -> bool:
        """Whether the part can run: the backward after a forward, of any inputs."""
        return part == 0 or self._kept is not None

    def run(self, part: int, inputs: Sequence[np.ndarray], rng: tuple[int, int]) -> None:
        """Run forward (0) or backward (1) on arrays as the part's executable takes them."""
        if self._kept is None or part == 0:
            self._kept = self.training.begin(inputs, rng)[1]
        else:
            self.training.finish(self._kept, inputs, rng, last=False)


def try_out(
    name: str,
    run: Callable[[], tuple[Sequence[np.ndarray], Kept | None]],
    clock: Callable[[], float],
    settle: float,
    enough: float,
    limit: float = float("inf"),
) -> Trial:
    """Run once to warm up, wait `settle` seconds, then run for the time: `enough` seconds, or eight times. What takes
    more than `limit` seconds to warm up runs once.
    """
    start = clock()
    results, kept = run()
    warming = clock() - start
    if warming > limit:
        return Trial(name, results, kept, warming)
    del results, kept  # the next run has their memory
    time.sleep(settle)
    trial, total = Trial(name), 0.0
    for _ in range(8):
        trial.forget()  # the next run has its memory
        start = clock()
        trial.results, trial.kept = run()
        taken = clock() - start
        trial.seconds, total = min(trial.seconds, taken), total + taken
        if total > enough:
            break
    return trial
