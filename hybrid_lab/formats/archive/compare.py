"""Comparing an archive's tree with a live model: which blocks and parameters belong together, and every difference."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from hybrid_lab.diagnostics import HybridLabError, SettingError
from hybrid_lab.gluon import access
from hybrid_lab.gluon.parameter import merged_shape
from hybrid_lab.insight.states import class_name
from hybrid_lab.ops.framework.dtypes import name_of

from . import layout
from .tree import BlockRecord, ParameterRecord, Tree, forward_digest

if TYPE_CHECKING:
    from hybrid_lab.gluon import Block, Parameter

HINT_LIMIT = 500
"""Names among which a near one is looked for."""


@dataclass
class Match:
    """What belongs together.

    blocks : (model path, record, live block) of every place that is in both, parents first
    parameters : file id -> live parameter; ids : id() of a live parameter -> file id
    loadable : file ids whose values can be taken over; misfits : file ids with another shape or dtype
    deferred : file ids of Parameters that wait for their shape, whose live ones were never initialized
    differences : one line each; notes : remarks that are no obstacle
    """

    blocks: list[tuple[str, BlockRecord, Block]] = field(default_factory=list)
    parameters: dict[str, Parameter] = field(default_factory=dict)
    ids: dict[int, str] = field(default_factory=dict)
    misfits: set[str] = field(default_factory=set)
    loadable: set[str] = field(default_factory=set)
    deferred: list[str] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def match(tree: Tree, net: Block, renamed: Mapping[str, str] | None = None, subtree: str | None = None) -> Match:
    """Match an archive's tree (or the part below `subtree`) with the tree of `net`, by path.

    renamed : file path -> model path, for moved blocks; an entry holds for everything below too
    Raises HybridLabError for a `subtree` or `renamed` path missing in the file.
    """
    if not isinstance(subtree, str | None) or not isinstance(renamed, Mapping | None):
        raise SettingError("subtree= is a path in the file, a text; map= is a dict of paths")
    start = tree.at(subtree or "")
    if start is None:
        raise HybridLabError(
            f"there is no block {subtree!r} in the file{_near(subtree or '', [p for p, _ in tree.places()], 'it has')}"
        )
    saved = dict(tree.places(start.id))
    live = dict(layout.places(net, lambda block: access.children(block).items()))
    renamed = renamed or {}
    moved = _moved(saved, renamed, subtree or "")
    found = Match()
    renumbered = _renumbered(saved, live, renamed)
    if renumbered:
        pairs = layout.shorten([f"{file} -> {model}" for file, model in renumbered.items()])
        found.notes.append(f"Blocks whose names differ in numbers only are matched in order (file -> model): {pairs}")
        moved = _moved(saved, {**renumbered, **renamed}, subtree or "")
    _match_blocks(found, saved, live, moved, tree.partial)
    if not tree.partial:
        _match_sharing(found)
    without: list[str] = []
    for path, record, block in found.blocks:
        without += _match_parameters(found, tree, path, record, block)
    if tree.partial:
        without += _parameters_elsewhere(found, live)
        if without:
            names = layout.shorten(list(dict.fromkeys(without)))
            found.notes.append(f"no graph in the folder reads {names}, which keeps the model's values")
    return found


def _parameters_elsewhere(found: Match, live: Mapping[str, Block]) -> Iterator[str]:
    """Paths of the parameters of Blocks that the file does not have."""
    matched = {id(block) for _, _, block in found.blocks}
    for path, block in live.items():
        if id(block) not in matched:
            for name, parameter in access.own_parameters(block).items():
                if id(parameter) not in found.ids:
                    yield layout.join(path, name)


def _moved(saved: Mapping[str, BlockRecord], renamed: Mapping[str, str], subtree: str) -> dict[str, str]:
    """File path -> model path, by the longest renamed path above it."""
    unknown = [path for path in renamed if path not in saved]
    if unknown:
        below = unknown[0].removeprefix(f"{subtree}.")
        if below in saved:
            raise HybridLabError(f"map names {unknown[0]!r}; below subtree={subtree!r} it is {below!r}")
        raise HybridLabError(f"map names {unknown[0]!r}, which is not in the file{_near(unknown[0], saved, 'it has')}")
    moved = {}
    for path in saved:
        above = path
        while above not in renamed and above:
            above = above.rpartition(".")[0]
        rest = path[len(above) :] if above in renamed else path
        start = renamed.get(above, "")
        moved[path] = (start + rest if start else rest.removeprefix(".")) if above in renamed else path
    return moved


def _renumbered(
    saved: Mapping[str, BlockRecord], live: Mapping[str, Block], renamed: Mapping[str, str]
) -> dict[str, str]:
    """File path -> model path of children whose names differ in their numbers only, such as `dense0` and `dense2`.

    Names that Gluon gives count all Blocks of the process, so a Block that names its children by them has other names
    each time. If both sides have the same number of children with such a name, but different names, the children are
    matched in order.
    """
    found: dict[str, str] = {}
    paths = {"": renamed.get("", "")}
    for path, record in saved.items():  # parents come first
        above = paths[path]
        theirs = [name for name, _ in record.children if layout.join(path, name) not in renamed]
        ours = list(access.children(live[above])) if above in live else []
        partners = {name: name for name in theirs}
        for stem in {_stem(name) for name in theirs}:
            file, model = ([name for name in names if _stem(name) == stem] for names in (theirs, ours))
            if len(file) == len(model) and set(file) != set(model):
                partners.update(zip(file, model, strict=True))
        for name, _ in record.children:
            inner = layout.join(path, name)
            paths[inner] = renamed[inner] if inner in renamed else layout.join(above, partners[name])
            if partners.get(name, name) != name:
                found[inner] = paths[inner]
    return found


def _stem(name: str) -> str:
    return re.sub(r"[0-9]+", "0", name)


def _match_blocks(
    found: Match,
    saved: Mapping[str, BlockRecord],
    live: Mapping[str, Block],
    moved: Mapping[str, str],
    partial: bool,
) -> None:
    wanted = {moved[path]: (path, record) for path, record in saved.items()}
    for path, (origin, record) in wanted.items():
        block = live.get(path)
        if block is None:
            if origin == "" or path.rpartition(".")[0] in live:
                hint = _moved_to(origin, path, record, {name: live[name] for name in live if name not in wanted})
                found.differences.append(f"missing block: {_shown(path)} ({record.class_}) is not in the model{hint}")
            continue
        found.blocks.append((path, record, block))
        name = class_name(block)
        if name != record.class_ and record.class_:
            found.differences.append(f"class: {_shown(path)} is a {record.class_} in the file, a {name} in the model")
        elif record.forward is not None:
            digest = getattr(block, "archived_forward", None) or forward_digest(type(block))
            if digest not in (None, record.forward):
                found.notes.append(
                    f"{_shown(path)} ({name}): the code of its forward() has changed since the file was saved"
                )
    for path, block in live.items():
        if not partial and path not in wanted and path.rpartition(".")[0] in wanted:
            hint = _near(path, [name for name in wanted if name not in live], "the file has")
            found.differences.append(
                f"unexpected block: {_shown(path)} ({type(block).__name__}) is not in the file{hint}"
            )


def _moved_to(origin: str, path: str, record: BlockRecord, strangers: Mapping[str, Block]) -> str:
    """A hint at the place of the Block that the file has at `origin`: the only Block of its class beside `path`, or a
    similar name.
    """
    beside = {name: block for name, block in strangers.items() if name.rpartition(".")[0] == path.rpartition(".")[0]}
    alike = [name for name, block in beside.items() if class_name(block) == record.class_]
    if len(alike) != 1 or path != origin:  # map= names it already
        return _near(path, beside, "the model has")
    return f"; is it {alike[0]} in the model? Then give map={{{origin!r}: {alike[0]!r}}}"


def _match_sharing(found: Match) -> None:
    by_record: dict[int, tuple[str, Block]] = {}
    by_block: dict[int, tuple[str, int]] = {}
    for path, record, block in found.blocks:
        first, other = by_record.setdefault(record.id, (path, block))
        if other is not block:
            found.differences.append(
                f"sharing: {_shown(first)} and {_shown(path)} are one block in the file, two in the model"
            )
        first, number = by_block.setdefault(id(block), (path, record.id))
        if number != record.id:
            found.differences.append(
                f"sharing: {_shown(first)} and {_shown(path)} are one block in the model, two in the file"
            )


def _match_parameters(found: Match, tree: Tree, path: str, record: BlockRecord, block: Block) -> list[str]:
    """Match the parameters of one Block. Returns the parameters missing in a file that may be incomplete."""
    live: dict[str, Parameter] = dict(access.own_parameters(block))
    registered = {id(parameter) for parameter in live.values()}
    for name, parameter in block.params.items():
        if id(parameter) not in registered:
            live.setdefault(name.removeprefix(block.params.prefix), parameter)
    saved = {**record.loose, **record.parameters}
    for name, key in saved.items():
        place = layout.join(path, name)
        if name not in live:
            hint = _near(name, [other for other in live if other not in saved], "the model has")
            found.differences.append(
                f"missing parameter: {place} {_size(tree.parameters[key])} is not in the model{hint}"
            )
            continue
        _match_parameter(found, place, tree.parameters[key], live[name])
    without = []
    for name, parameter in live.items():
        if name not in saved:
            place = layout.join(path, name)
            if tree.partial:
                without += [place] if id(parameter) not in found.ids else []
                continue
            hint = _near(name, [other for other in saved if other not in live], "the file has")
            size = "of unknown shape" if parameter.shape is None else parameter.shape
            found.differences.append(f"unexpected parameter: {place} {size} is not in the file{hint}")
    return without


def _match_parameter(found: Match, place: str, record: ParameterRecord, parameter: Parameter) -> None:
    known = found.parameters.get(record.id)
    if known is parameter:
        return
    if known is not None:
        found.differences.append(f"sharing: {place} and {record.id} are one parameter in the file, two in the model")
        return
    other = found.ids.setdefault(id(parameter), record.id)
    if other != record.id:
        found.differences.append(f"sharing: {place} and {other} are one parameter in the model, two in the file")
        return
    found.parameters[record.id] = parameter
    fits = True
    ours, theirs = parameter.partial_shape, record.shape
    if ours is not None and theirs is not None and merged_shape(ours, theirs) is None:
        found.differences.append(f"shape: {place} is {record.shape} in the file, {parameter.shape} in the model")
        fits = False
    kind = name_of(np.dtype(parameter.dtype))
    if kind != record.dtype:
        found.differences.append(f"dtype: {place} is {record.dtype} in the file, {kind} in the model")
        fits = False
    if record.state != "initialized":
        if access.arrays(parameter) is not None:
            found.notes.append(f"{place} had no values when the file was saved; the model keeps its own")
        elif record.state == "deferred" and fits and access.deferred_init(parameter) is None:
            found.deferred.append(record.id)
    elif fits:
        found.loadable.add(record.id)
    if not fits:
        found.misfits.add(record.id)


def _size(record: ParameterRecord) -> str:
    return str(record.shape) if record.shape is not None else "of unknown shape"


def _shown(path: str) -> str:
    return path or "the model itself"


def _near(name: str, others: Iterable[str], says: str) -> str:
    others = list(others)[:HINT_LIMIT]
    near = difflib.get_close_matches(name, others, n=1, cutoff=0.5)
    return f"; {says} {near[0]}" if near else ""
