"""The rules HL001 to HL199: `get("HL101")` and `all()`; one record each, in files by topic."""

from . import constants, control, effects, host, indexing, mutation, portability, reads, structure
from .record import Rule, all, get, rule

__all__ = [
    "Rule", "all", "constants", "control", "effects", "get", "host", "indexing", "mutation", "portability", "reads",
    "rule", "structure",
]  # fmt: skip
