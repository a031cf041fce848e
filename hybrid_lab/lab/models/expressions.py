"""Code that reads variables, attributes and items: `net.head`, `zoo["gen"][0]`. Each name of a Block in a notebook is
such code, so that it can be copied into a cell.
"""

from __future__ import annotations

import keyword
import math
import unicodedata
from collections.abc import Iterator

import numpy as np

HOLDER = "\0"
"""Stands for the code of what holds a Block, in code that reads the Block from it: no other code has this character."""


def filled(code: str, holder: str) -> str:
    """Code with the code of the holder in its place: `net.head[2]` of `HOLDER[2]` and `net.head`."""
    return code.replace(HOLDER, holder)


def variable(name: str) -> str:
    """Code that reads a variable of the notebook."""
    return name if _is_identifier(name) else f"globals()[{text(name)}]"


def attribute(code: str, holder: object, name: str) -> str:
    """Code that reads an attribute that an object itself holds. code : gives the object"""
    if any(isinstance(vars(kind).get(name), property) for kind in type(holder).__mro__):
        return f"vars({code})[{text(name)}]"
    return f"{code}.{name}" if _is_identifier(name) else f"getattr({code}, {text(name)})"


def items(code: str, container: object, most: int) -> Iterator[tuple[str, str, object]]:
    """(key as text, code, item) of the first items of a list, tuple or dict; nothing of other objects.

    code : gives the container; most : items that are looked at
    """
    kind = type(container)  # not isinstance: a lazy proxy may do anything when it is asked for its class
    if issubclass(kind, (list, tuple)):
        for number, item in enumerate(container[:most]):  # type: ignore[index]
            yield str(number), f"{code}[{number}]", item
    elif issubclass(kind, dict):
        for number, (key, item) in enumerate([*container.items()][:most]):  # type: ignore[attr-defined]
            written = literal(key)
            own = f"list({code}.values())[{number}]" if written is None else f"{code}[{written}]"
            yield str(key), own, item


def literal(key: object) -> str | None:
    """Code of a key that is equal to it; None of a key that has no literal, such as an object of the user's."""
    if isinstance(key, np.generic):
        key = key.item()
    if type(key) is str:
        return text(key)
    if type(key) is tuple:
        parts = [literal(part) for part in key]
        return None if None in parts else f"({', '.join(map(str, parts))}{',' * (len(parts) == 1)})"
    if type(key) is float and not math.isfinite(key):
        return None
    return repr(key) if type(key) in (bool, bytes, complex, float, int, type(None)) else None


def text(value: str) -> str:
    """The literal of a string, in double quotes if it has none itself."""
    written = repr(value)
    return written if '"' in written else f'"{written[1:-1]}"'


def _is_identifier(name: str) -> bool:
    """Whether Python reads this name as it stands."""
    return name.isidentifier() and not keyword.iskeyword(name) and unicodedata.normalize("NFKC", name) == name
