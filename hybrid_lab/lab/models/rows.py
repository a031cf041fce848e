"""The rows of a live model's tree, with the time of their latest change."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from hybrid_lab.diagnostics.finding import Finding
from hybrid_lab.gluon import access
from hybrid_lab.gluon.block import Block
from hybrid_lab.gluon.hybrid import HybridBlock
from hybrid_lab.insight.states import walk
from hybrid_lab.lab.models.revisions import looks_count
from hybrid_lab.lab.models.tree import elements


@dataclass(eq=False, slots=True)
class Row:
    """A Block at one place of the tree, as it was at the last look.

    attr : the name under which its parent holds it
    before : the path of the Block's first place, if it stands at several and this is a later one; else None
    size : number of rows from this one to the last one below it, if no Block stands at several places
    walked : its structure version, read before the rows below it were found: another thread may change the structure
    structure : its structure version; parameters, types : ids and types of its own parameters
    graphs : the number of its graphs
    revision : of the model, when the Block came to this place or the row last changed
    findings : of the linter in this Block; None before they are looked for
    """

    path: str
    attr: str
    reference: weakref.ref[Block]
    before: str | None = None
    size: int = 1
    walked: int = -1
    structure: int = -1
    parameters: tuple[int, ...] = ()
    types: list[tuple[Any, ...]] = field(default_factory=list)
    graphs: int = 0
    revision: int = 0
    findings: list[Finding] | None = None


class Rows:
    """All rows of one model, parents first. A look at a model compares only the Blocks that changed since the last one.

    revision : grows with each look that finds a change of structure, graphs, states, output shapes or parameter types
    whole : the revision of the last change that cannot be told row by row: a page with an earlier one needs the tree
    elements : the number of elements of all parameters, shared ones once; None while a shape is unknown
    shared : ids of the parameters that several Blocks have
    """

    def __init__(self) -> None:
        self.revision = self.whole = 0
        self.elements: int | None = 0
        self.shared: frozenset[int] = frozenset()
        self._rows: list[Row] = []
        self._places: dict[str, int] = {}
        self._is_tree = True
        self._structure = -1
        self._blocks_seen = self._arrays_seen = 0  # the numbers of `looks_count` at the last look

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows)

    def blocks(self) -> list[tuple[str, Block]]:
        """(path, Block) of every Block once, at its first place."""
        return [(row.path, block) for row in self if row.before is None and (block := row.reference()) is not None]

    def changed(self, since: int) -> list[Row] | None:
        """The rows that changed after this revision; None if the whole tree is needed."""
        return None if since < self.whole else [row for row in self if row.revision > since]

    def mark(self, paths: Iterable[str]) -> None:
        """Raise the revision, and note that the rows at these paths changed though their Blocks did not."""
        self.revision += 1
        for path in paths:
            if path in self._places:
                self._rows[self._places[path]].revision = self.revision

    def forget_findings(self) -> None:
        """Let the linter check all Blocks again."""
        for row in self:
            row.findings = None

    @property
    def _has_copies(self) -> bool:
        """Whether a Block or a parameter stands at several places."""
        return bool(self.shared) or not self._is_tree

    def look(self, net: Block) -> None:
        """Compare the model with the rows, and raise the revision if anything changed."""
        blocks_seen, arrays_seen = self._blocks_seen, self._arrays_seen
        self._blocks_seen, self._arrays_seen = looks_count()
        had_copies = self._has_copies
        moved = self._find_places(net)
        pairs = [(row, block) for row in self if (block := row.reference()) is not None]
        touched = [(row, block) for row, block in pairs if access.last_change(block) > blocks_seen or row.revision == 0]
        retyped = self._compare_types(pairs) if self._arrays_seen != arrays_seen else []
        retyped += [row for row, block in touched if self._update(row, block)]
        if not moved and not touched and not retyped:
            return
        self.revision += 1
        if moved or retyped:
            self._count_parameters()
        if retyped or (moved and (had_copies or self._has_copies)):
            # Types count in the rows above too; the row of a shared Block or parameter names its other places.
            self.whole = self.revision

    def _update(self, row: Row, block: Block) -> bool:
        """Bring the row of a Block that changed up to date. Returns whether parameters that it had have other types."""
        version, types = access.structure_version(block), access.parameter_types(block)
        retyped = version == row.structure and types != row.types
        if version != row.structure:
            row.structure, row.findings = version, None
            row.parameters = tuple(map(id, access.own_parameters(block).values()))
        row.types, row.revision = types, self.revision + 1
        row.graphs = access.graphs(block).count if isinstance(block, HybridBlock) else 0
        return retyped

    def _find_places(self, net: Block) -> bool:
        """Find the rows of the tree if its structure changed, and return whether it did. A row stays as long as the
        same Block stands in the same place.
        """
        structure = access.structure_version(net)
        if structure == self._structure:
            return False
        rows = self._rows_of_tree(net)
        self._is_tree = rows is not None
        if rows is None:
            rows = [self._row(block, path, attr, before) for path, attr, block, before in walk(net)]
        self._rows = rows
        self._places = {row.path: index for index, row in enumerate(rows)}
        self._structure = structure
        return True

    def _row(self, block: Block, path: str, attr: str, before: str | None = None) -> Row:
        """The row of a Block at this place; a new one if another Block stood there."""
        index = self._places.get(path)
        if index is not None:
            row = self._rows[index]
            if row.reference() is block and row.before == before:
                return row
        return Row(path, attr, weakref.ref(block), before)

    def _rows_of_tree(self, net: Block) -> list[Row] | None:
        """The rows; those below a Block whose structure is as before are taken over. None if a Block stands at
        several places.
        """
        rows: list[Row] = []
        around: set[int] = set()

        def add(block: Block, path: str, attr: str) -> bool:
            if id(block) in around:
                return False  # Blocks in a circle
            row = self._row(block, path, attr)
            version = access.structure_version(block)
            if self._is_tree and row.walked == version:
                index = self._places[path]
                rows.extend(self._rows[index : index + row.size])
                return True
            start = len(rows)
            rows.append(row)
            around.add(id(block))
            is_tree = all(
                add(child, f"{path}.{key}" if path else key, key)
                for key, child in tuple(access.children(block).items())
            )
            around.remove(id(block))
            row.size, row.walked = len(rows) - start, version
            return is_tree

        return rows if add(net, "", net.name) and len({id(row.reference()) for row in rows}) == len(rows) else None

    def _compare_types(self, pairs: list[tuple[Row, Block]]) -> list[Row]:
        """The rows whose parameters, which were there before, have other types; they are brought up to date."""
        retyped: list[Row] = []
        for row, block in pairs:
            if row.parameters and (types := access.parameter_types(block)) != row.types:
                row.types, row.revision = types, self.revision + 1
                retyped.append(row)
        return retyped

    def _count_parameters(self) -> None:
        """The number of elements, and which parameters are shared."""
        shapes = {key: types[0] for row in self for key, types in zip(row.parameters, row.types, strict=False)}
        self.elements, self.shared = elements(shapes.values()), frozenset()
        if len(shapes) < sum([len(row.parameters) for row in self if row.before is None]):
            owners = Counter(chain.from_iterable(row.parameters for row in self if row.before is None))
            self.shared = frozenset(key for key, count in owners.items() if count > 1)
