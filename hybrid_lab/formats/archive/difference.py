"""What differs between two archives: blocks, parameters, graphs, tensors (largest absolute difference) and the rest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import layout, tree
from .container import Container


@dataclass(frozen=True)
class Difference:
    """One difference. kind: block, parameter, graph, tensor or member; name: its path or name; text: what differs."""

    kind: str
    name: str
    text: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}: {self.text}"


def diff(first: Container, second: Container) -> list[Difference]:
    """All differences, in the order tree, graphs, tensors, other members; an empty list for equal models.

    Everything read is checked against its digest. Raises ArchiveError for a damaged archive.
    """
    return [*_trees(first, second), *_members(first, second)]


def _trees(first: Container, second: Container) -> Iterator[Difference]:
    one, two = (tree.from_json(archive.read_json(layout.TREE), archive.path) for archive in (first, second))
    yield from _records("block", dict(one.places()), dict(two.places()), skipped=("id", "path", "children", "graphs"))
    yield from _records("parameter", one.parameters, two.parameters, skipped=("id",))


def _records(kind: str, one: dict[str, Any], two: dict[str, Any], skipped: tuple[str, ...]) -> Iterator[Difference]:
    for name in dict.fromkeys([*one, *two]):
        shown = name or layout.ROOT
        if name not in one or name not in two:
            yield Difference(kind, shown, _only(name in one))
            continue
        old, new = vars(one[name]), vars(two[name])
        for key in old:
            if key not in skipped and old[key] != new[key]:
                yield Difference(kind, shown, f"{key} {old[key]!r} became {new[key]!r}")


def _members(first: Container, second: Container) -> Iterator[Difference]:
    for name in dict.fromkeys([*first.names, *second.names]):
        kind = "graph" if name.startswith("graphs/") else "member"
        shown = name.removeprefix("graphs/").removesuffix(".json") if kind == "graph" else name
        if name not in first or name not in second:
            yield Difference(kind, shown, _only(name in first))
        elif first.holds_tensors(name):
            yield from _tensors(first, second, name)
        elif name != layout.TREE and first.read(name) != second.read(name):
            yield Difference(kind, shown, "/".join(_changes(first.read_json(name), second.read_json(name))))


def _changes(one: object, two: object) -> list[str]:
    """Where two JSON values differ, in words: the nodes of a graph, else the top-level fields."""
    if not (isinstance(one, dict) and isinstance(two, dict)):
        return ["the contents differ"]
    parts = []
    for key in dict.fromkeys([*one, *two]):
        old, new = one.get(key), two.get(key)
        if old == new:
            continue
        if key == "nodes" and isinstance(old, list) and isinstance(new, list):
            changed = sum(a != b for a, b in zip(old, new)) + abs(len(old) - len(new))
            parts.append(f"{changed} of {max(len(old), len(new))} nodes differ")
        else:
            parts.append(f"{key} differs")
    return parts


def _tensors(first: Container, second: Container, member: str) -> Iterator[Difference]:
    one, two = first.tensors(member), second.tensors(member)
    prefix = "" if member == layout.WEIGHTS else f"{member}:"
    for name in dict.fromkeys([*one, *two]):
        if name not in one or name not in two:
            yield Difference("tensor", prefix + name, _only(name in one))
            continue
        old, new = one[name], two[name]
        if (old.shape, old.dtype) != (new.shape, new.dtype):
            text = f"{old.dtype}{list(old.shape)} became {new.dtype}{list(new.shape)}"
            yield Difference("tensor", prefix + name, text)
        elif old.tobytes() != new.tobytes():
            yield Difference("tensor", prefix + name, _distance(old, new))


def _distance(old: np.ndarray, new: np.ndarray) -> str:
    with np.errstate(all="ignore"):
        distance = np.abs(old.astype(np.float64) - new.astype(np.float64)).max()
        scale = np.abs(old.astype(np.float64)).max()
    return f"differs by up to {distance:.3g} (largest value {scale:.3g})"


def _only(in_first: bool) -> str:
    return "only in the first" if in_first else "only in the second"
