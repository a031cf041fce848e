"""What the pages show of a notebook's workers, and who answers questions about the models of rank 0."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, cast

from hybrid_lab.lab.errors import RequestError
from hybrid_lab.lab.messages.common import JsonObject
from hybrid_lab.lab.messages.models import Model, ModelsReply
from hybrid_lab.lab.messages.workers import WorkersReply

NO_WORKERS: WorkersReply = {"headline": "", "note": "", "workers": [], "curves": []}
_NO_MODELS: ModelsReply = {"models": [], "busy": False, "notes": [], "saving": {}}

_APART = {"reload": "load it", "restore": "restore it", "undo": "undo there", "watch_nan": "watch it"}
"""Requests that would change the model of rank 0 alone."""


class Asked(Protocol):
    """Who asks the lab of rank 0."""

    def ask_first(self, kind: str, body: JsonObject) -> dict[str, object]:
        """The reply of rank 0's lab. Raises RequestError, with code `busy` while a cell runs there."""


class Board:
    """The workers as the pages show them.

    workers : the body of `workers`; models : the models of rank 0, as its lab listed them last
    listeners : called, in any thread, when workers are to be shown anew
    """

    def __init__(self) -> None:
        self.workers = NO_WORKERS
        self.models = _NO_MODELS
        self.listeners: list[Callable[[], None]] = []
        self._asked: Asked | None = None

    def show(self, workers: WorkersReply) -> None:
        """Show the workers as they are now."""
        self.workers = workers
        for listener in [*self.listeners]:
            listener()

    def connect(self, asked: Asked) -> None:
        """There are workers from now on."""
        self._asked = asked

    def look(self) -> None:
        """Ask rank 0 for its models."""
        if self._asked is None:
            return
        try:
            reply = cast(ModelsReply, self._asked.ask_first("models", {}))
        except RequestError:
            return
        for model in reply["models"]:
            _name(model)
        self.models = reply

    def clear(self) -> None:
        """There are no workers any more."""
        self._asked, self.models = None, _NO_MODELS
        self.show(NO_WORKERS)

    def has(self, model: object) -> bool:
        """Whether this is the id of a model of rank 0."""
        return any(row["id"] == model for row in self.models["models"])

    def answer(self, kind: str, body: JsonObject) -> Mapping[str, object]:
        """The reply to a request about a model of rank 0. Raises RequestError."""
        if kind in _APART:
            raise RequestError(
                "failed",
                f"this is the model of rank 0: to {_APART[kind]} alone would make the workers differ",
                "Do it in all of them, by code in a cell that begins with %%workers.",
            )
        if self._asked is None:
            raise RequestError("unknown-model", "the workers have ended")
        reply = self._asked.ask_first(kind, body)
        if isinstance(reply.get("model"), dict):
            _name(cast(Model, reply["model"]))
        return reply


def _name(model: Model) -> None:
    """Name a model of rank 0 so that it is told from the notebook's own."""
    model["name"] += " (rank 0)"


board = Board()
"""That of this process."""
