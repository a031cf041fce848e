"""Warn of what a trace freezes without any sign at run time: random numbers, clocks, mode dispatch, and what the code
changes outside the graph.

A trace cannot see `np.random.rand()`; the source can. The lint room has the rules. What changed can be seen after a
trace, wherever it was done.
"""

from __future__ import annotations

import re
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any

from hybrid_lab.diagnostics.finding import Finding, Severity
from hybrid_lab.gluon.block import Block
from hybrid_lab.gluon.hybridized.code import globals_of, of_user
from hybrid_lab.gluon.hybridized.read_values import OWN
from hybrid_lab.log import logger
from hybrid_lab.provided import Provided

if TYPE_CHECKING:
    from hybrid_lab.diagnostics.location import Location

#: Rules about what hybrid code would silently do otherwise than eager code.
FROZEN = frozenset({"HL172", "HL173", "HL176", "HL178"})

findings_of: Provided[[type], list[Finding]] = Provided("findings_of")

_MANY = 250
"""Of longer containers only the length is compared: small numbers are the same object everywhere."""

_checked: weakref.WeakKeyDictionary[type, list[Finding]] = weakref.WeakKeyDictionary()
_told: weakref.WeakKeyDictionary[type, set[str]] = weakref.WeakKeyDictionary()


class Watch:
    """Made before a Block's code is traced; `warn()` afterwards names what the trace froze or changed, each once."""

    def __init__(self, block: Block) -> None:
        self._block = block
        self._blocks = _user_blocks(block, {})
        self._of_kind = {type(each): each for each in reversed(self._blocks)}
        self._before = self._state()

    def warn(self) -> None:
        """Log one line per finding in the classes of the user's Blocks that were just traced, once per class."""
        for kind in self._of_kind:
            if kind not in _checked:
                for finding in _found_in_source(kind):
                    self._log(finding)
        after = self._state()
        for key in [*self._before, *(key for key in after if key not in self._before)]:
            if not _same(self._before.get(key, ()), after.get(key, ())):
                self._changed(*key)

    def _state(self) -> dict[tuple[Block, str, str], tuple[Any, ...]]:
        """(Block, "attribute" or "global", name) -> the object there and, of a container, what it holds."""
        found: dict[tuple[Block, str, str], tuple[Any, ...]] = {}
        seen: set[tuple[int, str]] = set()
        for block in self._blocks:
            for name, value in list(vars(block).items()):
                if name not in OWN:
                    found[block, "attribute", name] = _held(value)
        for kind, block in self._of_kind.items():
            for names, used in globals_of(kind):
                for name in sorted(used & names.keys()):
                    if (id(names), name) not in seen:
                        seen.add((id(names), name))
                        found[block, "global", name] = _held(names[name])
        return found

    def _changed(self, block: Block, sort: str, name: str) -> None:
        from hybrid_lab.diagnostics import rules

        kind = type(block)
        target = f"self.{name}" if sort == "attribute" else name
        told = _told.setdefault(kind, set())
        record = rules.get("HL173" if sort == "attribute" else "HL178")
        if target in told or any(_is_about(finding, record.code, name) for finding in _checked.get(kind, ())):
            return
        told.add(target)
        place = _place(block)
        facts = {"target": target, "changed": "changed", "outcome": "keeps the value of that one call"}
        if sort == "global":
            facts = {"construct": target, "happens": "is changed"}
        file, line = (place.file, place.line) if place is not None else ("<unknown>", 1)
        message, rewrite = record.message_for(**facts), record.rewrite_for(**facts)
        self._log(Finding(record.code, record.name, Severity.WARNING, message, file, line, 0, line, 0, rewrite=rewrite))

    def _log(self, finding: Finding) -> None:
        logger.warning(f"{self._block.name}: {finding}\n  Instead:  {finding.rewrite}")


def _found_in_source(kind: type) -> list[Finding]:
    _checked[kind] = [finding for finding in findings_of(kind) if finding.code in FROZEN]
    return _checked[kind]


def _is_about(finding: Finding, code: str, name: str) -> bool:
    """Whether the source told already of this name: as `self.name`, `block.name[0]` or `global name`."""
    return finding.code == code and name in re.findall(r"\w+", finding.message.split("` ")[0])


def _held(value: Any) -> tuple[Any, ...]:
    """A value, and of a container that can change the parts; they stay alive, so that identity tells them apart."""
    if not isinstance(value, (list, set, deque, dict)):
        return (value,)
    if len(value) > _MANY:
        return value, len(value)
    return (value, *value, *value.values()) if isinstance(value, dict) else (value, *value)


def _same(before: tuple[Any, ...], after: tuple[Any, ...]) -> bool:
    return len(before) == len(after) and all(one is other for one, other in zip(before, after, strict=True))


def _user_blocks(block: Block, seen: dict[int, bool]) -> list[Block]:
    """The block and those below it, those of the package's own classes left out."""
    if id(block) in seen:
        return []
    seen[id(block)] = True
    found = [block] if of_user(type(block).__module__) else []
    for child in block._children.values():
        found += _user_blocks(child, seen)
    return found


def _place(block: Any) -> Location | None:
    from hybrid_lab.gluon.hybridized.neutral import place_of

    return place_of(block) if hasattr(block, "_style") else None
