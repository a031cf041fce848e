"""Models without a public variable: Blocks in functions, listed as long as they live."""

from __future__ import annotations

import gc
import sys
import time
import weakref
from collections.abc import Callable

from hybrid_lab.gluon import access
from hybrid_lab.gluon.block import Block
from hybrid_lab.gluon.call_record import called_blocks, cell
from hybrid_lab.gluon.loss import Loss
from hybrid_lab.insight.states import blocks_below

_MOST = 8
"""Models that are listed, the latest ones."""
_PART = 10
"""While a cell runs, collections take at most one part in so many of the time."""
_DATA = "hybrid_lab.gluon.data."


class Unbound:
    """Finds Blocks that were called in a cell, live, and are parts of no other Block.

    A Block is part of a circle of references, so it outlives its function until Python's garbage collector runs. A
    Block that is new here, or has lost a reference since the last collection, is therefore listed only after the next
    collection.
    """

    def __init__(self) -> None:
        #: id of each Block that the last collection left -> (reference, how often it was referred to)
        self._left: dict[int, tuple[weakref.ref[Block], int]] = {}
        self._next = 0.0

    def blocks(self, owner: int, is_known: Callable[[Block], bool]) -> list[Block]:
        """The Blocks, in the order of their first calls.

        owner : id of the notebook's variables; is_known : whether a Block is listed anyhow, or was bound to a variable
        """
        found = [reference for reference in called_blocks(owner) if _is_model(reference, is_known)]
        if not all(map(self._is_left, found)) and (not cell.runs or time.monotonic() >= self._next):
            begin = time.monotonic()
            gc.collect()
            now = time.monotonic()
            self._next = now + _PART * (now - begin)
            found = [reference for reference in found if reference() is not None]
            self._left = {_key(reference): (reference, _references(reference)) for reference in found}
        left = [reference() for reference in found if self._is_left(reference)]
        return [block for block in left if block is not None][-_MOST:]

    def _is_left(self, reference: weakref.ref[Block]) -> bool:
        left = self._left.get(_key(reference))
        return left is not None and left[0] is reference and _references(reference) >= left[1]


def _key(reference: weakref.ref[Block]) -> int:
    return id(reference())


def _references(reference: weakref.ref[Block]) -> int:
    """How often a Block is referred to, as far as that can be compared with another answer of this function."""
    block = reference()
    return 0 if block is None else sys.getrefcount(block)


def _is_model(reference: weakref.ref[Block], is_known: Callable[[Block], bool]) -> bool:
    """Whether it is something to list: no loss function, no transform of data, nothing without parameters."""
    block = reference()
    if block is None or isinstance(block, Loss) or type(block).__module__.startswith(_DATA) or access.parents(block):
        return False
    if is_known(block):
        return False
    return any(access.own_parameters(inner) for _, inner in blocks_below(block))
