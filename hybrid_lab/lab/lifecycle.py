"""The life of code in a notebook: graphs go when the code they were traced from changes; redefined classes are named."""

from __future__ import annotations

import weakref
from typing import Any

from hybrid_lab.gluon.block import Block
from hybrid_lab.gluon.hybrid import HybridBlock
from hybrid_lab.insight.states import walk

#: Block -> the code objects its graphs were traced from
_traced_from: weakref.WeakKeyDictionary[Block, tuple[Any, ...]] = weakref.WeakKeyDictionary()


def _code(block: Block) -> tuple[Any, ...]:
    kind = type(block)
    found = []
    for name in ("hybrid_forward", "forward"):
        function = getattr(kind, name, None)
        found.append(getattr(function, "__code__", None))
    return tuple(found)


def drop_changed_code(models: list[Block]) -> list[str]:
    """Drop the graphs of every Block whose methods were replaced in place since (as %autoreload does); notes about it."""
    notes = []
    for net in models:
        for path, _, block, before in walk(net):
            if before is not None or not isinstance(block, HybridBlock):
                continue
            code = _code(block)
            old = _traced_from.get(block)
            _traced_from[block] = code
            if old is not None and old != code:
                had = bool(block._graphs.variants)
                block._structure_changed()
                if had:
                    notes.append(f"{path or net.name}: the code of {type(block).__name__} changed; its graph was dropped")
    return notes


def redefined_classes(namespace: dict[str, Any], entries: list[Any], known: dict[str, weakref.ref[type]]) -> list[str]:
    """Notes about models whose class the user has defined again: they keep running the old code."""
    notes = []
    classes = {name: item for name, item in namespace.items() if isinstance(item, type) and issubclass(item, Block)}
    for name, kind in classes.items():
        old = known.get(name)
        before = old() if old is not None else None
        known[name] = weakref.ref(kind)
        if before is None or before is kind:
            continue
        for entry in entries:
            if any(type(block) is before for _, _, block, _ in walk(entry.block)):
                notes.append(f"{entry.name} was made from the earlier class {name}; make it again to run the new code")
    return notes
