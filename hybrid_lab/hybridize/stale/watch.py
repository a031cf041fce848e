"""A trace together with a guard of the values that it read, and the Blocks whose code or values have changed since. The
entry to this folder.

Code that changes what it computes with has no graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from types import CodeType
from typing import TYPE_CHECKING, Any

from hybrid_lab.diagnostics.formatting import called
from hybrid_lab.diagnostics.hybridize_error import HybridizeError, hybridize_error
from hybrid_lab.diagnostics.location import Location
from hybrid_lab.graph.equal import equal
from hybrid_lab.hybridize import graphs as graphs_of_blocks
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


def find_changed(values: bool) -> tuple[list[Hybrid], list[tuple[Hybrid, list[str]]]]:
    """Of all Blocks with graphs or refused traces: Blocks whose code was replaced in place since then. And of Blocks
    with graphs: Blocks whose code now reads other values, with what changed. Blocks above them, whose graphs have this
    code and these values in them, are left out.

    values : look for changed values, too
    """
    recoded: list[Hybrid] = []
    changed: list[tuple[Hybrid, list[str]]] = []
    codes: dict[type, tuple[CodeType, ...]] = {}
    for graphs in list(graphs_of_blocks.alive):
        block, guard = graphs.block, graphs.guard
        if block._graphs is not graphs:  # a tool traced them for itself
            continue
        kind = type(block)
        if kind not in codes:
            codes[kind] = code_of(kind)
        if any(code is not None and code != codes[kind] for code in (graphs.code, graphs.refused)):
            recoded.append(block)
        elif values:
            # Other than `holds`, `compare` writes no function for a guard that perhaps no call uses.
            names = [] if guard is None or guard.compare() else graphs.differences()
            if names := names or graphs.unnoticed():
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
) -> tuple[NeutralGraph, ValueGuard]:  # fmt: skip
    """The graph of a call in the mode of now, and a guard of what the code read.

    watching : the context manager around the trace, which gives the state before
    keep, salvage : see `trace_block`

    Raises the errors of `trace_block`, and a HybridizeError if the code computes with values that it changes itself, or
    advances an iterator: its Block runs eagerly. All is as before the trace then.
    """
    guard = guard_of(block)
    if guard.iterators:
        name = guard.iterators[0]
        raise _error_of_iterator(block, name, guard.location_of(name) or location_of(block))
    try:
        with watching(block) as state:
            graph = trace_block(block, spec, types, modes.training, keep=keep, salvage=salvage)
            changed = (
                each.sort == "global" or each.text in attributes_read(type(each.block)) for each in state.changed()
            )
            if any(changed) or not guard.holds():
                guard = _after_changes(block, graph, types, guard, state)
    except HybridizeError:
        guard.restore()
        raise
    return graph, guard


def _after_changes(
    block: Hybrid, graph: NeutralGraph, types: Types, before: ValueGuard, state: UserState
) -> ValueGuard:
    """The guard without what every trace changes. Raises HybridizeError if a second trace gives another graph."""
    now = guard_of(block)
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
        graphs = each._graphs
        if graphs.guard is not None:
            graphs.guard = graphs.guard.without(changed)
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
