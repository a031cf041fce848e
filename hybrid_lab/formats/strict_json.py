"""JSON of one meaning only: no duplicate keys, no NaN, no runaway nesting or digits; and its deterministic writer."""

from __future__ import annotations

import json
import math
from collections import Counter
from os import PathLike
from typing import Any

from hybrid_lab.diagnostics import ArchiveError

_AS_ZEROS = bytes.maketrans(b"123456789", b"0" * 9)
_TWENTY_DIGITS = b"0" * 20


def _object(pairs: list[tuple[str, Any]]) -> dict[str, object]:
    result = dict(pairs)
    if len(result) != len(pairs):
        key, _ = Counter(key for key, _ in pairs).most_common(1)[0]
        raise ValueError(f"the key {key!r} appears twice in one object")
    return result


def _constant(token: str) -> object:
    raise ValueError(f"{token} is not a JSON number")


def _integer(digits: str) -> int:
    if len(digits) > 20:
        raise ValueError(f"an integer of {len(digits)} digits")
    return int(digits)


def _real(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"the number {digits[:40]} is out of range")
    return value


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant, parse_float=_real)
"""For texts without long numbers: with json's own `int`, which is faster."""
_CAREFUL = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant, parse_float=_real, parse_int=_integer)


def parse(data: bytes | memoryview, *, path: str | PathLike[str] | None = None, member: str | None = None) -> Any:
    """The value of a UTF-8 JSON text; anything ambiguous or unreasonable raises ArchiveError."""
    data = bytes(data)
    try:
        text = data.decode("utf-8")
        decoder = _CAREFUL if _TWENTY_DIGITS in data.translate(_AS_ZEROS) else _DECODER
        value = decoder.decode(text)
        if "\\u" in text:
            json.dumps(value, ensure_ascii=False).encode("utf-8")  # a lone surrogate cannot be written back
        return value
    except UnicodeError as error:
        problem = f"not UTF-8 text: {str(error)[-80:]}"
    except json.JSONDecodeError as error:
        problem = f"not JSON: {error.msg} at line {error.lineno}, column {error.colno}"
        if not text.strip():
            problem = "not JSON: it is empty"
        elif error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated"):
            problem += ", where it ends; if it was cut off, download or copy it again"
    except RecursionError:
        problem = "refused JSON: nested too deeply"
    except ValueError as error:
        problem = f"refused JSON: {error}"
    raise ArchiveError(problem, path=path, member=member)


def render(value: object, *, lines: int = 2) -> bytes:
    """UTF-8 JSON with object keys, which are texts, in their given order: the same value gives the same bytes.

    lines : the outermost levels of which each item has a line of its own. Raises ValueError for NaN.
    """
    return (_text(value, lines) + ("\n" if lines else "")).encode("utf-8")


def _text(value: object, lines: int) -> str:
    if lines and value and isinstance(value, dict):
        return "{\n" + ",\n".join([f"{_encode(key)}:{_text(item, lines - 1)}" for key, item in value.items()]) + "}"
    if lines and value and isinstance(value, list):
        return "[\n" + ",\n".join([_text(item, lines - 1) for item in value]) + "]"
    return _encode(value)


_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
