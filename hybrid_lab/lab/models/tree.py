"""The block tree of a model as the protocol's BlockNode data (docs/protocol.md)."""

from __future__ import annotations

import functools
import inspect
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from hybrid_lab.diagnostics.formatting import visible
from hybrid_lab.gluon import access
from hybrid_lab.gluon.block import Block
from hybrid_lab.gluon.hybrid import HybridBlock
from hybrid_lab.gluon.parameter import Parameter
from hybrid_lab.insight.states import block_state, blocks_below, class_name, walk
from hybrid_lab.lab.messages.common import Location, Tensor
from hybrid_lab.lab.messages.models import BlockNode, BlockRow, ChangedBlock
from hybrid_lab.lab.messages.models import Parameter as ParameterRow
from hybrid_lab.lab.models import block_names
from hybrid_lab.lab.models.expressions import HOLDER
from hybrid_lab.lab.models.groups import BlockGroup
from hybrid_lab.lab.places import place

if TYPE_CHECKING:
    from hybrid_lab.lab.models.rows import Row, Rows


def block_tree(net: Block, name: str, findings: dict[str, int] | None = None) -> BlockNode:
    """The tree of `net`, known to the user as `name`. findings : path -> number of findings of the Block there."""
    return _TreeBuilder(net, findings or {}).node(net, "", name)


def changed_blocks(
    net: Block, changed: Iterable[Row], rows: Rows, name: str, findings: dict[str, int]
) -> list[ChangedBlock]:
    """The nodes of these rows of a model, without the nodes below them. name, findings : as for `block_tree`"""
    data = _RowData(rows.shared, findings)
    labels = net.labels if isinstance(net, BlockGroup) else {}
    nodes: list[ChangedBlock] = []
    for row in changed:
        if (block := row.reference()) is not None:
            count = count_parameters(block) if row.path else rows.elements
            below = () if row.before is not None else tuple(access.children(block))
            paths = [f"{row.path}.{key}" if row.path else key for key in below]
            attr = (labels.get(row.path) or row.attr) if row.path else name
            nodes.append({**data.of(block, row.path, attr, row.before, count), "below": paths})
    return nodes


class _RowData:
    """The protocol's data of single Blocks. shared : ids of the parameters that several Blocks have"""

    def __init__(self, shared: frozenset[int], findings: dict[str, int]):
        self.shared, self.findings = shared, findings
        self.places: dict[type, Location | None] = {}

    def of(self, block: Block, path: str, attr: str, before: str | None, parameter_count: int | None) -> BlockRow:
        """The data of a Block at a path. before : the path of the same Block's earlier place"""
        state = block_state(block, inner=path != "")
        calls = access.calls(block) if isinstance(block, HybridBlock) else None
        own = tuple(access.own_parameters(block).items())
        return {
            "path": path,
            "attr": visible(attr),
            "codes": [] if before is not None else [_around(code) for code in block_names.children(block).values()],
            "group": access.is_group(block),
            "name": visible(block.name),
            "class": visible(class_name(block)),
            "hybrid": calls is not None,
            "state": state.state,
            "why": visible(state.why),
            "failed_in": state.failed_in,
            "repr": visible(short_repr(block)),
            "parameters": [parameter_row(key, item, id(item) in self.shared) for key, item in own],
            "parameter_count": parameter_count,
            "output": [tensor(shape, dtype) for shape, dtype in access.last_outputs(block)],
            "graphs": calls.graphs.count if calls is not None else 0,
            "engine": calls.compilations[-1].runs_on if calls is not None and calls.compilations else "",
            "findings": self.findings.get(path, 0),
            "shared_with": before,
            "location": self.place(type(block)),
        }

    def place(self, kind: type) -> Location | None:
        if kind not in self.places:
            self.places[kind] = class_location(kind)
        return self.places[kind]


class _TreeBuilder:
    """Builds the nodes of one tree."""

    def __init__(self, net: Block, findings: dict[str, int]):
        self.seen: dict[int, str] = {}
        owners: Counter[int] = Counter()
        again: list[Block] = []
        for _, _, block, before in walk(net):
            if before is None:
                owners.update(map(id, access.own_parameters(block).values()))
            else:
                again.append(block)
        shared = frozenset(key for key, count in owners.items() if count > 1)
        #: parameters that may stand below a Block more than once, so that sums over its children would count them twice
        self.repeated = shared | {id(item) for block in again for item in _parameters_below(block)}
        self.rows = _RowData(shared, findings)

    def node(self, block: Block, path: str, attr: str) -> BlockNode:
        """The BlockNode of a Block, with the nodes below it."""
        before = self.seen.get(id(block))
        self.seen.setdefault(id(block), path)
        # A Block that came before is not entered again.
        children = () if before is not None else tuple(access.children(block).items())
        labels = block.labels if isinstance(block, BlockGroup) else {}
        nodes = [self.node(child, f"{path}.{key}" if path else key, labels.get(key, key)) for key, child in children]
        if self.repeated:
            count = count_parameters(block)
        else:
            own = elements(item.partial_shape for item in tuple(access.own_parameters(block).values()))
            counts = [own, *(node["parameter_count"] for node in nodes)]
            count = None if None in counts else sum([each or 0 for each in counts])
        return {**self.rows.of(block, path, attr, before, count), "children": nodes}


def _around(code: str) -> list[str]:
    """What stands before and after the code of a Block, in the code that reads a child from it."""
    before, _, after = code.partition(HOLDER)
    return [before, after]


def short_repr(block: Block) -> str:
    """One line: `Dense(84 -> 10, linear)`; the class with an ellipsis if the repr would list children.

    A `__repr__` of the user's that raises gives the class alone.
    """
    if access.children(block):
        return f"{class_name(block)}(...)"
    try:
        text = " ".join(repr(block).split())
    except Exception:  # the user's __repr__, which may raise anything and must not hide the tree
        text = class_name(block)
    return text if len(text) <= 200 else text[:199] + "…"


def parameter_row(key: str, parameter: Parameter, shared: bool) -> ParameterRow:
    """The protocol's data of one parameter, known to its Block as `key`."""
    shape = parameter.partial_shape
    return {
        "name": visible(key),
        "shape": None if shape is None else list(shape),
        "dtype": dtype_name(parameter.dtype),
        "grad_req": parameter.grad_req,
        "shared": shared,
    }


def elements(shapes: Iterable[Sequence[int | None] | None]) -> int | None:
    """The elements of arrays of these shapes together; None while one is unknown."""
    total = 0
    for shape, number in Counter(shapes).items():
        if shape is None or None in shape:
            return None
        total += number * math.prod([length or 0 for length in shape])
    return total


def count_parameters(block: Block) -> int | None:
    """Elements of all parameters below, shared ones once; None while a shape is unknown."""
    return elements(item.partial_shape for item in {id(item): item for item in _parameters_below(block)}.values())


def _parameters_below(block: Block) -> list[Parameter]:
    return [item for _, inner in blocks_below(block) for item in tuple(access.own_parameters(inner).values())]


def tensor(shape: Sequence[int | None] | None, dtype: np.dtype | str | None) -> Tensor:
    """The protocol's Tensor."""
    return {"shape": None if shape is None else list(shape), "dtype": dtype_name(dtype)}


@functools.lru_cache(maxsize=64)
def dtype_name(dtype: np.dtype | str | None) -> str:
    """The name of a dtype such as `float32`; "" for None."""
    return "" if dtype is None else np.dtype(dtype).name


def class_location(kind: type) -> Location | None:
    """The location of the class's definition in a notebook cell or the user's own file, else None."""
    if kind.__module__.split(".")[0] == "hybrid_lab":
        return None
    for name in ("hybrid_forward", "forward", "__init__"):
        function = kind.__dict__.get(name)
        code = getattr(inspect.unwrap(function), "__code__", None) if callable(function) else None
        if code is not None:
            line = code.co_firstlineno
            return place(code.co_filename, line, 0, line, 0)
    return None
