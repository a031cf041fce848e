"""How many threads the engines on a CPU use, one number for all engines, and how idle threads wait.

Threads that spin while they wait for work or for each other lose time if other processes keep the cores busy: the
threads they wait for cannot run meanwhile, for milliseconds at every operator.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator, MutableMapping
from pathlib import Path

#: Makes the threads of OpenMP (torch's, with GCC's or LLVM's library) sleep soon after they have nothing to do. GCC's
#: spin 300 times before: a step of an LSTM takes 25 ms so, and 48 without spinning, on idle cores; 45 and 96 ms beside
#: one busy process a core, where spinning without an end takes 1,730.
PASSIVE = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "300", "KMP_BLOCKTIME": "0"}


def thread_count() -> int:
    """The number of processors that this process may use: limited by its affinity, by its container's share, and by
    OMP_NUM_THREADS if set.
    """
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    count = min(count, math.ceil(_quota(count)))
    limit = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    return max(1, min(count, int(limit))) if limit.isdigit() and int(limit) else count


def _quota(otherwise: float, root: str = "/sys/fs/cgroup") -> float:
    """The processors that the container's quota is worth (cgroup v2, then v1), or `otherwise` if it has none."""
    for names in (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")):
        with contextlib.suppress(OSError, ValueError):
            quota, period = " ".join(Path(root, name).read_text() for name in names).split()
            if quota != "max" and int(quota) > 0 and int(period) > 0:
                return int(quota) / int(period)
    return otherwise


@contextlib.contextmanager
def passive_waiting(environment: MutableMapping[str, str] = os.environ) -> Iterator[None]:
    """While an OpenMP library is loaded: have its threads sleep, unless the user's environment says how they wait."""
    added = {} if any(name in environment for name in PASSIVE) else PASSIVE
    environment.update(added)
    try:
        yield
    finally:
        for name in added:
            environment.pop(name, None)
