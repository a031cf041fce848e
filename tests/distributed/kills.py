"""Kill a random worker at a random moment: no other one hangs, and the training resumes as if nothing had happened.

python -m tests.distributed.kills 100 [SIZE] [SEED]
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import numpy as np

from .test_checkpoints import body
from .workers import _WORKER, ROOT, environment, free_port, results

PATIENCE = 120.0
"""Seconds after which the others will never end."""


def start(script: Path, size: int) -> list[subprocess.Popen[bytes]]:
    port = free_port()
    return [
        subprocess.Popen(
            [sys.executable, str(script), str(rank), str(size), str(script.with_suffix(f".{rank}.pickle"))],
            env=environment(rank, size, port),
            stdout=subprocess.DEVNULL,
            stderr=open(script.with_suffix(f".{rank}.log"), "wb"),
        )
        for rank in range(size)
    ]


def main() -> int:
    count, size, seed = ([*map(int, sys.argv[1:]), *(0, 0, 0)])[:3]
    size, draws, failed = size or 2, random.Random(seed), 0
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home)
        begun = time.monotonic()
        whole = results(size, body(folder / "whole"), folder)
        lasts = time.monotonic() - begun
        for number in range(count):
            work = folder / f"run{number}"
            work.mkdir()
            script = work / "worker.py"
            script.write_text(
                _WORKER.format(root=str(ROOT), body=textwrap.indent(textwrap.dedent(body(work / "points")), "    "))
            )
            workers = start(script, size)
            lost, moment = draws.randrange(size), draws.uniform(0.1, 1.0) * lasts
            time.sleep(moment)
            logs = [script.with_suffix(f".{rank}.log") for rank in range(size)]
            joined = all("joined" in log.read_text() for log in logs)
            ended_before = workers[lost].poll() is not None
            workers[lost].kill()
            since, problems = time.monotonic(), []
            if not joined:  # workers that have not met know nothing of each other: the launcher ends them
                for each in workers:
                    each.terminate()
            while any(each.poll() is None for each in workers) and time.monotonic() - since < PATIENCE:
                time.sleep(0.05)
            took = time.monotonic() - since
            left = [rank for rank, each in enumerate(workers) if each.poll() is None]
            for each in workers:
                each.kill()
                each.wait()
            if left:
                problems.append(f"left after {PATIENCE:g} s: {left}")
            resumed = results(size, body(work / "points"), work, timeout=600)
            for (values, _), (expected, _) in zip(resumed, whole, strict=True):
                if not all(np.array_equal(values[name], expected[name]) for name in expected):
                    problems.append("the resumed training ended with other values")
            failed += bool(problems)
            state = "after its end" if ended_before else f"at {moment:.1f} of {lasts:.1f} s"
            state += "" if joined else ", before all had joined"
            print(f"{number}: rank {lost} {state}; the others ended after {took:.1f} s {problems or ''}", flush=True)
    print(f"{count} kills, {failed} failed")
    return failed


if __name__ == "__main__":
    sys.exit(main())
