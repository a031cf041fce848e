"""Executables: what the engines have built of one compiled call - packed, run for their time, and freed."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

from hybrid_lab.engines.choice.trial import OwnWay, Trial, try_out
from hybrid_lab.engines.engine import CONSTANT_ROLES, Engine, Executable, Kept, Training
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Input

#: How long the threads of an engine go on waiting for work (seconds), which would slow the next one down; OpenBLAS's
#: wait longest.
SETTLE = 0.03
#: Programs that were let go and whose arenas are at least this large (bytes) are collected at once, instead of when
#: Python gets round to it.
COLLECT_BYTES = 1 << 22

Clock = Callable[[], float]


class Executables:
    """The executables of one call - forward, backward where it is recorded - by engine.

    graphs, options, training : of the Contest
    compiled : name -> one executable per graph
    trainings : name -> of a recorded call, what runs both
    own_ways : name -> what runs those of them that keep something of their own
    """

    def __init__(self, graphs: tuple[Graph, ...], options: dict[str, Any], training: tuple[Any, int] | None):
        self.graphs, self.options = graphs, options
        self._together = training
        self.compiled: dict[str, list[Executable]] = {}
        self.trainings: dict[str, Training] = {}
        self.own_ways: dict[str, OwnWay] = {}
        #: The bytes of those programs that were dropped and not yet collected.
        self._garbage = 0
        self._packing: tuple[list[Any], Hashable] | None = None
        self._steady = [
            isinstance(value.node.op, Input) and value.node.op.role in CONSTANT_ROLES for value in graphs[0].inputs
        ]
        self.packs = training is None and any(self._steady)

    def compile(self, name: str, engine: Engine) -> None:
        """Build what the engine runs, unless it is there."""
        if name in self.compiled:
            return
        if self._together is not None:
            (forward, backward), (sources, num_outputs) = self.graphs, self._together
            made = engine.compile_training(forward, backward, sources, num_outputs, **self.options)
            self.trainings[name], self.compiled[name] = made, [made.forward, made.backward]
            if made.plain is not made:
                self.own_ways[name] = OwnWay(made)
        else:
            self.compiled[name] = [engine.compile(graph, **self.options) for graph in self.graphs]
        if self._packing is not None:
            self.compiled[name][0].pack(*self._packing)

    def numbers(self, results: Sequence[np.ndarray], kept: Kept) -> list[np.ndarray]:
        """What the forward of a recorded call gives when it runs alone, from what `begin` returned."""
        assert self._together is not None
        count = self._together[1]
        return [*results[:count], *kept.saved, *results[count:]]

    # -- parameters laid out for an engine -------------------------------------------------------------------------

    @property
    def packed(self) -> bool:
        """Whether packed parameters are held for those that are still to be built."""
        return self._packing is not None

    def pack(self, inputs: Sequence[np.ndarray], token: Hashable, hold: bool) -> None:
        """Pack the forwards' parameters. hold : those of engines that are built later, too"""
        if hold:
            # Only what is packed: nobody else's arrays are to be kept alive.
            pairs = zip(inputs, self._steady, strict=True)
            self._packing = [array if steady else None for array, steady in pairs], token
        for executables in self.compiled.values():
            executables[0].pack(inputs, token)

    def unpack(self) -> None:
        self._packing = None
        for executables in self.compiled.values():
            executables[0].unpack()

    # -- runs for their time ---------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Let the threads of the engine that ran last go to sleep."""
        time.sleep(SETTLE)

    def timed(
        self,
        name: str,
        part: int,
        inputs: Sequence[np.ndarray],
        rng: tuple[int, int],
        clock: Clock,
        limit: float = float("inf"),
    ) -> tuple[list[np.ndarray], float]:
        """The results, and the fastest of a few runs: noise only ever adds. What is slower than `limit` runs once."""
        run = self.compiled[name][part].run
        results = run(inputs, rng)
        again = self._own_way(name, part, inputs, rng) or partial(run, inputs, rng)
        best, total = float("inf"), 0.0
        self.settle()
        for _ in range(8):
            start = clock()
            again()
            taken = clock() - start
            best, total = min(best, taken), total + taken
            if taken > limit or total > 0.05:
                break
        return results, best

    def trial(
        self,
        name: str,
        part: int,
        inputs: Sequence[np.ndarray],
        rng: tuple[int, int],
        clock: Clock,
        enough: float,
        limit: float = float("inf"),
    ) -> Trial:
        """Run a part beside the caller's own run.

        enough : seconds after which it is not run again; limit : what takes longer the first time runs once
        """
        training = self.trainings[name].plain if part == 0 and name in self.trainings else None
        executable = self.compiled[name][part]

        def run() -> tuple[Sequence[np.ndarray], Kept | None]:
            if training is None:
                return executable.run(inputs, rng), None
            results, kept = training.begin(inputs, rng)
            return self.numbers(results, kept), kept

        trial, own = try_out(name, run, clock, SETTLE, enough, limit), self._own_way(name, part, inputs, rng)
        if own is not None:
            trial.seconds = try_out(name, lambda: ((), own()), clock, SETTLE, enough, limit).seconds
        return trial

    def _own_way(
        self, name: str, part: int, inputs: Sequence[np.ndarray], rng: tuple[int, int]
    ) -> Callable[[], None] | None:
        """What runs the part when the engine leads, where its numbers cannot be compared; else None."""
        found = self.own_ways.get(name)
        return partial(found.run, part, inputs, rng) if found is not None and found.can(part) else None

    # -- memory ----------------------------------------------------------------------------------------------------

    def release(self, name: str, part: int) -> None:
        """Give back the arenas in which a trial of this part ran."""
        if name in self.trainings:
            self.trainings[name].release()
            self.compiled[name][part].release()

    def let_go(self, *names: str) -> None:
        """Keep the programs of these engines no longer; where one is needed again it is built again."""
        for name in names:
            for executable in self.compiled.get(name, ()):
                self._garbage += executable.report.arena_bytes + sum(map(_border_bytes, executable.report.regions))
        # Other threads may be on their way from the old leader's name to its programs: the old tables keep them.
        self.compiled = {key: made for key, made in self.compiled.items() if key not in names}
        self.trainings = {key: made for key, made in self.trainings.items() if key not in names}
        self.own_ways = {key: made for key, made in self.own_ways.items() if key not in names}

    def keep(self, leader: str) -> None:
        """Let go of everything but what the leader runs from now on."""
        self.let_go(*(name for name in self.compiled if name != leader))
        if self._together is not None:
            # Only comparisons run forward and backward apart.
            for executable in self.compiled[leader]:
                executable.release()
            if leader in self.own_ways:
                self.trainings[leader].plain.release()
        self._packing, self.own_ways = None, {}

    def collect(self, engines: Iterable[Engine]) -> None:
        """Free what was let go: programs and their arenas refer to each other, so they are not freed by themselves."""
        if self._garbage >= COLLECT_BYTES:
            gc.collect()
            for engine in engines:
                engine.trim()
        self._garbage = 0


def _border_bytes(region: Any) -> int:
    return region.bytes_in + region.bytes_out if region is not None else 0
