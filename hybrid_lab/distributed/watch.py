"""Who is still there: a connection of each worker to rank 0, by which the end of a process is noticed at once.

The kernel of a machine closes the connections of a process that ends, however it ends. A process that computes for
minutes keeps them open. This tells a lost worker from a busy worker, which a heartbeat cannot.
"""

from __future__ import annotations

import json
import os
import selectors
import socket
import threading
from collections.abc import Callable
from typing import Any, Protocol

_KEEP_ALIVE = ("TCP_KEEPIDLE", 3), ("TCP_KEEPINTVL", 1), ("TCP_KEEPCNT", 3)
"""After six seconds without an answer a machine counts as gone: nothing closes its connections."""
_LONGEST = 4096
"""Bytes of a message; a longer one is not from a worker."""


class Store(Protocol):
    """The part of torch's stores that is needed here."""

    def set(self, key: str, value: str) -> None:
        """Let the other workers read a text."""

    def get(self, key: str) -> bytes:
        """Wait for a text that a worker has set, and read it."""


class Watch:
    """Notices which workers end.

    lost : rank -> machine of each worker that ended without saying so; ended : rank -> machine of each worker that left
        in an orderly way, except for workers that left because others had gone
    why : rank -> the error that ended a worker, if it reported one
    changed : an event, set when `lost` or `ended` grows
    """

    def __init__(self, rank: int, size: int, store: Store, address: str, token: str) -> None:
        self.lost: dict[int, str] = {}
        self.ended: dict[int, str] = {}
        self.why: dict[int, str] = {}
        self.changed = threading.Event()
        self._rank, self._closed = rank, False
        self._sockets: dict[socket.socket, tuple[int, str]] = {}
        self._hello = json.dumps({"token": token, "rank": rank, "host": socket.gethostname()}).encode() + b"\n"
        if rank == 0:
            listener = socket.create_server(("" if address not in _LOCAL else address, 0), backlog=size)
            store.set("watch", str(listener.getsockname()[1]))
            target: Callable[[Any], None] = self._hub
            self._listener, self._token, self._size = listener, token, size
        else:
            port = int(store.get("watch"))
            connection = socket.create_connection((address, port), timeout=30)
            connection.settimeout(None)
            _keep_alive(connection)
            connection.sendall(self._hello)
            self._listener, target = connection, self._spoke
        # A fork would keep the connection open after the end of this process.
        os.register_at_fork(after_in_child=self._forked)
        self._told = threading.Thread(target=target, args=(self._listener,), name="workers", daemon=True)
        self._told.start()

    def close(self, why: str = "") -> None:
        """Leave in an orderly way: the other workers then know that this worker ended by itself.

        why : the error that ended it, or empty
        """
        if self._closed:
            return
        self._closed = True
        told: dict[str, object] = {"why": why[: _LONGEST // 8], "host": socket.gethostname()}
        told["left" if self._rank == 0 else "bye"] = self._rank
        told["follows"] = bool(self.lost or self.ended)
        message = json.dumps(told).encode() + b"\n"
        for connection in [*self._sockets] if self._rank == 0 else [self._listener]:
            try:
                connection.sendall(message)
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        try:
            self._listener.close()
        except OSError:
            pass

    def _forked(self) -> None:
        self._closed = True
        for connection in [self._listener, *self._sockets]:
            connection.close()

    # -- rank 0 --------------------------------------------------------------------------------------------------

    def _hub(self, listener: socket.socket) -> None:
        """Accept the other workers; tell all workers when a worker is gone."""
        with selectors.DefaultSelector() as selector:
            selector.register(listener, selectors.EVENT_READ)
            while not self._closed:
                try:
                    ready = selector.select()
                except (OSError, ValueError):
                    return
                for key, _ in ready:
                    connection = key.fileobj
                    assert isinstance(connection, socket.socket)
                    if connection is listener:
                        self._accept(listener, selector)
                    else:
                        self._heard(connection, selector)

    def _accept(self, listener: socket.socket, selector: selectors.BaseSelector) -> None:
        try:
            connection, _ = listener.accept()
            connection.settimeout(10)
            told = json.loads(_line(connection))
            if told["token"] != self._token or not 0 < int(told["rank"]) < self._size:
                raise ValueError("not a worker")
        except (OSError, ValueError, KeyError, TypeError):
            return
        connection.settimeout(None)
        _keep_alive(connection)
        self._sockets[connection] = int(told["rank"]), str(told["host"])[:200]
        selector.register(connection, selectors.EVENT_READ)

    def _heard(self, connection: socket.socket, selector: selectors.BaseSelector) -> None:
        try:
            message = json.loads(_line(connection))  # one message is all that a worker sends: that it leaves
            why, follows = str(message.get("why", "")), bool(message.get("follows"))
        except (OSError, ValueError, AttributeError):
            message, why, follows = None, "", False
        selector.unregister(connection)
        rank, host = self._sockets.pop(connection)
        connection.close()
        if self._closed:  # the end of this worker ends the connections
            return
        kind = "lost" if message is None else "left"
        told = json.dumps({kind: rank, "host": host, "why": why, "follows": follows}).encode() + b"\n"
        for other in [*self._sockets]:
            try:
                other.sendall(told)
            except OSError:  # its own end is noticed next
                pass
        # Last: with this the program may end, and then the others hear only of the end of this process.
        self._note(kind, rank, host, why, follows)

    # -- the others ----------------------------------------------------------------------------------------------

    def _spoke(self, connection: socket.socket) -> None:
        """Hear from rank 0 who is gone, or notice that rank 0 is."""
        try:
            host = connection.getpeername()[0]
            while line := _line(connection):
                told = json.loads(line)
                kind = "left" if "left" in told else "lost"
                why, follows = str(told.get("why", "")), bool(told.get("follows"))
                self._note(kind, int(told[kind]), str(told.get("host", host)), why, follows)
                if told[kind] == 0:
                    return
        except (OSError, ValueError, KeyError, TypeError):
            host = ""
        if not self._closed:
            self._note("lost", 0, host)

    def _note(self, kind: str, rank: int, host: str, why: str = "", follows: bool = False) -> None:
        """follows : it left because others had gone, of which rank 0 has told before"""
        if follows and (self.lost or self.ended):
            return
        if why:
            self.why[rank] = why
        (self.ended if kind == "left" else self.lost)[rank] = host
        self.changed.set()


_LOCAL = ("127.0.0.1", "localhost", "::1")


def _line(connection: socket.socket) -> bytes:
    """The next line, without its end; empty at the end of the connection."""
    read = bytearray()
    while (byte := connection.recv(1)) not in (b"", b"\n"):
        read += byte
        if len(read) > _LONGEST:
            raise ValueError("a message that is too long")
    return bytes(read)


def _keep_alive(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEP_ALIVE:
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
