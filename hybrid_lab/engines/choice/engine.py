"""ChoosingEngine: what `engine=None` means on a CPU - ONNX Runtime, unless another engine is measured to be faster."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from hybrid_lab.engines.choice.contest import Contest
from hybrid_lab.engines.engine import CONSTANT_ROLES, Engine, Executable, Kept, Training
from hybrid_lab.engines.numpy.planned import PlannedEngine
from hybrid_lab.engines.numpy.watch import WatchedProgram
from hybrid_lab.engines.report import Report
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Input


class ChoosingEngine(PlannedEngine):
    """Starts every call on the first of its engines and lets the others compete while the program runs.

    engines : the candidates that are usable here, the one to start with first
    """

    def __init__(self, engines: Sequence[Engine]):
        self.engines = list(engines)
        self.name, self.title = self.engines[0].name, self.engines[0].title  # type: ignore[misc]

    def missing(self) -> str | None:
        return self.engines[0].missing()

    def compile(
        self, graph: Graph, static_alloc: bool = False, static_shape: bool = False, strict: bool = False
    ) -> Executable:
        options = {"static_alloc": static_alloc, "static_shape": static_shape, "strict": strict}
        if self._alone(strict) or _is_prologue(graph):
            return self.engines[0].compile(graph, **options)
        return ContestExecutable(Contest([graph], self._candidates(), options), 0)

    def compile_training(
        self, forward: Graph, backward: Graph, sources: Sequence[tuple[str, int]], num_outputs: int, **options: bool
    ) -> Training:
        if self._alone(options.get("strict", False)):
            return self.engines[0].compile_training(forward, backward, sources, num_outputs, **options)
        return ContestTraining(Contest([forward, backward], self._candidates(), options, (sources, num_outputs)))

    def _alone(self, strict: bool) -> bool:
        """strict allows no other engine than the first."""
        return strict or len(self.engines) == 1

    def _candidates(self) -> dict[str, Engine]:
        return {engine.name: engine for engine in self.engines}


def _is_prologue(graph: Graph) -> bool:
    """Whether it reads parameters alone: it runs when they change, which is too seldom to compare engines."""
    return bool(graph.inputs) and all(
        isinstance(value.node.op, Input) and value.node.op.role in CONSTANT_ROLES for value in graph.inputs
    )


class ContestExecutable(Executable):
    """One graph of a call, run by the engine that leads."""

    __slots__ = ("contest", "part")

    def __init__(self, contest: Contest, part: int):
        self.contest, self.part = contest, part
        self.run = self._run

    def _run(self, inputs: Sequence[np.ndarray], rng: tuple[int, int]) -> list[np.ndarray]:
        contest, part = self.contest, self.part
        if contest.settled:
            return contest.current(part).run(inputs, rng)
        made: list[np.ndarray] = contest.run(part, inputs, rng, lambda: contest.current(part).run(inputs, rng), list)
        return made

    @property
    def graph(self) -> Graph:  # type: ignore[override]
        return self.contest.current(self.part).graph

    @property
    def report(self) -> Report:  # type: ignore[override]
        return self.contest.report(self.part)

    @property
    def where(self) -> str:  # type: ignore[override]
        return self.contest.where()

    def pack(self, inputs: Sequence[np.ndarray], token: Hashable = None) -> None:
        self.contest.pack(inputs, token)

    def unpack(self) -> None:
        self.contest.unpack()

    def watched(self) -> WatchedProgram:
        return self.contest.current(self.part).watched()


class _Begun(Kept):
    """What a forward kept that ran before the contest was decided: its own engine runs the backward."""

    __slots__ = ("kept", "training")

    def __init__(self, kept: Kept, training: Training):
        super().__init__(kept.saved)
        self.kept, self.training = kept, training


class ContestTraining(Training):
    """A recorded call, run by the engine that leads; the contest looks at forward and backward together."""

    def __init__(self, contest: Contest):
        self.contest = contest
        self.forward: Executable = ContestExecutable(contest, 0)
        self.backward: Executable = ContestExecutable(contest, 1)
        self.begin = self._begin

    def _begin(self, inputs: Sequence[np.ndarray], rng: tuple[int, int]) -> tuple[list[np.ndarray], Kept]:
        contest = self.contest
        if contest.settled:
            return contest.training.begin(inputs, rng)

        def begin() -> tuple[list[np.ndarray], Kept, Training]:
            training = contest.training
            return *training.begin(inputs, rng), training

        numbers = contest.built.numbers
        results, kept, training = contest.run(0, inputs, rng, begin, lambda made: numbers(made[0], made[1]))
        return results, _Begun(kept, training)

    def finish(
        self,
        kept: Kept,
        operands: Sequence[np.ndarray],
        rng: tuple[int, int],
        last: bool = True,
        out: Sequence[np.ndarray | None] | None = None,
    ) -> list[np.ndarray]:
        contest = self.contest
        if type(kept) is not _Begun:
            return contest.training.finish(kept, operands, rng, last, out)
        training, inner = kept.training, kept.kept

        def finish() -> list[np.ndarray]:
            return training.finish(inner, operands, rng, last, out)

        if contest.open and training is contest.training:
            made: list[np.ndarray] = contest.run(1, operands, rng, finish, list)
            return made
        return finish()
