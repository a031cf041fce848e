"""The difference of two graphs: operators are matched by computation, position and readers, or in their order."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from hybrid_lab.formats.mxnet.operator_names import SCALAR_FORMS, as_in_files
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Constant, Node, Value
from hybrid_lab.graph.printer import format_type
from hybrid_lab.insight.subsequence import common_runs
from hybrid_lab.insight.table import count

READERS = 64
"""Readers of one value among which an equal one is looked for."""

Kind = Literal["same", "added", "removed", "changed"]


@dataclass
class OperatorDifference:
    """One operator of two graphs.

    kind : "added" is in the second graph only, "removed" in the first only
    block : path of its Block in the second model; in the first, of an operator whose Block is there only
    first, second : the operator as text, "" if it is missing
    changes : one text each: "num_hidden: 8 became 16"
    first_place, second_place : its number among the operators of its Block in each graph, from 0; None if missing
    line : where it stands in the user's code, "" if unknown
    first_block : path of its Block in the first model, "" if it is missing there
    """

    kind: Kind
    block: str
    first: str
    second: str
    changes: list[str] = field(default_factory=list)
    first_place: int | None = None
    second_place: int | None = None
    line: str = ""
    first_block: str = ""


@dataclass(frozen=True)
class GraphSide:
    """One of the two graphs.

    path : of its Block in the model; inputs : the name of each input; None: their places
    hidden : whether attributes count that only the compiler sets, such as the mode of a BatchNorm
    keys : equal for inputs that are the same in both graphs; None: the names
    partner : of the first graph: path of a Block in the first model -> its path in the second, or a text that begins
        with a zero byte for a missing Block; None: the same path
    moved : of the second graph, the paths of Blocks that were called elsewhere in the first
    """

    graph: Graph
    path: str = ""
    inputs: Sequence[str] | None = None
    hidden: bool = False
    keys: Sequence[str] | None = None
    partner: Callable[[str], str] | None = None
    moved: Collection[str] = ()


@dataclass(frozen=True)
class GraphDifference:
    """Two graphs side by side.

    rows : all operators of both; results : the changes of the graphs' results
    numbers : for each row the index of the operator in each graph, None if it is missing
    """

    rows: list[OperatorDifference]
    results: list[str]
    numbers: list[tuple[int | None, int | None]]


class _Side:
    """A graph with the data for matching: for each operator its Block, its text, and hashes of both directions.

    own_block : path of its Block in its own model; block : the same text for Blocks that belong together
    labels : names of inputs and constants; keys : equal for equal inputs and constants
    below : of the operator and of all that it is computed from; above : of the operator and of all that reads it
    """

    def __init__(self, side: GraphSide):
        self.graph, self.operators = side.graph, side.graph.operators
        self.path, self.root = side.path, _root_of(side)
        self.own_block = {node: self._block_of(node) for node in self.operators}
        partner = side.partner
        if partner is None:
            self.block = self.own_block
        else:
            partners = {path: partner(path) for path in set(self.own_block.values())}
            self.block = {node: partners[path] for node, path in self.own_block.items()}
        self.form = {node: _Form(node, side.hidden) for node in self.operators}
        self.below: dict[Node, int] = {}
        self.above: dict[Node, int] = {}
        names = side.inputs or [f"input {index}" for index in range(len(side.graph.inputs))]
        self.labels = {value.node: name for value, name in zip(side.graph.inputs, names, strict=True)}
        self.keys = {value.node: key for value, key in zip(side.graph.inputs, side.keys or names, strict=True)}
        for node in side.graph.nodes:
            if node not in self.form:
                self.labels.setdefault(node, _constant_text(node))
                self.keys.setdefault(node, self.labels[node])
            self.below[node] = self._hash_below(node)
        readers: dict[Node, list[tuple[Node, int, int]]] = defaultdict(list)
        for node, form in self.form.items():
            for place, value in enumerate(form.operands):
                readers[value.node].append((node, place, value.index))
        results: dict[Node, list[tuple[int, int]]] = defaultdict(list)
        for place, value in enumerate(side.graph.roots):
            results[value.node].append((place, value.index))
        for node in reversed(self.operators):
            uses = sorted([(place, index, self.above[reader]) for reader, place, index in readers[node]])
            self.above[node] = hash((self.form[node].key, tuple(uses), tuple(results[node])))
        self.readers = readers
        self.moved = {node for node, block in self.block.items() if side.moved and _is_in(block, side.moved)}
        self.first_draw = min([node.draw for node in self.operators if node.draw is not None], default=0)

    def _block_of(self, node: Node) -> str:
        inside = node.scope[len(self.root) :].lstrip(".") if f"{node.scope}.".startswith(f"{self.root}.") else ""
        return ".".join(part for part in (self.path, inside) if part)

    def _hash_below(self, node: Node) -> int:
        form = self.form.get(node)
        if form is None:
            return hash(self.keys[node])
        return hash((form.key, tuple([(self.below[value.node], value.index) for value in form.operands])))

    def near(self, radius: int) -> dict[Node, int]:
        """A hash of each operator and of the operators around it, up to `radius` steps away, both ways."""
        down = up = {node: hash(form.key) for node, form in self.form.items()}
        for _ in range(radius):
            down = {
                node: hash((
                    form.key, tuple([(down.get(value.node), value.index) for value in form.operands])
                ))
                for node, form in self.form.items()
            }  # fmt: skip
            up = {
                node: hash((
                    self.form[node].key,
                    tuple(sorted([(place, index, up[reader]) for reader, place, index in self.readers[node]])),
                ))
                for node in self.operators
            }  # fmt: skip
        return {node: hash((down[node], up[node])) for node in self.operators}

    def places(self) -> dict[Node, int]:
        """The number of each operator among the operators of its Block."""
        counts: dict[str, int] = defaultdict(int)
        places = {}
        for node in self.operators:
            places[node] = counts[self.own_block[node]]
            counts[self.own_block[node]] += 1
        return places

    def draw(self, node: Node) -> int | None:
        """Its draw counted from the graph's first one: a graph cut out of an outer trace counts from its own."""
        return None if node.draw is None else node.draw - self.first_draw

    def name(self, value: Value) -> str:
        """A Value in words: the input, or the operator and its Block."""
        node = value.node
        if node not in self.form:
            return self.labels[node]
        output = f" output {value.index}" if value.index else ""
        block = self.own_block[node]
        return f"{self.form[node].name}{output}{f' of {block}' if block else ''}"


class _Form:
    """An operator in the form of files, in which `2 * x` is `x * 2`; so a trace equals the graph read from a file.

    operands : the Values that it reads; key : equal for equal operators
    """

    def __init__(self, node: Node, hidden: bool):
        op = node.op
        numbers = {place: item for place, item in enumerate(node.inputs) if type(item) is not Value}
        self.operands: list[Value] = list(node.values_in)
        self.attributes: dict[str, str] = {}
        op = as_in_files(op)
        self.name = op.name
        if op.name in SCALAR_FORMS and len(numbers) == 1:
            ((place, number),) = numbers.items()
            self.name = SCALAR_FORMS[op.name][1 - place]
            self.attributes["scalar"] = repr(number)
        else:
            for place, number in numbers.items():
                self.attributes[f"input {place}"] = repr(float(number) if op.scalars else number)
        written = op.changed if hidden else op.written
        self.attributes |= {name.lstrip("_"): repr(value) for name, value in written.items()}
        inside = tuple([(label, _inner_hash(graph, hidden)) for label, graph in op.subgraphs])
        self.key = (self.name, tuple(self.attributes.items()), inside)
        self.attributes |= {label: count(len(graph.operators), "operator") for label, graph in op.subgraphs}

    @property
    def text(self) -> str:
        return f"{self.name}({', '.join(f'{name}={value}' for name, value in self.attributes.items())})"


def _inner_hash(graph: Graph, hidden: bool) -> int:
    side = _Side(GraphSide(graph, hidden=hidden))
    return hash(tuple([(side.below[value.node], value.index) for value in graph.roots]))


def _constant_text(node: Node) -> str:
    if isinstance(node.op, Constant):
        array = node.op.array
        return f"constant {array.dtype.name}{list(array.shape)} {hash(array.tobytes()):x}"
    return node.name


def _root_of(side: GraphSide) -> str:
    """The scope of the Block itself in its graph. A trace names scopes after the Block that it began with."""
    scopes = {node.scope for node in side.graph.operators if node.scope}
    first = {scope.split(".")[0] for scope in scopes}
    if len(first) != 1:
        return ""
    names = side.path.split(".") if side.path else []
    for depth in range(len(names) + 1):
        root = ".".join([*first, *names[depth:]])
        if all(f"{scope}.".startswith(f"{root}.") for scope in scopes):
            return root
    return ""


def diff_graphs(first: GraphSide, second: GraphSide) -> tuple[list[OperatorDifference], list[str]]:
    """All operators of both graphs side by side, in the order of the second, and the changes of the results."""
    found = match_graphs(first, second)
    return found.rows, found.results


def match_graphs(first: GraphSide, second: GraphSide) -> GraphDifference:
    """`diff_graphs`, and which operators of the graphs the rows are about.

    Neighbors tell equal operators of branches apart, the order tells operators of a chain apart: the matching that
    leaves fewer differences is taken.
    """
    sides = _Side(first), _Side(second)
    found = _Matching(*sides).difference()
    if _count_differences(found) > 1:
        found = min(found, _Matching(*sides, in_order=True).difference(), key=_count_differences)
    return found


def _count_differences(found: GraphDifference) -> int:
    return sum(row.kind != "same" for row in found.rows) + len(found.results)


class _Matching:
    """The operators of two graphs that belong together. pairs : first -> second operator; back : second -> first

    in_order : whether equal operators are matched by their order in the Block before neighbors of matched ones are
    """

    def __init__(self, one: _Side, two: _Side, in_order: bool = False):
        self.one, self.two = one, two
        self.pairs: dict[Node, Node] = {}
        self.back: dict[Node, Node] = {}
        self._match(in_order)
        drawing = {node for node in one.operators if node.draw is not None}
        drawing_too = {node for node in two.operators if node.draw is not None}
        # An operator that draws and was added or removed shifts the draws of all later operators.
        self._same_draws = {self.pairs.get(node) for node in drawing} == drawing_too

    def _match(self, in_order: bool) -> None:
        """The surest matches first; operators with equal keys are matched one after another."""
        one, two = self.one, self.two
        if not set(one.operators).isdisjoint(two.operators):
            self._by(lambda side, node: node)
        self._by(lambda side, node: (side.block[node], side.below[node], side.above[node]))
        self._by(lambda side, node: (side.block[node], side.below[node]))
        self._by(lambda side, node: (side.block[node], side.above[node]))
        if not in_order:
            self._spread()
        for radius in (0,) if in_order else (3, 1, 0):
            left = self._left()
            if not left:
                break
            near = one.near(radius), two.near(radius)
            for first, second in left:
                self._align(first, second, [near[0][node] for node in first], [near[1][node] for node in second])
            self._spread()
        self._by(lambda side, node: (side.block[node], side.form[node].key))
        self._by(lambda side, node: (side.block[node], side.form[node].name))
        self._by(lambda side, node: side.below[node])
        self._spread()

    def _align(
        self, first: Sequence[Node], second: Sequence[Node], keys: Sequence[int], other_keys: Sequence[int]
    ) -> None:
        """Match along the longest common subsequence of keys."""
        for start, other, size in common_runs(keys, other_keys):
            for place in range(size):
                self._take(first[start + place], second[other + place])

    def _spread(self) -> None:
        """Match operators beside matched operators: first equal operators, then operators of equal names, then one in
        place of another.
        """
        equal, alike, replaced = deque(self.pairs.items()), deque[tuple[Node, Node]](), deque[tuple[Node, Node]]()
        while equal or alike or replaced:
            if equal:
                for pair in self._beside(*equal.popleft()):
                    if self._are_equal(*pair):
                        self._take(*pair)
                        equal.append(pair)
                    else:
                        same_name = self.one.form[pair[0]].name == self.two.form[pair[1]].name
                        (alike if same_name else replaced).append(pair)
                continue
            pair = (alike or replaced).popleft()
            if self._are_free(*pair) and self._in_the_same_place(*pair):
                self._take(*pair)
                equal.append(pair)

    def _beside(self, first: Node, second: Node) -> Iterator[tuple[Node, Node]]:
        """Pairs of operators without a match that a matched pair reads, or that read it, in the same places."""
        for mine, other in zip(self.one.form[first].operands, self.two.form[second].operands, strict=False):
            if mine.index == other.index and self._are_free(mine.node, other.node):
                yield mine.node, other.node
        readers: dict[tuple[int, int], list[Node]] = defaultdict(list)
        for reader, place, index in self.two.readers[second]:
            readers[place, index].append(reader)
        for reader, place, index in self.one.readers[first]:
            free = [other for other in readers[place, index][:READERS] if self._are_free(reader, other)]
            if free:
                yield reader, next((other for other in free if self._are_equal(reader, other)), free[0])

    def _are_equal(self, first: Node, second: Node) -> bool:
        """Whether two operators are equal and no input is matched with something else."""
        mine, other = self.one.form[first], self.two.form[second]
        return mine.key == other.key and all(
            self._match_exactly(one, two)
            if one.node in self.pairs or one.node not in self.one.form
            else two.node in self.two.form and two.node not in self.back
            for one, two in zip(mine.operands, other.operands, strict=False)
        )

    def _are_free(self, first: Node, second: Node) -> bool:
        if first in self.pairs or second in self.back:
            return False
        return first in self.one.form and second in self.two.form and self.one.block[first] == self.two.block[second]

    def _take(self, first: Node, second: Node) -> None:
        self.pairs[first], self.back[second] = second, first

    def _by(self, key: Callable[[_Side, Node], Hashable]) -> None:
        waiting: dict[Hashable, deque[Node]] = defaultdict(deque)
        for node in self.two.operators:
            if node not in self.back:
                waiting[key(self.two, node)].append(node)
        for node in self.one.operators:
            if node not in self.pairs and (nodes := waiting.get(key(self.one, node))):
                self._take(node, nodes.popleft())

    def _left(self) -> list[tuple[list[Node], list[Node]]]:
        """The operators without a match, Block by Block."""
        left: dict[str, tuple[list[Node], list[Node]]] = defaultdict(lambda: ([], []))
        for place, (side, matched) in enumerate(((self.one, self.pairs), (self.two, self.back))):
            for node in side.operators:
                if node not in matched:
                    left[side.block[node]][place].append(node)
        return [both for both in left.values() if all(both)]

    def _in_the_same_place(self, first: Node, second: Node) -> bool:
        """Whether one operator replaces the other: both read the same values, and have the same readers.

        Readers without a match yet count as the same if they are equal operators: an inserted operator is read by the
        operator behind it.
        """
        reads = {value.node for value in self.two.form[second].operands}
        before = [value.node for value in self.one.form[first].operands if value.node in self.one.form]
        if before and not any(self.pairs.get(node) in reads for node in before):
            return False
        readers = {reader for reader, _, _ in self.two.readers[second]}
        after = [reader for reader, _, _ in self.one.readers[first]]
        if not after or any(self.pairs.get(reader) in readers for reader in after):
            return bool(after) or not readers
        keys = {self.two.form[reader].key for reader in readers if reader not in self.back}
        return any(self.one.form[reader].key in keys for reader in after if reader not in self.pairs)

    # -- the changes --------------------------------------------------------------------------------------------------

    def difference(self) -> GraphDifference:
        rows, numbers = self.rows()
        return GraphDifference(rows, self.results(), numbers)

    def rows(self) -> tuple[list[OperatorDifference], list[tuple[int | None, int | None]]]:
        """Both graphs in the order of the second, with the number of each operator in its graph; a removed operator
        stands at its place in the first graph.
        """
        one, two = self.one, self.two
        first_places, second_places = one.places(), two.places()
        order = {node: place for place, node in enumerate(one.operators)}
        removed = deque(node for node in one.operators if node not in self.pairs)
        rows: list[OperatorDifference] = []
        numbers: list[tuple[int | None, int | None]] = []

        def drop(before: int) -> None:
            while removed and order[removed[0]] < before:
                node = removed.popleft()
                own = one.own_block[node]
                block = own if one.block[node].startswith("\0") else one.block[node]
                row = OperatorDifference("removed", block, one.form[node].text, "", line=_line(node))
                row.first_place, row.first_block = first_places[node], own
                rows.append(row)
                numbers.append((order[node], None))

        for number, node in enumerate(two.operators):
            row = OperatorDifference("added", two.own_block[node], "", two.form[node].text, line=_line(node))
            row.second_place = second_places[node]
            first = self.back.get(node)
            if first is not None:
                drop(order[first])
                row.changes = self._changes(first, node)
                row.kind = "changed" if row.changes else "same"
                row.first, row.first_place = one.form[first].text, first_places[first]
                row.first_block = one.own_block[first]
                row.line = row.line or _line(first)
            rows.append(row)
            numbers.append((None if first is None else order[first], number))
        drop(len(order))
        return rows, numbers

    def _changes(self, first: Node, second: Node) -> list[str]:
        old, new = self.one.form[first], self.two.form[second]
        changes = [f"{old.name} became {new.name}"] if old.name != new.name else []
        if self.one.block[first] != self.two.block[second]:
            blocks = self.one.own_block[first] or "the model", self.two.own_block[second] or "the model"
            changes.append("Block: {} became {}".format(*blocks))
        changes += [
            f"{key}: {old.attributes.get(key, 'the default')} became {new.attributes.get(key, 'the default')}"
            for key in dict.fromkeys([*old.attributes, *new.attributes])
            if old.name == new.name and old.attributes.get(key) != new.attributes.get(key)
        ]
        if old.key != new.key and not changes:
            changes.append("the operators inside differ")
        if len(old.operands) != len(new.operands):
            changes.append(f"reads {count(len(new.operands), 'input')} instead of {len(old.operands)}")
        for place, (mine, other) in enumerate(zip(old.operands, new.operands, strict=False)):
            if not self._same_value(mine, other) and not self._is_moved(second, other):
                changes.append(f"input {place}: {self.one.name(mine)} became {self.two.name(other)}")
        types = [_types(node)[: node.op.signature.visible] for node in (first, second)]
        pairs = zip(*types, strict=False)
        changes += [f"result: {mine} became {other}" for mine, other in pairs if mine and other and mine != other]
        if self._same_draws and self.one.draw(first) != self.two.draw(second):
            changes.append("draws other random numbers")
        return changes

    def _same_value(self, mine: Value, other: Value) -> bool:
        """Whether two Values match, looking through added and removed operators, which are rows of their own, and
        through operators of moved Blocks.
        """
        if self._ends.meet(mine, other):
            return True
        return bool(self.two.moved) and self._staying_ends.meet(mine, other)

    @cached_property
    def _ends(self) -> _Ends:
        return _Ends(self.one, self.two, self.pairs)

    @cached_property
    def _staying_ends(self) -> _Ends:
        """Ends that look through moved Blocks too."""
        moved = self.two.moved
        return _Ends(self.one, self.two, {one: two for one, two in self.pairs.items() if two not in moved})

    def _is_moved(self, node: Node, read: Value) -> bool:
        """Whether an operator reads something else because its Block is called elsewhere."""
        return node in self.two.moved and read.node not in self.two.moved

    def _match_exactly(self, mine: Value, other: Value) -> bool:
        if mine.node in self.one.form:
            return self.pairs[mine.node] is other.node and mine.index == other.index
        return other.node not in self.two.form and self.one.keys[mine.node] == self.two.keys[other.node]

    def results(self) -> list[str]:
        """The changes of the graphs' results."""
        old, new = self.one.graph.roots, self.two.graph.roots
        if len(old) != len(new):
            return [f"returns {count(len(new), 'value')} instead of {len(old)}"]
        return [
            f"result {place}: {self.one.name(mine)} became {self.two.name(other)}"
            for place, (mine, other) in enumerate(zip(old, new, strict=True))
            if not self._same_value(mine, other)
        ]


class _Ends:
    """What Values are computed from by operators without a match: matched operators, inputs and constants. Each has a
    bit in a number, the same for the two that belong together.
    """

    def __init__(self, one: _Side, two: _Side, pairs: Mapping[Node, Node]):
        self._bits: dict[Hashable, int] = {}
        self._sides = (one, dict(pairs)), (two, {second: second for second in pairs.values()})
        self._through = [self._unmatched(number) for number in range(2)]

    def meet(self, mine: Value, other: Value) -> bool:
        """Whether a Value of the first graph and one of the second come from something that is the same."""
        return bool(self._of(0, mine) & self._of(1, other))

    def _unmatched(self, number: int) -> dict[Node, int]:
        """The ends of each operator without a match."""
        side, matched = self._sides[number]
        found: dict[Node, int] = {}
        for node in side.operators:  # each after its operands
            if node not in matched:
                ends = 0
                for value in side.form[node].operands:
                    known = found.get(value.node)
                    ends |= self._end(number, value) if known is None else known
                found[node] = ends
        return found

    def _of(self, number: int, value: Value) -> int:
        known = self._through[number].get(value.node)
        return self._end(number, value) if known is None else known

    def _end(self, number: int, value: Value) -> int:
        side, matched = self._sides[number]
        key: Hashable = (matched[value.node], value.index) if value.node in side.form else side.keys[value.node]
        return 1 << self._bits.setdefault(key, len(self._bits))


def _is_in(path: str, blocks: Collection[str]) -> bool:
    """Whether a path belongs to one of these Blocks, or to a Block below."""
    while path and path not in blocks:
        path = path.rpartition(".")[0]
    return path in blocks


def _line(node: Node) -> str:
    return str(node.location) if node.location is not None else ""


def _types(node: Node) -> list[str]:
    """The type of each output, "" if it is not known."""
    known = [value.shape is not None and value.dtype is not None for value in node.outputs]
    return [format_type(value.shape, value.dtype) if is_known else "" for value, is_known in zip(node.outputs, known)]


def with_context(rows: Sequence[OperatorDifference], context: int = 2) -> list[OperatorDifference]:
    """The rows that changed with some equal ones around them; longer runs of equal ones become one row."""
    near = {
        place + step
        for place, row in enumerate(rows)
        if row.kind != "same"
        for step in range(-context, context + 1)
        if 0 <= place + step < len(rows)
    }
    short: list[OperatorDifference] = []
    run: list[OperatorDifference] = []
    for place in range(len(rows) + 1):
        if place < len(rows) and place not in near:
            run.append(rows[place])
            continue
        if len(run) == 1:
            short += run
        elif run:
            text = f"{count(len(run), 'operator')} alike"
            short.append(OperatorDifference("same", run[0].block, text, text))
        run = []
        short += rows[place : place + 1]
    return short
