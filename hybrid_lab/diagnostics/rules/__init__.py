"""The rules HL001 to HL199: `get("HL101")` and `all()`; one record each, in files by topic."""

from __future__ import annotations

import importlib
from functools import cache

from . import record
from .record import Rule, rule

_TOPICS = (
    "reads", "host", "control", "indexing", "mutation", "constants", "effects", "structure", "portability",
)  # fmt: skip


@cache
def _load() -> None:
    """Read the records: when the first one is needed, as `import hybrid_lab` does not need them."""
    for topic in _TOPICS:
        importlib.import_module(f"{__name__}.{topic}")


def get(code: str) -> Rule:
    """The record of a code such as "HL101"; KeyError if there is none."""
    _load()
    return record.get(code)


def all() -> list[Rule]:  # noqa: A001 - read as `rules.all()`
    """Every record, ordered by code."""
    _load()
    return record.all()


__all__ = ["Rule", "all", "get", "rule"]
