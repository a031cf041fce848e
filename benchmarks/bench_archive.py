"""Saving and loading: 0.54 GB of weights beside `cp` and safetensors, and a model of 5,000 Blocks."""

from __future__ import annotations

import gc
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import safetensors.numpy
from harness import write_table

import hybrid_lab as mx
from hybrid_lab import gluon
from hybrid_lab.gluon import nn

LAYERS, WIDTH = 8, 4096
BLOCKS = 5000
WEIGHTS = LAYERS * WIDTH * WIDTH * 4
"""Bytes."""
AT_ONCE = 5
"""How often the weights are in memory at once: values and gradients of two models, and what safetensors reads."""


def large() -> nn.HybridSequential:
    net = nn.HybridSequential()
    for _ in range(LAYERS):
        net.add(nn.Dense(WIDTH, in_units=WIDTH, use_bias=False))
    net.initialize()
    net.hybridize()
    net(mx.nd.ones((1, WIDTH)))
    return net


def many() -> nn.HybridSequential:
    net = nn.HybridSequential()
    for _ in range(BLOCKS - 1):
        net.add(nn.Dense(4, in_units=4))
    net.initialize()
    net.hybridize()
    return net


def touch(size: int) -> None:
    """Let the process own `size` bytes of memory, in huge pages where NumPy asks for them, and free them again."""
    np.ones(size // 8)


def spent(function: Callable[[], object]) -> tuple[float, float]:
    """Seconds on the clock, and of all processors. What the function returns is freed after the measurement."""
    before, start = os.times(), time.perf_counter()
    result = function()
    wall, after = time.perf_counter() - start, os.times()
    del result
    gc.collect()  # a model is full of cycles
    return wall, sum(after[:4]) - sum(before[:4])


def interleaved(cases: dict[str, Callable[[], object]], rounds: int, written: Path) -> dict[str, tuple[float, float]]:
    """Medians of both; in a round every case runs once, so that a busy machine slows all alike."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name, case in cases.items():
            found[name].append(spent(case))
            written.unlink(missing_ok=True)  # all write new files: memory that was just freed is the quickest
    return {
        name: (statistics.median(wall for wall, _ in times), statistics.median(cpu for _, cpu in times))
        for name, times in found.items()
    }


def weights_table(folder: Path, rounds: int) -> list[list[str]]:
    net = large()
    path = net.save(folder / "m.hlab")
    arrays = {name: parameter.data().asnumpy() for name, parameter in net.collect_params().items()}
    new, plain = folder / "new.hlab", folder / "m.safetensors"
    safetensors.numpy.save_file(arrays, plain)

    def copied(forced: bool) -> None:
        subprocess.run(["cp", path, new], check=True)
        if forced:
            subprocess.run(["sync", new], check=True)

    cases: dict[str, Callable[[], object]] = {
        "cp": lambda: copied(False),
        "cp, forced to disk": lambda: copied(True),
        "safetensors: save": lambda: safetensors.numpy.save_file(arrays, new),
        "net.save(path): digests, forced to disk": lambda: net.save(new),
        "safetensors: load": lambda: safetensors.numpy.load_file(plain),
        "net.load(path): every digest checked": lambda: net.load(path),
        "gluon.load(path): every digest checked": lambda: gluon.load(path),
    }
    for case in cases.values():
        case()
        new.unlink(missing_ok=True)
    found = interleaved(cases, rounds, new)
    rows = []
    for name, (wall, cpu) in found.items():
        peer = found["safetensors: load" if "load" in name else "cp"][0]
        forced = "" if "load" in name else f"{wall / found['cp, forced to disk'][0]:.2f}"
        rows.append([name, f"{wall:.2f}", f"{wall / peer:.2f}", forced, f"{cpu:.2f}"])
    return rows


def blocks_table(folder: Path, rounds: int) -> list[list[str]]:
    x = mx.nd.ones((2, 4))
    path = folder / "many.hlab"
    found: dict[str, list[tuple[float, float]]] = {}
    for _ in range(rounds):
        net, other, loaded = many(), many(), []
        steps: dict[str, Callable[[], object]] = {
            "first call of the original": lambda net=net: net(x).asnumpy(),
            "net.save(path)": lambda net=net: net.save(path),
            "net.load(path) into another instance": lambda other=other: other.load(path),
            "gluon.load(path)": lambda loaded=loaded: loaded.append(gluon.load(path)),
            "first call of the loaded model": lambda loaded=loaded: loaded[0](x).asnumpy(),
        }
        for name, step in steps.items():
            found.setdefault(name, []).append(spent(step))
    return [
        [
            f"{BLOCKS} Blocks: {name}",
            f"{statistics.median(wall for wall, _ in times):.2f}",
            "",
            "",
            f"{statistics.median(cpu for _, cpu in times):.2f}",
        ]
        for name, times in found.items()
    ]


def busy() -> str:
    """A sentence for the notes where other work runs beside the measurement: then the clock says little."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    cores = os.cpu_count() or 1
    return f" Measured on a busy machine: a load average of {load:.1f} on {cores} cores." if load > cores else ""


def main(rounds: int = 5) -> None:
    logging.getLogger("hybrid_lab").setLevel(logging.ERROR)
    touch(2 * AT_ONCE * WEIGHTS)
    with tempfile.TemporaryDirectory(prefix="bench_archive_") as name:
        rows = weights_table(Path(name), rounds) + blocks_table(Path(name), rounds)
    write_table(
        "archive",
        "Saving and loading",
        ["what", "seconds", "times cp, or safetensors' load", "times cp, forced to disk", "processor seconds"],
        rows,
        f"{WEIGHTS / 1e9:.2f} GB of weights; medians of {rounds} rounds, in each of which every "
        "case runs once. Processor seconds are those of all threads and of `cp`; they are more reliable than wall time "
        "where other work runs on the same cores. safetensors has no digests, and neither `cp` nor its save forces "
        "anything to disk; `net.save` does, so it is compared with `cp` that is forced to disk as well. The process "
        "touched and freed twice the memory that the cases need before the first measurement, because a virtual "
        "machine may take seconds to give out each gibibyte that nobody has used before." + busy(),
    )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
