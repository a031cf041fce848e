"""A worker that ends, fails or is busy: the others say so in time, and no process is left."""

from __future__ import annotations

import re
import socket
import threading
import time

import pytest

pytest.importorskip("torch")

from hybrid_lab.distributed.errors import WorkerLostError
from hybrid_lab.distributed.launchers import WorkerIdentity
from hybrid_lab.distributed.watch import Watch
from hybrid_lab.distributed.worker_group import Group
from tests.distributed.workers import ALL, results, run

_LOSE = """
import os, signal, time
kv = mx.kv.create("dist_sync")
values = nd.ones((1000,))
for _ in range(3):
    kv.pushpull("w", values)
try:
    {before}
    while True:
        kv.pushpull("w", values)
except mx.distributed.WorkersError as error:
    return type(error).__name__, str(error), getattr(error, "ranks", None)
"""
WAYS = {
    "killed": "if rank == {lost}: os.kill(os.getpid(), signal.SIGKILL)",
    "exits": "if rank == {lost}: os._exit(3)",
    "ends": "if rank == {lost}: return None",
    "raises": "if rank == {lost}: raise ValueError('a mistake')",
    "killed in an exchange": """if rank == {lost}:
        import threading
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGKILL)).start()""",
}


@pytest.mark.parametrize(
    ("way", "lost"),
    [(way, lost) for way in WAYS for lost in range(3) if ALL or (way, lost) in (("killed", 1), ("raises", 0))],
)
def test_a_lost_worker_is_named(way, lost, tmp_path):
    ended = run(3, _LOSE.format(before=WAYS[way].format(lost=lost)), tmp_path)
    for rank, each in enumerate(ended):
        if rank != lost:
            assert each.code == 0, each.output
            kind, message, ranks = each.result
            assert kind == "WorkerLostError"  # and not the end of the patience with a slow one
            assert ranks == (lost,), message
            assert f"rank {lost} on " in message
    if way == "raises":
        assert all("ValueError: a mistake" in each.result[1] for rank, each in enumerate(ended) if rank != lost)
        assert ended[lost].output.count("ValueError: a mistake") == 1


class Exchange:
    """Ends just after a wait for it has run out of time."""

    def __init__(self, error):
        self._error, self._waits = error, 0

    def wait(self, timeout=None):
        self._waits += 1
        if self._waits == 1:
            raise RuntimeError("Operation timed out!")
        if self._error is not None:
            raise self._error

    def is_completed(self):
        return self._waits > 0


def test_an_exchange_that_ends_after_the_last_look_has_not_failed():
    group = Group(WorkerIdentity(0, 2, 0, 2, "", 0, "test"), "gloo", None)
    group._wait(Exchange(None))
    assert not group.broken
    with pytest.raises(WorkerLostError, match="Connection reset"):
        group._wait(Exchange(RuntimeError("Connection reset")))
    assert group.broken


def test_who_leaves_because_of_another_is_not_the_one_that_is_gone():
    watch = Watch.__new__(Watch)
    watch.lost, watch.ended, watch.why, watch.changed = {}, {}, {}, threading.Event()
    watch._note("left", 1, "a", "ValueError: a mistake")
    watch._note("left", 0, "b", "WorkerLostError: rank 1", follows=True)
    assert (watch.ended, watch.why) == ({1: "a"}, {1: "ValueError: a mistake"})


class Board(dict):
    """The part of torch's store that a Watch needs."""

    def set(self, key, value):
        self[key] = value

    def get(self, key):
        return self[key].encode()


@pytest.mark.parametrize("way", ["lost", "left"])
def test_all_hear_who_was_gone_first_also_where_rank_0_ends_at_once(way):
    board = Board()
    first, second, third = (Watch(rank, 3, board, "127.0.0.1", "token") for rank in range(3))
    while len(first._sockets) < 2:
        time.sleep(0.01)

    class Ends(threading.Event):
        def set(self):
            super().set()
            first.close("WorkerLostError: rank 1")  # as the main thread does when it hears of it

    first.changed = Ends()
    if way == "left":
        second.close()
    else:
        second._closed = True
        second._listener.shutdown(socket.SHUT_RDWR)
    third._told.join(30)
    assert [*first.lost, *first.ended] == [1]
    assert [*third.lost] == ([1] if way == "lost" else []) and [*third.ended] == ([] if way == "lost" else [1])
    third.close()


@pytest.mark.long
def test_a_busy_worker_is_not_lost(tmp_path):
    body = """
    import os, time
    os.environ["HYBRID_LAB_WORKERS_TIMEOUT"] = "2"
    kv = mx.kv.create("dist_sync")
    while rank == 1 and not os.path.exists("given up"):  # alive, and elsewhere
        time.sleep(0.01)
    try:
        kv.barrier()
    except mx.distributed.WorkersError as error:
        open("given up", "w").close()
        return type(error).__name__, str(error)
    """
    found = results(2, body, tmp_path)
    assert found[0][0] == "WorkerTimeoutError"
    assert "HYBRID_LAB_WORKERS_TIMEOUT" in found[0][1]


@pytest.mark.long
def test_strangers_at_the_door_change_nothing(tmp_path):
    """Who connects to the port of the watch without the token is not heard."""
    body = """
    import socket, time
    kv = mx.kv.create("dist_sync")
    if rank == 0:
        port = kv.group._watch._listener.getsockname()[1]
        for told in (b"", b"GET / HTTP/1.1\\r\\n\\r\\n", b'{"token": "x", "rank": 1}\\n', b"x" * 10000):
            with socket.create_connection(("127.0.0.1", port)) as stranger:
                stranger.sendall(told)
        while not kv.group._watch._sockets:
            time.sleep(0.01)
    time.sleep(0.5)
    kv.barrier()
    return sorted(kv.group._watch.lost), sorted(kv.group._watch._sockets.values())
    """
    assert results(2, body, tmp_path) == [([], [(1, socket.gethostname())]), ([], [])]


@pytest.mark.long
def test_workers_that_never_come(tmp_path):
    body = """
    from hybrid_lab.distributed import worker_group
    worker_group.START_TIMEOUT = 3
    try:
        mx.kv.create("dist_sync")
    except mx.distributed.WorkersError as error:
        return str(error)
    """
    from tests.distributed.workers import environment, free_port

    ended = run(1, body, tmp_path, environments=[environment(1, 2, free_port())])
    assert re.search(r"rank 1 of 2 did not find the others at 127.0.0.1:\d+ within 3 s", ended[0].result), ended
    ended = run(1, body, tmp_path, environments=[environment(0, 2, free_port())])
    assert "rank 0 of 2 did not find the others" in ended[0].result, ended
