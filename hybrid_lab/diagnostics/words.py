"""Words that several messages need."""

from __future__ import annotations


def count(number: int, word: str) -> str:
    """1 node, 2 nodes, 1,000 nodes."""
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def first_line(error: Exception) -> str:
    """The first line of what an error says; its type where it says nothing."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
