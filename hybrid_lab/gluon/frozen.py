"""Warn of code whose result a trace freezes without any sign at run time: random numbers, clocks, mode dispatch.

A trace cannot see `np.random.rand()`; the source can. The lint room has the rules and registers itself here.
"""

from __future__ import annotations

import importlib
import weakref
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from hybrid_lab.gluon.block import Block
from hybrid_lab.log import logger

if TYPE_CHECKING:
    from hybrid_lab.diagnostics.finding import Finding

#: Rules about what hybrid code would silently do otherwise than eager code.
FROZEN = frozenset({"HL172", "HL176"})

findings_of: Callable[[type], Iterable[Finding]] | None = None
"""class -> findings in its source; set by the lint room."""

_checked: weakref.WeakSet[type] = weakref.WeakSet()


def warn_of_frozen_code(block: Block) -> None:
    """Log one line per finding in the classes of the user's Blocks that were just traced, once per class."""
    for kind in _classes(block, set()):
        if kind in _checked:
            continue
        _checked.add(kind)
        if findings_of is None:
            importlib.import_module("hybrid_lab.lint.at_trace")
        assert findings_of is not None
        for finding in findings_of(kind):
            if finding.code in FROZEN:
                logger.warning(f"{block.name}: {finding}\n  Instead:  {finding.rewrite}")


def _classes(block: Block, seen: set[int]) -> list[type]:
    """Classes of the block and those below it, the package's own left out."""
    if id(block) in seen:
        return []
    seen.add(id(block))
    kind: Any = type(block)
    found = [] if kind.__module__.split(".")[0] == "hybrid_lab" else [kind]
    for child in block._children.values():
        found += _classes(child, seen)
    return found
