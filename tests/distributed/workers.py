"""Runs a piece of code on several workers of this machine, as torchrun does, and gives what each of them returned."""

from __future__ import annotations

import os
import pickle
import socket
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
ALL = os.environ.get("HYBRID_LAB_WORKERS") == "all"
"""`make test-workers` runs all of these tests; `make test` a part, since each starts processes that import torch."""

_WORKER = """
import pickle, sys
sys.path.insert(0, {root!r})
import numpy as np
import hybrid_lab as mx
from hybrid_lab import autograd, gluon, nd
from hybrid_lab.gluon import nn, rnn
import tests.distributed.nets as nets

def main(rank, size):
{body}

rank, size = int(sys.argv[1]), int(sys.argv[2])
result = main(rank, size)
with open(sys.argv[3], "wb") as file:
    pickle.dump(result, file)
"""


class Ended(NamedTuple):
    """One worker. code : its exit status; output : what it printed; result : what `main` returned, or None"""

    code: int
    output: str
    result: Any


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def environment(rank: int, size: int, port: int) -> dict[str, str]:
    """What torchrun sets."""
    places = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size, "MASTER_PORT": port}
    settings = {"MASTER_ADDR": "127.0.0.1", "OMP_NUM_THREADS": "1", "ORT_DISABLE_TELEMETRY": "1"}
    settings["HYBRID_LAB_EARLY_SUMS"] = "1"  # on a machine of any size
    own = {name: value for name, value in os.environ.items() if not name.startswith(("OMPI_", "SLURM_", "PMI_"))}
    return {**own, **settings, **{name: str(value) for name, value in places.items()}}


def run(
    size: int, body: str, folder: Path, timeout: float = 120, environments: list[dict[str, str]] | None = None
) -> list[Ended]:
    """Run the body of `main(rank, size)` in `size` processes. None of them outlives the call."""
    script = folder / f"worker{len(list(folder.iterdir()))}.py"
    script.write_text(_WORKER.format(root=str(ROOT), body=textwrap.indent(textwrap.dedent(body), "    ")))
    port = free_port()
    started = []
    for rank in range(size):
        result, log = script.with_suffix(f".{rank}.pickle"), open(script.with_suffix(f".{rank}.log"), "w+")
        variables = environment(rank, size, port) if environments is None else {**os.environ, **environments[rank]}
        command = [sys.executable, str(script), str(rank), str(size), str(result)]
        process = subprocess.Popen(command, env=variables, stdout=log, stderr=subprocess.STDOUT, cwd=folder)
        started.append((process, log, result))
    ended = []
    try:
        for process, log, result in started:
            code = process.wait(timeout)
            log.seek(0)
            value = pickle.loads(result.read_bytes()) if result.exists() else None
            ended.append(Ended(code, log.read(), value))
    finally:
        for process, log, _ in started:
            process.kill()
            process.wait()
            log.close()
    return ended


def results(size: int, body: str, folder: Path, **options: Any) -> list[Any]:
    """`run`, where every worker must come to its end."""
    ended = run(size, body, folder, **options)
    failed = [f"rank {rank} ended with {each.code}:\n{each.output}" for rank, each in enumerate(ended) if each.code]
    assert not failed, "\n".join(failed)
    return [each.result for each in ended]
