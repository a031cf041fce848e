"""Writing a page that shows a model without a kernel."""

from __future__ import annotations

from typing import TypedDict


class ShareReply(TypedDict):
    """What `share` wrote beside the notebook.

    path : of the file; bytes : its size; graphs : number of Blocks' graphs that it can draw; left_out : number of
        graphs that would make it too large
    """

    path: str
    bytes: int
    graphs: int
    left_out: int
