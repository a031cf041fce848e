"""HYBRID_LAB_DUMP=all, or names of passes as in "infer,split,plan": print what they make to standard error."""

from __future__ import annotations

import os
import sys
from typing import TypeVar

T = TypeVar("T")

PASSES = (
    "neutral",
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
    """Print `made` under the name of the pass if the environment asks for it; returns it unchanged."""
    wanted = os.environ.get("HYBRID_LAB_DUMP")
    if wanted and (wanted in ("1", "all") or stage in wanted.split(",")):
        print(f"--- after {stage}\n{made}\n", file=sys.stderr)
    return made
