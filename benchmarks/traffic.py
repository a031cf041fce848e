"""Traffic of a fused graph: the bytes that its kernels move, beside those that are unavoidable between cuts.

*Moved.* See engines/triton/plan/traffic.py. The parts of rows that are split are written and read. A view outside of
kernels is copied if its elements lie in another order.

*Ideal.* The graph is cut where no kernel can go on, and each stretch between two cuts is one kernel that reads each
array once. Cuts are

- before a product (`dot`, convolutions and their gradients): its factors are in memory, and each product reads its own;
- behind a product, for what is not computed at its own elements: a sum over its result, a window, another broadcast;
- behind rows that are split among programs, for what needs the sum at every element. Sums of the same rows that need
  one another (mean and variance, maximum and sum of exponentials) are one pass over the data;
- around a recurrent layer, which is a kernel of its own, and around an operator that has none.

What the graph is given is read, what it returns is written, and what crosses a cut is unavoidable: it is written once
and read once on each side of a cut that needs it - or computed again there by element-wise operators, where what these
read is less. A value that the forward keeps for the backward is an output of the one and an input of the other. So the
ideal is not a bound: attention in one kernel does without a cut that is counted here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from math import prod

from hybrid_lab.engines.triton.plan.fusion import Fusion
from hybrid_lab.engines.triton.plan.groups import origin
from hybrid_lab.engines.triton.plan.traffic import looked_at, moved_by, read_of
from hybrid_lab.engines.triton.write.core.reduction import Rows, is_split
from hybrid_lab.engines.triton.write.index import strides_in, strides_of
from hybrid_lab.engines.triton.write.kinds import element_of, is_pointwise, is_product, is_recurrence, is_reduction
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Constant, Input, Node, Value


@dataclass(frozen=True)
class Traffic:
    """moved, ideal : bytes of one run, as above; kernels : launches; operators : those in kernels, without views"""

    moved: int
    ideal: int
    kernels: int
    operators: int

    @property
    def ratio(self) -> float:
        """How many times the ideal is moved; less than 1 where kernels do without a cut."""
        return self.moved / self.ideal if self.ideal else 1.0

    def __str__(self) -> str:
        return (
            f"{self.kernels} kernels of {self.operators / max(self.kernels, 1):.1f} operators, "
            f"{self.moved / 1e6:.2f} MB moved, {self.ideal / 1e6:.2f} MB ideal: {self.ratio:.2f}"
        )


def of(fusion: Fusion) -> Traffic:
    """The traffic of one run of a fused graph, its operators without a kernel included."""
    moved = launches = 0
    for group in fusion.groups:
        reads = looked_at(group.nodes)
        moved += sum(moved_by(source, reads) for source in fusion.kernels[group])
        launches += len(fusion.kernels[group])
    for node in fusion.graph.operators:
        if node in fusion.refused and not node.op.view:
            moved += sum(value.nbytes for value in (*dict.fromkeys(node.values_in), *node.outputs))
    moved += sum(2 * value.nbytes for value in _copies(fusion))
    inside = {node for group in fusion.groups for node in group.nodes if not node.op.view}
    return Traffic(moved, _Ideal(fusion.graph, fusion.refused).bytes, launches, len(inside))


def _copies(fusion: Fusion) -> list[Value]:
    """The views outside of kernels whose elements lie in another order: they are copied."""
    outside = [value for node in fusion.graph.operators if node in fusion.refused for value in node.values_in]
    found: dict[Value, None] = {}
    for value in (*fusion.graph.roots, *outside):
        while value.node.op.view and value.node.values_in and value.nbytes:
            if not _in_order(value):
                found[value] = None
            value = value.node.values_in[0]
    return list(found)


def _in_order(value: Value) -> bool:
    strides = strides_in(value.node, value.index)
    pairs = zip(value.shape, () if strides is None else strides[0], strides_of(value.shape), strict=False)
    return strides is not None and all(size == 1 or one == other for size, one, other in pairs)


# -- the ideal ---------------------------------------------------------------------------------------------------------

#: Sums of split rows: how many rows and columns, and the stretch that they are in.
_Sums = tuple[tuple[int, int], int]


class _Ideal:
    """bytes : what has to be moved; stretch : operator -> how many cuts lie before it"""

    def __init__(self, graph: Graph, refused: Collection[Node] = ()):
        self.refused = {*refused, *filter(is_recurrence, graph.operators)}
        self.stretch: dict[Node, int] = {}
        #: What lies in a kernel with a product, at its elements; what holds sums of split rows, an element a row.
        self._epilogue: set[Node] = set()
        self._sums: dict[Node, _Sums] = {}
        #: Operator -> the stretch that it would be in if these sums were no cut.
        self._earlier: dict[Node, dict[_Sums, int]] = {}
        nodes = [node for node in graph.operators if not isinstance(node.op, Constant)]
        for node in nodes:
            self._place(node)
        self.bytes = 0
        self._stored: set[Value] = set()
        for value in dict.fromkeys(map(origin, graph.roots)):
            self._store(value)
        self._count(nodes)

    # -- where the cuts are --------------------------------------------------------------------------------------------

    def _place(self, node: Node) -> None:
        before = list(dict.fromkeys(value.node for value in map(origin, read_of(node)) if not _given(value)))
        if node.op.view and len(node.outputs) == 1:
            return
        earlier: dict[_Sums, int] = {}
        for sums in {key for item in before for key in (*self._earlier[item], *self._held(item))}:
            found = (self._earlier[item].get(sums, self.stretch[item]) + self._cut(item, node, sums) for item in before)
            if (least := max(found)) <= sums[1]:
                earlier[sums] = least
        number = max((self.stretch[item] + self._cut(item, node) for item in before), default=0)
        rows = Rows.of(node) if is_reduction(node) and node not in self.refused else None
        if rows is not None and is_split(rows):
            number = min([number, *(stretch for counts, stretch in earlier if counts == rows.counts)])
            self._sums[node] = (rows.counts, number)
        else:
            size = prod(node.outputs[0].shape)
            for item in before:
                if self.stretch[item] == number and item in self._sums and size == self._sums[item][0][0]:
                    self._sums[node] = self._sums[item]
        if is_product(node) or any(item in self._epilogue and self.stretch[item] == number for item in before):
            self._epilogue.add(node)
        self.stretch[node], self._earlier[node] = number, earlier

    def _held(self, node: Node) -> tuple[_Sums, ...]:
        return (self._sums[node],) if node in self._sums else ()

    def _cut(self, before: Node, node: Node, ignored: _Sums | None = None) -> bool:
        """Whether an operator cannot be in the kernel of one that it reads."""
        if before in self.refused or node in self.refused or is_product(node):
            return True
        size, elements = prod(before.outputs[0].shape), prod(node.outputs[0].shape)
        if before in self._epilogue and (not is_pointwise(node) or size != elements):
            return True
        return before in self._sums and self._sums[before] != ignored and (elements > size or not is_pointwise(node))

    # -- what crosses them ---------------------------------------------------------------------------------------------

    def _count(self, nodes: Sequence[Node]) -> None:
        stretches: dict[int, list[Node]] = {}
        for node in nodes:
            if node in self.stretch:
                stretches.setdefault(self.stretch[node], []).append(node)
        for number in sorted(stretches):
            alone = [[node] for node in stretches[number] if is_product(node) or node in self.refused]
            for members in alone:
                self._read(number, members)
            self._read(number, [node for node in stretches[number] if [node] not in alone])

    def _read(self, number: int, members: Sequence[Node]) -> None:
        """Count what these operators read of other stretches."""
        needed: dict[Value, int] = {}
        for value, size in looked_at([*members, *_views_of(members)]).items():
            if not isinstance(value.node.op, Constant) and self.stretch.get(value.node) != number:
                needed[value] = size
        held = {value for value in needed if self._is_stored(value)}
        for value, size in needed.items():
            if value in held:
                self.bytes += size
        for value, size in needed.items():
            if value in held:
                continue
            leaves = self._leaves(value, number)
            fresh = [leaf for leaf in leaves or () if leaf not in held]
            if leaves is not None and sum(leaf.nbytes for leaf in fresh) < size + value.nbytes:
                self.bytes += sum(leaf.nbytes for leaf in fresh)
                held.update(fresh)
                continue
            self._store(value)
            self.bytes += size
            held.add(value)

    def _leaves(self, value: Value, number: int) -> set[Value] | None:
        """What lies in memory that a value can be computed of element by element; None where it cannot."""
        found: set[Value] = set()
        waiting, seen = [value], set[Value]()
        while waiting:
            item = origin(waiting.pop())
            if item in seen or isinstance(item.node.op, Constant) or self.stretch.get(item.node) == number:
                continue
            seen.add(item)
            if self._is_stored(item):
                found.add(item)
            elif item.node not in self.refused and (is_pointwise(item.node) or element_of(item.node.op) is not None):
                waiting += read_of(item.node)
            else:
                return None
        return found

    def _is_stored(self, value: Value) -> bool:
        return _given(value) or value in self._stored

    def _store(self, value: Value) -> None:
        if not self._is_stored(value):
            self._stored.add(value)
            self.bytes += value.nbytes


def _views_of(nodes: Iterable[Node]) -> list[Node]:
    """The views that these read through."""
    found: list[Node] = []
    for node in nodes:
        for value in read_of(node):
            while value.node.op.view and len(value.node.outputs) == 1 and value.node.inputs:
                found.append(value.node)
                value = value.node.values_in[0]
    return found


def _given(value: Value) -> bool:
    return isinstance(value.node.op, (Input, Constant))
