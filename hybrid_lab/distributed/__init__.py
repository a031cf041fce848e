"""Training in several processes: the workers, joined by torch.distributed, and the store that sums their gradients."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from hybrid_lab.system.provided import Provided

from .agreement import check
from .errors import WorkerLostError, WorkersDifferError, WorkersError, WorkerTimeoutError
from .first import on_first
from .totals import mean
from .worker_group import Group, group, start

__all__ = [
    "Group",
    "WorkerLostError",
    "WorkerTimeoutError",
    "WorkersDifferError",
    "WorkersError",
    "check",
    "group",
    "join",
    "mean",
    "on_first",
    "start",
]

join: Provided[..., AbstractContextManager[Any]] = Provided("distributed_join")
"""Around an epoch in which workers have different numbers of batches: see `gluon.joined.join`."""
