"""Annotations as the schema of JSON: defaults are left out, and values of other types are refused by name."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from hybrid_lab.formats import schema


@dataclass
class Inner:
    sizes: tuple[schema.Size | None, ...] | None
    note: str | None = None


@dataclass
class Outer:
    in_: Any
    kind: Literal["plain", "hybrid"]
    pairs: list[tuple[str, int]]
    rate: float | int = 1.0
    names: dict[str, str] = field(default_factory=dict)
    flag: bool = False
    inner: Inner | None = None


def test_fields_at_their_defaults_are_left_out():
    record = Outer([1], "plain", [("a", 1)], inner=Inner((2, None)))
    members = {"in": [1], "kind": "plain", "pairs": [("a", 1)], "inner": {"sizes": (2, None)}}
    assert schema.write(record) == members
    assert list(schema.write(record)) == ["in", "kind", "pairs", "inner"]


def test_lists_become_the_tuples_that_they_stand_for_and_unknown_keys_are_ignored():
    members = {"in": None, "kind": "hybrid", "pairs": [["a", 1]], "rate": 2, "inner": {"sizes": [0, None]}, "new": 1}
    assert schema.read(Outer, members) == Outer(None, "hybrid", [("a", 1)], 2, inner=Inner((0, None)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "odd"}, "has kind='odd'"),
        ({"kind": ["plain"]}, "has kind="),
        ({"pairs": [["a"]]}, "has pairs="),
        ({"pairs": [["a", True]]}, "has pairs="),
        ({"pairs": {}}, "has pairs="),
        ({"rate": "1"}, "has rate='1'"),
        ({"names": {"a": 1}}, "has names="),
        ({"flag": 1}, "has flag='1'"),
        ({"inner": {}}, "has inner="),
        ({"inner": {"sizes": [-1]}}, "has inner="),
        ({"inner": {"sizes": [2**48]}}, "has inner="),
        ({"inner": {"sizes": [[1]]}}, "has inner="),
    ],
)
def test_a_value_of_another_type_is_refused_by_name(change, message):
    with pytest.raises(ValueError, match=message):
        schema.read(Outer, {"in": 1, "kind": "plain", "pairs": []} | change)


def test_a_missing_field_and_another_value_than_an_object_are_refused():
    with pytest.raises(ValueError, match="has no 'kind'"):
        schema.read(Outer, {"in": 1})
    with pytest.raises(ValueError, match="is '3'"):
        schema.read(Outer, 3)
