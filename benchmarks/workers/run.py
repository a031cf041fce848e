"""Training steps of two workers on this machine, beside torch's DistributedDataParallel.

Four pairs of processes take turns: two workers of each library that sum their gradients, and two that train alone at
the same time, which shows what the sums cost. Each process has one thread. Medians of all steps.

python benchmarks/workers/run.py [--only lenet] [--rounds 5]
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from benchmarks import harness  # noqa: E402
from tests.distributed.workers import environment, free_port  # noqa: E402

WORKLOADS = {"lenet": (32, 40), "mlp": (128, 60), "lstm": (16, 10), "encoder block": (4, 20), "resnet18": (4, 3)}
"""Name -> (samples of each worker in a step, steps of a round)."""
PAIRS = [(library, way) for library in ("hybrid_lab", "torch") for way in ("alone", "together")]


class Pair:
    """Two processes that do the same steps at the same time."""

    def __init__(self, library, way, workload, batch):
        port, command = free_port(), [sys.executable, str(HERE / "worker.py"), library, way, workload, str(batch)]
        self.processes = [
            subprocess.Popen(
                command,
                env={**os.environ, **environment(rank, 2, port), "HYBRID_LAB_EARLY_SUMS": ""},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            for rank in range(2)
        ]

    def steps(self, count):
        for process in self.processes:
            process.stdin.write(f"{count}\n")
            process.stdin.flush()
        return [json.loads(process.stdout.readline()) for process in self.processes]

    def close(self):
        for process in self.processes:
            process.stdin.close()
        for process in self.processes:
            process.wait()


def measure(workload, rounds):
    batch, steps = WORKLOADS[workload]
    pairs = {pair: Pair(*pair, workload, batch) for pair in PAIRS}
    times, memory = {pair: [] for pair in PAIRS}, {}
    for pair in pairs.values():
        pair.steps(3)  # compiled, and torch's buckets in the order of its first backward
    for _ in range(rounds):
        for name, pair in pairs.items():
            for answer in pair.steps(steps):
                times[name] += answer["ms"]
                memory[name] = max(memory.get(name, 0), answer["MiB"])
    for pair in pairs.values():
        pair.close()
    return {name: statistics.median(each) for name, each in times.items()}, memory


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="workloads whose names contain this; nothing is written then")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    rows, ratios, of_memory = [], [], []
    for workload in WORKLOADS:
        if options.only not in workload:
            continue
        times, memory = measure(workload, options.rounds)
        own, peer = times["hybrid_lab", "together"], times["torch", "together"]
        ratios.append(own / peer)
        of_memory.append(memory["hybrid_lab", "together"] / memory["torch", "together"])
        rows.append(
            [
                f"{workload} b{WORKLOADS[workload][0]}",
                *(f"{times[pair]:.2f} ms" for pair in PAIRS),
                f"{own / peer:.2f}",
                *(f"{memory[pair]:.0f} MiB" for pair in PAIRS if pair[1] == "together"),
            ]
        )
        print(rows[-1], flush=True)
    mean = statistics.geometric_mean(ratios)
    print(f"ours / torch: {mean:.2f} in time, {statistics.geometric_mean(of_memory):.2f} in memory")
    if not options.only:
        head = ["workload", *(f"{library}, {way}" for library, way in PAIRS), "ours / torch", "memory", "of torch"]
        notes = (__doc__ or "").split("\n\n")[1].replace("\n", " ") + f" Mean of ours / torch: {mean:.2f}."
        harness.write_table("workers", "Steps of two workers", head, rows, notes)


if __name__ == "__main__":
    main()
