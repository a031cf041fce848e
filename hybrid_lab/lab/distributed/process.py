"""What runs in a worker's process: its place among the workers, and its end when the notebook's kernel ends."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hybrid_lab.gluon import Block


def facts() -> tuple[str, int, str, str]:
    """(name of this machine, process, device, memory)."""
    from hybrid_lab.lab.distributed import news

    return socket.gethostname(), os.getpid(), news.device(), news.memory()


def free_port() -> int:
    """A port of this machine that is free now."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def begin(place: Mapping[str, object], folder: str, parent: int, controller: int) -> None:
    """Take a place among the workers: what torchrun would set.

    folder : the notebook's, if this machine has it
    parent, controller : processes of the kernel and of ipyparallel's controller, or 0 if they are on another machine.
        The controller and this process end with the kernel
    """
    os.environ.update({name: str(value) for name, value in place.items()})
    with contextlib.suppress(OSError):
        os.chdir(folder)
    from hybrid_lab.lab.distributed.news import Reporter
    from hybrid_lab.lab.training.current import runs

    runs.connect(Reporter())
    runs.watch(True)
    if parent:
        threading.Thread(target=_end_with, args=(parent, controller), name="kernel", daemon=True).start()


def _end_with(parent: int, controller: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    with contextlib.suppress(OSError):
        os.kill(controller, signal.SIGTERM)
    os._exit(1)


def number_cell(number: int) -> None:
    """Give the next cell the number that it has in the notebook."""
    from IPython.core.getipython import get_ipython

    shell = get_ipython()
    if shell is not None:
        shell.execution_count = max(shell.execution_count, number)


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


def answer(kind: str, body: dict[str, Any]) -> tuple[bool, Mapping[str, object]]:
    """(whether it is a reply, the body of the reply or the error): the answer of this worker's lab to a request."""
    from IPython.core.getipython import get_ipython

    from hybrid_lab.lab.errors import RequestError
    from hybrid_lab.lab.kernel.comm import finite
    from hybrid_lab.lab.kernel.hooks import lab_of

    lab = lab_of(get_ipython())
    try:
        if lab is None:
            raise RequestError("failed", "this worker has no lab: HYBRID_LAB_NO_HOOKS is set")
        if kind in _RUNNING and _exchanges(lab.session.registry.get(body["model"]).block):
            raise RequestError("failed", "a SyncBatchNorm of this model waits for the other workers, which do not run")
        return True, finite(lab.session.ask(kind, body))
    except RequestError as error:
        return False, error.body()


_RUNNING = ("overlay", "share")
"""Requests that run a model."""


def _exchanges(block: Block) -> bool:
    """Whether calls of a Block exchange something with the other workers."""
    from hybrid_lab.gluon.contrib.nn import SyncBatchNorm
    from hybrid_lab.insight.states import blocks_below

    return any(isinstance(each, SyncBatchNorm) for each in (block, *blocks_below(block)))
