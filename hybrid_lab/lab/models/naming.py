"""The names of the models in a namespace: each Block once, by the name that its user would write to find it again."""

from __future__ import annotations

import itertools
import linecache
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from hybrid_lab.gluon.block import Block
from hybrid_lab.lab.models.expressions import filled, variable
from hybrid_lab.lab.models.groups import Member, held_blocks
from hybrid_lab.lab.models.variables import is_leftover

Named = dict[int, tuple[list[str], Block]]
"""id -> (names, the best one first, and the Block)."""


@dataclass
class Container:
    """A list, dict or object that holds Blocks. others : variables that hold the same Blocks; members : by name"""

    name: str
    kind: str
    members: dict[str, Member]
    others: list[Container]

    def holds(self, block: Block) -> bool:
        """Whether a Block is one of them."""
        return any(member.block is block for member in self.members.values())

    def code(self, block: Block) -> str:
        """The code of a member: `nets[0]`."""
        return next(filled(member.code, self.name) for member in self.members.values() if member.block is block)

    @property
    def blocks(self) -> list[Block]:
        """The Blocks, in order."""
        return [member.block for member in self.members.values()]


@dataclass(frozen=True)
class VariableNames:
    """What the variables of a namespace hold.

    models : Blocks that are models by the names of their variables
    leftovers : Blocks that a loop over a container, or a loop that filled it, left in a variable: parts of the
    container
    """

    models: Named
    leftovers: Named
    containers: list[Container]


def names_in(namespace: Mapping[str, object], is_below: Callable[[Block, Mapping[int, object]], bool]) -> VariableNames:
    """The names of the models of a namespace. is_below : whether a Block is a part of a Block in a dict"""
    bound = _variables(namespace)
    inner = {key for key, (_, block) in bound.items() if is_below(block, bound)}
    # Blocks in a circle have no top: the first one is taken.
    tops = {key: pair for key, pair in bound.items() if key not in inner} or dict(itertools.islice(bound.items(), 1))
    containers = _containers(namespace)
    models: Named = {}
    leftovers: Named = {}
    for key, (names, block) in tops.items():
        around = [each for each in containers if each.holds(block)]
        if around or len(names) > 1:
            sources = _sources(namespace)
            of_loop = {name: is_leftover(name, sources) for name in names}
            names = sorted(names, key=lambda name: of_loop[name] is True)
            # A variable without known code, for a Block among others without a variable, is taken for a loop's.
            has_unnamed = any(id(member) not in tops for each in around for member in each.blocks)
            if around and all(found or (found is None and has_unnamed) for found in of_loop.values()):
                leftovers[key] = names, block
                continue
        models[key] = names, block
    return VariableNames(models, leftovers, containers)


def also(names: Iterable[str]) -> str:
    """The other names of a model in words, "" if it has none."""
    listed = ", ".join(names)
    return f"also {listed}" if listed else ""


def _variables(namespace: Mapping[str, object]) -> Named:
    found: Named = {}
    for name, item in list(namespace.items()):
        # type(), not isinstance: a lazy proxy in a variable may do anything when it is asked for its class.
        if issubclass(type(item), Block) and not name.startswith("_"):
            assert isinstance(item, Block)
            found.setdefault(id(item), ([], item))[0].append(variable(name))
    return found


def _containers(namespace: Mapping[str, object]) -> list[Container]:
    found: dict[frozenset[int], Container] = {}
    for name, item in list(namespace.items()):
        kind, members = held_blocks(name, item)
        if members:
            own = Container(variable(name), kind, members, [])
            first = found.setdefault(frozenset(map(id, own.blocks)), own)
            first.others += [own] if first is not own else []
    return [*found.values()]


def _sources(namespace: Mapping[str, object]) -> Sequence[str]:
    """The code that bound the variables, the latest last: of a notebook its cells, of a script its file."""
    cells, file = namespace.get("In"), namespace.get("__file__")
    if type(cells) is list:
        return [cell for cell in cells if type(cell) is str]
    return ["".join(linecache.getlines(file))] if type(file) is str else []
