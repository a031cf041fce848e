"""The names of the Blocks below a model: the code that gives each of them in the notebook."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from hybrid_lab.gluon import access
from hybrid_lab.gluon.block import Block
from hybrid_lab.gluon.nn.container import Stack
from hybrid_lab.insight.states import blocks_below, keys_of
from hybrid_lab.lab.models import expressions
from hybrid_lab.lab.models.expressions import HOLDER, filled
from hybrid_lab.lab.models.groups import BlockGroup

_DEPTH = 2
"""Lists in lists that are looked at."""
_LOOKED_AT = 1000
"""Items of a list or dict that are looked at."""


def children(parent: Block) -> dict[str, str]:
    """By the key of each child of a Block, the code that reads the child from the Block, such as `HOLDER.head`.

    A child is an attribute of the Block, an item of a Sequential, or an item of a list, tuple or dict that is an
    attribute. A child that `register_child` alone knows is read from `_children`.
    """
    if isinstance(parent, BlockGroup):
        return dict(parent.codes)
    own, is_stack = vars(parent), isinstance(parent, Stack) and type(parent).__getitem__ is Stack.__getitem__
    found: dict[str, str] = {}
    listed: Mapping[int, str] | None = None
    for number, (key, child) in enumerate(tuple(access.children(parent).items())):
        if own.get(key) is child:
            found[key] = expressions.attribute(HOLDER, parent, key)
        elif is_stack:
            found[key] = f"{HOLDER}[{number}]"
        else:
            if listed is None:
                listed = {id(held.block): held.code for held in held_in_attributes(HOLDER, parent)}
            found[key] = listed.get(id(child)) or f"{HOLDER}._children[{expressions.text(key)}]"
    return found


@dataclass(frozen=True)
class Held:
    """A Block in a list, tuple or dict that is an attribute of another Block, `net.blocks[0]`.

    code : gives it; holder : gives the list; kind : the class of the list
    """

    block: Block
    code: str
    holder: str
    kind: str


def held_in_attributes(code: str, block: Block) -> Iterator[Held]:
    """The Blocks in lists, tuples and dicts that are attributes of a Block, whether they are its children or not.

    code : gives the Block
    """
    for name, value in [*vars(block).items()]:
        if issubclass(type(value), (list, tuple, dict)) and name != "_children":
            holder = expressions.attribute(code, block, name)
            for own, item in _blocks_in(holder, value, _DEPTH):
                yield Held(item, own, holder, type(value).__name__)


def in_attributes(models: Iterable[tuple[str, Block]]) -> dict[int, Held]:
    """By id, the Blocks that some models hold in such lists alone, where they are parts of no Block.

    models : (code, Block) of each
    """
    found: dict[int, Held] = {}
    waiting = [*models]
    for name, net in waiting:
        for path, block in blocks_below(net):
            if not any(issubclass(type(value), (list, tuple, dict)) for value in [*vars(block).values()]):
                continue
            for held in held_in_attributes(below(net, name, path), block):
                if id(held.block) not in found and not access.parents(held.block):
                    found[id(held.block)] = held
                    waiting.append((held.code, held.block))
    return found


def _blocks_in(code: str, container: object, depth: int) -> Iterator[tuple[str, Block]]:
    for _, own, item in expressions.items(code, container, _LOOKED_AT):
        if issubclass(type(item), Block):
            assert isinstance(item, Block)
            yield own, item
        elif depth > 1:
            yield from _blocks_in(own, item, depth - 1)


def below(net: Block, name: str, path: str) -> str:
    """The code of the Block at a path of a model. name : the code of the model. Raises KeyError for an unknown path."""
    return along(net, name, keys_of(net, path))


def along(block: Block, name: str, keys: Iterable[str]) -> str:
    """The code of the Block to which these keys lead, each that of a child. name : the code of the first Block"""
    for key in keys:
        name, block = filled(children(block)[key], name), access.children(block)[key]
    return name
