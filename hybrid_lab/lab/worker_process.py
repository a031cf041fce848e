"""What runs in a worker's process: its place among the workers, and its end when the notebook's kernel ends."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Mapping


def host() -> str:
    """The name of this machine."""
    return socket.gethostname()


def free_port() -> int:
    """A port of this machine that is free now."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def begin(place: Mapping[str, object], folder: str, parent: int, controller: int) -> None:
    """Take a place among the workers: what torchrun would set.

    folder : the notebook's, where this machine has it
    parent, controller : processes of the kernel and of ipyparallel's controller, or 0 if they are on another machine.
        When the kernel ends, so do the controller and this process
    """
    os.environ.update({name: str(value) for name, value in place.items()})
    with contextlib.suppress(OSError):
        os.chdir(folder)
    if parent:
        threading.Thread(target=_end_with, args=(parent, controller), name="kernel", daemon=True).start()


def _end_with(parent: int, controller: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    with contextlib.suppress(OSError):
        os.kill(controller, signal.SIGTERM)
    os._exit(1)


def broken() -> bool:
    """Whether this worker can no longer exchange anything with the others."""
    from hybrid_lab.distributed import group

    joined = group()
    return joined is not None and joined.broken


def rejoin(port: int) -> None:
    """Join the other workers again, at another port, if this one had joined."""
    from hybrid_lab.distributed import group

    os.environ["MASTER_PORT"] = str(port)
    joined = group()
    if joined is not None:
        joined.rejoin()
