"""What rank 0 does for all workers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from hybrid_lab.diagnostics.errors import HybridLabError
from hybrid_lab.diagnostics.formatting import first_line

from .worker_group import group

Result = TypeVar("Result")


def on_first(action: Callable[[], Result]) -> Result:
    """Run an action on rank 0 alone, such as writing a file, while the others wait; every worker calls it.

    action : returns None, or what JSON holds, which all workers get
    A process alone runs it. Raises the action's error on rank 0, and then HybridLabError in the other workers;
    WorkerLostError, WorkerTimeoutError.

    Example: `mx.distributed.on_first(lambda: net.save("net.hlab"))`.
    """
    joined = group()
    if joined is None or joined.size == 1:
        return action()
    result: Any = None
    failure: Exception | None = None
    if joined.rank == 0:
        try:
            result = action()
        except Exception as error:
            failure = error
    told = joined.gather([result, "" if failure is None else f"{type(failure).__name__}: {first_line(failure)}"])
    if failure is not None:
        raise failure
    first: Result
    first, why = told[0]
    if why:
        raise HybridLabError(f"rank 0 could not do it for all workers: {why}")
    return first
