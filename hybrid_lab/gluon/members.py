"""Members: the children, and the parameters, of a Block by name; they tell the Block of every change."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from hybrid_lab.gluon.block import Block
    from hybrid_lab.hybridize.block import Tree

Member = TypeVar("Member")


class Members(OrderedDict[str, Member]):
    """name -> member, in order. Public code changes such a dict itself, as in `net.features._children.popitem()` and
    `layer._reg_params["weight"] = other`: graphs traced before then become stale, too.

    A pickle or a copy of it is an OrderedDict; the Block that gets it makes Members of it.
    """

    def __init__(self, block: Block, members: Mapping[str, Member]) -> None:
        super().__init__()
        self._block = weakref.ref(block)
        for name, member in members.items():
            super().__setitem__(name, member)

    def _changed(self) -> None:
        block = self._block()
        if block is not None:
            block._structure_changed()

    def __setitem__(self, name: str, member: Member) -> None:
        is_new = self.get(name) is not member
        super().__setitem__(name, member)
        if is_new:
            self._changed()

    def __delitem__(self, name: str) -> None:
        super().__delitem__(name)
        self._changed()

    def pop(self, name: str, *default: Member | None) -> Member | None:  # type: ignore[override]
        """As of a dict."""
        is_there = name in self
        member = super().pop(name, *default)
        if is_there:
            self._changed()
        return member

    def popitem(self, last: bool = True) -> tuple[str, Member]:
        """As of an OrderedDict."""
        item = super().popitem(last)
        self._changed()
        return item

    def clear(self) -> None:
        """As of a dict."""
        super().clear()
        self._changed()

    def move_to_end(self, name: str, last: bool = True) -> None:
        """As of an OrderedDict."""
        super().move_to_end(name, last)
        self._changed()

    def copy(self) -> OrderedDict[str, Member]:  # type: ignore[override]
        """The same members, of no Block."""
        return OrderedDict(self)

    __copy__ = copy

    def __reduce__(self) -> tuple[object, ...]:
        return OrderedDict, (), None, None, iter(tuple(self.items()))


class Children(Members["Block"]):
    """Members that are Blocks; each Block knows the Block above it."""

    def __init__(self, block: Block, members: Mapping[str, Block]) -> None:
        super().__init__(block, members)
        for child in members.values():
            block._adopt(child)

    def __setitem__(self, name: str, member: Block) -> None:
        block = self._block()
        if block is not None:
            block._check_child(member, name)
            block._adopt(member)
        super().__setitem__(name, member)


def parents(block: Tree) -> list[Block]:
    """The Blocks that hold this one as a child."""
    found = (reference() for reference in block._parents)
    return [each for each in found if each is not None and any(child is block for child in each._children.values())]
