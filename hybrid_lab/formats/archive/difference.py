"""What differs between two models, archives or graphs: Blocks, operators, tensors and the rest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from hybrid_lab.diagnostics import ArchiveError
from hybrid_lab.diagnostics.formatting import count, first_line
from hybrid_lab.gluon.step import boundary
from hybrid_lab.insight.difference import (
    BlockDifference,
    ModelDifference,
    TensorDifference,
    by_block,
    diff_tensors,
)
from hybrid_lab.insight.graph_diff import Kind, OperatorDifference, match_graphs
from hybrid_lab.system.memory import without_collecting
from hybrid_lab.system.progress import shows_work

from . import layout, values
from .block_matching import BlockMatching, match_blocks, parameters_of
from .container import Container
from .exchanges import Model, find_exchanges
from .sides import FileSide, GraphsSide, Side, SideGraph, side_of
from .tree import BlockRecord, ParameterRecord

_BLOCK_FIELDS = {"class_": "class", "kind": "kind", "layer": "layer", "hybridized": "hybridized"}
_FILE_FIELDS = frozenset({"kind", "layer", "hybridized"})
"""Fields of Blocks that only two files are compared by: for a load they make no difference."""
_PARAMETER_FIELDS = ("grad_req", "lr_mult", "wd_mult", "init", "constant", "differentiable")


@shows_work("comparing")
def diff(first: object, second: object) -> ModelDifference:
    """What differs between two models: Blocks, operators of their graphs, and tensors with the size of the change.

        net = nn.Dense(2, in_units=3, prefix="out_")
        net.initialize()
        y = net(nd.ones((1, 3)))
        path = net.save("before")
        net.weight.set_data(net.weight.data() * 2)
        print(mx.diff("before.hlab", net))

    first, second : each a Block, the path of a `.hlab` archive, a Graph, or the graph before or after a pass
        (`mx.explain(net).passes["fuse"].before`)

    A Block is compared with the graphs that it runs now; a Block without graphs is traced for the inputs of its
    partner's graphs. Nothing is changed. Blocks are matched by structure and name, so that an inserted, moved or
    wrapped Block leaves the others matched with themselves. Operators are matched by computation, position and readers.
    Names that an instance happens to have do not count. The result prints, has HTML and `data()`, and is false in a
    condition if nothing differs:

    >>> mx.diff("before.hlab", net)
    before.hlab -> net0: 1 operator changed, 2 tensors changed
      fc1 (Dense)
        ~ operator Activation: act_type: 'relu' became 'tanh'
        ~ tensor fc1.weight: differs by up to 0.0312 (largest value 0.1), 4,000 of 4,000 values
        ~ tensor fc1.bias: differs by up to 0.01 (largest value 0), 40 of 40 values

    Raises ArchiveError for a damaged file, FileError, HybridLabError for objects that cannot be compared.
    """
    with boundary.lock:
        return diff_sides(side_of(first), side_of(second))


def diff_sides(one: Side, two: Side) -> ModelDifference:
    """`diff` of two sides."""
    return compare_sides(one, two).difference


@dataclass(frozen=True)
class GraphPair:
    """Two graphs that were compared, of the Blocks at `paths` in both models.

    numbers : index in each graph among the operators of its Block, from 0; rows, operators : see `GraphDifference`
    """

    paths: tuple[str, str]
    numbers: tuple[int, int]
    rows: list[OperatorDifference]
    operators: list[tuple[int | None, int | None]]


@dataclass(frozen=True)
class Compared:
    """A difference, with which Blocks of the two models belong together and which operators of their graphs."""

    difference: ModelDifference
    matching: BlockMatching
    graphs: list[GraphPair]


def compare_sides(one: Side, two: Side) -> Compared:
    """What differs between two sides, and what belongs together."""
    with without_collecting():
        comparing = _Comparing(one, two)
        return Compared(comparing.result(), comparing.matching, comparing.graphs)


_Paths = tuple[str | None, str | None]
"""The paths of a Block in both models, None where it is missing."""


class _Comparing:
    """One comparison: the tree first, then the graphs, then the tensors, gathered Block by Block."""

    def __init__(self, one: Side, two: Side):
        self.one, self.two = one, two
        self.places = dict(one.tree.places()), dict(two.tree.places())
        self.matching = match_blocks(one.tree, two.tree, (one.array, two.array))
        self.blocks: dict[_Paths, BlockDifference] = {}
        self.graphs: list[GraphPair] = []
        self.notes: list[str] = []
        self.others: list[str] = []
        self._compared: tuple[set[str], set[str]] = set(), set()  # paths of Blocks, of each side

    def result(self) -> ModelDifference:
        self._compare_trees()
        self._compare_graphs()
        self._compare_tensors()
        self._find_exchanges()
        if isinstance(self.one, FileSide) and isinstance(self.two, FileSide):
            self.others += _members(self.one.container, self.two.container)
        order = {paths: place for place, paths in enumerate(self._all_paths())}
        blocks = sorted(self.blocks.items(), key=lambda item: order.get(item[0], len(order)))
        differing = [block for _, block in blocks if block.differs]
        return ModelDifference(self.one.label, self.two.label, differing, self.others, self.notes)

    def _all_paths(self) -> list[_Paths]:
        """Each Block of both models once, in the order of the second; a removed one stands behind the one before it."""
        behind: dict[str, list[_Paths]] = {}
        last = ""
        for path in self.places[0]:
            if path in self.matching.pairs:
                last = self.matching.pairs[path]
            else:
                behind.setdefault(last, []).append((path, None))
        found: list[_Paths] = []
        for path in self.places[1]:
            found.append((self.matching.back.get(path), path))
            found += behind.get(path, [])
        return found

    def _block(self, first: str | None, second: str | None) -> BlockDifference:
        """The entry of a Block, made at its first difference."""
        paths = first, second
        if paths not in self.blocks:
            records = [
                None if path is None else places.get(path) for path, places in zip(paths, self.places, strict=True)
            ]
            names = [record.class_ for record in records if record is not None]
            kind: Kind = "same" if None not in records else "added" if records[0] is None else "removed"
            path = first if second is None else second
            assert path is not None
            self.blocks[paths] = BlockDifference(
                kind if names else "same", path, " -> ".join(dict.fromkeys(names)), first_path=first, second_path=second
            )
        return self.blocks[paths]

    # -- Blocks -------------------------------------------------------------------------------------------------------

    def _compare_trees(self) -> None:
        names: dict[str, str] = {}
        numbers: list[str] = []
        for first, second in self._all_paths():
            if first is None or second is None:
                block = self._block(first, second)
                if second is not None and (again := self._same_block(1, second)) is not None:
                    block.changes.append(f"the same Block as {again or 'the model itself'}")
                continue
            move = self.matching.moves.get(second)
            if move == "renumbered":
                numbers.append(f"{first} -> {second}")
            elif move is not None:
                self._block(first, second).move = move
            old, new = self.places[0][first], self.places[1][second]
            for change in self._block_changes(first, second, old, new):
                self._block(first, second).changes.append(change)
            self.notes += self._attribute_changes(second, old.attributes, new.attributes)
            if old.prefix != new.prefix:
                names[old.prefix] = new.prefix
        if numbers:
            what = "1 Block has another number" if len(numbers) == 1 else f"{len(numbers)} Blocks have other numbers"
            self.notes.append(f"{what}, since others came or went: {layout.shorten(numbers)}")
        if names:
            old_name, new_name = next(iter(names.items()))
            prefixes = "1 prefix of names differs" if len(names) == 1 else f"{len(names)} prefixes of names differ"
            self.notes.append(f"{prefixes}, as {old_name or 'none'} and {new_name or 'none'}")

    def _same_block(self, side: int, path: str) -> str | None:
        """The first place of the Block at a path, None if this is the first."""
        first = self.places[side][path].path
        return None if first == path else first

    def _block_changes(self, first: str, second: str, old: BlockRecord, new: BlockRecord) -> Iterator[str]:
        live = self.one.is_live or self.two.is_live
        for key, name in _BLOCK_FIELDS.items():
            before, after = getattr(old, key), getattr(new, key)
            if before != after and not (live and key in _FILE_FIELDS):
                yield f"{name}: {before} became {after}"
        if old.class_ == new.class_ and old.layer == new.layer:
            yield from _items("", old.settings(), new.settings())
        if not live:
            yield from _items("hybridize() flag ", old.flags, new.flags)
        if None not in (old.forward, new.forward) and old.forward != new.forward:
            yield "the code of its forward() changed"
        shared = [self._same_block(side, path) for side, path in enumerate((first, second))]
        if (shared[0] if shared[0] is None else self.matching.in_second(shared[0])) != shared[1]:
            texts = [
                "a Block of its own" if place is None else f"the same Block as {place or 'the model itself'}"
                for place in shared
            ]
            yield "sharing: {} became {}".format(*texts)

    def _attribute_changes(self, path: str, old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
        tensors = [side.attribute_tensors for side in (self.one, self.two)]
        if tensors[0] is None or tensors[1] is None:
            return
        for name in dict.fromkeys([*old, *new]):
            if name in old and name in new and values.equal((old[name], tensors[0]), (new[name], tensors[1])):
                continue
            texts = [
                values.shown(items[name], arrays) if name in items else "not there"
                for items, arrays in zip((old, new), (tensors[0], tensors[1]), strict=True)
            ]
            change = "another value" if texts[0] == texts[1] else " became ".join(texts)
            yield f"attribute {layout.join_attribute(path, name)}: {change}"

    # -- graphs -------------------------------------------------------------------------------------------------------

    def _compare_graphs(self) -> None:
        """Outer Blocks first; one whose operators were compared as part of an outer graph is not compared again."""
        pairs = sorted(self.matching.pairs.items(), key=lambda pair: pair[1].count(".") + bool(pair[1]))
        for first, second in pairs:
            if first in self._compared[0] or second in self._compared[1]:
                continue
            try:
                old = self.one.graphs(first, [])
                new = self.two.graphs(second, old)
                old = old or self.one.graphs(first, new)
            except ArchiveError:
                raise
            except Exception as error:  # the code of a live Block, which may raise anything while it is traced
                text = f"graph: tracing the code raised {type(error).__name__}: {first_line(error)}"
                self._block(first, second).changes.append(text)
                continue
            numbers = [{id(graph): number for number, graph in enumerate(graphs)} for graphs in (old, new)]
            for mine, other in _pairs(old, new):
                self._compare_pair((first, second), mine, other, numbers)

    def _compare_pair(
        self, paths: tuple[str, str], old: SideGraph | None, new: SideGraph | None, numbers: list[dict[int, int]]
    ) -> None:
        graph = old or new
        assert graph is not None
        if old is None or new is None:
            label = self.one.label if new is None else self.two.label
            size = count(len(graph.graph.operators), "operator")
            self._block(*paths).changes.append(f"graph: only in {label} ({size})")
            return
        types = old.types if old.types is not None and old.data == new.data else new.types
        if old.data != new.data:
            types = None
        hidden = isinstance(self.one, GraphsSide) and isinstance(self.two, GraphsSide)
        found = match_graphs(
            old.side(paths[0], self.one.tree, types, hidden, self.matching, is_first=True),
            new.side(paths[1], self.two.tree, types, hidden, self.matching, is_first=False),
        )
        rows, results = found.rows, found.results
        self.graphs.append(GraphPair(paths, (numbers[0][id(old)], numbers[1][id(new)]), rows, found.numbers))
        if old.in_spec != new.in_spec:
            results.append("takes other arguments")
        if old.out_spec != new.out_spec:
            results.append("returns another structure")
        if results:
            self._block(*paths).changes += [f"graph: {text}" for text in results]
        for row in rows:
            if row.kind != "added":
                self._compared[0].update(_with_those_around(row.first_block))
            if row.kind != "removed":
                self._compared[1].update(_with_those_around(row.block))
        for place, own in by_block(rows, self._block_of).items():
            is_gone = place.startswith("\0")
            block = self._block(place[1:], None) if is_gone else self._block(self.matching.back.get(place), place)
            block.operators += own

    def _block_of(self, row: OperatorDifference) -> str:
        """The path, in the second model, of the Block of an operator; see `BlockMatching.in_second`."""
        return self.matching.in_second(row.first_block) if row.kind == "removed" else row.block

    # -- tensors ------------------------------------------------------------------------------------------------------

    def _compare_tensors(self) -> None:
        seen: set[tuple[str | None, str | None]] = set()
        matched = set(self.matching.parameters.values())
        for first, second in self._all_paths():
            ids = [
                parameters_of(None if path is None else places[path])
                for path, places in zip((first, second), self.places, strict=True)
            ]
            partners = {self.matching.parameters.get(key): name for name, key in ids[0].items()}
            renamed = {partners[key] for name, key in ids[1].items() if partners.get(key, name) != name}
            for name in dict.fromkeys([*ids[0], *ids[1]]):
                mine, other = ids[0].get(name), ids[1].get(name)
                if other is not None:
                    mine = ids[0].get(partners.get(other, name))
                if name in renamed and other is None:
                    continue  # its new name comes
                if mine is None and other in matched:
                    continue  # a parameter of another Block that is shared
                keys = mine, other
                if keys not in seen:
                    seen.add(keys)
                    self._compare_parameter(first, second, name, *keys)

    def _find_exchanges(self) -> None:
        """Report Blocks that changed places, which only the values show."""
        changed = {
            tensor.name: tensor
            for block in self.blocks.values()
            for tensor in block.tensors
            if tensor.kind == "changed" and tensor.first == tensor.second
        }
        ids = {
            key: changed[place]
            for path, record in self.places[1].items()
            for name, key in parameters_of(record).items()
            if (place := layout.join(path, name)) in changed
        }
        one, two = (
            Model(places, side.tree.parameters, side.array)
            for places, side in zip(self.places, (self.one, self.two), strict=True)
        )
        for exchange in find_exchanges(one, two, self.matching.pairs, set(ids)):
            self._block(exchange.was, exchange.path).exchange = exchange.text
            for key, before in exchange.parameters.items():
                if key in ids:
                    ids[key].exchanged = before

    def _compare_parameter(
        self, first: str | None, second: str | None, name: str, mine: str | None, other: str | None
    ) -> None:
        path = first if second is None else second
        assert path is not None
        found = self._tensor_difference(layout.join(path, name), mine, other)
        if found is not None:
            if mine is not None and other is not None and mine != other:
                found.first_name = mine
            self._block(first, second).tensors.append(found)
        if mine is not None and other is not None:
            old, new = vars(self.one.tree.parameters[mine]), vars(self.two.tree.parameters[other])
            was = mine.rpartition(".")[2]
            if was != name and self.places[0][first or ""].parameters.get(name) != mine:
                self._block(first, second).changes.append(f"{name}: renamed from {was}")
            self._block(first, second).changes += [
                f"{name}: {key} {old[key]!r} became {new[key]!r}" for key in _PARAMETER_FIELDS if old[key] != new[key]
            ]

    def _tensor_difference(self, place: str, first: str | None, second: str | None) -> TensorDifference | None:
        sides = ((self.one, first), (self.two, second))
        records = [None if key is None else side.tree.parameters[key] for side, key in sides]
        texts = [_type(record) for record in records]
        digests = [None if key is None else side.digest(key) for side, key in sides]
        if texts[0] == texts[1] and digests[0] is not None and digests[0] == digests[1]:
            return None  # so that two files say; it is not read
        arrays = [None if key is None else side.array(key) for side, key in sides]
        if arrays[0] is not None and arrays[1] is not None:
            return diff_tensors(place, arrays[0], arrays[1])
        if None not in records and texts[0] == texts[1]:
            return None
        kind: Kind = "changed" if None not in records else "added" if records[0] is None else "removed"
        values = max((0 if array is None else array.size) for array in arrays)
        return TensorDifference(kind, place, texts[0], texts[1], values, values)


def _items(what: str, old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
    for key in dict.fromkeys([*old, *new]):
        if old.get(key) != new.get(key):
            was, now = (repr(items[key]) if key in items else "not given" for items in (old, new))
            yield f"{what}{key}: {was} became {now}"


def _pairs(old: list[SideGraph], new: list[SideGraph]) -> Iterator[tuple[SideGraph | None, SideGraph | None]]:
    """Graphs that belong together: of the same arguments and guard, then of the same arguments, then in order."""
    left, right = list(old), list(new)
    for key in (lambda g: (g.in_spec, g.observation), lambda g: g.in_spec, lambda g: None):
        for mine in list(left):
            other = next((graph for graph in right if key(graph) == key(mine)), None)
            if other is not None:
                left.remove(mine)
                right.remove(other)
                yield mine, other
    yield from ((mine, None) for mine in left)
    yield from ((None, other) for other in right)


def _with_those_around(path: str) -> Iterator[str]:
    """The paths of a Block and of the Blocks around it, without the outermost."""
    yield path
    while "." in path:
        path = path.rpartition(".")[0]
        yield path


def _type(record: ParameterRecord | None) -> str:
    if record is None:
        return ""
    shape = "?" if record.shape is None else ", ".join("?" if size is None else str(size) for size in record.shape)
    return f"{record.dtype}[{shape}]{'' if record.state == 'initialized' else ' without values'}"


# -- members of two files that belong to no Block ---------------------------------------------------------------------


def _members(first: Container, second: Container) -> list[str]:
    """Training state, the user's values and binaries. Examples follow from graphs and weights."""
    found = []
    for name in dict.fromkeys([*first.names, *second.names]):
        apart = layout.TREE, layout.WEIGHTS, layout.ATTRIBUTES, layout.HISTOGRAMS, layout.EXAMPLE_ARRAYS
        if name in apart or name.startswith("graphs/"):
            continue
        if name not in first or name not in second:
            found.append(f"member {name}: only in the {'first' if name in first else 'second'}")
        elif first.holds_tensors(name) and second.holds_tensors(name):
            found += [f"member {name}: {row.name}: {row.text}" for row in _tensors(first, second, name)]
        elif first.read(name) != second.read(name):
            found.append(f"member {name}: the contents differ")
    return found


def _tensors(first: Container, second: Container, member: str) -> Iterator[TensorDifference]:
    one, two = first.tensors(member), second.tensors(member)
    for name in dict.fromkeys([*one, *two]):
        arrays: list[np.ndarray | None] = [file[name] if name in file else None for file in (one, two)]
        found = diff_tensors(name, *arrays)
        if found is not None:
            yield found
