"""right, fast: a quarter-hour with a GPU, in two commands that each keep their time.

`right` asks whether the engine works on this GPU and gives the right numbers: a first kernel, every kind of kernel, the
same under compute-sanitizer, and as many of the engine's tests as the time reaches. `fast` asks how fast it is: whole
training steps, and the kernels of layers, beside torch. Both run items of the other stages. A phase that ends
early leaves its seconds to the next one. Everything that was found is one archive, DIR/results.tar.xz.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gpu_day.options import Budget, Item, Options
from gpu_day.pool import WorkersFailed, end_process, run_items
from gpu_day.results import PASSED, SKIPPED, Results

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "gpu_day.py"
#: Seconds of each part, and those that are kept for packing the results.
SECONDS = {"right": 150.0, "fast": 420.0}
PACKING = 6.0
#: The first kernel must have run after so many seconds.
PROBING = 90.0
#: A training step, and the kernels of a layer or a network, may take so many seconds in `fast`.
STEP_LIMIT, KERNEL_LIMIT = 75.0, 60.0
#: Networks whose training steps decide whether the engine is fast, the most telling one first.
NETWORKS = ("resnet18", "encoder 6 layers", "lenet", "lstm 2x200")


@dataclass
class Lease:
    """One part's run.

    options : of its stages; end : when the part must be over, by time.monotonic; failed : whether an item was wrong;
    unreached : how many items the time did not suffice for
    """

    options: Options
    end: float
    failed: bool = False
    unreached: int = 0

    def left(self) -> float:
        return self.end - PACKING - time.monotonic()

    def phase(
        self, stage: str, names: Sequence[str], seconds: float, jobs: int, limit: float, fresh: bool = False
    ) -> None:
        """Run items of a stage for so many seconds at the most, and print what became of them."""
        began = time.monotonic()
        options, results = replace(self.options, stage=stage), Results(Path(self.options.out), stage)
        names = [name for name in names if options.only in name]
        seconds = min(seconds, self.left())
        waiting = [Item(name, min(limit, seconds)) for name in names if not results.is_done(name)]
        command = [sys.executable, str(SCRIPT), "--worker", options.text()]
        try:
            if seconds > 0:
                run_items(waiting, command, results, Budget(seconds / 60), min(jobs, _cores()), fresh)
        except WorkersFailed as error:
            print(f"{stage}: {error}", flush=True)
            self.failed = True
        finally:
            results.leave(names)
        done = [name for name in names if name in results.items]
        bad = [name for name in done if results.items[name]["status"] not in (PASSED, SKIPPED)]
        self.failed |= bool(bad)
        self.unreached += len(names) - len(done)
        print(
            f"{stage}: {len(done)} of {len(names)} run, {len(bad)} wrong, {time.monotonic() - began:.0f} s", flush=True
        )
        for name in bad[:40]:
            record = results.items[name]
            last = (record.get("error") or "").strip().splitlines()[-1:]
            print(f"  {record['status']:6} {name}: {last[0][:200] if last else ''}", flush=True)
        for name, ran in results.running.items():
            print(f"  unfinished {name}: the time was up after {ran:.0f} s of it", flush=True)


def run(part: str, options: Options, seconds: float = 0) -> int:
    """Run a part; 0 where all was right, 1 where there is no GPU, 2 where something failed."""
    began = time.monotonic()
    lease = Lease(options, began + (seconds or SECONDS[part]))
    status, verdict = 1, "interrupted"
    try:
        if probe(options):
            PARTS[part](lease)
            status, verdict = (2, "NOT RIGHT") if lease.failed else (0, "right")
        else:
            verdict = "no GPU"
    finally:
        pack(Path(options.out))
        unreached = f"; items not reached: {lease.unreached}" if lease.unreached else ""
        print(f"{part}: {time.monotonic() - began:.0f} s, {verdict}{unreached}", flush=True)
    return status


# -- the parts ---------------------------------------------------------------------------------------------------------


def right(lease: Lease) -> None:
    """Small sizes first: with these alone one knows what every kind of kernel does here."""
    from gpu_day import smoke

    every = [item.name for item in smoke.items(lease.options)]
    first = [name for name in every if ", " not in name or name.endswith("small, float32")]
    rest = [name for name in every if name not in first]
    rest.sort(key=lambda name: ("large" in name, "float32" not in name))
    lease.phase("smoke", first, 60, 15, 50)
    sanitizer = threading.Thread(target=sanitize, args=(lease, [name for name in first if ", " in name]))
    sanitizer.start()
    lease.phase("smoke", rest, 0.55 * lease.left(), 12, 60)
    if lease.left() > 30 and not lease.options.only and (found := tests(lease.options, lease.left())):
        lease.phase("tests", found, lease.left(), 13, 30)
    sanitizer.join()


def fast(lease: Lease) -> None:
    """Steps of whole networks, ours beside torch; then single layers by the rule, by the vendor, and by torch."""
    lease.phase("kernels", ["ceilings"], 40, 1, 40)
    lease.phase("steps", step_names(lease.options), 0.65 * lease.left(), 1, STEP_LIMIT, fresh=True)
    lease.phase("kernels", kernel_names(), lease.left(), 1, KERNEL_LIMIT)


PARTS: dict[str, Callable[[Lease], None]] = {"right": right, "fast": fast}


def step_names(options: Options) -> list[str]:
    """Items of `steps`: what decides first. torch.compile compiles for a minute, so it comes behind the others."""
    names = [f"train, {net}, {run}, tf32" for net in NETWORKS for run in ("hybrid", "torch eager", "hybrid captured")]
    if not options.simulate:
        names += [f"train, {net}, torch.compile, tf32" for net in NETWORKS[:3]]
    names += [f"train, {net}, {run}, float32" for net in NETWORKS[:2] for run in ("hybrid", "torch eager")]
    return names


def kernel_names() -> list[str]:
    """Items of `kernels`: memory, products, convolutions, attention, and each kernel of two networks."""
    from gpu_day import layers

    every = layers.names()
    chosen = [name for name in every if name.startswith("memory")]
    chosen += [f"gemm {size}, {precision}" for precision in ("tf32", "float16", "float32") for size in (4096, 1024)]
    convolutions = [name for name in every if name.startswith("conv") and name.endswith("tf32")]
    chosen += convolutions[:12]
    chosen += [f"attention {size}, {part}, float16" for size in (1024, 128) for part in ("forward", "data")]
    chosen += [f"network: {net}, tf32" for net in NETWORKS[:2]]
    chosen += [name for name in every if name.startswith("lstm")]
    return [name for name in chosen if name in every or name.startswith("network")]


# -- the first kernel --------------------------------------------------------------------------------------------------

_PROBE = """
import json, sys, time
began = time.time()
sys.path[:0] = {paths!r}
from gpu_day import cases
from gpu_day.options import Options
from gpu_day.worker import machine, use_folders, use_gpu
options = Options.of({options!r})
use_folders(options)
missing = use_gpu(options)
if missing:
    raise SystemExit(missing)
found = {{"import, s": round(time.time() - began, 1), **machine()}}
import numpy as np
import hybrid_lab as mx
began, (high, wide) = time.time(), cases.table(options.small)
net = cases.of(cases.quotients_and_roots)()
net.hybridize(engine="triton")
a, b = (each.ravel().astype("float32") for each in np.meshgrid(np.arange(1, high), np.arange(1, wide)))
one = net(mx.nd.array(a * b, ctx=mx.gpu(0)), mx.nd.array(b, ctx=mx.gpu(0))).asnumpy()
found["first kernel, s"] = round(time.time() - began, 2)
found["quotients and roots off by one"] = f"{{int((one != a + b).sum())}} of {{len(a)}}"
print(json.dumps(found))
"""


def probe(options: Options) -> bool:
    """Whether a first kernel runs. What it tells of the machine goes to DIR/probe.txt, too."""
    paths = [str(SCRIPT.parents[1] / each) for each in ("", "benchmarks", "benchmarks/cpu")]
    code = _PROBE.format(paths=paths, options=options.text())
    log = Path(options.out) / "probe.txt"
    with log.open("w", encoding="utf-8") as file:
        process = subprocess.Popen([sys.executable, "-c", code], stdout=file, stderr=file, start_new_session=True)
        try:
            status = process.wait(PROBING)
        except subprocess.TimeoutExpired:
            status = -1
            print(f"the first kernel has not run after {PROBING:.0f} s", flush=True)
        finally:
            end_process(process)
    print(log.read_text(encoding="utf-8", errors="replace").strip()[-3000:], flush=True)
    return status == 0


# -- compute-sanitizer, tests, results ---------------------------------------------------------------------------------

_SANITIZED = """
import sys
sys.path[:0] = {paths!r}
from gpu_day import smoke
from gpu_day.options import Options
from gpu_day.worker import use_folders, use_gpu
options = Options.of({options!r})
use_folders(options)
assert not use_gpu(options)
for name in {names!r}:
    print("ITEM", name, flush=True)
    smoke.run(name, options)
print("ALL ITEMS", flush=True)
"""


def sanitize(lease: Lease, names: Sequence[str]) -> None:
    """Run small items in one process under memcheck, each tensor in a block of its own, so that its end is seen."""
    program = shutil.which("compute-sanitizer") or shutil.which("/usr/local/cuda/bin/compute-sanitizer")
    if program is None or lease.options.simulate or lease.left() < 20:
        print("memcheck: left out", flush=True)
        return
    paths = [str(SCRIPT.parents[1] / each) for each in ("", "benchmarks", "benchmarks/cpu")]
    code = _SANITIZED.format(paths=paths, options=lease.options.text(), names=list(names))
    log = Path(lease.options.out) / "memcheck.txt"
    command = [program, "--tool", "memcheck", "--print-limit", "20", sys.executable, "-c", code]
    environment = os.environ | {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    with log.open("w", encoding="utf-8") as file:
        process = subprocess.Popen(
            command, stdout=file, stderr=subprocess.STDOUT, env=environment, start_new_session=True
        )
        try:
            process.wait(max(lease.left(), 1))
        except subprocess.TimeoutExpired:
            print("memcheck: the time was up", flush=True)
        finally:
            end_process(process)
    text = log.read_text(encoding="utf-8", errors="replace")
    errors = re.findall(r"ERROR SUMMARY: (\d+) error", text) or ["no summary"]
    lease.failed |= errors[0] not in ("0", "no summary")
    print(f"memcheck: {text.count('ITEM ')} of {len(names)} items, {errors[0]} errors", flush=True)
    if errors[0] != "0":
        print("\n".join(line for line in text.splitlines() if line.startswith("========="))[:1500], flush=True)


def tests(options: Options, seconds: float) -> list[str]:
    """The engine's tests, the first case of each first; none where collecting them takes longer than `seconds`."""
    from gpu_day import tests as stage

    try:
        return [item.name for item in stage.items(replace(options, stage="tests"), seconds)]
    except WorkersFailed as error:
        print(f"tests: left out: {error}", flush=True)
        return []


def pack(folder: Path) -> None:
    """All results as one archive, DIR/results.tar.xz."""
    with tarfile.open(folder / "results.tar.xz", "w:xz", preset=1) as file:
        for path in sorted(folder.iterdir()):
            if path.suffix in (".jsonl", ".log", ".txt"):
                file.add(path, path.name)


def _cores() -> int:
    return max((os.cpu_count() or 1) - 1, 1)
