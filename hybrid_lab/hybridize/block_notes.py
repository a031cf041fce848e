"""The Blocks that a message is about: which are being called, and the path of the Block whose code raised, as a note
(PEP 678) on exceptions that leave Blocks.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import CodeType, FrameType, TracebackType
from typing import TYPE_CHECKING, Any

from hybrid_lab.diagnostics.formatting import models_at_work, variable_of

if TYPE_CHECKING:
    from hybrid_lab.hybridize.block import Tree

CALLS: set[CodeType] = set()
"""The code of `Block.__call__` and of `HybridBlock.__call__`, which these modules add."""


def note_block(error: Exception, block: Tree) -> None:
    """Note on an exception that leaves this Block in which Block it was raised: `in block net0.features.3 (Dense)`, by
    the variables of a notebook `in block net.features[3] (Dense)`.

    Each Block that the exception leaves makes the path longer. Errors that name their Block get no note.
    """
    if getattr(error, "block", None) is not None:
        return
    notes = getattr(error, "__notes__", [])
    before = error.__dict__.pop("_block_note", None)
    if before in notes:
        notes.remove(before)
    path: str = block.name
    inner: Tree = block
    for each in called_blocks(error.__traceback__):
        if each is not inner:
            key = next((key for key, child in inner._children.items() if child is each), None)
            path, inner = each.name if key is None else f"{path}.{key}", each
    path = variable_of(inner) or path
    if f"block {path}" not in str(error):
        note = error.__dict__["_block_note"] = f"in block {path} ({type(inner).__name__})"
        error.add_note(note)


def called_blocks(traceback: TracebackType | None) -> Iterator[Any]:
    """The Blocks that were being called when an exception was raised, outermost first."""
    while traceback is not None:
        if traceback.tb_frame.f_code in CALLS:
            yield traceback.tb_frame.f_locals["self"]
        traceback = traceback.tb_next


def subjects() -> list[Any]:
    """The Blocks that a message of this moment is about, outermost first: those at which a tool works, and those that
    are being called.
    """
    frame: FrameType | None = sys._getframe()
    running: list[Any] = []
    while frame is not None:
        if frame.f_code in CALLS:
            running.append(frame.f_locals["self"])
        frame = frame.f_back
    return [*models_at_work(), *reversed(running)]
