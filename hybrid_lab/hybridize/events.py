"""What hybridized Blocks tell of: lists of functions, which are empty while nobody listens."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hybrid_lab.hybridize.block import Tree

called: list[Callable[[Tree], None]] = []
"""A call of this Block needs a program that is not there."""
