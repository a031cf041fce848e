"""The reply of the request `graph`: which graph of a Block is shown, or why there is none."""

from __future__ import annotations

import inspect

from hybrid_lab.diagnostics.errors import HybridLabError
from hybrid_lab.diagnostics.hybridize_error import HybridizeError
from hybrid_lab.diagnostics.words import visible, visible_lines
from hybrid_lab.engines.collector import without_collecting
from hybrid_lab.gluon import access
from hybrid_lab.gluon.block import Block
from hybrid_lab.gluon.hybrid import HybridBlock
from hybrid_lab.gluon.hybridized.failure import Failure, failure_of
from hybrid_lab.gluon.hybridized.graphs_of_calls import trace
from hybrid_lab.gluon.hybridized.neutral import NeutralGraph, trace_block
from hybrid_lab.gluon.hybridized.structure import LEAF
from hybrid_lab.graph.printer import format_graph
from hybrid_lab.insight.silent import silent
from hybrid_lab.insight.states import block_at, class_name
from hybrid_lab.lab.dot import dot
from hybrid_lab.lab.messages.graphs import GraphReply
from hybrid_lab.lab.picture import Picture, Program
from hybrid_lab.lab.places import location_data
from hybrid_lab.lab.programs import FAILED, Choice, Shown, choices

_PRINTED = 5000
"""Operators of the printed graph, of more only the first ones are printed; nodes of the largest graph with DOT text."""


def graph_view(net: Block, path: str, program: str = "") -> GraphReply:
    """The reply of the request `graph`. Raises KeyError for an unknown path."""
    found = programs_of(net, path)
    if isinstance(found, str):
        return _reply(path, [], None, Shown(None, missing=found))
    choice = chosen(found, program)
    with without_collecting(collect=False):
        return _reply(path, found, choice, choice.show(), net)


def picture_of(net: Block, path: str, program: str = "") -> Picture | None:
    """The Picture that the reply to this request shows: its `id_of(node)` gives the id, in the reply, of a node of the
    executable that `mx.profile` or `mx.compare` watches. None where there is none. Raises KeyError for an unknown path.
    """
    found = programs_of(net, path)
    shown = None if isinstance(found, str) else chosen(found, program).show().program
    return _picture(shown, net, path)


def graph_dot(net: Block, path: str = "", program: str = "", depth: int | None = None) -> str:
    """The picture in the DOT language, with colours; the arguments are those of `viz.plot_graph`.

    Raises HybridLabError where there is nothing to draw.
    """
    try:
        picture = picture_of(net, path, program)
    except KeyError as error:
        raise HybridLabError(f"{net.name} has no Block {path!r}: {error.args[0]!r} is not there") from None
    if picture is None:
        raise HybridLabError(graph_view(net, path, program)["missing"])
    return dot(picture, depth, colors=True)


def programs_of(net: Block, path: str) -> list[Choice] | str:
    """What can be drawn of a Block, the traced graph first; or why there is nothing."""
    block = block_at(net, path)
    if not isinstance(block, HybridBlock):
        children = [name for name, child in access.children(block).items() if isinstance(child, HybridBlock)]
        hint = f": select one of its children, {', '.join(children[:4])}" if children else ""
        kind = class_name(block)
        return f"{block.name} is a {kind}, not a HybridBlock, and has no graph{hint}."
    graphs, failure, missing = access.graphs(block).graphs(), access.graphs(block).failure, ""
    if failure is not None:
        where = f" ({failure.location.describe()})" if failure.location is not None else ""
        missing = f"{block.name} does not hybridize: {failure.text}{where}"
    elif not graphs:
        graphs, failure, missing = _traced_now(block)
    return choices(net, path, graphs, failure, missing) or missing


def chosen(found: list[Choice], program: str) -> Choice:
    """The choice with this id. Of none, and of a program that is gone: what the last trace left where it failed, else
    the latest compiled call's forward, else the traced graph.
    """
    own = [choice for choice in found if choice.entry["id"] == program]
    failed = [choice for choice in found if choice.entry["id"] == FAILED]
    calls = [choice for choice in found if choice.entry["half"] in ("predict", "forward")]
    return (own or failed or calls[-1:] or found)[0]


def _picture(program: Program | None, net: Block | None, path: str) -> Picture | None:
    if program is None or net is None:
        return None
    with without_collecting(collect=False):
        return Picture(program, net, path)


def _reply(
    path: str,
    found: list[Choice],
    choice: Choice | None,
    shown: Shown,
    net: Block | None = None,
) -> GraphReply:
    """The reply with a picture, or with the reason why there is none."""
    picture = _picture(shown.program, net, path)
    return {
        "path": path,
        "program": choice.entry["id"] if choice is not None else "",
        "programs": [item.entry for item in found],
        "boxes": picture.boxes if picture is not None else [],
        "nodes": picture.nodes if picture is not None else [],
        "locations": picture.locations if picture is not None else [],
        "text": visible_lines(format_graph(shown.program.graph, _PRINTED)) if shown.program is not None else "",
        "dot": dot(picture) if picture is not None and len(picture.nodes) <= _PRINTED else "",
        "summary": visible(shown.summary),
        "missing": visible(shown.missing),
        "variants": sum(item.entry["half"] == "traced" for item in found),
        "failed": location_data(shown.failed),
    }


def _traced_now(block: HybridBlock) -> tuple[list[NeutralGraph], Failure | None, str]:
    """(graphs, error, why there is none) of a trace that nothing keeps: of the latest known call, or from the signature
    alone, without shapes.
    """
    advice = "Call it once on data and its graph appears here."
    calls = access.graphs(block).known_calls()
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
        return [], failure, f"{block.name} has no graph yet: {str(error).splitlines()[0]} {advice}"
    except Exception as error:  # the user's code, which may raise anything when it is called on Symbols
        return [], None, f"{block.name} has no graph yet ({type(error).__name__} without data). {advice}"
