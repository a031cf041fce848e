"""What differs between two models, archives or graphs: Blocks, operators, tensors and the rest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from hybrid_lab.diagnostics import ArchiveError
from hybrid_lab.diagnostics.words import count, first_line
from hybrid_lab.gluon.step import boundary
from hybrid_lab.insight.difference import (
    BlockDifference,
    ModelDifference,
    TensorDifference,
    by_block,
    diff_tensors,
)
from hybrid_lab.insight.graph_diff import Kind, diff_graphs

from . import layout, values
from .container import Container
from .sides import FileSide, GraphsSide, Side, SideGraph, side_of
from .tree import BlockRecord, ParameterRecord

_BLOCK_FIELDS = {"class_": "class", "kind": "kind", "layer": "layer", "hybridized": "hybridized"}
_FILE_FIELDS = frozenset({"kind", "layer", "hybridized"})
"""Fields of Blocks that only two files are compared by: for a load they make no difference."""
_PARAMETER_FIELDS = ("grad_req", "lr_mult", "wd_mult", "init", "constant", "differentiable")


def diff(first: object, second: object) -> ModelDifference:
    """What differs between two models: Blocks, operators of their graphs, and tensors with the size of the change.

    first, second : each a Block, the path of a `.hlab` archive, a Graph, or what a pass took or gave
        (`mx.explain(net).passes["fuse"].before`)

    A Block is compared with the graphs that it runs now; one without any is traced for the inputs of the other side's
    graphs. Nothing is changed. Blocks are matched by path, operators by what they compute, where they stand and what
    reads them; names that an instance happens to have do not count. The result prints, has HTML and `data()`, and is
    false in a condition where nothing differs:

    >>> mx.diff("before.hlab", net)
    before.hlab -> net0: 1 operator changed, 2 tensors changed
      fc1 (Dense)
        ~ operator Activation: act_type: 'relu' became 'tanh'
        ~ tensor fc1.weight: differs by up to 0.0312 (largest value 0.1), 4,000 of 4,000 values
        ~ tensor fc1.bias: differs by up to 0.01 (largest value 0), 40 of 40 values

    Raises ArchiveError for a damaged file, FileError, HybridLabError for what cannot be compared.
    """
    with boundary.lock:
        return diff_sides(side_of(first), side_of(second))


def diff_sides(one: Side, two: Side) -> ModelDifference:
    """`diff` of two sides."""
    return _Comparing(one, two).result()


class _Comparing:
    """One comparison: the tree first, then the graphs, then the tensors, gathered Block by Block."""

    def __init__(self, one: Side, two: Side):
        self.one, self.two = one, two
        self.places = dict(one.tree.places()), dict(two.tree.places())
        self.blocks: dict[str, BlockDifference] = {}
        self.notes: list[str] = []
        self.others: list[str] = []
        self._compared: set[str] = set()  # paths of Blocks

    def result(self) -> ModelDifference:
        self._compare_trees()
        self._compare_graphs()
        self._compare_tensors()
        if isinstance(self.one, FileSide) and isinstance(self.two, FileSide):
            self.others += _members(self.one.container, self.two.container)
        order = {path: place for place, path in enumerate(dict.fromkeys([*self.places[1], *self.places[0]]))}
        blocks = sorted(self.blocks.values(), key=lambda block: order.get(block.path, len(order)))
        differing = [block for block in blocks if block.differs]
        return ModelDifference(self.one.label, self.two.label, differing, self.others, self.notes)

    def _block(self, path: str) -> BlockDifference:
        """The entry of a Block, made at its first difference."""
        if path not in self.blocks:
            records = [places.get(path) for places in self.places]
            names = [record.class_ for record in records if record is not None]
            kind: Kind = "same" if None not in records else "added" if records[0] is None else "removed"
            self.blocks[path] = BlockDifference(kind if names else "same", path, " -> ".join(dict.fromkeys(names)))
        return self.blocks[path]

    # -- Blocks -------------------------------------------------------------------------------------------------------

    def _compare_trees(self) -> None:
        names: dict[str, str] = {}
        for path in dict.fromkeys([*self.places[0], *self.places[1]]):
            old, new = (places.get(path) for places in self.places)
            if old is not None and new is not None:
                for change in self._block_changes(path, old, new):
                    self._block(path).changes.append(change)
                self.notes += self._attribute_changes(path, old.attributes, new.attributes)
                if old.prefix != new.prefix:
                    names[old.prefix] = new.prefix
            else:
                self._block(path)
        if names:
            old_name, new_name = next(iter(names.items()))
            prefixes = "1 prefix of names differs" if len(names) == 1 else f"{len(names)} prefixes of names differ"
            self.notes.append(f"{prefixes}, as {old_name or 'none'} and {new_name or 'none'}")

    def _block_changes(self, path: str, old: BlockRecord, new: BlockRecord) -> Iterator[str]:
        live = self.one.is_live or self.two.is_live
        for key, name in _BLOCK_FIELDS.items():
            before, after = getattr(old, key), getattr(new, key)
            if before != after and not (live and key in _FILE_FIELDS):
                yield f"{name}: {before} became {after}"
        if old.class_ == new.class_ and old.layer == new.layer:
            yield from _items("", old.config, new.config)
        if not live:
            yield from _items("hybridize() flag ", old.flags, new.flags)
        if None not in (old.forward, new.forward) and old.forward != new.forward:
            yield "the code of its forward() changed"
        shared = ["" if record.path == path else record.path or "the model itself" for record in (old, new)]
        if shared[0] != shared[1]:
            texts = [f"the same Block as {place}" if place else "a Block of its own" for place in shared]
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
        for path in sorted(
            self.places[0].keys() & self.places[1].keys(), key=lambda path: path.count(".") + bool(path)
        ):
            if path in self._compared:
                continue
            try:
                old = self.one.graphs(path, [])
                new = self.two.graphs(path, old)
                old = old or self.one.graphs(path, new)
            except ArchiveError:
                raise
            except Exception as error:  # the code of a live Block, which may raise anything while it is traced
                text = f"graph: tracing the code raised {type(error).__name__}: {first_line(error)}"
                self._block(path).changes.append(text)
                continue
            for mine, other in _pairs(old, new):
                self._compare_pair(path, mine, other)

    def _compare_pair(self, path: str, old: SideGraph | None, new: SideGraph | None) -> None:
        graph = old or new
        assert graph is not None
        if old is None or new is None:
            label = self.one.label if new is None else self.two.label
            size = count(len(graph.graph.operators), "operator")
            self._block(path).changes.append(f"graph: only in {label} ({size})")
            return
        types = old.types if old.types is not None and old.data == new.data else new.types
        if old.data != new.data:
            types = None
        hidden = isinstance(self.one, GraphsSide) and isinstance(self.two, GraphsSide)
        rows, results = diff_graphs(
            old.side(path, self.one.tree, types, hidden), new.side(path, self.two.tree, types, hidden)
        )
        if old.in_spec != new.in_spec:
            results.append("takes other arguments")
        if old.out_spec != new.out_spec:
            results.append("returns another structure")
        if results:
            self._block(path).changes += [f"graph: {text}" for text in results]
        for block in {row.block for row in rows}:  # this one and the Blocks around it
            self._compared.update(block[:place] for place in range(len(block) + 1) if block[place : place + 1] in ".")
        for place, own in by_block(rows).items():
            self._block(place).operators += own

    # -- tensors ------------------------------------------------------------------------------------------------------

    def _compare_tensors(self) -> None:
        seen: set[tuple[str | None, str | None]] = set()
        for path in dict.fromkeys([*self.places[0], *self.places[1]]):
            ids = [_parameters(places.get(path)) for places in self.places]
            for name in dict.fromkeys([*ids[0], *ids[1]]):
                keys = ids[0].get(name), ids[1].get(name)
                if keys not in seen:
                    seen.add(keys)
                    self._compare_parameter(path, name, *keys)

    def _compare_parameter(self, path: str, name: str, first: str | None, second: str | None) -> None:
        found = self._tensor_difference(layout.join(path, name), first, second)
        if found is not None:
            self._block(path).tensors.append(found)
        if first is not None and second is not None:
            old, new = vars(self.one.tree.parameters[first]), vars(self.two.tree.parameters[second])
            self._block(path).changes += [
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


def _parameters(record: BlockRecord | None) -> dict[str, str]:
    return {} if record is None else {**record.loose, **record.parameters}


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
        apart = layout.TREE, layout.WEIGHTS, layout.ATTRIBUTES, layout.EXAMPLE_ARRAYS
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
