"""Whether the sums of gradients begin in the backward pass, or in the step."""

from __future__ import annotations

import os

from hybrid_lab.diagnostics.errors import SettingError

from .launchers import WorkerIdentity

SETTING = "HYBRID_LAB_EARLY_SUMS"
"""Environment variable: "1" begins sums in the backward pass, "0" in the step; else the rule of `begin_early` holds."""


def begin_early(identity: WorkerIdentity, backend: str) -> bool:
    """Whether early sums pay for this worker: on a GPU; with workers on several machines, because a sum then mostly
    waits for the network; or if each worker of this machine has a processor that does not compute.

    Without one, gloo's threads take their time from the backward pass, and early sums only cost copies.
    Raises SettingError for another value of HYBRID_LAB_EARLY_SUMS.
    """
    chosen = os.environ.get(SETTING, "")
    if chosen in ("0", "1"):
        return chosen == "1"
    if chosen:
        raise SettingError(f"{SETTING} is {chosen!r}; it is 1 or 0")
    if "nccl" in backend or identity.local_size < identity.size:
        return True
    processors = processor_count()
    return processors - identity.local_size * threads_of_worker(identity, processors) >= identity.local_size


def processor_count() -> int:
    """Processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def threads_of_worker(identity: WorkerIdentity, processors: int) -> int:
    """Threads that each worker of this machine computes with: OMP_NUM_THREADS, which torchrun sets to 1; else all."""
    text = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    return int(text) if text.isdecimal() and int(text) > 0 else processors
