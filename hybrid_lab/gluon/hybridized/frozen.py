"""Warn of what a trace freezes without any sign at run time: random numbers, clocks, mode dispatch, and what the code
changes outside the graph.

A trace cannot see `np.random.rand()`; the source can. The lint room has the rules. What changed can be seen after a
trace, wherever it was done.
"""

from __future__ import annotations

import random
import re
import weakref
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import CodeType
from typing import TYPE_CHECKING, cast

import numpy as np

from hybrid_lab.diagnostics.finding import Finding, Severity
from hybrid_lab.diagnostics.hybridize_error import HybridizeError, hybridize_error
from hybrid_lab.gluon.block import Block
from hybrid_lab.gluon.hybridized.code import code_of, globals_of, of_user
from hybrid_lab.gluon.hybridized.passed import contents, same_objects
from hybrid_lab.gluon.hybridized.read_values import OWN
from hybrid_lab.logger import logger
from hybrid_lab.provided import Provided
from hybrid_lab.symbol import tracing

if TYPE_CHECKING:
    from hybrid_lab.diagnostics.location import Location
    from hybrid_lab.gluon.hybrid import HybridBlock

#: Rules about what hybrid code would silently do otherwise than eager code.
FROZEN = frozenset({"HL172", "HL173", "HL176", "HL178"})

findings_of: Provided[[type], list[Finding]] = Provided("findings_of")

_checked: weakref.WeakKeyDictionary[type, list[Finding]] = weakref.WeakKeyDictionary()
_by_code: dict[tuple[tuple[CodeType, str], ...], list[Finding]] = {}
"""The findings of the latest classes by their code: a class inside a function is another one in each call."""
_KEPT = 256
#: Classes of Blocks that were refused a graph because their code keeps tensors on itself.
seen_to_keep: weakref.WeakSet[type] = weakref.WeakSet()
_ABSENT = object()
_told: weakref.WeakKeyDictionary[type, set[str]] = weakref.WeakKeyDictionary()


@contextmanager
def warning_of_changes(block: Block) -> Iterator[None]:
    """Around the trace of a Block's code: warn of each thing that the trace froze or changed, once per class.

    Raises HybridizeError HL173 where the code left a tensor in an attribute, a global or a container in one. After a
    HybridizeError all these are as before the trace, and so are the random numbers of NumPy and Python: the Block may
    run eagerly then.
    """
    blocks = _user_blocks(block, {})
    of_kind = {type(each): each for each in reversed(blocks)}
    before = _state(blocks, of_kind)
    held = _containers(content[0] for content in before.values())
    random_states = random.getstate(), np.random.get_state()
    try:
        yield
        after = _state(blocks, of_kind)
        _refuse_kept_tensors(after)
    except HybridizeError:
        _restore(before, _state(blocks, of_kind), held)
        random.setstate(random_states[0])
        np.random.set_state(random_states[1])
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


def keeps_tensors(block: Block) -> bool:
    """Whether code of the Block, or of one below it, keeps tensors on it: as a trace saw, or as the source says."""
    kinds = {type(each) for each in _user_blocks(block, {})}
    if any(kind in seen_to_keep for kind in kinds):
        return True
    findings = [finding for kind in kinds for finding in _checked.get(kind) or _find_in_source(kind)]
    return any(finding.code == "HL173" and finding.severity is Severity.ERROR for finding in findings)


#: (Block, "attribute", "class" or "global", name); a class attribute has a Block of that class
_Name = tuple[Block, str, str]
#: an object and, of a container that can change, what it holds: a dict's keys, then its values
_Content = tuple[object, ...]
#: a container, and what it holds
_Held = tuple[list[object] | set[object] | deque[object] | dict[object, object], list[object]]


def _state(blocks: list[Block], of_kind: dict[type[Block], Block]) -> dict[_Name, _Content]:
    """For each name the object there and, of a container, what it holds."""
    state: dict[_Name, _Content] = {}
    seen: set[tuple[int, str]] = set()
    for block in blocks:
        for name, value in list(vars(block).items()):
            if name not in OWN:
                state[block, "attribute", name] = _content(value)
    for kind, block in of_kind.items():
        for name, value in _class_attributes(kind).items():
            state[block, "class", name] = _content(value)
        for names, used in globals_of(kind):
            for name in sorted(used & names.keys()):
                if (id(names), name) not in seen:
                    seen.add((id(names), name))
                    state[block, "global", name] = _content(names[name])
    return state


def _class_attributes(kind: type) -> dict[str, object]:
    """The attributes of a class and of its bases that are no functions, where the user wrote them."""
    found: dict[str, object] = {}
    for base in reversed(kind.__mro__):
        if of_user(base.__module__):
            found |= {name: value for name, value in vars(base).items() if not name.startswith("__")}
    return {name: value for name, value in found.items() if not callable(value) and not hasattr(value, "__get__")}


def _containers(values: Iterable[object]) -> list[_Held]:
    """The containers among some values and inside one another, with a copy of what they hold."""
    found: list[_Held] = []
    pending, visited = list(values), set[int]()
    while pending:
        item = pending.pop()
        if isinstance(item, (list, tuple, set, deque, dict)) and id(item) not in visited:
            visited.add(id(item))
            parts = contents(item)
            if not isinstance(item, tuple):
                found.append((item, parts))
            pending += parts
    return found


def _refuse_kept_tensors(state: dict[_Name, _Content]) -> None:
    for (block, sort, name), (value, *_) in state.items():
        inside = [*vars(value).values()] if hasattr(value, "__dict__") and of_user(type(value).__module__) else value
        if not isinstance(value, Block) and tracing.holds_symbols(inside):
            target = {"attribute": f"self.{name}", "class": f"{type(block).__name__}.{name}"}.get(sort, name)
            error = hybridize_error("HL173", _location(block), block=block.name, target=target, changed="changed")
            error.runs_eagerly = error.keeps_tensors = True
            raise error


def _restore(before: dict[_Name, _Content], after: dict[_Name, _Content], held: list[_Held]) -> None:
    """Give attributes, globals and containers what they had before a trace."""
    for key in {**before, **after}:
        (block, sort, name), value = key, before.get(key, (_ABSENT,))[0]
        if value is after.get(key, (_ABSENT,))[0] or isinstance(value, Block):
            continue
        if sort == "attribute":
            object.__setattr__(block, name, value) if value is not _ABSENT else object.__delattr__(block, name)
        elif sort == "class" and value is not _ABSENT:
            setattr(type(block), name, value)
        elif sort == "class":
            delattr(next(base for base in type(block).__mro__ if name in vars(base)), name)
        elif value is not _ABSENT:
            for names, used in globals_of(type(block)):
                if name in used and name in names:
                    names[name] = value
    for container, parts in held:
        if not same_objects(contents(container), parts):
            container.clear()
            if isinstance(container, dict):
                container.update(zip(parts[::2], parts[1::2], strict=True))
            elif isinstance(container, set):
                container.update(parts)
            else:
                container.extend(parts)


def _change(block: Block, sort: str, name: str) -> Finding | None:
    """The finding of a changed name; None where the source told of it, or this did, before."""
    from hybrid_lab.diagnostics import rules

    kind = type(block)
    target = {"attribute": f"self.{name}", "class": f"{type(block).__name__}.{name}"}.get(sort, name)
    told = _told.setdefault(kind, set())
    record = rules.get("HL178" if sort == "global" else "HL173")
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
    code = tuple((each, each.co_filename) for each in code_of(kind))  # code is equal whatever its file
    findings = _by_code.pop(code, None)
    if findings is None:
        findings = [finding for finding in findings_of(kind) if finding.code in FROZEN]
    _by_code[code] = _checked[kind] = findings
    if len(_by_code) > _KEPT:
        _by_code.pop(next(iter(_by_code)), None)
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
