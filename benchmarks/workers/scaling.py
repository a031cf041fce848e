"""How far training in several processes scales: a simulation of steps of 8 to 1,024 workers, not a measurement.

A step is a forward pass, a backward pass in which the sums of the buckets begin one after the other (buckets.py has the
rule, which runs here on the networks' parameters), and an update. Assumptions: each worker has a device and a network
link of its own; a sum of B bytes over n workers takes 2 (n-1)/n B / bandwidth and 2 log2(n) latencies, as a reduction
in a tree whose parts follow each other does; 80 % of a link's bandwidth is reached; sums take no time from the device;
each layer takes the same part of the backward pass, which takes twice as long as the forward; a worker's step takes
2 % more or less (one standard deviation, each step anew), and all wait for the slowest. Links that workers share,
slow machines and reading of data are left out: real figures are lower.

python benchmarks/workers/scaling.py
"""

import functools
import math
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

import numpy as np  # noqa: E402

from benchmarks import harness  # noqa: E402
from hybrid_lab.distributed.buckets import FIRST, SIZE  # noqa: E402

WORKERS = (8, 32, 128, 256, 1024)
LINKS = {"10 Gbit/s Ethernet": (1.25e9, 30e-6), "100 Gbit/s": (12.5e9, 5e-6), "8 x 200 Gbit/s a machine": (25e9, 5e-6)}
"""Name -> (bytes a second of one worker, seconds until a message arrives)."""
REACHED, SPREAD = 0.8, 0.02


def resnet50():
    """The numbers of each layer's weights, from the first layer to the last."""
    layers, channels = [64 * 3 * 49], 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            layers += [channels * width, width * width * 9, width * width * 4]
            if not block:
                layers.append(channels * width * 4)
            channels = 4 * width
    return [*layers, channels * 1000]


def encoder(layers, width, words):
    """A transformer: for each layer four projections of the attention and two of the rest."""
    return [words * width, *[width * width * part for _ in range(layers) for part in (1, 1, 1, 1, 4, 4)]]


NETWORKS = {
    "ResNet-50, 0.30 s": (resnet50(), 0.30),
    "encoder of 340 M, 0.50 s": (encoder(24, 1024, 30522), 0.50),
}
"""Name -> (weights of each layer, seconds of forward, backward and update of one worker, which are assumed)."""


def buckets(layers):
    """(bytes, when the bucket is full as a part of the backward pass) of each bucket."""
    found, size, limit = [], 0, FIRST
    for number, weights in enumerate(reversed(layers), 1):
        size += 4 * weights
        if size >= limit or number == len(layers):
            found.append((size, number / len(layers)))
            size, limit = 0, SIZE
    return found


def seconds_of_sum(size, workers, link):
    bandwidth, latency = link
    return 2 * (workers - 1) / workers * size / (bandwidth * REACHED) + 2 * math.log2(workers) * latency


@functools.cache
def slowest(workers):
    """How much longer than the mean the slowest of the workers takes, in the mean of 1,000 steps."""
    return 1 + SPREAD * float(np.random.default_rng(0).standard_normal((1000, workers)).max(axis=1).mean())


def seconds_of_step(layers, one, workers, link, overlapping):
    """A step of all workers. one : seconds of a step of one worker"""
    alone = one * slowest(workers)
    backward = alone * 2 / 3
    full = [(size, alone - backward + part * backward) for size, part in buckets(layers)]
    end = 0.0
    for size, ready in full:
        end = max(end, ready if overlapping else alone) + seconds_of_sum(size, workers, link)
    return max(end, alone)


def main():
    rows = []
    for name, (layers, alone) in NETWORKS.items():
        for kind, link in LINKS.items():
            parts = [f"{name}; {4 * sum(layers) / 1e6:.0f} MB, {len(buckets(layers))} buckets", kind]
            for workers in WORKERS:
                early, late = (seconds_of_step(layers, alone, workers, link, way) for way in (True, False))
                parts.append(f"{alone / early:.2f} ({alone / late:.2f})")
            rows.append(parts)
    head = ["network, step of one worker", "link", *(f"{workers} workers" for workers in WORKERS)]
    notes = " ".join((__doc__ or "").split("\n\n")[1].split()) + (
        " The table has the share of a worker's time in which it computes, which is the speed divided by the number of "
        "workers; in brackets where all sums begin after the backward pass."
    )
    harness.write_table("workers_scaling", "Steps of 8 to 1,024 workers, simulated", head, rows, notes)


if __name__ == "__main__":
    main()
