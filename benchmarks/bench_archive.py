"""Saving and loading: 0.54 GB of weights beside `cp` and safetensors, and a model of 5,000 Blocks.

`python benchmarks/bench_archive.py [rounds] [rounds with 5,000 Blocks]`
"""

from __future__ import annotations

import gc
import hashlib
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import safetensors.numpy
from harness import write_table

import hybrid_lab as mx
from hybrid_lab import gluon
from hybrid_lab.gluon import nn

LAYERS, WIDTH = 8, 4096
BLOCKS = 5000
LOAD_INTO = "safetensors: load, then copy into arrays that exist"
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


class Times:
    """The times of one case, one per round: wall time, and processor time of all its threads and of `cp`."""

    def __init__(self) -> None:
        self.wall: list[float] = []
        self.processors: list[float] = []

    def measure(self, case: Callable[[], object]) -> None:
        """Run the case once. What it returns is freed after the measurement."""
        children, processors, start = os.times()[2:4], time.process_time(), time.perf_counter()
        result = case()
        self.wall.append(time.perf_counter() - start)
        self.processors.append(time.process_time() - processors + sum(os.times()[2:4]) - sum(children))
        del result
        gc.collect()  # a model is full of cycles

    def cells(self, *peers: Times | None) -> list[str]:
        """Median and least seconds, times the least of each peer, then median and least processor seconds."""
        ratios = ["" if peer is None else f"{min(self.wall) / min(peer.wall):.2f}" for peer in peers]
        return [*self.shown(self.wall), *ratios, *self.shown(self.processors)]

    @staticmethod
    def shown(seconds: list[float]) -> list[str]:
        return [f"{statistics.median(seconds):.2f}", f"{min(seconds):.2f}"]


def least_save(arrays: dict[str, np.ndarray], path: Path) -> None:
    """The least work of a safe save with digests: write a zip file, compute SHA-256 and CRC, force it to disk."""
    descriptor, piece, position, crc = os.open(path, os.O_RDWR | os.O_CREAT), 16 << 20, 0, 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        digests = [pool.submit(hashlib.sha256, memoryview(array).cast("B")) for array in arrays.values()]
        os.posix_fallocate(descriptor, 0, WEIGHTS)
        for array in arrays.values():
            content = memoryview(array).cast("B")
            for start in range(0, len(content), piece):
                part = content[start : start + piece]
                os.pwrite(descriptor, part, position)
                os.posix_fadvise(descriptor, position, len(part), os.POSIX_FADV_DONTNEED)  # starts the disk
                crc = zlib.crc32(part, crc)
                position += len(part)
        os.pwrite(descriptor, b"".join(digest.result().digest() for digest in digests), position)
    os.fsync(descriptor)
    os.close(descriptor)


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

    def load_into_arrays() -> None:
        """Load the file, then copy the values into existing arrays, as `net.load` does."""
        for name, values in safetensors.numpy.load_file(plain).items():
            np.copyto(arrays[name], values)

    cases: dict[str, Callable[[], object]] = {
        "cp": lambda: copied(False),
        "cp, forced to disk": lambda: copied(True),
        "safetensors: save": lambda: safetensors.numpy.save_file(arrays, new),
        "the least: write, SHA-256, CRC, forced to disk": lambda: least_save(arrays, new),
        "net.save(path): digests, forced to disk": lambda: net.save(new),
        "safetensors: load": lambda: safetensors.numpy.load_file(plain),
        "gluon.load(path): every digest checked": lambda: gluon.load(path),
        LOAD_INTO: load_into_arrays,
        "net.load(path): every digest checked": lambda: net.load(path),
    }
    if not hasattr(os, "posix_fallocate"):
        del cases["the least: write, SHA-256, CRC, forced to disk"]
    for case in cases.values():
        Times().measure(case)
        new.unlink(missing_ok=True)
    found = {name: Times() for name in cases}
    for _ in range(rounds):  # in a round every case runs once, so that a busy machine slows all alike
        for name, case in cases.items():
            found[name].measure(case)
            new.unlink(missing_ok=True)  # all write new files: memory that was just freed is the quickest
    rows = []
    for name, times in found.items():
        if name.startswith("net.load") or name == LOAD_INTO:
            peers = (found[LOAD_INTO], None)
        elif "load" in name:
            peers = (found["safetensors: load"], None)
        else:
            peers = (found["cp"], found["cp, forced to disk"])
        rows.append([name, *times.cells(*peers)])
    return rows


def blocks_table(folder: Path, rounds: int) -> list[list[str]]:
    x = mx.nd.ones((2, 4))
    path = folder / "many.hlab"
    found: dict[str, Times] = {}
    for _ in range(rounds):
        net, other, loaded = many(), many(), []
        gc.collect()
        steps: dict[str, Callable[[], object]] = {
            "first call of the original": lambda net=net: net(x).asnumpy(),
            "net.save(path)": lambda net=net: net.save(path),
            "net.load(path) into another instance": lambda other=other: other.load(path),
            "gluon.load(path)": lambda loaded=loaded: loaded.append(gluon.load(path)),
            "first call of the loaded model": lambda loaded=loaded: loaded[0](x).asnumpy(),
        }
        for name, step in steps.items():
            found.setdefault(name, Times()).measure(step)
    return [[f"{BLOCKS} Blocks: {name}", *times.cells(None, None)] for name, times in found.items()]


def busy() -> str:
    """A sentence for the notes where other work runs beside the measurement: then the clock says little."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    cores = os.cpu_count() or 1
    return f" Measured on a busy machine: a load average of {load:.1f} on {cores} cores." if load > cores else ""


def main(rounds: int = 9, rounds_of_blocks: int = 5) -> None:
    logging.getLogger("hybrid_lab").setLevel(logging.ERROR)
    touch(2 * AT_ONCE * WEIGHTS)
    with tempfile.TemporaryDirectory(prefix="bench_archive_") as name:
        rows = weights_table(Path(name), rounds) + blocks_table(Path(name), rounds_of_blocks)
    write_table(
        "archive",
        "Saving and loading",
        [
            "what",
            "seconds, median",
            "least",
            "times cp, or safetensors' load of its kind",
            "times cp, forced to disk",
            "processor seconds, median",
            "least",
        ],
        rows,
        f"{WEIGHTS / 1e9:.2f} GB of weights; {rounds} rounds, and {rounds_of_blocks} with {BLOCKS} Blocks; every case "
        "runs once a round. Ratios compare the least seconds. Processor seconds include all threads "
        "and `cp`; they are more reliable than wall time where other work runs on the same cores.\n\n"
        "safetensors has no digests, and neither `cp` nor its save forces anything to disk; `net.save` does, so it is "
        "compared with `cp` that is forced to disk as well. SHA-256 and the zip file's CRC of all bytes take more than "
        'twice the processor seconds of `cp`. The row "the least" does this work, the writing and the forcing in '
        "twenty lines and nothing else: no save with digests is quicker here. `net.save` computes the outputs of its "
        "example inputs besides. A load reads, hashes and runs the examples. `gluon.load` makes a new model, whose "
        "parameters keep the arrays that were read, so it is compared with safetensors' `load_file`. `net.load` copies "
        "the values into parameters that exist, whose arrays others may hold, once the whole file was checked; it is "
        "compared with `load_file` and such a copy.\n\n"
        "The process touched and freed twice the memory that the cases need before the first measurement, because a "
        "virtual machine may take seconds to give out each gibibyte that nobody has used before. Medians of loads are "
        "far above the least where it takes long to give out huge pages, which NumPy asks for "
        "(`NUMPY_MADVISE_HUGEPAGE=0` turns that off)." + busy(),
    )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
