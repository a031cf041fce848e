"""Which Blocks and parameters of two trees belong together: matched by structure and name, not by path alone.

The children of two matched Blocks are aligned as sequences, by class, settings, parameters, contents, and name. A Block
that was inserted so leaves the later ones matched with themselves, whose numbers it shifts. A Block without a partner
beside it is looked for elsewhere in the tree (it was moved, or wrapped into another Block); only the Blocks left then
count as replaced, added or removed.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from hybrid_lab.insight.subsequence import common_runs

from . import layout
from .tree import BlockRecord, Tree

ALIGNED = 400_000
"""Pairs of children of two Blocks up to which all alignments are weighed; of more, equal ones are matched first."""
SMALL = 3
"""Blocks inside one that counts as small: others like it are found anywhere."""
CLOSE = 0.6
"""How close the numbers of a small Block must be for it to be the same elsewhere. Of random numbers it is 0.43."""
SAMPLE = 1024
"""Numbers of a parameter by which two alike Blocks are told apart."""
Move = Literal["renumbered", "renamed", "moved"]
"""How the path of a Block differs. renumbered : only numbers in its name do, as others before it came or went"""

Values = Callable[[str], np.ndarray | None]
"""The array of a parameter by its id, None where it has none."""


@dataclass
class BlockMatching:
    """Which places of two trees are the same Block.

    pairs : path in the first tree -> path in the second, parents first; back : the reverse
    removed : paths of the first tree without a partner
    moves : path in the second tree -> how it differs from the path in the first, if it does
    parameters : id in the first tree -> id in the second; lost : ids of the first tree without a partner
    """

    pairs: dict[str, str] = field(default_factory=dict)
    back: dict[str, str] = field(default_factory=dict)
    removed: set[str] = field(default_factory=set)
    moves: dict[str, Move] = field(default_factory=dict)
    parameters: dict[str, str] = field(default_factory=dict)
    lost: set[str] = field(default_factory=set)

    def in_second(self, path: str) -> str:
        """The path in the second tree of an item at a path in the first; for a removed Block, a text that is no path.
        An item below a Block that is no Block itself, such as a call that registers no child, goes with the Block.
        """
        known = self.pairs.get(path)
        if known is not None:
            return known
        if path in self.removed:
            return f"\0{path}"
        above, _, name = path.rpartition(".")
        around = self.in_second(above) if path else ""
        return f"{around}.{name}" if around else name

    def parameter_in_second(self, key: str) -> str:
        """The id in the second tree of a parameter of the first; for a lost parameter, a text that is no id. Any other
        id is returned unchanged.
        """
        return f"\0{key}" if key in self.lost else self.parameters.get(key, key)


@dataclass(eq=False)
class _BlockNode:
    """One Block of a tree. A Block that is shared has a node for each path to it.

    whole : of the Block and all inside, without names: equal for equal structures; own : without its children
    kind : of its class and settings; inside : how often each kind is inside it, itself included
    wholes : of all Blocks inside; weights : how many parameters are inside
    """

    path: str
    name: str
    record: BlockRecord
    parent: _BlockNode | None
    whole: int
    own: int
    kind: int
    inside: Counter[int]
    wholes: frozenset[int]
    weights: int
    children: list[_BlockNode] = field(default_factory=list)

    def below(self) -> Iterator[_BlockNode]:
        """The node and all below it, parents first."""
        stack = [self]
        while stack:
            node = stack.pop()
            yield node
            stack += reversed(node.children)


def match_blocks(first: Tree, second: Tree, arrays: tuple[Values, Values] | None = None) -> BlockMatching:
    """Match the Blocks of two trees; the outermost Blocks are always a pair.

    arrays : the values of the parameters of both sides. The values are read only if one side has more alike Blocks than
        the other: the values then show which Block is missing
    """
    return _Matcher(first, second, arrays).result()


class _Matcher:
    def __init__(self, first: Tree, second: Tree, arrays: tuple[Values, Values] | None):
        self.trees, self.arrays = (first, second), arrays
        self.one, self.two = _places(first), _places(second)
        self.pairs: dict[_BlockNode, _BlockNode] = {}
        self.back: dict[_BlockNode, _BlockNode] = {}
        self._moved: set[_BlockNode] = set()
        self._taken: set[str] = set()  # ids of parameters of the second tree that have a partner
        self._close: dict[tuple[int, int], float | None] = {}
        self._samples: dict[tuple[int, str], np.ndarray | None] = {}

    def result(self) -> BlockMatching:
        self._pair(self.one, self.two)
        self._align_below(self.one, self.two)
        self._find_moved()
        self._replace(self.one, self.two)
        found = BlockMatching()
        for node in self.one.below():
            other = self.pairs.get(node)
            if other is None:
                found.removed.add(node.path)
                continue
            found.pairs[node.path], found.back[other.path] = other.path, node.path
            move = self._move(node, other)
            if move is not None:
                found.moves[other.path] = move
            self._match_parameters(found, node, other)
        found.lost = self.trees[0].parameters.keys() - found.parameters.keys()
        return found

    def _pair(self, first: _BlockNode, second: _BlockNode) -> None:
        self.pairs[first], self.back[second] = second, first

    # -- children beside one another ----------------------------------------------------------------------------------

    def _align_below(self, first: _BlockNode, second: _BlockNode) -> None:
        """Match the Blocks inside two matched Blocks, at all levels."""
        pending = [(first, second)]
        while pending:
            one, two = pending.pop()
            for pair in self._aligned(one.children, two.children):
                self._pair(*pair)
                pending.append(pair)

    def _aligned(
        self, first: Sequence[_BlockNode], second: Sequence[_BlockNode]
    ) -> list[tuple[_BlockNode, _BlockNode]]:
        names = {node.name: node for node in second}
        pairs = []
        for node in first:  # a name that is a word says which Block is meant, in whatever order they are
            other = names.get(node.name)
            if other is not None and not _has_number(node.name) and _likeness(node, other) > 0:
                pairs.append((node, other))
        taken = {node for pair in pairs for node in pair}
        one = [node for node in first if node not in taken]
        two = [node for node in second if node not in taken]
        unclear = self._unclear(one, two)
        keys = self._keys(0, one, unclear), self._keys(1, two, unclear)
        start, end = _ends(*keys)
        pairs += zip(one[:start], two[:start])
        pairs += zip(one[len(one) - end :], two[len(two) - end :])
        one, two = one[start : len(one) - end], two[start : len(two) - end]
        if len(one) * len(two) <= ALIGNED:
            return pairs + self._best(one, two, unclear)
        return pairs + self._between_equal(one, two, unclear)

    def _keys(self, side: int, places: Sequence[_BlockNode], unclear: set[int]) -> list[tuple[object, ...]]:
        """The structure of each node, with its numbers if structures do not tell, else with its name."""
        samples = [self._sample(side, node) if node.whole in unclear else None for node in places]
        return [
            (node.whole, node.name if sample is None else sample.tobytes())
            for node, sample in zip(places, samples, strict=True)
        ]

    def _between_equal(
        self, first: Sequence[_BlockNode], second: Sequence[_BlockNode], unclear: set[int]
    ) -> list[tuple[_BlockNode, _BlockNode]]:
        """An alignment of many children: equal children first, then the children between them."""
        keys, others = (
            [key if node.whole in unclear else key[0] for node, key in zip(places, self._keys(side, places, unclear))]
            for side, places in enumerate((first, second))
        )
        pairs: list[tuple[_BlockNode, _BlockNode]] = []
        row = column = 0
        for start, other, size in [*common_runs(keys, others), (len(keys), len(others), 0)]:
            if (start - row) * (other - column) <= ALIGNED:
                pairs += self._best(first[row:start], second[column:other], unclear)
            pairs += zip(first[start : start + size], second[other : other + size])
            row, column = start + size, other + size
        return pairs

    def _unclear(self, first: Sequence[_BlockNode], second: Sequence[_BlockNode]) -> set[int]:
        """Structures that several Blocks share, if a Block was added, removed or moved: only the values tell which
        Block.
        """
        if self.arrays is None or [node.whole for node in first] == [node.whole for node in second]:
            return set()
        counts = [Counter(node.whole for node in side if node.weights) for side in (first, second)]
        return {whole for whole, number in counts[0].items() if number * counts[1][whole] > 1}

    def _best(
        self, first: Sequence[_BlockNode], second: Sequence[_BlockNode], unclear: set[int]
    ) -> list[tuple[_BlockNode, _BlockNode]]:
        """The alignment in order that keeps the most alike: a longest common subsequence, weighed by likeness."""
        known: dict[tuple[int, int], float] = {}
        self._compare_numbers(first, second, unclear)
        scores = [[0.0] * (len(second) + 1) for _ in range(len(first) + 1)]
        weights: list[list[float]] = []
        for row, node in enumerate(first):
            above, here = scores[row], scores[row + 1]
            own: list[float] = []
            for column, other in enumerate(second):
                key = node.whole, other.whole
                weight = known.get(key)
                if weight is None:
                    weight = known[key] = _likeness_of_kinds(node, other)
                weight = _named(weight, node.name, other.name)
                if node.whole == other.whole and node.whole in unclear:
                    weight += 0.5 * (self._closeness(node, other) or 0.0)
                own.append(weight)
                best = max(above[column + 1], here[column])
                here[column + 1] = max(best, above[column] + weight) if weight > 0 else best
            weights.append(own)
        pairs = []
        row, column = len(first), len(second)
        while row and column:
            weight = weights[row - 1][column - 1]
            if weight > 0 and scores[row][column] == scores[row - 1][column - 1] + weight:
                row, column = row - 1, column - 1
                pairs.append((first[row], second[column]))
            elif scores[row][column] == scores[row - 1][column]:
                row -= 1
            else:
                column -= 1
        return pairs[::-1]

    def _compare_numbers(self, first: Sequence[_BlockNode], second: Sequence[_BlockNode], structures: set[int]) -> None:
        """Compute the closeness of all pairs of Blocks of these structures, which is faster than pair by pair."""
        for whole in structures:
            ours, theirs = (
                [node for node in nodes if node.whole == whole and self._sample(side, node) is not None]
                for side, nodes in enumerate((first, second))
            )
            if not ours or not theirs:
                continue
            numbers = np.stack([sample for node in theirs if (sample := self._sample(1, node)) is not None])
            for node in ours:
                sample = self._sample(0, node)
                assert sample is not None
                close = _closeness(sample, numbers)
                self._close.update(((id(node), id(other)), float(each)) for other, each in zip(theirs, close))

    def _closeness(self, first: _BlockNode, second: _BlockNode) -> float | None:
        """1 if the numbers of two alike Blocks are equal, less the more they differ; None if there are none."""
        key = id(first), id(second)
        if key not in self._close:
            one, two = self._sample(0, first), self._sample(1, second)
            known = one is not None and two is not None and one.shape == two.shape
            self._close[key] = float(_closeness(one, two[None])[0]) if known else None  # type: ignore[arg-type, index]
        return self._close[key]

    def _sample(self, side: int, node: _BlockNode) -> np.ndarray | None:
        """Numbers of the largest parameter in a Block."""
        if self.arrays is None:
            return None
        tree = self.trees[side]
        keys = [key for inner in node.below() for key in inner.record.parameters.values()]
        key = max(keys, key=lambda key: _size(tree.parameters[key].shape), default=None)
        if key is None:
            return None
        if (side, key) not in self._samples:
            array = self.arrays[side](key)
            self._samples[side, key] = None if array is None else array.reshape(-1)[:SAMPLE].astype(np.float64)
        return self._samples[side, key]

    # -- moved elsewhere ----------------------------------------------------------------------------------------------

    def _find_moved(self) -> None:
        """Match Blocks without a partner beside them with equal Blocks elsewhere: first Blocks with parameters, with
        their contents, then the other Blocks, if a Block beside them moved to the same place.
        """
        self._move_by(lambda node: node.whole if node.weights else None)
        self._move_by(lambda node: (node.own, node.name) if node.weights and not node.children else None)
        self._move_by(
            lambda node: (node.record.class_, node.name) if node.weights and not _is_number(node.name) else None
        )
        before = -1
        while before != len(self.pairs):
            before = len(self.pairs)
            self._move_by(lambda node: None if node.weights else node.whole, self._goes_along)

    def _move_by(
        self,
        key: Callable[[_BlockNode], object],
        allowed: Callable[[_BlockNode, _BlockNode], bool] = lambda one, two: True,
    ) -> None:
        waiting: dict[object, list[_BlockNode]] = defaultdict(list)
        for node in self.two.below():
            if node not in self.back and (found := key(node)) is not None:
                waiting[found].append(node)
        for node in list(self.one.below()):
            if node in self.pairs or (found := key(node)) is None:
                continue
            options = [
                each
                for each in waiting.get(found, ())
                if each not in self.back and allowed(node, each) and self._may_be_same(node, each)
            ]
            if options:
                self._take_moved(node, max(options, key=lambda each: self._fitness(node, each)))

    def _fitness(self, node: _BlockNode, other: _BlockNode) -> tuple[float, ...]:
        """How well a Block fits that may be the same one elsewhere."""
        close = self._closeness(node, other) or 0.0
        beside = node.parent is not None and other.parent is self.pairs.get(node.parent)
        return round(close, 2), node.name == other.name, beside

    def _may_be_same(self, node: _BlockNode, other: _BlockNode) -> bool:
        """Whether the numbers speak against it that a small Block was moved."""
        if node.inside.total() > SMALL or node.whole != other.whole:
            return True
        close = self._closeness(node, other)
        return close is None or close > CLOSE

    def _take_moved(self, node: _BlockNode, other: _BlockNode) -> None:
        self._pair(node, other)
        self._moved.add(node)
        free = [(node, other)]
        while free:
            one, two = free.pop()
            inner = [[each for each in one.children if each not in self.pairs]]
            inner += [[each for each in two.children if each not in self.back]]
            for pair in self._aligned(*inner):
                self._pair(*pair)
                free.append(pair)

    def _goes_along(self, node: _BlockNode, other: _BlockNode) -> bool:
        """Whether both are in matched Blocks, one perhaps a level deeper, or the Block beside them is the same."""
        if node.parent is None or other.parent is None:
            return False
        above, its_above = node.parent, other.parent
        pairs = (above, its_above), (above, its_above.parent), (above.parent, its_above)
        if any(mine is not None and self.pairs.get(mine) is its for mine, its in pairs):
            return True
        ours, theirs = node.parent.children, other.parent.children
        at, there = ours.index(node), theirs.index(other)
        return any(
            0 <= at + step < len(ours)
            and 0 <= there + step < len(theirs)
            and self.pairs.get(ours[at + step]) is theirs[there + step]
            for step in (-1, 1)
        )

    # -- replaced -----------------------------------------------------------------------------------------------------

    def _replace(self, first: _BlockNode, second: _BlockNode) -> None:
        """Match the Blocks at the same position in matched Blocks, of any class, at all levels."""
        pending = [(first, second)]
        while pending:
            one, two = pending.pop()
            for pair in self._in_place(one, two):
                self._pair(*pair)
                self._align_below(*pair)
            pending += [(child, self.pairs[child]) for child in one.children if child in self.pairs]

    def _in_place(self, first: _BlockNode, second: _BlockNode) -> list[tuple[_BlockNode, _BlockNode]]:
        names = {node.name: node for node in second.children if node not in self.back}
        pairs = [
            (node, names[node.name])
            for node in first.children
            if node not in self.pairs and node.name in names and not _is_number(node.name)
        ]
        taken = {node for pair in pairs for node in pair}
        gaps: dict[_BlockNode | None, tuple[list[_BlockNode], list[_BlockNode]]] = defaultdict(lambda: ([], []))
        for side, (node, matched) in enumerate(((first, self.pairs), (second, self.back))):
            anchor: _BlockNode | None = None
            for child in node.children:
                if child in matched:
                    anchor = child if side else matched[child]
                elif child not in taken and _is_number(child.name):
                    gaps[anchor][side].append(child)
        for ours, theirs in gaps.values():
            by_name = {node.name: node for node in theirs}
            same = [(node, by_name[node.name]) for node in ours if node.name in by_name]
            pairs += same if len(ours) != len(theirs) else zip(ours, theirs)
            if not same and len(ours) != len(theirs):
                pairs += zip(ours, theirs)
        return pairs

    # -- what a pair means --------------------------------------------------------------------------------------------

    def _move(self, node: _BlockNode, other: _BlockNode) -> Move | None:
        if node.parent is None or other.parent is None:
            return None
        if node in self._moved or self.pairs.get(node.parent) is not other.parent:
            return "moved"
        if node.name == other.name:
            return None
        return "renumbered" if _stem(node.name) == _stem(other.name) else "renamed"

    def _match_parameters(self, found: BlockMatching, node: _BlockNode, other: _BlockNode) -> None:
        ours, theirs = (parameters_of(each.record) for each in (node, other))
        pairs = [(key, theirs[name]) for name, key in ours.items() if name in theirs]
        is_same_class = node.record.class_ == other.record.class_
        free = [
            {name: key for name, key in own.items() if is_same_class and name not in away}
            for own, away in ((ours, theirs), (theirs, ours))
        ]
        for key in free[0].values():  # renamed parameters, by shape
            look = self._look(0, key)
            alike = [name for name, each in free[1].items() if self._look(1, each) == look]
            if alike and look[1] is not None:
                pairs.append((key, free[1].pop(alike[0])))
        for mine, its in pairs:
            if mine not in found.parameters and its not in self._taken:
                found.parameters[mine] = its
                self._taken.add(its)

    def _look(self, side: int, key: str) -> tuple[str, tuple[object, ...] | None]:
        record = self.trees[side].parameters[key]
        return record.dtype, record.shape


def parameters_of(record: BlockRecord | None) -> dict[str, str]:
    """The ids of a Block's own parameters by name; parameters that are no attributes come first."""
    return {} if record is None else {**record.loose, **record.parameters}


# -- places and their likeness ----------------------------------------------------------------------------------------


def _places(tree: Tree) -> _BlockNode:
    """The places of a tree: the outermost place, with all others in it."""
    facts: dict[int, tuple[int, int, int, Counter[int], frozenset[int], int]] = {}
    for record in _children_first(tree):
        params = parameters_of(record)
        look = [(name, tree.parameters[key].dtype, tree.parameters[key].shape) for name, key in params.items()]
        kind = hash((record.class_, json.dumps(record.settings(), sort_keys=True, default=str)))
        own = hash((kind, tuple(look)))
        inner = [facts[child] for _, child in record.children]
        inside = Counter([kind])
        wholes: set[int] = set()
        for each in inner:
            inside.update(each[3])
            wholes |= {each[0]} | each[4]
        whole = hash((own, tuple(each[0] for each in inner)))
        weights = len(params) + sum(each[5] for each in inner)
        facts[record.id] = whole, own, kind, inside, frozenset(wholes), weights

    def node(path: str, name: str, record: BlockRecord, parent: _BlockNode | None) -> _BlockNode:
        return _BlockNode(path, name, record, parent, *facts[record.id])

    root = node("", "", tree.blocks[0], None)
    pending = [root]
    while pending:
        above = pending.pop()
        for name, child in above.record.children:
            above.children.append(node(layout.join(above.path, name), name, tree.blocks[child], above))
        pending += above.children
    return root


def _children_first(tree: Tree) -> list[BlockRecord]:
    """The Blocks, each before all that it holds."""
    order: list[BlockRecord] = []
    seen: set[int] = set()
    stack = [(0, False)]
    while stack:
        number, is_done = stack.pop()
        if is_done:
            order.append(tree.blocks[number])
        elif number not in seen:
            seen.add(number)
            stack.append((number, True))
            stack += [(child, False) for _, child in tree.blocks[number].children if child not in seen]
    return order


def _ends(first: Sequence[tuple[object, ...]], second: Sequence[tuple[object, ...]]) -> tuple[int, int]:
    """How many equal keys two sequences begin with, and with how many the rest ends: there names do not count."""
    most, start, end = min(len(first), len(second)), 0, 0
    while start < most and first[start] == second[start]:
        start += 1
    while end < most - start and _is_alike(first[-1 - end], second[-1 - end]):
        end += 1
    return start, end


def _is_alike(first: tuple[object, ...], second: tuple[object, ...]) -> bool:
    """Whether two keys are equal except for a name."""
    return first == second or (first[0] == second[0] and not isinstance(first[1], bytes))


def _likeness(first: _BlockNode, second: _BlockNode) -> float:
    return _named(_likeness_of_kinds(first, second), first.name, second.name)


def _likeness_of_kinds(first: _BlockNode, second: _BlockNode) -> float:
    """2 for equal Blocks, as much as two similar pairs; between 0 and 1 for Blocks of one class; negative if a common
    name does not compensate for the differences. A Block that contains the other was put around it, and is no match.
    """
    if first.whole == second.whole:
        return 2.0
    if first.whole in second.wholes or second.whole in first.wholes:
        return -1.0
    one, two = first.record, second.record
    shared = sum((first.inside & second.inside).values())
    inside = 2 * shared / (first.inside.total() + second.inside.total())
    is_leaf = not first.children and not second.children
    if one.class_ == two.class_:
        own = 0.15 * (first.own == second.own) + 0.25 * _same_part(one.settings(), two.settings())
        if is_leaf:
            return 0.45 + own
        return 0.3 + own + 0.3 * inside if inside >= 0.25 or _is_small_change(first, second) else -0.2
    if is_leaf or not first.children or not second.children:
        return -1.0
    if first.kind in second.inside or second.kind in first.inside:
        return -1.0
    return 0.1 + 0.5 * inside if inside >= 0.5 else -1.0


def _is_small_change(first: _BlockNode, second: _BlockNode) -> bool:
    """Whether two Blocks of one class hold children of the same classes, as where all layers became wider."""
    kinds = [Counter(child.record.class_ for child in node.children) for node in (first, second)]
    shared = sum((kinds[0] & kinds[1]).values())
    return 2 * shared >= 0.6 * (kinds[0].total() + kinds[1].total())


def _named(likeness: float, first: str, second: str) -> float:
    """The likeness with what equal names add: a word tells more than a number."""
    if first != second:
        return likeness
    return likeness + (0.08 if _is_number(first) else 0.3)


def _same_part(first: Mapping[str, object], second: Mapping[str, object]) -> float:
    """The part of two sets of settings that is the same."""
    names = first.keys() | second.keys()
    if not names:
        return 1.0
    return sum(name in first and name in second and first[name] == second[name] for name in names) / len(names)


def _closeness(first: np.ndarray, others: np.ndarray) -> np.ndarray:
    """How close an array of N numbers is to each row of `others`, of shape (M, N): M numbers from 0 to 1."""
    if not first.size:
        return np.ones(len(others))
    with np.errstate(all="ignore"):
        spread = first.std() + others.std(axis=1)
        apart = np.abs(others - first).mean(axis=1)
        close = np.maximum(1.0 - apart / spread, 0.0)
    for row in np.flatnonzero((spread == 0) | ~np.isfinite(spread + apart)):
        close[row] = np.array_equal(first, others[row], equal_nan=True)
    return close


def _size(shape: tuple[object, ...] | None) -> int:
    total = 1
    for each in shape or ():
        total *= each if isinstance(each, int) else 1
    return total


def _is_number(name: str) -> bool:
    return name.isdecimal()


def _has_number(name: str) -> bool:
    return re.search(r"[0-9]", name) is not None


def _stem(name: str) -> str:
    return re.sub(r"[0-9]+", "0", name)
