"""A limit on how many Blocks and parameters a constructor makes while it gets the arguments that a file names.

A number in a small file, such as `num_layers`, could ask for any number of them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

from hybrid_lab.diagnostics import HybridLabError


class TooManyError(HybridLabError):
    """A constructor makes more Blocks and parameters than it may."""


_left: ContextVar[list[int] | None] = ContextVar("left", default=None)


@contextlib.contextmanager
def at_most(count: int) -> Iterator[None]:
    """Raise TooManyError in the block if more than `count` Blocks and parameters are made."""
    token = _left.set([count])
    try:
        yield
    finally:
        _left.reset(token)


def spend() -> None:
    """Count a Block or parameter that is being made."""
    left = _left.get()
    if left is not None:
        left[0] -= 1
        if left[0] < 0:
            raise TooManyError("a constructor makes more Blocks and parameters than the file lists")
