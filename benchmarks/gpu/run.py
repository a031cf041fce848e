"""`make bench-gpu`: workloads on the GPU beside torch eager and torch.compile -> results/gpu-*-<GPU>.md.

Each runtime has a process of its own per workload. They take turns, several rounds; medians of rounds are compared.
ARGS="--only lenet" measures workloads whose name contains a text, ARGS="--runtimes hybrid,'torch eager'" a part. All of
it takes more than an hour, most of which are max-autotune's; ARGS="--minutes 9" stops after so many.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[1])]
from harness import Worker, write_table  # noqa: E402

#: name -> batch. Sizes that notebooks have, and some that fill a GPU.
WORKLOADS = {
    "lenet": 64,
    "lenet, large": 1024,
    "mlp": 256,
    "resnet18": 32,
    "resnet50": 32,
    "mobilenet1.0": 32,
    "lstm 2x200": 32,
    "encoder 6 layers": 32,
    "gelu, layernorm, softmax": 4096,
}
#: Seconds that an answer may take; max-autotune compiles a large network for minutes.
LIMIT = 900.0
RUNTIMES = ("eager", "hybrid", "hybrid captured", "torch eager", "torch.compile", "torch.compile max-autotune")


def start(runtime: str, workload: str, cache: str) -> Worker:
    """A runtime with a workload (see worker.py)."""
    environment = os.environ | {
        "HYBRID_LAB_CACHE": f"{cache}/hybrid_lab",
        "TORCHINDUCTOR_CACHE_DIR": f"{cache}/inductor",
        "TRITON_CACHE_DIR": f"{cache}/triton",
    }
    return Worker([sys.executable, str(HERE / "worker.py"), runtime, workload, str(WORKLOADS[workload])], environment)


def ask(worker: Worker, deadline: float, **request: Any) -> Any:
    """The worker's answer; None where it died, or was ended because it took longer than LIMIT or until the deadline."""
    timer = threading.Timer(max(min(LIMIT, deadline - time.perf_counter()), 0), worker.process.kill)
    timer.start()
    try:
        return worker.ask(**request)
    finally:
        timer.cancel()


def ended(worker: Worker) -> str:
    """Why a worker is no longer there, or ""."""
    why = worker.end()
    return "it took too long" if worker.process.returncode == -signal.SIGKILL else why


def measure(
    workload: str, mode: str, runtimes: list[str], seconds: float, rounds: int, deadline: float
) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """(runtime -> {ms, first, warm, kernels, memory}, runtime -> why it has no figure) for one workload.

    first : seconds of the first call in a fresh process; warm : in a second one, with the disk caches filled
    deadline : when whoever is still at it is ended, on time.perf_counter()'s clock
    """
    found: dict[str, dict[str, Any]] = {}
    failed: dict[str, str] = {}
    workers: dict[str, Worker] = {}
    folder = tempfile.mkdtemp(prefix="bench")
    try:
        for runtime in runtimes:
            cache = f"{folder}/{re.sub('[^a-z]', '-', runtime)}"
            cold = start(runtime, workload, cache)
            first = ask(cold, deadline, do="first", mode=mode)
            if first is None:
                failed[runtime] = ended(cold)
                continue
            cold.end()
            workers[runtime] = start(runtime, workload, cache)
            found[runtime] = {"first": first, "warm": ask(workers[runtime], deadline, do="first", mode=mode)}
        times: dict[str, list[float]] = {runtime: [] for runtime in workers}
        for _ in range(rounds):
            for runtime, worker in workers.items():
                answer = ask(worker, deadline, do="time", mode=mode, seconds=seconds)
                if answer is not None:
                    times[runtime].append(answer[0])
        for runtime, worker in workers.items():
            found[runtime]["ms"] = statistics.median(times[runtime]) if times[runtime] else None
            found[runtime]["memory"] = ask(worker, deadline, do="device memory")
            found[runtime]["kernels"] = ask(worker, deadline, do="kernels") if mode == "train" else None
    finally:
        for runtime, worker in workers.items():
            if why := ended(worker):
                failed[runtime] = why
        shutil.rmtree(folder, ignore_errors=True)
    return found, failed


def row(workload: str, found: dict[str, dict[str, Any]], runtimes: list[str]) -> list[str]:
    """Times, and the best of ours beside torch.compile with max-autotune and beside torch eager."""
    cells = [f"{workload} b{WORKLOADS[workload]}"]
    times = {name: found.get(name, {}).get("ms") for name in runtimes}
    cells += ["" if times[name] is None else f"{times[name]:.3g}" for name in runtimes]
    ours = min((times[name] for name in runtimes if name.startswith("hybrid") and times[name]), default=None)
    for rival in ("torch.compile max-autotune", "torch eager"):
        cells.append(f"{times[rival] / ours:.2f}" if ours and times.get(rival) else "")
    return cells


def details(workload: str, found: dict[str, dict[str, Any]], runtimes: list[str]) -> list[str]:
    cells = [f"{workload} b{WORKLOADS[workload]}"]
    for runtime in runtimes:
        each = found.get(runtime)
        if each is None or each["warm"] is None:
            cells.append("")
            continue
        parts = [f"{each['first']:.2f} / {each['warm']:.2f} s"]
        parts += [f"{each['kernels']} kernels"] if each.get("kernels") is not None else []
        parts += [f"{each['memory']:.0f} MiB"] if each.get("memory") is not None else []
        cells.append(", ".join(parts))
    return cells


def mean(rows: list[list[str]], column: int) -> str:
    values = [float(cells[column]) for cells in rows if cells[column]]
    return f"{statistics.geometric_mean(values):.2f}" if values else ""


def gpu() -> str:
    """The GPU's name, or why there is none."""
    import torch

    if not torch.cuda.is_available():
        raise SystemExit("bench-gpu needs a GPU that torch reaches; `hybrid-lab env` says what is missing here")
    return torch.cuda.get_device_name(0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="workloads whose name contains this")
    parser.add_argument("--mode", choices=("infer", "train"), help="only forward, or only training steps")
    parser.add_argument("--runtimes", default=",".join(RUNTIMES), help="comma-separated")
    parser.add_argument("--seconds", type=float, default=0.3, help="per runtime and round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after so many, with what there is")
    options = parser.parse_args()
    deadline = time.perf_counter() + 60 * options.minutes
    runtimes = options.runtimes.split(",")
    name = gpu()
    label = re.sub(r"\W+", "-", name).strip("-").lower()
    whole = not options.only and runtimes == list(RUNTIMES) and deadline == float("inf")
    part = "" if whole else "-part"
    for mode in (options.mode,) if options.mode else ("infer", "train"):
        rows, firsts, notes = [], [], []
        for workload in WORKLOADS:
            if options.only not in workload or time.perf_counter() > deadline:
                continue
            found, failed = measure(workload, mode, runtimes, options.seconds, options.rounds, deadline)
            notes += [f"{workload}, {runtime}: {why}" for runtime, why in failed.items()]
            rows.append(row(workload, found, runtimes))
            firsts.append(details(workload, found, runtimes))
            # Written after every workload: what was measured stays, whatever happens to the rest.
            head = ["workload", *runtimes, "max-autotune / ours", "torch eager / ours"]
            means = ["geometric mean", *[""] * len(runtimes), mean(rows, -2), mean(rows, -1)]
            what = "Prediction" if mode == "infer" else "Training step (SGD with momentum)"
            told = f"{name}. Medians of {options.rounds} interleaved rounds; above 1 ours is faster. No tf32."
            told += "".join(f"\nNo figure: {note}" for note in notes)
            write_table(f"gpu-{mode}-{label}{part}", f"{what} on {name}, ms", head, [*rows, means], told)
            write_table(
                f"gpu-first-call-{mode}-{label}{part}", f"First calls, kernels and memory on {name}",
                ["workload", *runtimes], firsts,
                "First call in a fresh process / in a second one with the disk caches filled; kernels of one step; "
                "memory of the device.",
            )  # fmt: skip


if __name__ == "__main__":
    main()
