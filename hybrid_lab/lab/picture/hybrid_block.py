"""What can be drawn of a HybridBlock. One without a graph is traced for it, and nothing keeps the trace."""

from __future__ import annotations

import inspect

from hybrid_lab.diagnostics.errors import HybridLabError
from hybrid_lab.diagnostics.formatting import called, first_line
from hybrid_lab.diagnostics.hybridize_error import HybridizeError
from hybrid_lab.gluon import access
from hybrid_lab.gluon.block import Block
from hybrid_lab.gluon.files.graphs_of_calls import trace
from hybrid_lab.gluon.hybrid import HybridBlock
from hybrid_lab.hybridize.failures import Failure, failure_of
from hybrid_lab.hybridize.neutral import NeutralGraph, trace_block
from hybrid_lab.hybridize.structure import LEAF
from hybrid_lab.insight.silent import silent
from hybrid_lab.lab.picture.programs import FAILED, SelectorEntry, choices


def hybrid_programs(
    net: Block, path: str, block: HybridBlock, paths: dict[int, str] | None = None
) -> list[SelectorEntry] | str:
    """What can be drawn of the HybridBlock at a path, the traced graph first; or why there is nothing.

    paths : `parameter_paths` of the model, if they are at hand
    """
    graphs, failure, missing = access.graphs(block).graphs(), access.calls(block).failures.last, ""
    if failure is not None:
        where = f" ({failure.location.describe()})" if failure.location is not None else ""
        missing = f"{called(block)} does not hybridize: {failure.text}{where}"
    elif not graphs:
        graphs, failure, missing = _traced_now(block)
    return choices(net, path, graphs, failure, missing, paths) or missing


def chosen(found: list[SelectorEntry], program: str) -> SelectorEntry:
    """The choice with this id. Without an id, or for a vanished program: the graph of the last failed trace, else the
    latest compiled call's forward, else the traced graph.
    """
    own = [choice for choice in found if choice.entry["id"] == program]
    failed = [choice for choice in found if choice.entry["id"] == FAILED]
    calls = [choice for choice in found if choice.entry["half"] in ("predict", "forward")]
    return (own or failed or calls[-1:] or found)[0]


def _traced_now(block: HybridBlock) -> tuple[list[NeutralGraph], Failure | None, str]:
    """(graphs, error, why there is none) of a trace that nothing keeps: of the latest known call, or from the signature
    alone, without shapes.
    """
    advice = "Call it once on data and its graph appears here."
    calls = access.calls(block).known_calls()
    try:
        if calls:
            with silent():
                return [trace(block, calls[-1], keep=False)], None, ""
        method, others = access.entry(block)
        names = list(inspect.signature(method).parameters.values())[others:]
        required = [item for item in names if item.default is item.empty and item.kind is item.POSITIONAL_OR_KEYWORD]
        count = max(sum(item.name not in access.own_parameters(block) for item in required), 1)
        with silent():
            return [trace_block(block, ("tuple", (LEAF,) * count), [(None, None)] * count, False, keep=False)], None, ""
    except HybridLabError as error:
        failure = failure_of(error, block) if isinstance(error, HybridizeError) else None
        return [], failure, f"{called(block)} has no graph yet: {first_line(error)} {advice}"
    except Exception as error:  # the user's code, which may raise anything when it is called on Symbols
        return [], None, f"{called(block)} has no graph yet ({type(error).__name__} without data). {advice}"
