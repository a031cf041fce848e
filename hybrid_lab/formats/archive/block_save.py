"""Reading the two files that MXNet's `Block.save(prefix)` writes: `<prefix>-model.json` and `<prefix>-model.params`.

The first is a tree of Blocks, by class name and running number, with the names of the Blocks, and the graph of each
hybridized and called Block. The second has the parameters by attribute path (mxnet/gluon/block.py, `Block.save`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from os import PathLike, fspath
from typing import Any

from hybrid_lab.diagnostics import ArchiveError, LoadMismatchError
from hybrid_lab.diagnostics.file_errors import open_regular, reading
from hybrid_lab.diagnostics.formatting import called
from hybrid_lab.gluon import access
from hybrid_lab.gluon.block import Block
from hybrid_lab.gluon.hybrid import HybridBlock
from hybrid_lab.gluon.parameter import Parameter
from hybrid_lab.hybridize.neutral import NeutralGraph
from hybrid_lab.hybridize.structure import LEAF
from hybrid_lab.symbol import Symbol

from .. import strict_json
from ..mxnet import symbol_json
from . import layout
from .report import LoadReport
from .tree import new_names

TREE = "-model.json"
PARAMETERS = "-model.params"
_DEPTH_LIMIT = 200
_FIELDS = {"orig_name", "in_format", "out_format", "inputs", "symbol", "hybridized", "children"}


def prefix_of(path: str | PathLike[str] | None) -> str | None:
    """The prefix of MXNet's pair that a path names: `net`, or `net-model.json`; None if there is no such pair."""
    if path is None:
        return None
    prefix = fspath(path).removesuffix(TREE).removesuffix(PARAMETERS)
    if layout.has_file(prefix) or not os.path.isfile(prefix + TREE):
        return None
    return prefix


def load_pair(
    net: Block, prefix: str, strict: bool, from_file: bool, classes: Mapping[str, type | str] | None = None
) -> LoadReport:
    """Load the pair into a live model.

    from_file : let the file's graphs win over the code; classes : name in the file -> the class, or its name

    Raises ArchiveError for a damaged file, LoadMismatchError with a list of the differences; nothing has changed then.
    """
    path = prefix + TREE
    with reading(path), open_regular(path) as file:
        content = file.read()
    data = strict_json.parse(content, path=path)
    if not isinstance(data, dict) or len(data) != 1 or not all(isinstance(entry, dict) for entry in data.values()):
        raise ArchiveError("not a file of MXNet's Block.save: it does not hold one tree of Blocks", path=path)
    ((name, entry),) = data.items()
    differences: list[str] = []
    renamed = {_stem(old): _stem(new) for old, new in new_names(classes or {}).items()}
    pairs = list(_pairs(net, name, entry, "", differences, path, renamed))
    pins: dict[int, tuple[HybridBlock, list[NeutralGraph]]] = {}
    if from_file:
        parameters = _by_saved_names(pairs)
        for place, block, saved in pairs:
            if isinstance(block, HybridBlock) and saved.get("hybridized"):
                pins[id(block)] = block, [_graph(place or block.name, saved, parameters, path, differences)]
    if strict and differences:
        raise LoadMismatchError(
            f"the files do not fit the model {called(net)}; nothing was loaded", differences, path=path
        )
    net.load_parameters(prefix + PARAMETERS, allow_missing=not strict, ignore_extra=not strict)
    for block, graphs in pins.values():
        access.calls(block).pin(graphs)
    count = len(access.parameters_by_path(net))
    return LoadReport(os.path.abspath(path), len(pairs), count, len(pins), differences)


def _pairs(
    block: Block, name: str, entry: dict[str, Any], place: str, differences: list[str], path: str,
    renamed: Mapping[str, str], depth: int = 0,
) -> Iterator[tuple[str, Block, dict[str, Any]]]:  # fmt: skip
    """(path, Block, entry of the file) for each Block that both have. renamed : old name of a class -> its new one"""
    class_name = name.rstrip("0123456789")
    if _stem(type(block).__name__) != renamed.get(class_name, class_name):
        here = type(block).__name__
        differences.append(f"class: {place or 'the model'} is a {here}, in the file a {class_name[:60]}")
    names = entry.get("children")
    inner = {key: value for key, value in entry.items() if key not in _FIELDS}
    well_formed = isinstance(names, dict) and all(isinstance(value, dict) for value in inner.values())
    if not well_formed or not isinstance(entry.get("orig_name"), str) or depth > _DEPTH_LIMIT:
        raise ArchiveError(f"damaged file: {name[:60]!r} is not a Block with a name and children", path=path)
    yield place, block, entry
    children = access.children(block)
    if len(children) != len(inner):
        differences.append(f"children: {place or 'the model'} has {len(children)}, {len(inner)} in the file")
    for (key, child), (inner_name, inner_entry) in zip(children.items(), inner.items(), strict=False):
        inner_place = layout.join(place, key)
        yield from _pairs(child, inner_name, inner_entry, inner_place, differences, path, renamed, depth + 1)


def _stem(name: str) -> str:
    """A class as the file names it: its Blocks are numbered, in small letters."""
    return name.lower().rstrip("0123456789")


def _by_saved_names(pairs: list[tuple[str, Block, dict[str, Any]]]) -> dict[str, Parameter]:
    """The model's Parameters by the names that they had when the file was written."""
    found = {}
    for _, block, entry in pairs:
        for name, parameter in block.params.items():
            found[f"{entry['orig_name']}_{name.removeprefix(block.params.prefix)}"] = parameter
    return found


def _graph(
    place: str, entry: Mapping[str, Any], parameters: Mapping[str, Parameter], path: str, differences: list[str]
) -> NeutralGraph:
    inputs, text = entry.get("inputs"), entry.get("symbol")
    if not isinstance(text, str) or not isinstance(inputs, list) or not all(isinstance(each, str) for each in inputs):
        raise ArchiveError(f"damaged file: {place} has no graph and inputs", path=path)
    graph = symbol_json.loads(text, path=path)
    variables = [symbol_json.loads(each, path=path).inputs for each in inputs]
    if any(len(each) != 1 for each in variables):
        raise ArchiveError(f"damaged file: an input of {place} is not one variable", path=path)
    data = [each[0] for each in variables]
    by_name = {value.node.name: value for value in graph.inputs}
    names = {value.node.name for value in data}
    others = [value for name, value in by_name.items() if name not in names]
    lacking = [value.node.name for value in others if value.node.name not in parameters]
    differences += [f"graph: {place} reads {name}, which the model does not have" for name in lacking]
    ordered = [by_name.get(value.node.name, value) for value in data] + others
    whole = Symbol(tuple(graph.outputs)).graph(ordered)
    in_spec, out_spec = (_spec(entry.get(key), place, path) for key in ("in_format", "out_format"))
    if _count(in_spec) != len(data) or _count(out_spec) != len(whole.outputs):
        raise ArchiveError(f"damaged file: {place} has another number of inputs or outputs than its graph", path=path)
    own = tuple(parameters[value.node.name] for value in others if value.node.name in parameters)
    return NeutralGraph(whole, ("tuple", in_spec[1]) if in_spec != LEAF else in_spec, out_spec, own, source="file")


def _spec(form: object, place: str, path: str, depth: int = 0) -> tuple[Any, ...]:
    """Our structure of MXNet's: 0 is an array, a list holds several."""
    if type(form) is int and form == 0:
        return LEAF
    if isinstance(form, list) and depth < _DEPTH_LIMIT:
        return "list", tuple(_spec(each, place, path, depth + 1) for each in form)
    raise ArchiveError(f"{place} takes or returns what is no array or list of arrays: {form!r:.40}", path=path)


def _count(spec: tuple[Any, ...]) -> int:
    return 1 if spec == LEAF else sum(map(_count, spec[1]))
