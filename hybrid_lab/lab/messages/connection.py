"""Messages about the connection itself: its start, its frame, errors, progress, and what a page shows."""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

TARGET = "hybrid_lab"
"""Name of the comm target."""
PROTOCOL = 3
ErrorCode = Literal[
    "protocol",
    "bad-request",
    "wrong-kernel",
    "unknown-model",
    "unknown-block",
    "exists",
    "would-lose",
    "bad-file-name",
    "not-found",
    "corrupt",
    "differs",
    "name-taken",
    "nothing-to-undo",
    "too-large",
    "busy",
    "failed",
]


class HelloReply(TypedDict):
    """What this kernel is. `kernel_id`: of this process, which every later request names."""

    kernel: str
    kernel_id: NotRequired[str]
    protocol: int
    python: str
    host: str
    folder: str
    engine: str
    subshells: bool


class HelloRequest(TypedDict):
    """The first message of a front end."""

    front_end: str
    protocol: int
    notebook: str


class Envelope(TypedDict):
    """The frame of everything that the kernel sends."""

    hybrid_lab: int
    id: str
    type: Literal["ok", "error", "models", "curves", "work", "workers", "progress"]
    body: object


class ErrorBody(TypedDict):
    """Why a request was not answered."""

    code: ErrorCode
    message: str
    next: str
    details: list[str]


class Progress(TypedDict):
    """A push that belongs to a request under way."""

    text: str
    done: int
    total: int


class WorkRow(TypedDict):
    """Work of the running cell that has taken more than a second: an import, a save, a compile.

    part : the part in progress, or ""; done, total, unit : the amount done so far; total is 0 if unknown
    """

    id: int
    title: str
    part: str
    seconds: float
    done: int
    total: int
    unit: str


class WorkPush(TypedDict):
    """All such work of now; none at its end."""

    works: list[WorkRow]


class FolderReply(TypedDict):
    """The folder that files go to. `beside`: the notebook is there too; `folders`, `archives`: names in the folder
    `path`.
    """

    folder: str
    host: str
    beside: bool
    path: str
    folders: list[str]
    archives: list[str]


class FolderRequest(TypedDict):
    """The notebook's path as the page knows it, and a folder below the kernel's, "" for that one itself."""

    notebook: str
    path: str


class WatchReply(TypedDict):
    """The page's wish was noted."""


class WatchRequest(TypedDict):
    """Whether the page's panel is visible: a hidden page gets no pushes."""

    visible: bool


class StaticReply(TypedDict):
    """What a notebook keeps of a view: HTML without scripts, as the cell's output has it."""

    html: str


class StaticRequest(TypedDict):
    """The id of a view's widget."""

    view: str


class AssetReply(TypedDict):
    """A JavaScript module that the widget loads when it needs it."""

    name: str
    text: str


class AssetRequest(TypedDict):
    """The module to send."""

    name: Literal["graphviz"]
