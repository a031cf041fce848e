"""HYBRID_LAB_DUMP=all, or names of passes as in "infer,split,plan": print what they make to standard error."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from difflib import get_close_matches
from functools import lru_cache
from typing import TypeVar

from hybrid_lab.logger import logger

T = TypeVar("T")

PASSES = (
    "neutral",
    "mixed_precision",
    "infer",
    "bind_mode",
    "differentiate",
    "simplify",
    "layout",
    "fold_norm",
    "hoist",
    "split",
    "decompose",
    "partition",
    "fuse",
    "plan",
    "program",
)


def dump(stage: str, made: T) -> T:
    """Print `made` under the name of the pass if the environment asks for it; returns it unchanged.

    Names that are no pass are warned of, once.
    """
    setting = os.environ.get("HYBRID_LAB_DUMP")
    if setting and stage in _wanted(setting):
        print(f"--- after {stage}\n{made}\n", file=sys.stderr)
    return made


def dump_text(stage: str, text: Callable[[], str]) -> None:
    """`dump` of a text that is put together only if it is printed."""
    if is_dumping():
        dump(stage, text())


def is_dumping() -> bool:
    """Whether some pass is printed."""
    return bool(_wanted(os.environ.get("HYBRID_LAB_DUMP", "")))


@lru_cache(maxsize=64)
def _wanted(setting: str) -> frozenset[str]:
    """The passes that a setting names; "0" and "none" name none."""
    names = {name.strip() for name in setting.split(",")} - {"", "0", "none"}
    for name in sorted(names - {"1", "all", *PASSES}):
        near = get_close_matches(name, PASSES, n=1)
        meant = f"did you mean {near[0]}? " if near else ""
        logger.warning(f"HYBRID_LAB_DUMP: there is no pass {name!r}; {meant}There are {', '.join(PASSES)}, and all")
    return frozenset(PASSES if names & {"1", "all"} else names)
