"""Assignments to attributes of Blocks: which assignments make graphs stale. `HybridBlock.__setattr__` asks at each
one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hybrid_lab.hybridize.block import OWN
from hybrid_lab.hybridize.stale.code import ANY, attributes_read, of_user

if TYPE_CHECKING:
    from hybrid_lab.hybridize.block import Hybrid

#: Types whose values can be compared without side effects.
_PLAIN = (bool, int, float, str, type(None))
#: Attributes that are the code itself.
_CODE = ("__class__", "forward", "hybrid_forward")
ABSENT = object()
"""Stands for an attribute that there is not."""


def makes_stale(block: Hybrid, name: str, before: object, value: object) -> bool:
    """Whether another value of an attribute may change what a graph of the Block, or of one above it, computes.

    before, value : ABSENT if there is none
    """
    if "_graph_calls" not in vars(block) or name in OWN:
        return False
    if name in _CODE:
        return True
    if before is ABSENT and block._graphs.code is None:  # as in constructors, where it must be fast
        return False
    read = attributes_read(type(block))
    if name not in read and ANY not in read and not _is_read_above(block, name):
        return False
    # `before` is the property itself where there is one: its setter may change anything.
    return type(before) is not type(value) or not isinstance(value, _PLAIN) or before != value


def _is_read_above(block: Hybrid, name: str) -> bool:
    """Whether the user's code of a Block above this one, which has a graph, reads attributes of this name."""
    pending: list[Any] = [block]
    for each in pending:
        above = [parent for reference in each._parents if (parent := reference()) is not None]
        for parent in above:
            if hasattr(parent, "_graphs") and parent._graphs.code is not None:
                kind = type(parent)
                if of_user(kind.__module__) and name in attributes_read(kind):
                    return True
        pending += [parent for parent in above if all(parent is not other for other in pending)]
    return False


def in_words(value: object, before: object) -> str:
    """`: 3 instead of 2`, for values that are short."""
    if type(value) in _PLAIN and type(before) in _PLAIN and len(words := f": {value!r} instead of {before!r}") < 60:
        return words
    return ""
