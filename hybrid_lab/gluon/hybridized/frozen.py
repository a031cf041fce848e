"""Warn of what a trace freezes without any sign at run time: random numbers, clocks, mode dispatch, and what the code
changes outside the graph.

A trace cannot see `np.random.rand()`; the source can. The lint room has the rules. What changed can be seen after a
trace, wherever it was done.
"""

from __future__ import annotations

import re
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType
from typing import TYPE_CHECKING, cast

from hybrid_lab.diagnostics.finding import Finding, Severity
from hybrid_lab.diagnostics.hybridize_error import HybridizeError, hybridize_error
from hybrid_lab.gluon.block import Block
from hybrid_lab.gluon.hybridized.code import code_of, globals_of, of_user
from hybrid_lab.gluon.hybridized.passed import same_objects
from hybrid_lab.gluon.hybridized.read_values import OWN
from hybrid_lab.logger import logger
from hybrid_lab.provided import Provided
from hybrid_lab.symbol.symbol import Symbol

if TYPE_CHECKING:
    from hybrid_lab.diagnostics.location import Location
    from hybrid_lab.gluon.hybrid import HybridBlock

#: Rules about what hybrid code would silently do otherwise than eager code.
FROZEN = frozenset({"HL172", "HL173", "HL176", "HL178"})

findings_of: Provided[[type], list[Finding]] = Provided("findings_of")

_checked: weakref.WeakKeyDictionary[type, list[Finding]] = weakref.WeakKeyDictionary()
_by_code: dict[tuple[CodeType, ...], list[Finding]] = {}
"""The findings of the latest classes by their code: a class inside a function is another one in each call."""
_KEPT = 256
_told: weakref.WeakKeyDictionary[type, set[str]] = weakref.WeakKeyDictionary()


@contextmanager
def warning_of_changes(block: Block) -> Iterator[None]:
    """Around the trace of a Block's code: warn of each thing that the trace froze or changed, once per class.

    Raises HybridizeError HL173 where the code put a tensor into a container that a Block keeps. Where the Block runs
    eagerly instead, its attributes are as before the trace: the eager call changes them.
    """
    blocks = _user_blocks(block, {})
    of_kind = {type(each): each for each in reversed(blocks)}
    before = _state(blocks, of_kind)
    try:
        yield
        after = _state(blocks, of_kind)
        _refuse_kept_tensors(after)
    except HybridizeError as error:
        if error.runs_eagerly:
            _restore(before)
        raise
    for kind in of_kind:
        if kind not in _checked:
            for finding in _find_in_source(kind):
                _log(block, finding)
    for key in {**before, **after}:
        if not same_objects(before.get(key, ()), after.get(key, ())):
            changed = _change(*key)
            if changed is not None:
                _log(block, changed)


#: (Block, "attribute" or "global", name)
_Name = tuple[Block, str, str]
#: an object and, of a container that can change, what it holds: a dict's keys, then its values
_Content = tuple[object, ...]


def _state(blocks: list[Block], of_kind: dict[type[Block], Block]) -> dict[_Name, _Content]:
    """For each name the object there and, of a container, what it holds."""
    state: dict[_Name, _Content] = {}
    seen: set[tuple[int, str]] = set()
    for block in blocks:
        for name, value in list(vars(block).items()):
            if name not in OWN:
                state[block, "attribute", name] = _content(value)
    for kind, block in of_kind.items():
        for names, used in globals_of(kind):
            for name in sorted(used & names.keys()):
                if (id(names), name) not in seen:
                    seen.add((id(names), name))
                    state[block, "global", name] = _content(names[name])
    return state


def _refuse_kept_tensors(state: dict[_Name, _Content]) -> None:
    for (block, sort, name), (_, *parts) in state.items():
        if any(isinstance(part, Symbol) for part in parts):
            target = f"self.{name}" if sort == "attribute" else name
            error = hybridize_error("HL173", _location(block), block=block.name, target=target, changed="changed")
            error.runs_eagerly = True
            raise error


def _restore(before: dict[_Name, _Content]) -> None:
    """Give attributes, and containers in attributes and globals, what they had."""
    for (block, sort, name), content in before.items():
        value, *parts = content
        if sort == "attribute" and not isinstance(value, Block) and vars(block).get(name, before) is not value:
            object.__setattr__(block, name, value)
        if same_objects(_content(value), content):
            continue
        if isinstance(value, dict):
            half = len(parts) // 2
            value.clear()
            value.update(zip(parts[:half], parts[half:], strict=True))
        elif isinstance(value, (list, deque)):
            value.clear()
            value.extend(parts)
        elif isinstance(value, set):
            value.clear()
            value.update(parts)


def _change(block: Block, sort: str, name: str) -> Finding | None:
    """The finding of a changed name; None where the source told of it, or this did, before."""
    from hybrid_lab.diagnostics import rules

    kind = type(block)
    target = f"self.{name}" if sort == "attribute" else name
    told = _told.setdefault(kind, set())
    record = rules.get("HL173" if sort == "attribute" else "HL178")
    if target in told or any(_is_about(finding, record.code, name) for finding in _checked.get(kind, ())):
        return None
    told.add(target)
    location = _location(block)
    facts = {"target": target, "changed": "changed", "outcome": "keeps the value of that one call"}
    if sort == "global":
        facts = {"construct": target, "happens": "is changed"}
    file, line = (location.file, location.line) if location is not None else ("<unknown>", 1)
    message, rewrite = record.message_for(**facts), record.rewrite_for(**facts)
    return Finding(record.code, record.name, Severity.WARNING, message, file, line, 0, line, 0, rewrite=rewrite)


def _log(block: Block, finding: Finding) -> None:
    logger.warning(f"{block.name}: {finding}\n  Instead:  {finding.rewrite}")


def _find_in_source(kind: type) -> list[Finding]:
    code = code_of(kind)
    findings = _by_code.pop(code, None)
    if findings is None:
        findings = [finding for finding in findings_of(kind) if finding.code in FROZEN]
    _by_code[code] = _checked[kind] = findings
    if len(_by_code) > _KEPT:
        del _by_code[next(iter(_by_code))]
    return findings


def _is_about(finding: Finding, code: str, name: str) -> bool:
    """Whether the source told already of this name: as `self.name`, `block.name[0]` or `global name`."""
    return finding.code == code and name in re.findall(r"\w+", finding.message.split("` ")[0])


def _content(value: object) -> _Content:
    """A value, and of a container that can change the parts; they stay alive, so that identity tells them apart."""
    if not isinstance(value, (list, set, deque, dict)):
        return (value,)
    return (value, *value, *value.values()) if isinstance(value, dict) else (value, *value)


def _user_blocks(block: Block, seen: dict[int, bool]) -> list[Block]:
    """The block and those below it, those of the package's own classes left out."""
    if id(block) in seen:
        return []
    seen[id(block)] = True
    blocks = [block] if of_user(type(block).__module__) else []
    for child in block._children.values():
        blocks += _user_blocks(child, seen)
    return blocks


def _location(block: Block) -> Location | None:
    from hybrid_lab.gluon.hybridized.neutral import place_of

    return place_of(cast("HybridBlock", block)) if hasattr(block, "_style") else None
