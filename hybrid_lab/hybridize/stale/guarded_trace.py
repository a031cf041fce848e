"""A trace together with a guard of the values that it read. Code that changes what it computes with has no graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from hybrid_lab.diagnostics.hybridize_error import HybridizeError, hybridize_error
from hybrid_lab.diagnostics.location import Location
from hybrid_lab.graph.equal import equal
from hybrid_lab.hybridize.neutral import NeutralGraph, place_of, trace_block
from hybrid_lab.hybridize.stale.code import attributes_read
from hybrid_lab.hybridize.stale.frozen import undoing_changes, warning_of_changes
from hybrid_lab.hybridize.stale.user_state import UserState
from hybrid_lab.hybridize.stale.value_guard import ValueGuard
from hybrid_lab.hybridize.stale.watched_values import guard_of
from hybrid_lab.hybridize.structure import Spec
from hybrid_lab.ndarray.tape import state as modes
from hybrid_lab.system.logger import logger

if TYPE_CHECKING:
    from hybrid_lab.hybridize.block import Hybrid

Types = Sequence[tuple[Any, Any]]
Watching = Callable[["Hybrid"], AbstractContextManager[UserState]]


def trace_guarded(
    block: Hybrid, spec: Spec, types: Types, watching: Watching = warning_of_changes, keep: bool = True,
    salvage: bool = False,
) -> tuple[NeutralGraph, ValueGuard | None]:  # fmt: skip
    """The graph of a call in the mode of now, and a guard of what the code read.

    watching : the context manager around the trace, which gives the state before; keep, salvage : see `trace_block`

    Raises what `trace_block` raises, and a HybridizeError where the code computes with what it changes itself, or reads
    on from an iterator: its Block runs eagerly. All is as before the trace then.
    """
    guard = guard_of(block)
    if guard is not None and guard.iterators:
        name = guard.iterators[0]
        raise _error_of_iterator(block, name, guard.place_of(name) or place_of(block))
    try:
        with watching(block) as state:
            graph = trace_block(block, spec, types, modes.training, keep=keep, salvage=salvage)
            if (guard is not None and not guard.holds()) or _changed_what_it_reads(state):
                guard = _after_changes(block, graph, types, guard or ValueGuard(), state)
    except HybridizeError:
        if guard is not None:
            guard.restore()
        raise
    return graph, guard


def _changed_what_it_reads(state: UserState) -> bool:
    return any(name.sort == "global" or name.text in attributes_read(type(name.block)) for name in state.changed())


def _after_changes(
    block: Hybrid, graph: NeutralGraph, types: Types, before: ValueGuard, state: UserState
) -> ValueGuard:
    """The guard without what every trace changes. Raises HybridizeError where a second trace gives another graph."""
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
        raise _error_of_changes(block, names[0], now.place_of(names[0]) or place_of(block))
    for each in _blocks_below(block):
        if each._graphs.guard is not None:
            each._graphs.guard = each._graphs.guard.without(changed)
    return now.without(changed)


def _blocks_below(block: Any) -> list[Any]:
    found: list[Any] = []
    pending = list(block._children.values())
    for each in pending:
        if hasattr(each, "_graphs") and all(each is not other for other in found):
            found.append(each)
            pending += each._children.values()
    return found


def _drop_graphs_below(block: Hybrid) -> None:
    """Of Blocks below, one may be that whose code changes what it reads: their next calls trace them alone."""
    for each in _blocks_below(block):
        each._graphs.clear()


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


def tell_of_unwatched(block: Hybrid, guard: ValueGuard | None, told: set[Any]) -> None:
    """Warn once, in one message, of what the code reads and no call compares. told : where it is noted"""
    new = {} if guard is None else {name: why for name, why in guard.unwatched.items() if name not in told}
    told.update(new)
    if guard is not None and new:
        listed = []
        for name, why in list(new.items())[:5]:
            place = guard.place_of(name)
            listed.append(f"`{name}` ({why}; {place.describe()})" if place is not None else f"`{name}` ({why})")
        more = f"; {len(new) - 5} more" if len(new) > 5 else ""
        logger.warning(
            f"{block.name}: HL178: the graph keeps what the code reads in {'; '.join(listed)}{more}. Calls do not "
            "notice a change of it: pass it as an argument, or call hybridize() again after a change"
        )
