"""The programs of a forward and its backward over one arena (see graph.joint_plan)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from hybrid_lab.diagnostics.errors import EngineError
from hybrid_lab.engines.engine import Executable, ForwardState, Training
from hybrid_lab.engines.planned.arena import Arena, Frame
from hybrid_lab.engines.planned.program import Writer
from hybrid_lab.graph.dump import dump, dump_text
from hybrid_lab.graph.joint_plan import plan_jointly
from hybrid_lab.graph.node import Value
from hybrid_lab.graph.plan import MemoryPlan
from hybrid_lab.graph.specialized import Source, Split


class Begin(Writer):
    """The forward: returns the outputs and new values of effects, and a ForwardState of saved values and the arena."""

    def __init__(self, plan: MemoryPlan, static_alloc: bool, num_outputs: int, num_saved: int):
        super().__init__(plan, static_alloc)
        self.num_outputs, self.num_saved = num_outputs, num_saved
        self.frames = self._frames()

    def _memory(self) -> tuple[list[str], list[str]]:
        frames = self.frames
        self.bound["keep"], self.bound["release"] = ForwardState, frames.give
        if not (self.plan.arena_bytes or self.fixed or self.uses_scratch):
            return ["arena = None"], []
        self.bound["acquire"], self.bound["idle"] = frames.take, frames.idle
        take = ["try:", "    arena = idle.pop()", "except IndexError:", "    arena = acquire()"]
        return [*take, *self._unpacked("arena.frame")], []

    def _returned(self, results: list[str]) -> str:
        first, last = self.num_outputs, self.num_outputs + self.num_saved
        handed_out = ", ".join(results[:first] + results[last:])
        return f"[{handed_out}], keep([{', '.join(results[first:last])}], arena, release)"


class Finish(Writer):
    """The backward over the arena that the forward took; it overwrites what was kept."""

    parameters = "inputs, rng, arena, given"

    def _emit_output(self, name: str, position: int, value: Value) -> None:
        self._emit(f"{name} = None if given is None else given[{position}]")
        self._emit(f"if {name} is None:")
        self._emit(f"    {name} = {self._fresh(value)}")

    def _memory(self) -> tuple[list[str], list[str]]:
        if not self.fixed:
            return [], []
        frames = self._frames()

        def over(arena: Arena) -> Frame:
            arena.backward_frame = frame = frames.over(arena)
            return frame

        self.bound["over"] = over
        take = ["frame = arena.backward_frame", "if frame is None:", "    frame = over(arena)"]
        return [*take, *self._unpacked("frame")], []


class JointTraining(Training):
    """A forward that leaves what it keeps in its arena, and a backward that runs in the same arena.

    forward, backward : executables that share nothing; they are written when somebody runs them
    begin, finish : write the two programs
    run_backward : the backward in a forward's arena: (operands, rng, arena, out) -> gradients
    """

    def __init__(
        self,
        forward: Executable,
        backward: Executable,
        sources: tuple[Source, ...],
        static_alloc: bool,
        begin: type[Begin] = Begin,
        finish: type[Finish] = Finish,
    ):
        started = time.perf_counter()
        self.forward, self.backward = forward, backward
        split = Split(forward.graph, backward.graph, sources)
        joint = dump("plan", plan_jointly(split, begin.contiguous))
        self.plan = joint
        writer = begin(joint.forward, static_alloc, split.num_outputs, len(split.forward.outputs) - split.num_outputs)
        run, text = writer.finish()
        self.begin: Any = run
        between = time.perf_counter()
        self._frames = writer.frames
        ending = finish(joint.backward, static_alloc)
        self.run_backward: Any
        self.run_backward, ending_text = ending.finish()
        # There is nothing to decide about an arena that stays with the program and has no scratch memory.
        simple = writer.frames.keep and not (writer.uses_scratch or ending.uses_scratch)
        self._give: Any = writer.frames.idle.append if simple else writer.frames.give
        run.__globals__["release"] = self._give
        for part, written, each in ((forward, writer, text), (backward, ending, ending_text)):
            dump_text("program", each)
            written.describe(part.report, each)
            part.report.shared_arena = True
        forward.report.seconds += between - started
        backward.report.seconds += time.perf_counter() - between

    def release(self) -> None:
        super().release()
        self._frames.idle.clear()

    def finish(
        self,
        kept: ForwardState,
        operands: Sequence[np.ndarray],
        rng: tuple[int, int],
        last: bool = True,
        out: Sequence[np.ndarray | None] | None = None,
    ) -> list[np.ndarray]:
        if kept.spent:
            name = self.forward.graph.name or "the graph"
            raise EngineError(f"{name}: a backward that failed has overwritten what was kept; run the forward again")
        lease = kept.lease
        if not last or lease is None:
            return self.backward.run(operands, rng)
        kept.lease, kept.saved, kept.spent = None, (), True
        results = self.run_backward(operands, rng, lease, out)
        self._give(lease)
        return results
