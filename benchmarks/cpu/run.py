"""`make bench-cpu`: every workload beside MXNet, torch, torch.compile and onnxruntime, in one run -> results/cpu-*.md.

Each runtime has a process of its own per workload. They take turns, several rounds, so that a busy machine slows all
alike; medians of rounds are compared. ARGS="--only lenet" measures workloads whose name contains a text, ARGS=--load
keeps every core busy with another process -> results/cpu-*-load.md.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from gluon_workloads import WORKLOADS  # noqa: E402
from harness import Worker, oracle, write_table  # noqa: E402

HERE = Path(__file__).parent
RUNTIMES = ("eager", "hybrid", "MXNet eager", "MXNet hybrid", "torch eager", "torch.compile", "onnxruntime by hand")
#: What a forward and a training step of ours are measured against.
RIVALS = {
    "infer": ("MXNet hybrid", "torch.compile", "onnxruntime by hand"),
    "train": ("MXNet hybrid", "torch eager", "torch.compile"),
}


def start(python: str, runtime: str, workload: str, cache: str) -> Worker:
    """A runtime with a workload (see worker.py)."""
    environment = os.environ | {"HYBRID_LAB_CACHE": cache, "TORCHINDUCTOR_CACHE_DIR": f"{cache}/inductor"}
    return Worker([python, str(HERE / "worker.py"), runtime, workload], environment)


def measure(workload: str, mode: str, runtimes: list[str], seconds: float, rounds: int) -> dict[str, dict[str, Any]]:
    """runtime -> {ms, first (cold), warm (first call in a second process), memory in MiB} for one workload."""
    found: dict[str, dict[str, Any]] = {}
    workers: dict[str, Worker] = {}
    folder = tempfile.mkdtemp(prefix="bench")
    try:
        for runtime in runtimes:
            python = str(oracle()) if runtime.startswith("MXNet") else sys.executable
            cache = f"{folder}/{runtime.replace(' ', '-')}"
            cold = start(python, runtime, workload, cache)
            first = cold.ask(do="first", mode=mode)
            if first is None:
                continue
            found[runtime] = {"first": first}
            if runtime == "hybrid":  # torch.compile takes minutes as it is
                cold.end()
                cold = start(python, runtime, workload, cache)
                found[runtime]["warm"] = cold.ask(do="first", mode=mode)
            workers[runtime] = cold
        times: dict[str, list[float]] = {runtime: [] for runtime in workers}
        worst: dict[str, float] = {}
        for _ in range(rounds):
            for runtime, worker in workers.items():
                answer = worker.ask(do="time", mode=mode, seconds=seconds)
                if answer is not None:
                    times[runtime].append(answer[0])
                    worst[runtime] = max(worst.get(runtime, 0.0), answer[2])
        for runtime, worker in workers.items():
            found[runtime]["ms"] = statistics.median(times[runtime]) if times[runtime] else None
            found[runtime]["worst"] = worst.get(runtime)
            found[runtime]["memory"] = worker.ask(do="memory")
    finally:
        for worker in workers.values():
            worker.end()
        shutil.rmtree(folder, ignore_errors=True)
    return found


def row(workload: str, mode: str, found: dict[str, dict[str, Any]]) -> list[str]:
    """One line of the table: times, and ours as a multiple of the rivals' best and of MXNet hybrid."""
    ours = found["hybrid"]["ms"]
    rivals = [found[name]["ms"] for name in RIVALS[mode] if found.get(name, {}).get("ms")]
    static = found.get("MXNet hybrid", {}).get("ms")
    cells = [workload]
    for runtime in RUNTIMES:
        time = found.get(runtime, {}).get("ms")
        cells.append("" if time is None else f"{time:.3g}")
    cells.append(f"{min(rivals) / ours:.2f}" if rivals else "")
    cells.append(f"{static / ours:.2f}" if static else "")
    cells.append(f"{found['hybrid']['worst'] / ours:.1f}")
    return cells


def details(workload: str, mode: str, found: dict[str, dict[str, Any]]) -> list[str]:
    cells = [f"{workload}, {mode}"]
    for runtime in RUNTIMES:
        each = found.get(runtime)
        if each is None:
            cells.append("")
            continue
        warm = f" / {each['warm']:.2f}" if each.get("warm") is not None else ""
        cells.append(f"{each['first']:.2f}{warm} s, {each['memory']:.0f} MiB")
    return cells


@contextlib.contextmanager
def busy_cores() -> Iterator[None]:
    """One process on each core that never waits."""
    cores = sorted(os.sched_getaffinity(0))
    program = "import os, sys; os.sched_setaffinity(0, [int(sys.argv[1])])\nwhile True: pass"
    busy = [subprocess.Popen([sys.executable, "-c", program, str(core)]) for core in cores]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def geometric_mean(numbers: list[str]) -> str:
    values = [float(number) for number in numbers if number]
    return f"{statistics.geometric_mean(values):.2f}" if values else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="workloads whose name contains this")
    parser.add_argument("--mode", choices=("infer", "train"), help="only forward, or only training steps")
    parser.add_argument("--runtimes", default=",".join(RUNTIMES), help="comma-separated")
    parser.add_argument("--seconds", type=float, default=0.4, help="per runtime and round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--load", action="store_true", help="with one busy process on each core")
    options = parser.parse_args()
    runtimes = options.runtimes.split(",")
    if oracle() is None:
        runtimes = [name for name in runtimes if not name.startswith("MXNet")]
    part = "-part" if options.only or runtimes != list(RUNTIMES) else ""
    with busy_cores() if options.load else contextlib.nullcontext():
        measure_all(options, runtimes, ("-load" if options.load else "") + part)


def measure_all(options: argparse.Namespace, runtimes: list[str], part: str) -> None:
    for mode in (options.mode,) if options.mode else ("infer", "train"):
        rows, firsts = [], []
        for workload, (_, trained) in WORKLOADS.items():
            if options.only in workload and (mode == "infer" or trained):
                takes = [name for name in runtimes if mode == "infer" or name != "onnxruntime by hand"]
                found = measure(workload, mode, takes, options.seconds, options.rounds)
                rows.append(row(workload, mode, found))
                firsts.append(details(workload, mode, found))
                write(mode, rows, firsts, part, options.rounds)


def write(mode: str, rows: list[list[str]], firsts: list[list[str]], part: str, rounds: int) -> None:
    """The tables of what has been measured so far, so that a run that is cut off leaves something."""
    title = "Forward, ms" if mode == "infer" else "Training step (SGD with momentum), ms"
    means = [geometric_mean([each[index] for each in rows]) for index in (-3, -2)] + [""]
    header = ["workload", *RUNTIMES, "best / ours", "MXNet hybrid / ours", "slowest / median"]
    best = "best of " + ", ".join(RIVALS[mode])
    notes = f"Medians of {rounds} interleaved rounds. best: {best}; above 1 ours is faster. " + (
        "slowest / median: of our calls after the second. A busy process ran on each core."
        if "-load" in part
        else "slowest / median: of our calls after the second."
    )
    write_table(f"cpu-{mode}{part}", title, header, [*rows, ["geometric mean", *[""] * len(RUNTIMES), *means]], notes)
    notes = "First call in a fresh process / in a second one with the disk caches filled; peak memory of the process."
    write_table(f"cpu-first-call-{mode}{part}", "First call and memory", ["workload", *RUNTIMES], firsts, notes)


if __name__ == "__main__":
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    import onnxruntime  # noqa: F401 - the table names its version
    import torch  # noqa: F401

    main()
