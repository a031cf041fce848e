"""steps: training steps and predictions of whole networks beside torch, every one in a process of its own.

Each item tells the first call, the median of a step, the host's part of it, launches, and memory of the device. The
order is that of worth: training before prediction, ours and eager torch before torch.compile, float32 before tf32.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from typing import Any

from gpu_day import kernels
from gpu_day.options import Item, Options

FRESH = True
LIMIT = 150.0
#: name -> batch
WORKLOADS = kernels.NETWORKS
RUNTIMES = ("hybrid", "hybrid captured", "torch eager", "torch.compile")
#: Seconds of steps that are timed, and how many there are at the least and at the most.
SECONDS, FEWEST, MOST = 2.0, 5, 300

#: (infer, train) of a runtime: each returns once the GPU has its work, not when the work is done.
Calls = dict[str, Callable[[], Any]]


def items(options: Options) -> list[Item]:
    """ "train, resnet18, hybrid, float32" and so on."""
    groups = [(mode, runtimes, precision) for mode, runtimes, precision in (
        ("train", RUNTIMES[:3], "float32"), ("train", RUNTIMES[3:], "float32"), ("train", RUNTIMES[:3], "tf32"),
        ("train", RUNTIMES[3:], "tf32"), ("infer", RUNTIMES[:3], "float32"), ("infer", RUNTIMES[3:], "float32"),
        ("infer", RUNTIMES[:3], "tf32"), ("infer", RUNTIMES[3:], "tf32"),
    )]  # fmt: skip
    names = [
        f"{mode}, {workload}, {runtime}, {precision}"
        for mode, runtimes, precision in groups
        for workload in WORKLOADS
        for runtime in runtimes
    ]
    if options.simulate:  # torch.compile writes kernels of its own, for which there is no interpreter
        names = [name for name in names if "torch.compile" not in name]
    return [Item(name, LIMIT) for name in names]


def compile_items(options: Options) -> list[Item]:
    """The networks' kernels for every hybrid item, by several processes before anything is timed."""
    return [Item(f"compile: {item.name}", LIMIT) for item in items(options) if ", hybrid, " in item.name]


def run(name: str, options: Options) -> dict[str, Any]:
    if name.startswith("compile: "):
        from hybrid_lab.engines.triton.run import availability

        _, workload, _, precision = name.split(", ")
        target = availability.device_name()
        return kernels.compile_for(f"network: {workload}, {precision}", target, options.small)
    mode, workload, runtime, precision = name.split(", ")
    network, batch = (kernels.SMALL, 2) if options.small else (workload, WORKLOADS[workload])
    make = torch_calls if runtime.startswith("torch") else gluon_calls
    return measure(make(runtime, network, batch, precision == "tf32")[mode], options)


def measure(call: Callable[[], Any], options: Options) -> dict[str, Any]:
    """Time a call: seconds of the first, then milliseconds."""
    import torch

    from hybrid_lab.engines.launches import launches

    def whole() -> float:
        started = time.perf_counter()
        call()
        torch.cuda.synchronize()
        return time.perf_counter() - started

    on_disk = _binaries()
    found: dict[str, Any] = {"first s": whole()}
    found["compiled"] = _binaries() - on_disk
    rounds = 2 if options.small else 8
    warm = [whole() for _ in range(rounds)]  # captures, and cuDNN's choices
    before = launches.snapshot()
    host, steps = [], []
    count = 1 if options.small else int(min(max(SECONDS / max(warm[-1], 1e-6), FEWEST), MOST))
    for _ in range(count):
        started = time.perf_counter()
        call()
        host.append(time.perf_counter() - started)
        torch.cuda.synchronize()
        steps.append(time.perf_counter() - started)
    after = launches.snapshot()
    ours = {name: (after[name] - before[name]) / count for name in after}
    found |= {
        "second s": warm[0],
        "ms": 1e3 * statistics.median(steps),
        "fastest ms": 1e3 * min(steps),
        "host ms": 1e3 * statistics.median(host),
        "device ms": _back_to_back(call, count),
        "steps": count,
        "launches": ours if any(ours.values()) else None,
        "kernels": _kernels(call),
        "memory MiB": _memory(),
    }
    number = sum(ours.values()) or found["kernels"]
    found["host us a launch"] = 1e3 * found["host ms"] / number if number else None
    return found


def _binaries() -> int:
    """How many of our kernels are on disk. torch.compile's are not counted."""
    from hybrid_lab.engines.triton.build.binaries import BINARIES

    folder = BINARIES.disk.folder()
    return len(os.listdir(folder)) if folder is not None and folder.exists() else 0


def _back_to_back(call: Callable[[], Any], count: int) -> float:
    """Milliseconds of a step where the host does not wait for the GPU in between."""
    import torch

    torch.cuda.synchronize()
    started = time.perf_counter()
    for _ in range(count):
        call()
    torch.cuda.synchronize()
    return 1e3 * (time.perf_counter() - started) / count


def _kernels(call: Callable[[], Any]) -> int | None:
    """How many kernels the GPU runs in a call, however they are launched; None where torch's profiler sees none."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    try:
        with profile(activities=[ProfilerActivity.CUDA]) as found:
            call()
            torch.cuda.synchronize()
        return sum(
            event.count
            for event in found.key_averages()
            if event.device_type == torch.autograd.DeviceType.CUDA and not event.key.startswith(("Memcpy", "Memset"))
        )
    except Exception:  # a profiler that may not read counters is no reason to lose the times
        return None


def _memory() -> float:
    """The most memory that torch's allocator held, which is ours too."""
    import torch

    try:
        held = torch.cuda.max_memory_reserved()
    except (RuntimeError, AssertionError):  # no allocator: a simulated GPU
        held = 0
    return held / 2**20


def gluon_calls(runtime: str, workload: str, batch: int, tf32: bool) -> Calls:
    """Prediction and training step of hybrid_lab; "hybrid captured" fixes shapes, so that launches are replayed."""
    import torch
    from gluon_workloads import build

    import hybrid_lab as mx

    torch.backends.cudnn.benchmark = True  # as on torch's side; cuDNN computes our convolutions too
    net, x, target, loss = build(mx, workload, batch, mx.gpu(0))
    captured = runtime == "hybrid captured"
    for block in (net, loss):
        block.hybridize(engine="triton", static_alloc=captured, static_shape=captured, tf32=tf32)
    trainers: list[Any] = []

    def train() -> None:
        with mx.autograd.record():
            error = loss(net(x), target)
        error.backward()
        if not trainers:  # shapes of parameters are known after the first call
            settings = {"learning_rate": 1e-4, "momentum": 0.9}
            trainers.append(mx.gluon.Trainer(net.collect_params(), "sgd", settings))
        trainers[0].step(batch)

    return {"infer": lambda: net(x), "train": train}


def torch_calls(runtime: str, workload: str, batch: int, tf32: bool) -> Calls:
    """The same in torch, eager or by torch.compile with its defaults."""
    import torch
    from torch_workloads import build

    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
    torch.backends.cudnn.benchmark = True
    net, x, target, loss = build(workload, batch, kernels.layers.device())
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-4, momentum=0.9)
    compiled = torch.compile(net) if runtime == "torch.compile" else net

    def infer() -> Any:
        net.eval()
        with torch.no_grad():
            return compiled(x)

    def train() -> None:
        net.train()
        error = loss(compiled(x), target)
        error.backward()
        optimizer.step()
        optimizer.zero_grad()

    return {"infer": infer, "train": train}
