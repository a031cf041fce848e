"""Overlays of a picture: for each node and box its time, its memory, its values, its gradients, or its engine.

Times and values are measured on the graphs of a compiled program, part by part: no code of the model runs, and nothing
of it changes.
"""

from __future__ import annotations

from collections.abc import Callable

from hybrid_lab.gluon.block import Block
from hybrid_lab.gluon.hybrid import HybridBlock
from hybrid_lab.insight.states import block_at
from hybrid_lab.lab.errors import RequestError
from hybrid_lab.lab.messages.measured import OverlayKind, OverlayReply
from hybrid_lab.lab.picture.graph_view import chosen, picture_for, programs_of
from hybrid_lab.lab.picture.overlays.cells import Overlay
from hybrid_lab.lab.picture.overlays.engines import engine_overlay
from hybrid_lab.lab.picture.overlays.gradients import gradients_overlay
from hybrid_lab.lab.picture.overlays.measured import time_overlay, values_overlay
from hybrid_lab.lab.picture.overlays.memory import memory_overlay
from hybrid_lab.lab.picture.overlays.reply import overlay_reply
from hybrid_lab.lab.picture.overlays.source import Data, OverlaySource
from hybrid_lab.lab.picture.overlays.whole import whole_overlay
from hybrid_lab.lab.picture.plain_block import Whole
from hybrid_lab.system.memory import without_collecting


def overlay(net: Block, path: str, program: str, kind: OverlayKind, data: Data, busy: bool) -> OverlayReply:
    """The reply of the request `overlay`, by the ids of the `graph` reply to the same path and program.

    busy : a cell is running
    Raises KeyError for an unknown path, RequestError for data that do not fit and for a measurement while a cell runs.
    """
    programs = programs_of(net, path)
    shown = None if isinstance(programs, str) else chosen(programs, program)
    drawn = None if shown is None else shown.show().program
    if shown is None or drawn is None:
        return overlay_reply(
            kind, "", None, Overlay("", missing=programs if isinstance(programs, str) else "There is no graph.")
        )
    if busy and kind in ("time", "values"):
        raise RequestError(
            "busy",
            f"a cell is running: the {kind} overlay runs the graph, which would disturb it",
            "Ask again when the cell is done. Memory, engines and gradients can be shown at any time.",
        )
    with without_collecting(collect=False):  # thousands of records, none of them in a cycle
        picture = picture_for(drawn, net, path)
        if isinstance(picture, Whole):
            return overlay_reply(kind, shown.entry["id"], picture, whole_overlay(kind, picture, data, _KINDS[kind]))
        block = block_at(net, path)
        assert isinstance(block, HybridBlock)
        source = OverlaySource(net, path, block, shown.entry, picture, data)
        return overlay_reply(kind, shown.entry["id"], picture, _KINDS[kind](source))


_KINDS: dict[OverlayKind, Callable[[OverlaySource], Overlay]] = {
    "time": time_overlay,
    "memory": memory_overlay,
    "values": values_overlay,
    "gradients": gradients_overlay,
    "engine": engine_overlay,
}
