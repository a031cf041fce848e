"""The events of a training, one class each. A handler inherits from the class of every event that it handles."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from .estimator import Estimator

Event = TypeVar("Event", bound="EventHandler")


class EventHandler:
    """Base of all handlers. Handlers with a smaller `priority` are called first; without one it counts as 0."""

    priority: float = 0


class TrainBegin(EventHandler):
    """Called once, before the first epoch."""

    def train_begin(self, estimator: Estimator, *args: Any, **kwargs: Any) -> None:
        """The training begins."""


class TrainEnd(EventHandler):
    """Called once, after the last epoch."""

    def train_end(self, estimator: Estimator, *args: Any, **kwargs: Any) -> None:
        """The training has ended."""


class EpochBegin(EventHandler):
    """Called before the first batch of every epoch."""

    def epoch_begin(self, estimator: Estimator, *args: Any, **kwargs: Any) -> None:
        """An epoch begins."""


class EpochEnd(EventHandler):
    """Called after the last batch of every epoch."""

    def epoch_end(self, estimator: Estimator, *args: Any, **kwargs: Any) -> bool | None:
        """Return True to stop the training."""
        return False


class BatchBegin(EventHandler):
    """Called before every batch."""

    def batch_begin(self, estimator: Estimator, *args: Any, **kwargs: Any) -> None:
        """kwargs : batch"""


class BatchEnd(EventHandler):
    """Called after every batch, when its gradients are there."""

    def batch_end(self, estimator: Estimator, *args: Any, **kwargs: Any) -> bool | None:
        """kwargs : batch, pred, label, loss. Return True to end the epoch."""
        return False


def checked(handlers: EventHandler | Iterable[object] | None) -> list[EventHandler]:
    """A list of handlers. Raises ValueError if something else is among them."""
    given = [handlers] if isinstance(handlers, EventHandler) else list(handlers or ())
    known = [handler for handler in given if isinstance(handler, EventHandler)]
    if len(known) != len(given):
        raise ValueError(f"event_handlers must be an EventHandler or a list of them, not {handlers!r}")
    return known


def of_event(handlers: Iterable[EventHandler], event: type[Event]) -> list[Event]:
    """The handlers of an event, in the order of their priorities."""
    return [handler for handler in handlers if isinstance(handler, event)]
