"""Print what passes make to standard error, with HYBRID_LAB_DUMP=all, or names of passes as in "infer,split,plan". A
Stage is one pass that ran, printable with the graph before and after it.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from difflib import get_close_matches, unified_diff
from functools import lru_cache
from typing import TypeVar

from hybrid_lab.system.logger import logger

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


def is_dumping() -> bool:
    """Whether some pass is printed."""
    setting = os.environ.get("HYBRID_LAB_DUMP")
    return bool(setting and _wanted(setting))


@lru_cache(maxsize=64)
def _wanted(setting: str) -> frozenset[str]:
    """The passes that a setting names; "0" and "none" name none."""
    names = {name.strip() for name in setting.split(",")} - {"", "0", "none"}
    for name in sorted(names - {"1", "all", *PASSES}):
        near = get_close_matches(name, PASSES, n=1)
        meant = f"did you mean {near[0]}? " if near else ""
        logger.warning(f"HYBRID_LAB_DUMP: there is no pass {name!r}; {meant}There are {', '.join(PASSES)}, and all")
    return frozenset(PASSES if names & {"1", "all"} else names)


@dataclass(frozen=True)
class Stage:
    """One pass that ran.

    name : of the pass, as HYBRID_LAB_DUMP knows it
    before, after : what its argument and its result: a Graph, or a Split or Specialized, which hold several
    """

    name: str
    before: object
    after: object

    @property
    def changed(self) -> bool:
        """Whether the printed program is another one."""
        return str(self.before) != str(self.after)

    def diff(self) -> str:
        """The lines that went and came, as a unified diff without a header; "" if nothing changed."""
        lines = unified_diff(str(self.before).splitlines(), str(self.after).splitlines(), n=1, lineterm="")
        return "\n".join([line for line in lines if not line.startswith(("---", "+++"))])

    def __str__(self) -> str:
        return f"--- {self.name}: before\n{self.before}\n--- {self.name}: after\n{self.after}"
