"""The comm between front end and kernel: envelopes in, exactly one reply out, pushes to every page that is open."""

from __future__ import annotations

import contextlib
import json
import math
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from hybrid_lab.diagnostics.formatting import visible
from hybrid_lab.lab.distributed.board import board
from hybrid_lab.lab.errors import RequestError
from hybrid_lab.lab.kernel.session import Session
from hybrid_lab.lab.messages.common import JsonObject
from hybrid_lab.lab.messages.connection import PROTOCOL, WorkRow
from hybrid_lab.lab.schema import check_envelope, readable_id
from hybrid_lab.lab.training.current import runs
from hybrid_lab.lab.training.curves import run_data
from hybrid_lab.lab.training.run import Run
from hybrid_lab.system import progress
from hybrid_lab.system.logger import logger
from hybrid_lab.system.memory import without_collecting
from hybrid_lab.system.progress import WorkUnderWay

if TYPE_CHECKING:
    from comm.base_comm import BaseComm


#: Requests whose replies are large, and have finite numbers only.
_LARGE = frozenset({"tree", "graph", "summary", "overlay"})


def envelope(identity: str, kind: str, body: Mapping[str, object]) -> JsonObject:
    """A message of the protocol; its numbers must be finite."""
    return {"hybrid_lab": PROTOCOL, "id": identity, "type": kind, "body": body}


def finite(body: Mapping[str, object]) -> JsonObject:
    """JSON data with NaN and the infinities as null; the body itself if it has none."""
    try:
        json.dumps(body, allow_nan=False)  # several times as fast as a walk
    except ValueError:
        return {key: _finite(value) for key, value in body.items()}
    return dict(body)


def _finite(item: object) -> object:
    if isinstance(item, float):
        return item if math.isfinite(item) else None
    if isinstance(item, dict):
        return {key: _finite(value) for key, value in item.items()}
    if isinstance(item, (list, tuple)):
        return [_finite(value) for value in item]
    return item


def forget_route(comm: BaseComm) -> None:
    """Let the front end's next messages come on their own subshell again, after a send from the main thread.

    ipykernel 7.4 delivers a comm's messages to the thread that last sent on it, so they would wait for the running
    cell.
    """
    comm.__dict__.pop("_reply_subshell_id", None)


def handle(
    session: Session,
    data: object,
    send: Callable[[JsonObject], object],
    allowed: frozenset[str] | None = None,
    watch: Callable[[bool], None] = lambda visible: None,
) -> None:
    """Answer one message through `send(envelope)`: exactly one reply, also after an error.

    allowed : the requests of this channel, None for all; watch : called with True when the page comes into view, with
    False when it is hidden
    """
    kind = data.get("type") if isinstance(data, dict) else None
    # The collector would look through all of a large reply, which goes when it is sent.
    with without_collecting(collect=False) if str(kind) in _LARGE else contextlib.nullcontext():
        _handle(session, data, send, allowed, watch)


def _handle(
    session: Session,
    data: object,
    send: Callable[[JsonObject], object],
    allowed: frozenset[str] | None,
    watch: Callable[[bool], None],
) -> None:
    identity = readable_id(data)
    try:
        reply = envelope(identity, "ok", _reply(session, data, send, allowed, watch))
    except RequestError as error:
        reply = envelope(identity, "error", error.body())
    except Exception as error:  # a fault of this package: the front end waits for a reply all the same
        reply = envelope(identity, "error", _fault(error).body())
    except BaseException as error:  # an interrupt, if requests are handled on the main thread
        send(envelope(identity, "error", RequestError("failed", f"interrupted: {type(error).__name__}").body()))
        raise
    try:
        send(reply)
    except Exception as error:  # a reply that is not JSON, or a closed comm
        send(envelope(identity, "error", _fault(error).body()))


def _reply(
    session: Session,
    data: object,
    send: Callable[[JsonObject], object],
    allowed: frozenset[str] | None,
    watch: Callable[[bool], None],
) -> Mapping[str, object]:
    identity, kind, body = check_envelope(data, session.kernel)
    if allowed is not None and kind not in allowed:
        raise RequestError("bad-request", f"{kind} is not a request of this channel")
    if kind == "watch":
        watch(body["visible"])

    def progress(text: str, done: int, total: int) -> None:
        send(envelope(identity, "progress", {"text": text, "done": done, "total": total}))

    reply = session.answer(kind, body, progress)
    return reply if kind in _LARGE else finite(reply)


def _fault(error: Exception) -> RequestError:
    logger.debug("a request of the front end failed", exc_info=error)
    return RequestError(
        "failed", f"{type(error).__name__}: {error}", "This is a fault of hybrid_lab; please report it."
    )


def _work_row(work: WorkUnderWay) -> WorkRow:
    return {
        "id": work.number,
        "title": visible(work.title),
        "part": visible(work.part),
        "seconds": work.seconds,
        "done": work.done,
        "total": work.total,
        "unit": work.unit,
    }


class Comms:
    """All comms that front ends have opened to this kernel. Pushes go to the visible pages."""

    def __init__(self, session: Session):
        self._session = session
        self._open: dict[str, BaseComm] = {}
        self._hidden: set[str] = set()
        self._lock = threading.Lock()
        self._told_of_work = False
        runs.connect(self.push_run)
        progress.listeners.append(self.push_work)
        board.listeners.append(self.push_workers)

    def opened(self, comm: BaseComm, message: object) -> None:
        """The comm target: a front end connects. Its first request is `hello`."""
        with self._lock:
            self._open[comm.comm_id] = comm
        comm.on_msg(
            lambda received: handle(
                self._session, received["content"]["data"], comm.send, watch=lambda visible: self._seen(comm, visible)
            )
        )
        comm.on_close(lambda received: self._forget(comm))
        runs.watch(self.any_visible)

    @property
    def any_open(self) -> bool:
        """Whether a page is connected."""
        return bool(self._open)

    @property
    def any_visible(self) -> bool:
        """Whether a page is visible. A page that never said so counts as seen."""
        return bool(self._open.keys() - self._hidden)

    def push_models(self) -> None:
        """Send the list of models."""
        if self.any_visible:
            self._push("models", self._session.models())

    def push_run(self, run: Run) -> None:
        """Send the state of a training run; its thread must be the main one, which sends for its cell."""
        if self.any_visible and threading.current_thread() is threading.main_thread():
            self._push("curves", {"runs": [run_data(run)]})

    def push_work(self, works: list[WorkUnderWay]) -> None:
        """Send the work under way in the running cell, from any thread."""
        rows = [work for work in works if work.in_cell]
        if self.any_visible and (rows or self._told_of_work):
            self._told_of_work = bool(rows)
            self._push("work", {"works": [_work_row(work) for work in rows]})

    def push_workers(self) -> None:
        """Send the state of the workers, from any thread."""
        if self.any_visible:
            self._push("workers", board.workers)

    def _push(self, kind: str, body: Mapping[str, object]) -> None:
        """Send a push to every visible page; a closed page is removed."""
        with self._lock:
            comms = [comm for identity, comm in self._open.items() if identity not in self._hidden]
        message = envelope("", kind, finite(body))
        for comm in comms:
            try:
                comm.send(message)
            except Exception as error:  # comms of any front end: a missing front end must not stop the others
                logger.debug("a page could not be reached", exc_info=error)
                self._forget(comm)
            finally:
                forget_route(comm)

    def _seen(self, comm: BaseComm, visible: bool) -> None:
        with self._lock:
            (self._hidden.discard if visible else self._hidden.add)(comm.comm_id)
        runs.watch(self.any_visible)

    def _forget(self, comm: BaseComm) -> None:
        with self._lock:
            self._open.pop(comm.comm_id, None)
            self._hidden.discard(comm.comm_id)
        runs.watch(self.any_visible)

    def close(self) -> None:
        """Close all connections; the pages then show that hybrid_lab is not loaded."""
        with self._lock:
            comms, self._open = list(self._open.values()), {}
        for comm in comms:
            comm.close()
        runs.watch(False)
        runs.disconnect(self.push_run)
        progress.listeners.remove(self.push_work)
        board.listeners.remove(self.push_workers)
