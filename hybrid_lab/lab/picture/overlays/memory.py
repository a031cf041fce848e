"""Bytes of values, where the plan put them, and how full the arena is in each step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import numpy as np

from hybrid_lab.engines.report import format_bytes
from hybrid_lab.graph.memory.packing import Allocation
from hybrid_lab.graph.memory.plan import MemoryPlan, plan
from hybrid_lab.hybridize.compiled_call import CompiledCall
from hybrid_lab.lab.messages.measured import Moment, StepMoment
from hybrid_lab.lab.picture.nodes import Picture
from hybrid_lab.lab.picture.overlays.cells import SLOWEST, Cell, Overlay
from hybrid_lab.lab.picture.overlays.source import OverlaySource

_M = TypeVar("_M", Moment, StepMoment)

_MOMENTS = 2000
"""Points of a timeline at most."""

_STORAGE_PHRASES = {
    "arena": "in the arena",
    "view": "a view of its input",
    "output": "fresh memory, handed out",
    "own": "allocated by its kernel",
    "none": "not computed",
}


def memory_overlay(source: OverlaySource) -> Overlay:
    """Bytes of each operator's outputs, and, of a compiled program, where the plan put them."""
    result, picture = Overlay("B"), source.picture
    for node in picture.drawn_graph.graph.operators:
        identity = picture.id_of(node)
        if identity is None or node.shapes is None or None in node.shapes:
            continue
        sizes = [value.nbytes for value in node.outputs[: max(node.op.signature.visible, 1)]]
        result.cells[identity] = Cell(float(sum(sizes)), short=format_bytes(sum(sizes)))
    if not result.cells:
        result.missing = "Shapes are not known yet: call the model once after hybridize()."
        return result
    total = sum(cell.value or 0.0 for cell in result.cells.values())
    result.headline = f"{format_bytes(int(total))} of values"
    program = source.program() if source.part else None
    if program is None:
        return result
    executable = program.forward if source.part == "forward" else program.backward
    assert executable is not None
    sources = zip(program.special.sources, _backward_inputs(program))
    kept = sum(value.nbytes for (kind, _), value in sources if kind == "saved")
    if source.part == "forward" and kept:
        result.headline += f", {format_bytes(kept)} of them kept for the backward"
    own, shared = plan(executable.graph), []
    if program.together is not None and executable.report.shared_arena:
        halves = [half.report.memory for half in (program.forward, program.backward) if half is not None]
        forward, backward = (half for half in halves if half is not None)
        own, shared = backward if source.part == "backward" else forward, _step(forward, backward)
    _add_plan(result, picture, own, shared)
    if picture.drawn_graph.units.units:
        result.headline += "; what sessions and kernels use inside is not counted"
    return result


def _backward_inputs(program: CompiledCall) -> Sequence[Any]:
    return () if program.special.backward is None else program.special.backward.inputs


def _in_use(allocations: Iterable[Allocation], times: Sequence[int]) -> list[int]:
    """The bytes of the allocations in use at each time of `times`."""
    change = np.zeros(max(times, default=0) + 2, np.int64)
    for allocation in allocations:
        change[allocation.first] += allocation.size
        change[min(allocation.last + 1, len(change) - 1)] -= allocation.size
    return [int(size) for size in np.cumsum(change)[list(times)]]


def _times(memory: MemoryPlan) -> range:
    return range(memory.start, memory.start + len(memory.steps))


def _step(forward: MemoryPlan, backward: MemoryPlan) -> list[StepMoment]:
    """How full the arena that both share is in each step."""
    times = [*_times(forward), *_times(backward)]
    own = {id(allocation) for allocation in forward.allocations}
    kept = {id(allocation): allocation for allocation in backward.allocation_of.values() if id(allocation) in own}
    sizes = _in_use([*forward.allocations, *backward.allocations], times), _in_use(kept.values(), times)
    return [
        {"half": "forward" if time < backward.start else "backward", "bytes": size, "kept": held}
        for time, size, held in zip(times, *sizes, strict=True)
    ]


def _thinned(moments: Sequence[_M]) -> list[_M]:
    """At most `_MOMENTS` moments: the fullest of every few steps, if there are more steps."""
    size = -(-len(moments) // _MOMENTS) or 1
    parts = [moments[start : start + size] for start in range(0, len(moments), size)]
    return [max(part, key=lambda moment: moment["bytes"]) for part in parts]


def _add_plan(result: Overlay, picture: Picture, memory: MemoryPlan, shared: Sequence[StepMoment]) -> None:
    """The places of the values, and how full the arena is in each step.

    shared : the steps of forward and backward, if both share the arena
    """
    first = len(shared) - len(memory.steps) if memory.start else 0
    own = shared[first : first + len(memory.steps)]
    alive = [moment["bytes"] for moment in own] or _in_use(memory.allocations, _times(memory))
    timeline: list[Moment] = []
    for node, size in zip(memory.steps, alive, strict=True):
        identity = picture.id_of(node)
        if identity is None:
            continue
        value = node.outputs[0]
        words = "in place of its input" if value in memory.inplace else _STORAGE_PHRASES.get(memory.storage[value], "")
        cell = result.cells.get(identity)
        if cell is not None and words:
            cell.text = f"{cell.short}, {words}"
        timeline.append({"id": identity, "bytes": size})
    result.timeline, result.step = _thinned(timeline), _thinned(shared)
    peak = max(alive, default=0)
    if not memory.arena_bytes:
        result.headline += "; nothing in the arena"
        return
    both = " for forward and backward" if shared else ""
    result.headline += f"; arena {format_bytes(memory.arena_bytes)}{both}, at most {format_bytes(peak)} in use at once"
    fullest = _times(memory)[alive.index(peak)]
    lives = {
        value
        for allocation in memory.allocations
        if allocation.first <= fullest <= allocation.last
        for value in allocation.values
    }
    ids = {picture.id_of(value.node): value.nbytes for value in lives}
    ranked = sorted((size, identity) for identity, size in ids.items() if identity is not None)
    result.marked = [identity for _, identity in reversed(ranked)][:SLOWEST]
