"""How many threads the engines on a CPU use: one number for all of them."""

from __future__ import annotations

import os


def thread_count() -> int:
    """The processors that this process may run on; OMP_NUM_THREADS, where it is set, limits them."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limit = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    return max(1, min(count, int(limit))) if limit.isdigit() and int(limit) else count
