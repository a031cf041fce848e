"""Changes of code in a notebook: graphs are dropped when their code changes, and redefined classes are reported."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterable, Iterator
from typing import Any, cast

from hybrid_lab.gluon import access
from hybrid_lab.gluon.block import Block
from hybrid_lab.hybridize.stale.code import code_of
from hybrid_lab.hybridize.stale.watch import find_changed
from hybrid_lab.insight.states import blocks_below


def drop_stale(values: bool = True) -> list[str]:
    """Drop the graphs of every live Block whose code was replaced in place since the trace, or that reads other values
    now, and the graphs of all Blocks around it. A Block whose trace was refused is traced again when its code changed.

    Code changes by %autoreload, by assigning a method to a class, by running the cell of a helper function again;
    values change when a cell writes a container, an object, a class attribute or a global that the code reads.
    values : look for changed values too
    Returns notes for the user, one a class.
    """
    recoded, changed = find_changed(values)
    notes = []
    for kind in dict.fromkeys(map(type, recoded)):
        count = sum(1 for block in recoded if type(block) is kind and access.graphs(block).graphs())
        notes.append(f"the code of {kind.__name__} changed: {_dropped(count) if count else 'it is traced again'}")
    for kind in dict.fromkeys(type(block) for block, _ in changed):
        name_lists = [names for block, names in changed if type(block) is kind]
        what = ", ".join(dict.fromkeys(name for names in name_lists for name in names))
        notes.append(f"values that {kind.__name__} reads changed ({what}): {_dropped(len(name_lists))}")
    for block in recoded:
        access.code_changed(cast(Block, block))
    for block, _ in changed:
        access.structure_changed(block)
    return notes


def _dropped(count: int) -> str:
    return "its graph was dropped" if count == 1 else f"the graphs of {count} Blocks were dropped"


class Redefinitions:
    """Finds classes that were defined again while models of the earlier class are still alive; reports each once."""

    def __init__(self) -> None:
        self._told: weakref.WeakKeyDictionary[type, weakref.ref[type]] = weakref.WeakKeyDictionary()
        self._seen: object = None

    def notes(self, namespace: dict[str, object], models: Iterable[tuple[str, Block]]) -> list[str]:
        """Drop the graphs of Blocks whose class was defined again; returns notes for the user.

        models : (name, top Block). A class whose definition is unchanged does not count.
        """
        kinds = [kind for kind in _below(Block) if self._is_outdated(kind, namespace)]
        models = list(models)
        state = [*map(id, kinds)], [(id(net), access.structure_version(net)) for _, net in models]
        if not kinds or state == self._seen:
            return []
        self._seen = state
        outdated: dict[type, list[tuple[str, str, Block]]] = {}
        for name, net in models:
            for path, block in blocks_below(net):
                if type(block) in kinds:
                    outdated.setdefault(type(block), []).append((name, f"{name}.{path}" if path else name, block))
        notes = []
        for kind, places in outdated.items():
            current = _current(kind, namespace)
            if current is None:
                continue
            self._told[kind] = weakref.ref(current)
            if _same_class(kind, current):
                continue
            for _, _, block in places:
                access.structure_changed(block)
            notes.append(_note(kind, places))
        return notes

    def _is_outdated(self, kind: type, namespace: dict[str, object]) -> bool:
        """Whether the class was defined again since it was reported."""
        current = _current(kind, namespace)
        told = self._told.get(kind)
        return current is not None and (told is None or told() is not current)


def _below(kind: type) -> Iterator[type]:
    """The living classes that are made from this one."""
    classes: list[type] = kind.__subclasses__()
    for each in classes:
        yield each
        yield from _below(each)


def _note(kind: type, places: list[tuple[str, str, Block]]) -> str:
    where = [place for _, place, _ in places]
    shown = where[0] if len(where) == 1 else f"{where[0]} and {len(where) - 1} more Blocks"
    models = " and ".join(dict.fromkeys(name for name, _, _ in places))
    verb = "was" if len(where) == 1 else "were"
    return f"{shown} {verb} made from an earlier class {kind.__name__}: make {models} again to run the new code"


def _current(kind: type, namespace: dict[str, object]) -> type | None:
    """The Block class that has replaced `kind` in its namespace; None if there is none."""
    if "<locals>" in kind.__qualname__ or kind.__module__.startswith("hybrid_lab."):
        return None
    first, *rest = kind.__qualname__.split(".")
    own = kind.__module__ == namespace.get("__name__", "__main__")
    current: Any = (namespace if own else vars(sys.modules.get(kind.__module__, sys))).get(first)
    for name in rest:
        current = vars(current).get(name) if isinstance(current, type) else None
    return current if isinstance(current, type) and current is not kind and issubclass(current, Block) else None


def _same_class(one: type, two: type) -> bool:
    """Whether two definitions say the same: the same code, bases and plain values."""
    if code_of(one) != code_of(two) or [base.__name__ for base in one.__bases__] != [b.__name__ for b in two.__bases__]:
        return False
    return _plain(one) == _plain(two)


def _plain(kind: type) -> dict[str, Any]:
    """The class's own attributes that are plain values: numbers, strings and the like."""
    skip = {"__module__", "__doc__", "__firstlineno__", "__static_attributes__"}
    values = {name: value for name, value in vars(kind).items() if name not in skip}
    return {name: value for name, value in values.items() if type(value) in (bool, int, float, str, bytes, type(None))}
