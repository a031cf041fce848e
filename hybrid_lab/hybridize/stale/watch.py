"""Watch: what the graphs of one Block were traced from, and whether it has changed since. The entry to this folder.

`trace_guarded` is a trace together with a guard of the values that it read. Code that changes what it computes with has
no graph.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from types import CodeType
from typing import TYPE_CHECKING, Any

from hybrid_lab.diagnostics.formatting import called
from hybrid_lab.diagnostics.hybridize_error import HybridizeError, hybridize_error
from hybrid_lab.diagnostics.location import Location
from hybrid_lab.graph.equal import equal
from hybrid_lab.hybridize.block import tree_of
from hybrid_lab.hybridize.neutral import NeutralGraph, location_of, trace_block
from hybrid_lab.hybridize.stale.code import attributes_read, code_of
from hybrid_lab.hybridize.stale.trace_warnings import undoing_changes, warning_of_changes
from hybrid_lab.hybridize.stale.value_guard import ValueGuard
from hybrid_lab.hybridize.stale.watched_values import guard_of
from hybrid_lab.hybridize.structure import Spec
from hybrid_lab.ndarray.tape import state as modes
from hybrid_lab.system.logger import logger

if TYPE_CHECKING:
    from hybrid_lab.hybridize.block import Hybrid
    from hybrid_lab.hybridize.stale.user_state import UserState

#: The Watches of graphs whose code, or the values that it reads, may change unnoticed: `find_changed` looks here.
watched: weakref.WeakSet[Watch] = weakref.WeakSet()


class Watch:
    """What the graphs of one Block were traced from.

    guard : of the values that each call compares with those at the trace; None if there are none
    code : `code_of` the Block's class at the first trace; None while there is no graph
    refused : `code_of` the Block's class when a trace was refused, so that calls run eagerly; None if none was. It
        stays when the graphs are dropped, for example because a call assigns an attribute
    """

    def __init__(self, block: Hybrid) -> None:
        self.block = block
        self.guard: ValueGuard | None = None
        self.code: tuple[CodeType, ...] | None = None
        self.refused: tuple[CodeType, ...] | None = None
        self._values: dict[str, Any] | None = None  # `read_values` of the Block, if calls cannot compare them all

    def begin(self, guard: ValueGuard | None, is_guarded: bool) -> None:
        """A graph was traced. guard : of the values that the code read, if `is_guarded`; else it is made now"""
        self.guard = guard if is_guarded else guard_of(self.block)
        if self.code is None:
            self.code = code_of(type(self.block))
        if self.code or self.guard is not None:
            watched.add(self)
        if self._values is None and self.guard is not None and (self.guard.unwatched or self.guard.is_partial):
            from hybrid_lab.hybridize.stale.read_values import read_values

            self._values = read_values(self.block)

    def begin_refused(self) -> None:
        """A trace was refused, and calls run eagerly until the code changes. The values are not compared: code that
        runs eagerly may change them in every call.
        """
        if self.refused is None:
            self.refused = code_of(type(self.block))
            if self.refused:
                watched.add(self)

    def end(self) -> None:
        """The graphs were dropped."""
        if not self.refused:
            watched.discard(self)
        self.code = self.guard = self._values = None

    def holds(self) -> bool:
        """Whether the values that calls compare are the trace's values."""
        return self.guard is None or self.guard.holds()

    def differences(self) -> list[str]:
        """What changed among the values that calls compare: `CONFIG['rate']: 0.2 instead of 0.1`.

        Empty if other containers and objects hold the same: they are what later calls compare with.
        """
        before, now = self.guard, guard_of(self.block)
        assert before is not None
        if now is None:
            return ["what the code reads"]
        changed = now.without(before.excluded).differences(before)
        if not changed:
            self.guard = now
        return changed

    def unnoticed(self) -> list[str]:
        """Names of changed values (`self.name`, or the name of a global) since the trace. Empty if calls compare every
        value that the code reads.
        """
        if self._values is None:
            return []
        from hybrid_lab.hybridize.stale.read_values import changed_values, read_values

        return changed_values(self._values, read_values(self.block))


def find_changed(values: bool) -> tuple[list[Hybrid], list[tuple[Hybrid, list[str]]]]:
    """Of all Blocks with graphs or refused traces: Blocks whose code was replaced in place since then. And of Blocks
    with graphs: Blocks whose code now reads other values, with what changed. Blocks above them, whose graphs have this
    code and these values in them, are left out.

    values : look for changed values, too
    """
    recoded: list[Hybrid] = []
    changed: list[tuple[Hybrid, list[str]]] = []
    codes: dict[type, tuple[CodeType, ...]] = {}
    for watch in list(watched):
        block, guard = watch.block, watch.guard
        if block._graphs.watch is not watch:  # of graphs that a tool traced for itself
            continue
        kind = type(block)
        if kind not in codes:
            codes[kind] = code_of(kind)
        if any(code is not None and code != codes[kind] for code in (watch.code, watch.refused)):
            recoded.append(block)
        elif values:
            # Other than `holds`, `compare` writes no function for a guard that perhaps no call uses.
            names = [] if guard is None or guard.compare() else watch.differences()
            if names := names or watch.unnoticed():
                changed.append((block, names))
    stale = {id(block) for block in (*recoded, *(block for block, _ in changed))}
    return recoded, [
        (block, names) for block, names in changed if not any(id(each) in stale for each in tree_of(block)[1:])
    ]


# -- traces ------------------------------------------------------------------------------------------------------------

Types = Sequence[tuple[Any, Any]]
Watching = Callable[["Hybrid"], "AbstractContextManager[UserState]"]


def trace_guarded(
    block: Hybrid, spec: Spec, types: Types, watching: Watching = warning_of_changes, keep: bool = True,
    salvage: bool = False,
) -> tuple[NeutralGraph, ValueGuard | None]:  # fmt: skip
    """The graph of a call in the mode of now, and a guard of what the code read.

    watching : the context manager around the trace, which gives the state before
    keep, salvage : see `trace_block`

    Raises the errors of `trace_block`, and a HybridizeError if the code computes with values that it changes itself, or
    advances an iterator: its Block runs eagerly. All is as before the trace then.
    """
    guard = guard_of(block)
    if guard is not None and guard.iterators:
        name = guard.iterators[0]
        raise _error_of_iterator(block, name, guard.location_of(name) or location_of(block))
    try:
        with watching(block) as state:
            graph = trace_block(block, spec, types, modes.training, keep=keep, salvage=salvage)
            changed = (
                each.sort == "global" or each.text in attributes_read(type(each.block)) for each in state.changed()
            )
            if any(changed) or not (guard is None or guard.holds()):
                guard = _after_changes(block, graph, types, guard or ValueGuard(), state)
    except HybridizeError:
        if guard is not None:
            guard.restore()
        raise
    return graph, guard


def _after_changes(
    block: Hybrid, graph: NeutralGraph, types: Types, before: ValueGuard, state: UserState
) -> ValueGuard:
    """The guard without what every trace changes. Raises HybridizeError if a second trace gives another graph."""
    now = guard_of(block) or ValueGuard()
    names = before.names(before.changed_places()) or [str(name) for name in state.changed()]
    changed: frozenset[object] = frozenset()
    again: NeutralGraph | None = None
    with undoing_changes(block):
        try:
            state.restore_random()
            again = trace_block(block, graph.in_spec, types, modes.training, keep=False)
        except Exception:  # noqa: BLE001 - as of a list that is empty now
            logger.debug(f"{block.name}: the second trace failed", exc_info=True)
        finally:
            changed = now.changed_places()
            now.restore()
    if again is None or again.out_spec != graph.out_spec or not equal(again.graph, graph.graph):
        _drop_graphs_below(block)
        raise _error_of_changes(block, names[0], now.location_of(names[0]) or location_of(block))
    for each in _hybrid_below(block):
        watch = each._graphs.watch
        if watch.guard is not None:
            watch.guard = watch.guard.without(changed)
    return now.without(changed)


def _hybrid_below(block: Hybrid) -> list[Any]:
    return [each for each in tree_of(block)[1:] if hasattr(each, "_graphs")]


def _drop_graphs_below(block: Hybrid) -> None:
    """The code of a Block below may be the code that changes a value it reads: the next calls of these Blocks trace
    them alone.
    """
    for each in _hybrid_below(block):
        each._graph_calls.clear()


def _error_of_iterator(block: Hybrid, name: str, place: Location | None) -> HybridizeError:
    error = hybridize_error(
        "HL178",
        place,
        block=block.name,
        message=f"`{name}` is an iterator, and each call reads it on.",
        reason="A compiled call runs operators, not the Python code around them: it would read the iterator once only.",
        rewrite="pass what it gives as an argument: net(x, next(it))",
    )
    error.runs_eagerly = True
    return error


def _error_of_changes(block: Hybrid, name: str, place: Location | None) -> HybridizeError:
    error = hybridize_error(
        "HL173",
        place,
        block=block.name,
        message=f"The code changes `{name}` and computes with it, so that no two calls compute the same.",
        reason="A compiled call runs operators, not the Python code around them: the value would change once only.",
        rewrite="pass it as an argument      or      keep it as a parameter with grad_req='null'",
    )
    error.runs_eagerly = True
    return error


def tell_of_unwatched(block: Hybrid, guard: ValueGuard, told: set[Any]) -> None:
    """Warn once, in one message, of values that the code reads and no call compares. told : the names of earlier
    warnings
    """
    new = {name: why for name, why in guard.unwatched.items() if name not in told}
    told.update(new)
    if new:
        listed = []
        for name, why in list(new.items())[:5]:
            location = guard.location_of(name)
            listed.append(f"`{name}` ({why}; {location.describe()})" if location is not None else f"`{name}` ({why})")
        more = f"; {len(new) - 5} more" if len(new) > 5 else ""
        logger.warning(
            f"{called(block)}: HL178: the graph keeps what the code reads in {'; '.join(listed)}{more}. Calls do not "
            "notice a change of it: pass it as an argument, or call hybridize() again after a change"
        )
