"""The comm between front end and kernel: envelopes in, exactly one reply out, pushes to every page that is open."""

from __future__ import annotations

import math
import threading
from typing import Any

from hybrid_lab.lab.errors import RequestError
from hybrid_lab.lab.schema import PROTOCOL, check_envelope
from hybrid_lab.lab.session import Session

TARGET = "hybrid_lab"


def envelope(identity: str, kind: str, body: dict[str, Any]) -> dict[str, Any]:
    """A message of the protocol; numbers that are not finite become null."""
    return {"hybrid_lab": PROTOCOL, "id": identity, "type": kind, "body": finite(body)}


def forget_route(comm: Any) -> None:
    """Let the front end's next messages come on their own subshell again, after a send from the main thread.

    ipykernel 7.4 delivers a comm's messages to the thread that last sent on it, so they would wait for the running cell.
    """
    comm.__dict__.pop("_reply_subshell_id", None)


def finite(item: Any) -> Any:
    if isinstance(item, float):
        return item if math.isfinite(item) else None
    if isinstance(item, dict):
        return {key: finite(value) for key, value in item.items()}
    if isinstance(item, (list, tuple)):
        return [finite(value) for value in item]
    return item


def handle(session: Session, data: Any, send: Any, allowed: frozenset[str] | None = None) -> None:
    """Answer one message through `send(envelope)`. allowed : the requests of this channel, None for all."""
    try:
        identity, kind, _, body = check_envelope(data)
    except RequestError as error:
        send(envelope(getattr(error, "request_id", ""), "error", error.body()))
        return
    try:
        if allowed is not None and kind not in allowed:
            raise RequestError("bad-request", f"{kind} is not a request of this channel")

        def progress(text: str, done: int, total: int) -> None:
            send(envelope(identity, "progress", {"text": text, "done": done, "total": total}))

        reply = session.answer(kind, body, progress)
    except RequestError as error:
        send(envelope(identity, "error", error.body()))
        return
    send(envelope(identity, "ok", reply))


class Comms:
    """All comms that front ends have opened to this kernel."""

    def __init__(self, session: Session):
        self._session = session
        self._open: dict[str, Any] = {}
        self._lock = threading.Lock()

    def opened(self, comm: Any, message: Any) -> None:
        """The comm target: a front end connects. Its first request is `hello`."""
        with self._lock:
            self._open[comm.comm_id] = comm
        comm.on_msg(lambda msg: handle(self._session, msg["content"]["data"], comm.send))
        comm.on_close(lambda msg: self._open.pop(comm.comm_id, None))

    def push_models(self) -> None:
        """Send the list of models to every page."""
        with self._lock:
            comms = list(self._open.values())
        if not comms:
            return
        message = envelope("", "models", self._session.models())
        for comm in comms:
            comm.send(message)
            forget_route(comm)

    def close(self) -> None:
        with self._lock:
            comms, self._open = list(self._open.values()), {}
        for comm in comms:
            comm.close()
