"""Opening 0.54 GB lazily to read one tensor of it, beside safetensors; exporting ResNet-50 to ONNX, beside torch.onnx.

`python benchmarks/bench_files.py [rounds]`. torch's newer exporter is measured where onnxscript is installed.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import logging
import os
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import safetensors
from harness import write_table

import hybrid_lab as mx
from hybrid_lab.formats.archive import layout
from hybrid_lab.formats.archive.container import Container
from hybrid_lab.formats.safetensors import SafetensorsFile
from hybrid_lab.gluon import nn
from hybrid_lab.gluon.model_zoo import vision

LAYERS, WIDTH = 512, 512
"""Layers of 1 MB each."""
Case = Callable[[], object]


def seconds(case: Case) -> float:
    start = time.perf_counter()
    case()
    return time.perf_counter() - start


def medians(cases: dict[str, Case], rounds: int) -> dict[str, float]:
    """Median seconds; every case runs once before, and once in a round, so that a busy machine slows all alike."""
    found: dict[str, list[float]] = {name: [] for name in cases}
    for round_number in range(rounds + 1):
        for name, case in cases.items():
            taken = seconds(case)
            if round_number:
                found[name].append(taken)
    return {name: statistics.median(taken) for name, taken in found.items()}


def one_tensor(folder: Path) -> dict[str, Case]:
    """Each case opens a file of 0.54 GB and reads a tensor of 1 MB in its middle."""
    net = nn.HybridSequential()
    net.add(*(nn.Dense(WIDTH, in_units=WIDTH, use_bias=False) for _ in range(LAYERS)))
    net.initialize()
    net(mx.nd.ones((1, WIDTH)))
    plain = folder / "m.safetensors"
    archive = net.save(folder / "m.hlab")
    net.save_parameters(plain)
    name = f"{LAYERS // 2}.weight"

    def by_safetensors() -> object:
        with safetensors.safe_open(plain, "numpy") as file:
            return file.get_tensor(name)

    def from_archive() -> object:
        tensors = Container.open(archive).tensors(layout.WEIGHTS)
        return tensors[list(tensors)[LAYERS // 2]]

    return {
        "safetensors: safe_open, get_tensor": by_safetensors,
        "a .safetensors file: open, read": lambda: SafetensorsFile.open(plain)[name],
        "an archive: open, read, compare the digest": from_archive,
    }


def exports(folder: Path) -> dict[str, Case]:
    """Each case writes ResNet-50 with weights of 102 MB as an ONNX file."""
    import torch

    sys.path.insert(0, str(Path(__file__).parent / "cpu"))
    from torch_workloads import ResNet

    theirs, x = ResNet(50).eval(), torch.zeros(1, 3, 224, 224)
    ours = vision.resnet50_v1()
    ours.initialize()
    ours.hybridize()
    ours(mx.nd.zeros((1, 3, 224, 224)))

    def by_torch(dynamo: bool) -> Case:
        def case() -> None:
            with warnings.catch_warnings(action="ignore"), contextlib.redirect_stdout(io.StringIO()):
                torch.onnx.export(theirs, (x,), str(folder / f"t{dynamo}.onnx"), dynamo=dynamo)

        return case

    cases: dict[str, Case] = {
        "torch.onnx.export(dynamo=False)": by_torch(False),
        "mx.onnx.export: checked in full by onnx.checker": lambda: mx.onnx.export(ours, folder / "m.onnx"),
    }
    if importlib.util.find_spec("onnxscript") is not None:
        cases["torch.onnx.export(dynamo=True)"] = by_torch(True)
    return cases


def main(rounds: int = 5) -> None:
    logging.getLogger("hybrid_lab").setLevel(logging.ERROR)
    rows = []
    with tempfile.TemporaryDirectory(prefix="bench_files_") as name:
        found = medians(one_tensor(Path(name)), 4 * rounds)
        peer = found["safetensors: safe_open, get_tensor"]
        rows += [[f"one tensor of 1 MB: {case}", f"{1e3 * taken:.2f} ms", f"{taken / peer:.2f}"]
                 for case, taken in found.items()]  # fmt: skip
        found = medians(exports(Path(name)), rounds)
        peer = found["torch.onnx.export(dynamo=False)"]
        rows += [[f"ResNet-50: {case}", f"{taken:.2f} s", f"{taken / peer:.2f}"] for case, taken in found.items()]
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    busy = f" Measured on a busy machine: a load average of {load:.1f} on {cores} cores." if load > cores else ""
    write_table(
        "files",
        "Reading one tensor, and exporting",
        ["what", "median", "times the first of its kind"],
        rows,
        f"The files hold {LAYERS} matrices of 1 MB, and are in the system's cache; the archive has {LAYERS + 1} Blocks "
        f"with a graph each, whose directory is read first. Exports: {rounds} rounds; torch's ResNet-50 is the same "
        "network, and torch's exporters do not run onnx.checker. Saving and loading whole files: "
        "[archive.md](archive.md)." + busy,
    )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
