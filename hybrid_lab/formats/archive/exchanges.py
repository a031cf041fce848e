"""Blocks of equal structure that changed places: each has, bit for bit, the numbers that another one had before."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from .tree import BlockRecord, ParameterRecord

Values = Callable[[str], np.ndarray | None]
"""The array of a parameter by its id, None where it has none."""

_SAMPLE = 256
"""Numbers of a parameter that are compared before all are."""


@dataclass(frozen=True)
class Exchange:
    """The Block at `path` in the second model was at `before` in the first, in which `path` was `was`.

    is_mutual : the Block that is at the place of `before` was here
    parameters : id in the second model -> id, in the first, of the parameter with these numbers
    """

    was: str
    path: str
    before: str
    is_mutual: bool
    parameters: Mapping[str, str]

    @property
    def text(self) -> str:
        """In words."""
        return f"exchanged with {self.before}" if self.is_mutual else f"has the numbers that {self.before} had"


@dataclass(frozen=True)
class Model:
    """One of two models. places : its Blocks by path; parameters : by id; values : of a parameter"""

    places: Mapping[str, BlockRecord]
    parameters: Mapping[str, ParameterRecord]
    values: Values


def find_exchanges(one: Model, two: Model, pairs: Mapping[str, str], changed: set[str]) -> list[Exchange]:
    """The Blocks that changed places, outermost ones only.

    pairs : path of a Block in the first model -> in the second
    changed : ids, in the second model, of parameters whose numbers are others than in the first
    """
    if len(changed) < 2:
        return []
    inside = _inside(one), _inside(two)
    alike: dict[object, list[tuple[str, str]]] = defaultdict(list)
    for first, second in pairs.items():
        mine, other = inside[0].get(first, {}), inside[1].get(second, {})
        if first and mine.keys() == other.keys() and not changed.isdisjoint(other.values()):
            structure = tuple(
                (name, one.parameters[key].shape, one.parameters[key].dtype) for name, key in mine.items()
            )
            alike[structure].append((first, second))
    found: list[Exchange] = []
    done: set[str] = set()
    for places in sorted(alike.values(), key=lambda places: min(path.count(".") for path, _ in places)):
        left = [pair for pair in places if not any(_is_in(pair[1], path) for path in done)]
        if len(left) < 2:
            continue
        now = {second: _sample(two, inside[1][second]) for _, second in left}
        was = {first: _sample(one, inside[0][first]) for first, _ in left}
        for chain in _chains(left, now, was):
            steps = [(first, second, chain[first]) for first, second in left if first in chain]
            if not all(_equal(two, inside[1][second], one, inside[0][before]) for _, second, before in steps):
                continue
            for first, second, before in steps:
                renamed = {key: inside[0][before][name] for name, key in inside[1][second].items()}
                found.append(Exchange(first, second, before, len(chain) == 2, renamed))
                done.add(second)
    return found


def _chains(
    places: list[tuple[str, str]], now: Mapping[str, object], was: Mapping[str, object]
) -> list[dict[str, str]]:
    """The closed chains of Blocks: path in the first model -> the path there whose numbers it has now."""
    had: dict[object, list[str]] = defaultdict(list)
    for first, _ in places:
        if was[first] is not None:
            had[was[first]].append(first)
    before: dict[str, str] = {}
    for first, second in places:
        others = [path for path in had.get(now[second], ()) if path != first]
        if now[second] != was[first] and len(others) == 1:  # of several Blocks with these numbers it is unclear which
            before[first] = others[0]
    chains: list[dict[str, str]] = []
    known: set[str] = set()
    for start in before:
        chain: dict[str, str] = {}
        at = start
        while at in before and at not in chain and at not in known:
            chain[at] = before[at]
            at = before[at]
        if at == start and len(chain) > 1:
            chains.append(chain)
        known |= chain.keys()
    return chains


def _inside(model: Model) -> dict[str, dict[str, str]]:
    """Path of a Block -> the ids of all parameters in it, by their names from there on."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for path, record in model.places.items():
        parts = path.split(".") if path else []
        for end in range(len(parts) + 1):
            rest = parts[end:]
            for name, key in record.parameters.items():
                found[".".join(parts[:end])][".".join([*rest, name])] = key
    return found


def _is_in(path: str, around: str) -> bool:
    return path == around or path.startswith(f"{around}.")


def _sample(model: Model, keys: Mapping[str, str]) -> object:
    """Some numbers of each parameter; None if one has no values."""
    found = []
    for key in keys.values():
        array = model.values(key)
        if array is None:
            return None
        flat = array.reshape(-1)
        found.append(flat[:: max(1, flat.size // _SAMPLE)][:_SAMPLE].tobytes())
    return tuple(found)


def _equal(one: Model, first: Mapping[str, str], two: Model, second: Mapping[str, str]) -> bool:
    for name, key in first.items():
        arrays = one.values(key), two.values(second[name])
        if arrays[0] is None or arrays[1] is None or arrays[0].tobytes() != arrays[1].tobytes():
            return False
    return True
