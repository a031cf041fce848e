"""Plan the memory of a specialized graph: operators that run in place, views, and the offsets of the other values in
one arena.

a = x * 2.0        arena 0..96
b = tanh(a)        arena 0..96 in place of a
c = Flatten(b)     view of b
y = exp(c)         output 0: fresh memory, the caller's
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np

from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.memory.packing import ALIGNMENT as ALIGNMENT
from hybrid_lab.graph.memory.packing import Allocation, pack, peak
from hybrid_lab.graph.node import Constant, Input, Node, Value
from hybrid_lab.graph.printer import Names, format_type
from hybrid_lab.ops.framework.run import run_kernel

#: How a Value is stored: "input" and "constant" in the array that is given; "arena" in an allocation of the arena;
#: "output" in fresh memory that becomes a root; "view" in the memory of its operator's first input; "own" in memory
#: that the kernel allocates; "none" if it is not computed, because nobody reads this output.
Storage = Literal["input", "constant", "arena", "output", "view", "own", "none"]


class MemoryPlan:
    """The storage of every Value in one run of `graph`. `pack` gives the allocations of the arena their offsets.

    start : the step number of the graph's first step; above 0 if several graphs share an arena (see joint_plan)
    saved : roots that stay in the arena after the run -> the last step that reads them
    occupied : C-contiguous inputs already in the arena -> their allocations, which may be overwritten after the last
        use
    contiguous : as for `plan`

    steps : the nodes to run, in order
    storage : kind of storage of every Value
    allocation_of : Value in the arena -> its allocation; for a view, the allocation of its input
    inplace : Value in the arena -> the input whose memory it takes over
    position : root -> its first index among the roots
    needs : node -> one bool per output: whether it is read
    copies : indices in graph.roots of the roots copied into fresh memory at the end: inputs, views, repeated roots
    last_use : Value -> the last step that reads it (len(steps) for roots)
    arena_bytes : size of the arena; ideal_bytes : the most bytes alive in the arena at one step
    unshared_bytes : size of an arena in which no two values share memory
    """

    arena_bytes: int
    ideal_bytes: int

    def __init__(
        self,
        graph: Graph,
        start: int = 0,
        saved: Mapping[Value, int] | None = None,
        occupied: Mapping[Value, Allocation] | None = None,
        contiguous: bool = False,
    ):
        self.graph, self.start, self.saved, self.contiguous = graph, start, saved or {}, contiguous
        self.steps = tuple(node for node in graph.operators if not isinstance(node.op, Constant))
        self.last_use: dict[Value, int] = {}
        for index, node in enumerate(self.steps):
            for value in node.values_in:
                self.last_use[value] = index
        for value in graph.roots:
            self.last_use[value] = len(self.steps)
        self.position = {
            value: index for index, value in reversed(list(enumerate(graph.roots))) if value not in self.saved
        }
        self.storage: dict[Value, Storage] = {}
        self.inplace: dict[Value, Value] = {}
        self.layouts: dict[Value, np.ndarray] = {}
        self.allocation_of: dict[Value, Allocation] = {}
        self.allocations: list[Allocation] = []
        self.needs: dict[Node, tuple[bool, ...]] = {}
        for value, allocation in (occupied or {}).items():
            self.allocation_of[value] = allocation
            allocation.last = max(allocation.last, self._end(value, -1))
        for node in graph.nodes:
            if isinstance(node.op, Input):
                self.storage[node.outputs[0]] = "input"
            elif isinstance(node.op, Constant):
                self.storage[node.outputs[0]] = "constant"
        for index, node in enumerate(self.steps):
            self._visit(index, node)
        self.copies = frozenset(
            index for index, value in enumerate(graph.roots) if not self._is_delivered(index, value)
        )

    @property
    def unshared_bytes(self) -> int:
        values = [value for node in self.steps for value in node.outputs]
        return sum(value.nbytes for value in values if self.storage[value] in ("arena", "view"))

    @property
    def fresh_bytes(self) -> int:
        """Bytes of the outputs, which get fresh memory in each call."""
        roots = enumerate(self.graph.roots)
        return sum(value.nbytes for at, value in roots if at in self.copies or self.storage[value] != "arena")

    @property
    def bytes_moved(self) -> int:
        """Bytes that the steps read and write in one call; a region counts as one step."""
        steps = [node for node in self.steps if self.storage[node.outputs[0]] != "view"]
        values = [value for node in steps for value in (*node.values_in, *node.outputs)]
        return sum(value.nbytes for value in values if value in self.last_use)

    def __str__(self) -> str:
        return format_plan(self)

    def _is_delivered(self, index: int, value: Value) -> bool:
        """Whether root `index` is returned without a copy: saved in the arena, or in its own memory, by plan or by its
        kernel's promise (`fresh`).
        """
        if value in self.saved and value in self.allocation_of:
            return True
        if self.storage[value] == "own":
            return getattr(value.node.op, "fresh", False) and (value in self.saved or self.position[value] == index)
        return self.storage[value] == "output" and self.position[value] == index

    def _end(self, value: Value, otherwise: int) -> int:
        """The last step that reads the value; `otherwise` if no step does."""
        return max(self.start + self.last_use.get(value, otherwise), self.saved.get(value, 0))

    def _visit(self, index: int, node: Node) -> None:
        self.needs[node] = tuple(value in self.last_use for value in node.outputs)
        if node.op.view and self._as_view(index, node):
            return
        for value in node.outputs:
            if value not in self.last_use and "need" in node.op.run_keywords:
                self.storage[value] = "none"
            elif "out" not in node.op.run_keywords:
                self.storage[value] = "own"
            elif value in self.position:
                self.storage[value] = "output"
            else:
                self._into_arena(index, node, value)

    def _as_view(self, index: int, node: Node) -> bool:
        """Store the output as a view of the first input if the kernel returns a view for this memory layout."""
        value = node.outputs[0]
        if value in self.position or not isinstance(node.inputs[0], Value):
            return False
        source = node.inputs[0]
        inputs = [self._layout(item) if isinstance(item, Value) else item for item in node.inputs]
        result = run_kernel(node.op, inputs)[0]
        if not (isinstance(result, np.ndarray) and np.may_share_memory(result, inputs[0])):
            return False
        if self.contiguous and not result.flags.c_contiguous:
            return False
        # For negative strides NumPy runs other loops, which round differently; an eager slice is copied, too.
        if any(stride < 0 for stride in result.strides):
            return False
        if value in self.saved and not (source in self.allocation_of and result.flags.c_contiguous):
            return False
        self.layouts[value] = result
        self.storage[value] = "view"
        allocation = self.allocation_of.get(source)
        if allocation is not None:
            allocation.values.append(value)
            allocation.last = max(allocation.last, self._end(value, index))
            self.allocation_of[value] = allocation
        return True

    def _layout(self, value: Value) -> np.ndarray:
        """An array with the future strides of the Value. Its memory is never read or written."""
        if value not in self.layouts:
            node = value.node
            self.layouts[value] = node.op.array if isinstance(node.op, Constant) else np.empty(value.shape, value.dtype)
        return self.layouts[value]

    def _into_arena(self, index: int, node: Node, value: Value) -> None:
        last = self._end(value, index)
        source = self._reusable(index, node, value)
        if source is not None:
            allocation = self.allocation_of[source]
            allocation.last = last
            self.inplace[value] = source
        else:
            allocation = Allocation(value.nbytes, self.start + index, last)
            self.allocations.append(allocation)
        allocation.values.append(value)
        self.allocation_of[value] = allocation
        self.storage[value] = "arena"

    def _reusable(self, index: int, node: Node, value: Value) -> Value | None:
        """An input with the output's shape and dtype whose allocation is free after this step; None without one."""
        if not node.op.alias_safe or len(node.outputs) != 1:
            return None
        for item in node.values_in:
            allocation = self.allocation_of.get(item)
            if allocation is None or allocation.last != self.start + index:
                continue
            if item.shape != value.shape or item.dtype != value.dtype:
                continue
            whole = allocation.nbytes == value.nbytes and (
                item not in self.layouts or self.layouts[item].flags.c_contiguous
            )
            alone = all(other is item or self.allocation_of.get(other) is not allocation for other in node.values_in)
            if whole and alone:
                return item
        return None


def plan(graph: Graph, contiguous: bool = False) -> MemoryPlan:
    """Plan an inferred graph. Outputs and new values of effects are never in the arena.

    contiguous : copy views that would not be in C order, so that every Value is in C order
    """
    result = MemoryPlan(graph, contiguous=contiguous)
    result.arena_bytes, result.ideal_bytes = pack(result.allocations), peak(result.allocations)
    return result


def format_plan(plan: MemoryPlan) -> str:
    """One line for each output of a step: the operator, the type, and the output's storage."""
    name = Names(plan.graph)
    rows = []
    for index, node in enumerate(plan.steps):
        for value in node.outputs:
            text = f"{index:>4}  {name(value)}: {format_type(value.shape, value.dtype)} = {node.op.name}"
            rows.append((text, _describe(plan, value, name)))
    width = min(max((len(text) for text, _ in rows), default=0), 72)
    sizes = f"arena {plan.arena_bytes:,} bytes for {plan.unshared_bytes:,} bytes of values"
    lines = [f"plan: {sizes}, at most {plan.ideal_bytes:,} alive at once"]
    lines += [f"{text:<{width}}  {where}" for text, where in rows]
    for index, value in enumerate(plan.graph.roots):
        lines.append(f"      return {name(value)}{' (copied)' if index in plan.copies else ''}")
    return "\n".join(lines)


def _describe(plan: MemoryPlan, value: Value, name: Names) -> str:
    kind = plan.storage[value]
    if kind == "arena":
        allocation, before = plan.allocation_of[value], plan.inplace.get(value)
        inplace = f" in place of {name(before)}" if before is not None else ""
        extent = f"{allocation.offset}..{allocation.offset + allocation.nbytes}"
        return f"arena {extent}{inplace}, until step {plan.last_use.get(value, '-')}"
    if kind == "view":
        return f"view of {name(value.node.values_in[0])}"
    other = {"own": "allocated by its kernel", "none": "not computed"}
    return f"output {plan.position[value]}" if kind == "output" else other.get(kind, kind)
