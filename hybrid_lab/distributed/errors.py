"""The errors of training in several processes."""

from __future__ import annotations

from collections.abc import Sequence

from hybrid_lab.diagnostics.errors import HybridLabError


class WorkersError(HybridLabError, RuntimeError):
    """Workers that cannot be started, or do not find each other."""


class WorkerLostError(WorkersError):
    """A worker ended or its machine is gone, so that the others cannot go on.

    ranks, hosts : the lost workers and their machines; empty if it is not known which ended
    """

    def __init__(self, message: str, ranks: Sequence[int] = (), hosts: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.ranks, self.hosts = tuple(ranks), tuple(hosts)


class WorkersDifferError(WorkersError):
    """The workers do not do the same: other parameters, shapes or dtypes, or values that have drifted apart."""


class WorkerTimeoutError(WorkersError):
    """Workers waited longer than the time-out for other workers, which are alive but did not take part."""
