"""Words that several messages need."""

from __future__ import annotations


def count(number: int, word: str) -> str:
    """1 node, 2 nodes, 1,000 nodes."""
    return f"{number:,} {word}{'' if number == 1 else 's'}"
