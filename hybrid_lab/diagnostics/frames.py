"""Which frames of a traceback a notebook shows."""

from __future__ import annotations

from types import FrameType

from hybrid_lab.diagnostics.location import is_own


def hide_own_frames(error: BaseException) -> None:
    """Let IPython and pytest leave this package's frames out of the traceback of `error`, which is being handled.

    The mark is a local variable of each frame. It is set when something failed, so calls that work pay nothing.
    """
    step = error.__traceback__
    frame: FrameType | None = step.tb_frame if step is not None else None
    while frame is not None and is_own(frame.f_code.co_filename):
        frame.f_locals["__tracebackhide__"] = True
        frame = frame.f_back
    while step is not None:
        if is_own(step.tb_frame.f_code.co_filename):
            step.tb_frame.f_locals["__tracebackhide__"] = True
        step = step.tb_next
