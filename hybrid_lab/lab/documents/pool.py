"""The Jupyter server's answers about model files: each file is read by a process of its own (see reader.py)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

from hybrid_lab.lab.errors import RequestError

PATIENCE = 60.0
"""Seconds that one request may take."""
IDLE = 120.0
"""Seconds after which a process that nobody asks ends."""
MOST = 4
"""Processes at one time."""
REPLY_LIMIT = 256 << 20
"""Bytes of the largest reply."""

Key = tuple[object, ...]


class Worker:
    """The process of one file. Requests are answered one after another."""

    def __init__(self, path: str):
        # -P: the folder with the user's files is no place to import modules from.
        command = [sys.executable, "-P", "-m", "hybrid_lab.lab.documents.reader", path]
        quiet = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | quiet,
        )
        self._lock = threading.Lock()
        self._idle = _timer(IDLE, self.end)
        self._late = False

    def ask(self, kind: str, body: Mapping[str, object]) -> dict[str, Any]:
        """The reply's body. Raises RequestError: the file's own, or `failed` if the process ended or took too long."""
        with self._lock:
            self._idle.cancel()
            patience = _timer(PATIENCE, self._give_up)
            try:
                line = self._exchange(json.dumps({"type": kind, "body": body}).encode() + b"\n")
            finally:
                patience.cancel()
                self._idle = _timer(IDLE, self.end)
        if not line.endswith(b"\n"):
            self.end()
            raise RequestError("failed", *self._why(line))
        reply = json.loads(line)
        if "error" in reply:
            error = reply["error"]
            raise RequestError(error["code"], error["message"], error["next"], error["details"])
        found: dict[str, Any] = reply["ok"]
        return found

    def _exchange(self, request: bytes) -> bytes:
        """One line of the process; an unfinished one where it ended."""
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(request)
            self._process.stdin.flush()
            return self._process.stdout.readline(REPLY_LIMIT)
        except OSError:
            return b""

    def _why(self, line: bytes) -> tuple[str, str]:
        """Why there is no reply, and what to do next."""
        if self._late:
            return f"reading the file took more than {PATIENCE:.0f} s", "Load it in a notebook instead."
        if line:
            return f"the answer takes more than {REPLY_LIMIT >> 20} MiB", "Load the file in a notebook instead."
        return "the process that reads the file ended: the file is damaged, or needs more memory than there is", ""

    def _give_up(self) -> None:
        self._late = True
        self.end()

    @property
    def is_alive(self) -> bool:
        """Whether the process can still answer."""
        return self._process.poll() is None

    @property
    def is_busy(self) -> bool:
        """Whether a request is being answered."""
        return self._lock.locked()

    def end(self) -> None:
        """End the process."""
        self._idle.cancel()
        self._process.kill()
        self._process.wait()


def _timer(seconds: float, function: Callable[[], None]) -> threading.Timer:
    timer = threading.Timer(seconds, function)
    timer.daemon = True
    timer.start()
    return timer


class Workers:
    """The processes that are running, by file. A file that changed gets a new one."""

    def __init__(self) -> None:
        self._workers: dict[Key, Worker] = {}
        self._lock = threading.Lock()

    def ask(self, path: str, kind: str, body: Mapping[str, object]) -> dict[str, Any]:
        """The reply's body to a request about the file at this path. Raises RequestError, OSError."""
        state = os.stat(path)
        key = (path, state.st_dev, state.st_ino, state.st_mtime_ns, state.st_size)
        with self._lock:
            worker = self._workers.pop(key, None)
            if worker is None or not worker.is_alive:
                self._make_room()
                worker = Worker(path)
            self._workers[key] = worker  # the last one used is the last in the dict
        return worker.ask(kind, body)

    def _make_room(self) -> None:
        """End the processes that were not asked for the longest time, until one more may run."""
        self._workers = {key: worker for key, worker in self._workers.items() if worker.is_alive}
        for key, worker in list(self._workers.items()):
            if len(self._workers) < MOST:
                return
            if not worker.is_busy:
                del self._workers[key]
                worker.end()
        if len(self._workers) >= MOST:
            raise RequestError("failed", f"{MOST} other files are being read", "Try again in a moment.")

    def end(self) -> None:
        """End all processes."""
        with self._lock:
            for worker in self._workers.values():
                worker.end()
            self._workers.clear()
