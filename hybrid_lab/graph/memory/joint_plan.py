"""Plan the memory of a forward and its backward together: one arena from the first step to the last gradient.

Values that the forward keeps for the backward stay in the places that the forward gave them. A kept value frees its
place after its last use in the backward, and the backward's own values move in there; so the arena is little larger
than the most memory alive at one moment of a training step.

    forward     z = dot(x, w)          arena 0..128, kept
                y = square(z)          output 0
    backward    a = z * 2.0            arena 0..128 in place of z
                d = head_grad0 * a     arena 0..128 in place of a
"""

from __future__ import annotations

from dataclasses import dataclass

from hybrid_lab.graph.call_graphs import Split
from hybrid_lab.graph.memory.packing import pack, peak
from hybrid_lab.graph.memory.plan import MemoryPlan
from hybrid_lab.graph.node import Value


@dataclass(frozen=True)
class JointPlan:
    """Two plans over one arena. The backward's overwrites what the forward kept: it can run once per forward.

    forward, backward : each one's arena_bytes and ideal_bytes are the whole's
    kept_bytes : what lies in the arena between the two
    """

    forward: MemoryPlan
    backward: MemoryPlan
    kept_bytes: int

    @property
    def arena_bytes(self) -> int:
        return self.forward.arena_bytes

    @property
    def ideal_bytes(self) -> int:
        """The most that is alive at once: no arena can be smaller."""
        return self.forward.ideal_bytes

    @property
    def ratio(self) -> float:
        """Planned bytes by the least possible ones."""
        return self.arena_bytes / self.ideal_bytes if self.ideal_bytes else 1.0

    def __str__(self) -> str:
        head = f"arena {self.arena_bytes:,} bytes for forward and backward, {self.ratio:.3f} of the most alive at once"
        return f"{head}; {self.kept_bytes:,} bytes kept between them\n{self.forward}\n{self.backward}"


def plan_jointly(split: Split, contiguous: bool = False) -> JointPlan:
    """Plan both graphs of a recorded call. contiguous : as for `plan`"""
    forward, backward, num_outputs = split.forward, split.backward, split.num_outputs
    start = len(forward.operators) + 1
    links = [
        (value, forward.outputs[num_outputs + index])
        for value, (kind, index) in zip(backward.inputs, split.sources, strict=True)
        if kind == "saved"
    ]
    steps = {node: start + index for index, node in enumerate(backward.operators)}
    last = {value: steps[node] for node in backward.operators for value in node.values_in}
    last |= dict.fromkeys(backward.roots, start + len(steps))
    handed_out = {*forward.outputs[:num_outputs], *(new for _, new in forward.effects)}
    saved: dict[Value, int] = {}
    for value, source in links:
        # What the caller gets may be written to: of that, and of inputs, the backward has a copy of its own.
        if source not in handed_out and not source.is_input:
            saved[source] = max(saved.get(source, 0), last.get(value, start))
    first = MemoryPlan(forward, saved=saved, contiguous=contiguous)
    allocations_of_saved = {source: allocation for source, allocation in first.allocation_of.items() if source in saved}
    occupied = {value: allocations_of_saved[source] for value, source in links if source in allocations_of_saved}
    saved_bytes = sum({id(allocation): allocation.size for allocation in occupied.values()}.values())
    second = MemoryPlan(backward, start=start, occupied=occupied, contiguous=contiguous)
    allocations = [*first.allocations, *second.allocations]
    first.arena_bytes = second.arena_bytes = pack(allocations)
    first.ideal_bytes = second.ideal_bytes = peak(allocations)
    return JointPlan(first, second, saved_bytes)
