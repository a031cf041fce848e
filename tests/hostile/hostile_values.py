"""Values that a file may hold in any of its places, and documents with one of them in each place."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


#: Stands for 5,000 lists inside one another, which the writer of JSON cannot write.
DEEP = "@@deep@@"
NUMBERS = [0, 1, -1, 2, 2**31, 10**9, 2**40, 2**53, 2**63, 2**64 - 1, -(2**63), 1e308, -0.5, 0.5, 1e-320]
DTYPES = ["V100000000", "O", ">f4", "datetime64", "datetime64[ns]", "U9", "S100000000", "complex128", "int4", "null"]
TEXTS = [
    "",
    "x",
    "x" * 5000,
    "\0",
    "nan",
    "-inf",
    "-1",
    "1" * 5000,
    "1000000000",
    "../x",
    "a.b/c",
    "__class__",
    "\u202e",
]
#: Attributes of operators in symbol JSON are texts.
ATTRIBUTES = [
    *("(1000000000, 1000000000)", "(-1, -1)", "()", "(1,", "(" * 3000, "(1," * 3000, "[" * 100_000, "[None]", "None"),
    *("9" * 400, "1e400", "1" + "0" * 25, "(1" + "0" * 25 + ",)", "-" * 50_000 + "1", "{'a': 1}", "__import__('os')"),
    *(
        "1000000000000000000",
        "9223372036854775807",
        "18446744073709551616",
        "(1e308,)",
        "(nan,)",
        "1_000",
        "１",
        "True",
    ),
]
OBJECTS = [
    *({}, [], [1], [[0]], {"a": 1}, [10**9] * 3, [-1], [2**40, 2**40], [None], ["x", "x"], [0] * 1000, [1.5]),
    *(nested(90), DEEP, {"a": {"a": {"a": 1}}}),
]
VALUES: list[Any] = [None, True, False, *NUMBERS, *DTYPES, *TEXTS, *ATTRIBUTES[:4], *OBJECTS]


def text_of(document: object) -> bytes:
    """The document as JSON."""
    deep = "[" * 5000 + "]" * 5000
    return json.dumps(document).replace(f'"{DEEP}"', deep).replace(f'\\"{DEEP}\\"', deep).encode()


def places(box: list[Any]) -> list[tuple[Any, Any]]:
    """Every place in the JSON document that a list holds alone, as (the object or list that has it, key)."""
    found: list[tuple[Any, Any]] = []

    def walk(holder: Any, key: Any) -> None:
        found.append((holder, key))
        inner = holder[key]
        for step in inner if isinstance(inner, dict) else range(len(inner)) if isinstance(inner, list) else ():
            walk(inner, step)

    walk(box, 0)
    return found


def changed(document: object, count: int, seed: int = 0) -> Iterator[tuple[str, object]]:
    """`count` documents with another value in one place, the same in every run, and what was changed in words."""
    text = json.dumps(document)
    pairs = [(place, value) for place in range(len(places([json.loads(text)]))) for value in range(len(VALUES))]
    for place, value in random.Random(seed).sample(pairs, min(count, len(pairs))):
        box = [json.loads(text)]
        holder, key = places(box)[place]
        holder[key] = VALUES[value]
        yield f"{key!r} is {str(VALUES[value])[:40]!r}", box[0]
