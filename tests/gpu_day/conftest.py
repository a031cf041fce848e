"""The package of scripts/gpu_day.py is found as the script finds it."""

import contextlib
import os
import signal
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
for folder in ("benchmarks/cpu", "benchmarks"):
    if str(ROOT / folder) not in sys.path:
        sys.path.append(str(ROOT / folder))


@pytest.fixture
def unkillable(monkeypatch):
    """No process ends when it is killed, as if it waited in the driver of a GPU; they are killed after the test."""
    from gpu_day import pool

    processes, kill = [], os.killpg
    monkeypatch.setattr(pool, "ENDING", 0.1)
    monkeypatch.setattr(os, "killpg", lambda process, how: processes.append(process))
    yield processes
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            kill(process, signal.SIGKILL)
