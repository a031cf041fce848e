"""The programs of a forward and its backward over one arena (see graph.memory.joint_plan)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from hybrid_lab.diagnostics.errors import EngineError
from hybrid_lab.engines.engine import Executable, ForwardState, Ready, Training
from hybrid_lab.engines.planned.arena import Arena, Frame
from hybrid_lab.engines.planned.program import ProgramWriter
from hybrid_lab.graph.call_graphs import Source, Split
from hybrid_lab.graph.dump import dump, is_dumping
from hybrid_lab.graph.memory.joint_plan import plan_jointly
from hybrid_lab.graph.memory.plan import MemoryPlan
from hybrid_lab.graph.node import Node, Value


class Begin(ProgramWriter):
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


class Finish(ProgramWriter):
    """The backward over the arena that the forward took; it overwrites what was kept.

    takes_ready : the program also takes `ready`, and calls it for each gradient after the step that computes it
    """

    parameters = "inputs, rng, arena, given"

    def __init__(self, plan: MemoryPlan, static_alloc: bool, takes_ready: bool = False):
        super().__init__(plan, static_alloc)
        self.takes_ready = takes_ready
        if takes_ready:
            self.parameters = f"{self.parameters}, ready"
            self.bound["relay"] = relay

    def _step(self, index: int, node: Node) -> None:
        super()._step(index, node)
        if self.takes_ready and not node.op.takes_ready:
            for value in node.outputs:
                position = self._handed_out(value)
                if position is not None:
                    self._emit(f"ready({position}, {self.names[value]})")

    def _handed_out(self, value: Value) -> int | None:
        """The number of the gradient that shares the value's memory; None for others."""
        position = self.plan.position.get(value)
        return None if position in self.plan.copies else position

    def _relayed(self, node: Node) -> str | None:
        if not self.takes_ready:
            return None
        return f"relay(ready, {tuple(map(self._handed_out, node.outputs))})"

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


def relay(ready: Ready, positions: tuple[int | None, ...]) -> Ready:
    """`ready` for the outputs of a region. positions : for each output, the number of its gradient, or None"""

    def told(output: int, array: object) -> None:
        position = positions[output]
        if position is not None:
            ready(position, array)

    return told


class JointTraining(Training):
    """A forward that leaves what it keeps in its arena, and a backward that runs in the same arena.

    forward, backward : executables that share nothing; each is written at its first run
    begin, finish : write the two programs
    run_backward : the backward in a forward's arena: (operands, rng, arena, out) -> gradients
    """

    #: The same with `ready` as its last argument; written at the first access.
    _run_with_ready: Any = None

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
        self.plan, self._finish_writer, self._static_alloc = joint, finish, static_alloc
        writer = begin(joint.forward, static_alloc, split.num_outputs, len(split.forward.outputs) - split.num_outputs)
        run, text = writer.finish()
        self.begin: Any = run
        between = time.perf_counter()
        self._frames = writer.frames
        ending = finish(joint.backward, static_alloc)
        self.run_backward: Any
        self.run_backward, ending_text = ending.finish()
        self._backward_in_arena = bool(ending.fixed) or ending.uses_scratch
        # There is nothing to decide about an arena that stays with the program and has no scratch memory.
        simple = writer.frames.keep and not (writer.uses_scratch or ending.uses_scratch)
        self._give: Any = writer.frames.idle.append if simple else writer.frames.give
        run.__globals__["release"] = self._give
        for part, written, each in ((forward, writer, text), (backward, ending, ending_text)):
            if is_dumping():
                dump("program", each())
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
        ready: Ready | None = None,
    ) -> list[np.ndarray]:
        if kept.spent:
            name = self.forward.graph.name or "the graph"
            raise EngineError(f"{name}: a backward that failed has overwritten what was kept; run the forward again")
        lease = kept.lease
        if not last or (lease is None and (ready is None or self._backward_in_arena)):
            return self.backward.run(operands, rng)
        if ready is not None and self._run_with_ready is None:
            self._run_with_ready = self._finish_writer(
                self.plan.backward, self._static_alloc, takes_ready=True
            ).finish()[0]
        if lease is None:
            return self._run_with_ready(operands, rng, None, out, ready)
        kept.lease, kept.saved, kept.spent = None, (), True
        if ready is None:
            results = self.run_backward(operands, rng, lease, out)
        else:
            results = self._run_with_ready(operands, rng, lease, out, ready)
        self._give(lease)
        return results
