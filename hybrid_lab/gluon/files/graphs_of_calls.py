"""The graphs of the calls that a Block had, traced if they are not there: for files, exports and pictures."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from hybrid_lab.diagnostics.errors import MissingGraphError
from hybrid_lab.diagnostics.formatting import called, first_line
from hybrid_lab.gluon import access
from hybrid_lab.hybridize.failures import failure_of
from hybrid_lab.hybridize.known_calls import MAX_CALLS, KnownCall, dtypes_of
from hybrid_lab.hybridize.neutral import NeutralGraph
from hybrid_lab.hybridize.stale.trace_warnings import undoing_changes
from hybrid_lab.hybridize.stale.watch import trace_guarded
from hybrid_lab.hybridize.structure import count_leaves, describe
from hybrid_lab.ndarray.random_state import state as random_state
from hybrid_lab.ndarray.tape import Mode
from hybrid_lab.system.logger import logger

if TYPE_CHECKING:
    from hybrid_lab.hybridize.block import Hybrid


def trace(block: Hybrid, call: KnownCall, keep: bool = True) -> NeutralGraph:
    """Trace the Block's code for a call; changes of the code outside the graph are undone.

    keep : the Block and the HybridBlocks that it calls keep their graphs; Blocks called before a failure, too

    Raises the errors of the code, and HybridizeError.
    """
    types = dtypes_of(call, count_leaves(call.spec))
    with random_state.preserved(), Mode(call.recording, call.training):
        undoing = functools.partial(undoing_changes, refuse_tensors=True)
        neutral, _ = trace_guarded(block, call.spec, types, undoing, keep=keep, salvage=keep)
    if keep:
        access.graphs(block).note(neutral)
    return neutral


def trace_calls(block: Hybrid) -> str | None:
    """Trace the graph of every call that the Block had, and of the same call in prediction mode, if it is not there.

    Returns why there is no graph, if there is no graph of the latest call, or of any call of another form.
    """
    graphs = access.graphs(block)
    if graphs.pinned:
        return None
    access.calls(block).follow_values()
    calls = access.calls(block).known_calls()
    problems = []
    for call in calls:
        problem = _why_untraced(block, call)
        if call.training or call.recording:
            _why_untraced(block, call.predicting)
        if problem is not None:
            problems.append((call, problem))
    if problems and problems[-1][0] is calls[-1]:
        return problems[-1][1]
    if not calls:
        return why_unknown(block)
    for call, problem in reversed(problems):
        if not any(_has_form(neutral, call) for neutral in graphs.graphs()):
            mode = " in training" if call.training else ""
            return f"the calls {describe(call.spec)}{mode} of {problem}"
    dropped = graphs.calls.dropped
    if dropped is not None and graphs.graph_of(dropped) is None:
        return (
            f"earlier calls of {called(block)}, such as {describe(dropped.spec)}: it keeps {MAX_CALLS} kinds of calls"
        )
    return None


def _has_form(neutral: NeutralGraph, call: KnownCall) -> bool:
    """Whether the graph is of calls of this form, whatever their shapes, dtypes and numbers are."""
    return all(mine is None or mine == wanted for mine, wanted in zip(neutral.form, call.form, strict=True))


def why_unknown(block: Hybrid) -> str | None:
    """Why no call is known of a Block that was called; None if it was never called."""
    refused = access.graphs(block).calls.refused
    return f"{called(block)}, which was called with {refused}; no graph takes such arguments" if refused else None


def _why_untraced(block: Hybrid, call: KnownCall) -> str | None:
    """Trace the call if there is no graph for it; returns why that is not possible."""
    if access.graphs(block).graph_of(call) is not None:
        return None
    refusal = access.calls(block).failures.refusal_of(call)
    if refusal is not None:
        where = f" ({refusal.location.describe()})" if refusal.location is not None else ""
        return f"{called(block)}, whose calls run eagerly: {first_line(refusal)}{where}"
    try:
        trace(block, call)
    except Exception as error:  # noqa: BLE001 - the user's code may raise anything when it is called on Symbols
        return described(error, block)
    return None


def described(error: Exception, block: Hybrid) -> str:
    """The error of a trace in one line, with the user's line."""
    failure = failure_of(error, block)
    where = f" ({failure.location.describe()})" if failure.location is not None else ""
    return f"{called(block)}: {failure.text}{where}"


def predicting(block: Hybrid) -> NeutralGraph:
    """The graph that the latest known call would run in prediction mode, which every file of one graph holds.

    A Block that has none is traced now, and keeps the graph only if it is hybridized. Raises MissingGraphError.
    """
    graphs, failures = access.graphs(block), access.calls(block).failures
    access.calls(block).follow_values()
    calls = access.calls(block).known_calls()
    problem = ""
    for call in reversed(calls):
        for wanted in dict.fromkeys((call.predicting, call)):
            neutral = graphs.graph_of(wanted)
            if neutral is not None:
                return _told_of_earlier(neutral, problem)
            if graphs.pinned:
                continue
            refusal = failures.refusal_of(wanted)
            if refusal is not None:
                raise MissingGraphError(f"{called(block)} has no graph, its calls run eagerly: {refusal}") from refusal
            try:
                return _told_of_earlier(trace(block, wanted, keep=access.is_active(block)), problem)
            except Exception as error:  # noqa: BLE001 - see above
                problem = problem or described(error, block)
    known = graphs.graphs()
    if known:
        return known[0]
    if problem:
        raise MissingGraphError(f"there is no graph of {problem}")
    unknown = why_unknown(block)
    if unknown is not None:
        raise MissingGraphError(f"there is no graph of {unknown}")
    raise MissingGraphError(f"{called(block)} was never called, so it has no graph yet: call it once on data")


def _told_of_earlier(neutral: NeutralGraph, problem: str) -> NeutralGraph:
    """The graph; warns if it is of an earlier call. problem : why the latest call has no graph, else "" """
    if problem:
        taken = describe(neutral.in_spec)
        logger.warning(f"there is no graph of the latest call of {problem}; that of the call {taken} is taken")
    return neutral
