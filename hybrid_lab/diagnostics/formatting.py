"""Formatting and checks that messages share: counts, invisible characters, lists of choices, names of Blocks."""

from __future__ import annotations

import contextlib
import difflib
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Protocol, TypeVar

Entry = TypeVar("Entry")


def count(number: int, word: str) -> str:
    """1 node, 2 nodes, 1,000 nodes."""
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def dimensions(rank: int) -> str:
    """no dimensions, 1 dimension, 2 dimensions."""
    return count(rank, "dimension") if rank else "no dimensions"


#: Categories of characters that draw nothing, or that change how other characters are drawn: control characters, format
#: characters such as the marks of text direction, surrogates, private characters, separators of lines and paragraphs.
_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def visible(text: str) -> str:
    """Text with each invisible character written as its escape: a name from a file or from code then cannot break a
    picture, or reorder the text beside it.
    """
    if text.isprintable():  # which is false for some harmless characters, too
        return text
    return "".join(
        character.encode("unicode_escape").decode("ascii")
        if unicodedata.category(character) in _INVISIBLE
        else character
        for character in text
    )


def visible_lines(text: str) -> str:
    """`visible` for a text of several lines."""
    return "\n".join(map(visible, text.split("\n")))


def first_line(error: Exception) -> str:
    """The first line of an error's message, or its type if the message is empty."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def check_choice(what: str, value: object, choices: Sequence[str], error: type[Exception] = ValueError) -> None:
    """Raise `error` unless `value` is among `choices`: "average must be 'macro' or 'micro', not 'mean'"."""
    if value not in choices:
        *first, last = map(repr, choices)
        expected = f"{', '.join(first)} or {last}" if first else last
        raise error(f"{what} must be {expected}, not {value!r}")


def lookup(kind: str, name: str, entries: Mapping[str, Entry]) -> Entry:
    """The entry with this name, in any case. Raises ValueError that names a similar entry, or every entry."""
    entry = entries.get(name.lower())
    if entry is None:
        near = difflib.get_close_matches(name.lower(), entries, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(sorted(entries))}"
        raise ValueError(f"there is no {kind} named {name!r}; {hint}")
    return entry


# -- names of Blocks --------------------------------------------------------------------------------------------------


class Named(Protocol):
    """A Block."""

    @property
    def name(self) -> str:
        """Its own name, such as `dense0`."""
        ...


known_as: Callable[[Any, str], str] | None = None
"""Gives the code by which the user reaches a Block, or the Block at a path below it, from the variables of the
notebook, "" if none leads to it. The lab sets it.
"""

_at_work: ContextVar[tuple[Named, ...]] = ContextVar("_at_work", default=())


@contextlib.contextmanager
def about(net: Named) -> Iterator[None]:
    """While a tool works at a model: messages call a Block that other models have, too, by its place in this one."""
    token = _at_work.set((*_at_work.get(), net))
    try:
        yield
    finally:
        _at_work.reset(token)


def models_at_work() -> tuple[Named, ...]:
    """The models at which tools work, outermost first."""
    return _at_work.get()


def set_known_as(find: Callable[[Any, str], str] | None) -> None:
    """Ask this function for names from now on."""
    global known_as
    known_as = find


def variable_of(block: Named, path: str = "") -> str:
    """The name of a Block, or of the Block at a path below it, by the variables of the notebook; "" without a notebook,
    and if no variable leads to it.
    """
    if known_as is None:
        return ""
    try:
        return known_as(block, path)
    except Exception:  # a message must not fail because of its words
        return ""


def called(block: Named, path: str = "") -> str:
    """The name of a Block in messages. path : of a Block below it, whose name is then returned"""
    return variable_of(block, path) or (f"{block.name}.{path}" if path else block.name)
