"""The reply of the request `graph`: which graph of a Block is shown, or why there is none."""

from __future__ import annotations

from hybrid_lab.diagnostics.errors import HybridLabError
from hybrid_lab.diagnostics.formatting import called, visible, visible_lines
from hybrid_lab.gluon.block import Block
from hybrid_lab.gluon.hybrid import HybridBlock
from hybrid_lab.insight.states import block_at
from hybrid_lab.lab.messages.graphs import GraphReply
from hybrid_lab.lab.picture.dot import dot
from hybrid_lab.lab.picture.hybrid_block import chosen, hybrid_programs
from hybrid_lab.lab.picture.nodes import PRINTED, DrawnGraph, Picture
from hybrid_lab.lab.picture.plain_block import Whole, plain_programs
from hybrid_lab.lab.picture.programs import SelectorEntry, Shown
from hybrid_lab.lab.places import location_data
from hybrid_lab.system.memory import without_collecting

__all__ = ["chosen", "drawn", "graph_dot", "graph_view", "picture_for", "picture_of", "programs_of"]


def graph_view(net: Block, path: str, program: str = "") -> GraphReply:
    """The reply of the request `graph`. Raises KeyError for an unknown path."""
    return drawn(net, path, program)[0]


def drawn(net: Block, path: str, program: str = "") -> tuple[GraphReply, Picture | Whole | None]:
    """The reply of the request `graph`, and the picture in it. Raises KeyError for an unknown path."""
    found = programs_of(net, path)
    if isinstance(found, str):
        return _reply(path, [], None, Shown(None, missing=found), None), None
    choice = chosen(found, program)
    with without_collecting(collect=False):
        shown = choice.show()
        picture = _picture(shown.program, net, path)
        return _reply(path, found, choice, shown, picture), picture


def picture_of(net: Block, path: str, program: str = "") -> Picture | Whole | None:
    """The Picture that the reply to this request shows: its `id_of(node)` gives the id, in the reply, of a node of the
    executable that `mx.profile` or `mx.compare` watches. None if there is none. Raises KeyError for an unknown path.
    """
    found = programs_of(net, path)
    shown = None if isinstance(found, str) else chosen(found, program).show().program
    return _picture(shown, net, path)


def graph_dot(net: Block, path: str = "", program: str = "", depth: int | None = None) -> str:
    """The picture in the DOT language, with colours; it takes the arguments of `viz.plot_graph`.

    Raises HybridLabError if there is nothing to draw.
    """
    try:
        picture = picture_of(net, path, program)
    except KeyError as error:
        raise HybridLabError(f"{called(net)} has no Block {path!r}: {error.args[0]!r} is not there") from None
    if picture is None:
        raise HybridLabError(graph_view(net, path, program)["missing"])
    return dot(picture, depth, colors=True)


def programs_of(net: Block, path: str) -> list[SelectorEntry] | str:
    """What can be drawn of a Block, the traced graph first, of a plain Block its calls; or why there is nothing."""
    block = block_at(net, path)
    return hybrid_programs(net, path, block) if isinstance(block, HybridBlock) else plain_programs(net, path, block)


def picture_for(program: DrawnGraph | Whole, net: Block, path: str) -> Picture | Whole:
    """The picture of a shown program of the Block at `path`."""
    return program if isinstance(program, Whole) else Picture(program, net, path)


def _picture(program: DrawnGraph | Whole | None, net: Block | None, path: str) -> Picture | Whole | None:
    if program is None or net is None:
        return None
    with without_collecting(collect=False):
        return picture_for(program, net, path)


def _reply(
    path: str,
    found: list[SelectorEntry],
    choice: SelectorEntry | None,
    shown: Shown,
    picture: Picture | Whole | None,
) -> GraphReply:
    """The reply with a picture, or with the reason why there is none."""
    return {
        "path": path,
        "program": choice.entry["id"] if choice is not None else "",
        "programs": [item.entry for item in found],
        "boxes": picture.boxes if picture is not None else [],
        "nodes": picture.nodes if picture is not None else [],
        "locations": picture.locations if picture is not None else [],
        "text": visible_lines(picture.text) if picture is not None else "",
        "dot": dot(picture) if picture is not None and len(picture.nodes) <= PRINTED else "",
        "summary": visible(shown.summary),
        "missing": visible(shown.missing),
        "variants": sum(item.entry["half"] == "traced" for item in found),
        "failed": location_data(shown.failed),
    }
