"""Training in several processes: the workers, joined by torch.distributed, and the store that sums their gradients."""

from __future__ import annotations

from .agreement import check
from .errors import WorkerLostError, WorkersDifferError, WorkersError, WorkerTimeoutError
from .worker_group import Group, group, start

__all__ = [
    "Group",
    "WorkerLostError",
    "WorkerTimeoutError",
    "WorkersDifferError",
    "WorkersError",
    "check",
    "group",
    "start",
]
