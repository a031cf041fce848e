"""Kernels compiled ahead of time for five GPUs that need not be here; writes benchmarks/results/aot.md.

`python benchmarks/aot/run.py [--only LeNet] [--target gfx942] [--times]` measures a part; rows of the rest stay.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
sys.path.insert(0, str(HERE.parents[1]))
sys.path.insert(0, str(HERE.parents[1] / "cpu"))

RESULT = HERE.parents[1] / "results" / "aot.md"
#: title -> (name in gluon_workloads, batch)
WORKLOADS = {
    "LeNet": ("lenet", 64),
    "ResNet-18": ("resnet18", 32),
    "MobileNet v2": ("mobilenetv2_1.0", 32),
    "2-layer LSTM": ("lstm", 32),
    "6-layer encoder": ("encoder 6 layers", 32),
}


def graphs_of(title: str, batch: int | None = None) -> dict[str, Any]:
    """The forward, backward and update graphs of a training step."""
    from gluon_workloads import build

    import hybrid_lab as mx
    from hybrid_lab.gluon import ahead

    name, usual = WORKLOADS[title]
    net, x, _, _ = build(mx, name, batch or usual)
    trainer = mx.gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9})
    found = ahead.graphs_of(net, x, train=True)
    assert trainer is not None
    return found


def measure(title: str, targets: list[str]) -> dict[str, Any]:
    """What one workload's kernels are, and what they are on each target."""
    import traffic

    from hybrid_lab.engines.triton.build import compiling
    from hybrid_lab.engines.triton.build.targets import CHIPS
    from hybrid_lab.engines.triton.kernels import kernels_in
    from hybrid_lab.engines.triton.plan.other_batches import kernels_of

    row: dict[str, Any] = {"title": title, "batch": WORKLOADS[title][1], "parts": [], "targets": [], "missing": []}
    kernels = []
    for part, graph in graphs_of(title).items():
        started = time.perf_counter()
        lowered, fusion, sources = kernels_of(graph)
        seconds = time.perf_counter() - started
        made = kernels_in(lowered, fusion, part)
        kernels += made
        found = traffic.of(fusion)
        refused = [(node.op.name, reason) for node, reason in fusion.refused.items() if not node.op.view]
        row["missing"] += [f"{part}: {name}: {reason}" for name, reason in refused]
        row["parts"].append(
            {
                "part": part,
                "kernels": len(sources),
                "distinct": len({source.code for source in sources}),
                "operators": found.operators,
                "missing": len(refused),
                "moved": found.moved,
                "ideal": found.ideal,
                "seconds": seconds,
            }
        )
        print(title, row["parts"][-1], flush=True)
    for target in targets:
        failed: dict[int, str] = {}
        started, spent = time.perf_counter(), _spent()
        binaries = compiling.compile_all([kernel.generated for kernel in kernels], target, failed)
        seconds, spent = time.perf_counter() - started, _spent() - spent
        pairs = [(kernel, binary) for kernel, binary in zip(kernels, binaries, strict=True) if binary is not None]
        distinct = {binary.key: (kernel, binary) for kernel, binary in pairs}.values()
        spilling = {(each.kind, each.name, binary.resources.spills) for each, binary in distinct}
        spilling = {(kind, name, spills) for kind, name, spills in spilling if spills}
        aside = sum(binary.resources.scalar_spills > 0 for _, binary in distinct)
        row["targets"].append(
            {
                "target": target,
                "binaries": len(distinct),
                "failed": sorted({f"{kernels[index].name}: {_reason(text)}" for index, text in failed.items()}),
                "spilling": sorted(f"{kind} {name}: {spills}" for kind, name, spills in spilling if _plain(kind)),
                "others": sorted(f"{kind} {name}: {spills}" for kind, name, spills in spilling if not _plain(kind)),
                "aside": aside,
                "registers": max((binary.resources.registers for _, binary in distinct), default=0),
                "bytes": sum(binary.binary_bytes for _, binary in distinct),
                "estimate": sum(CHIPS[target].seconds(k.bytes_moved, k.flops, k.dtype) for k in kernels),
                "seconds": seconds,
                "spent": spent,
            }
        )
        print(title, row["targets"][-1], flush=True)
    return row


def _spent() -> float:
    """Processor seconds of all processes that were started and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _plain(kind: str) -> bool:
    """Pointwise and reduction kernels, which must not spill."""
    return kind.startswith(("pointwise", "rows", "parts of rows"))


def _reason(text: str) -> str:
    return text.rstrip().splitlines()[-1][:160]


def times(title: str = "ResNet-18", target: str = "gfx942") -> list[str]:
    """Starts of forward and backward, each in a process of its own, imports left out; warm ones the median of five."""
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "HYBRID_LAB_CACHE": folder}
        for how, batch, times in (("cold", None, 1), ("warm", None, 5), ("warm, batch 48", 48, 1)):
            runs = [
                _child(environment, "--start", title, "--target", target, *(["--batch", str(batch)] if batch else []))
                for _ in range(times)
            ]
            print(how, *runs, sep="\n", flush=True)
            for found in runs:
                found["whole"] = found["graphs"] + found["kernels"] + found["compile"]
            middle = {name: statistics.median(found[name] for found in runs) for name in runs[0]}
            seconds = " | ".join(f"{middle[name]:.2f}" for name in ("network", "graphs", "kernels", "compile", "spent"))
            least, most = min(found["whole"] for found in runs), max(found["whole"] for found in runs)
            whole = f"{middle['whole']:.2f}" + (f" ({least:.2f} to {most:.2f})" if times > 1 else "")
            lines.append(f"| {how} | {seconds} | {whole} | {runs[0]['started']} |")
    return lines


def batches(title: str = "ResNet-18", target: str = "gfx942") -> list[str]:
    """Other batches in the same process: from the call to the launches, as the interpreter's device makes them."""
    environment = {**os.environ, "HYBRID_LAB_CACHE": "", "HYBRID_LAB_TRITON": "interpret"}
    lines = []
    for mode in ("predict", "train"):
        for row in _child(environment, "--batches", title, "--target", target, "--mode", mode):
            print(mode, row, flush=True)
            lines.append(f"| {mode} | {row['batch']} | {row['ms']:.0f} | {row['binaries']} |")
    return lines


def _child(environment: dict[str, str], *arguments: str) -> Any:
    command = [sys.executable, str(HERE), *arguments]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def start(title: str, target: str, batch: int | None) -> dict[str, Any]:
    """What a start takes in this process, in seconds; "spent" are processor seconds of compiling."""
    from gluon_workloads import build

    import hybrid_lab as mx
    from hybrid_lab.engines.triton.build import compiling, internals
    from hybrid_lab.engines.triton.build.targets import target_of
    from hybrid_lab.engines.triton.plan.other_batches import kernels_of
    from hybrid_lab.gluon import ahead

    internals.version()
    kernels_of(graphs_of("LeNet", 2)["forward"])
    clock = [time.perf_counter()]
    name, usual = WORKLOADS[title]
    net, x, _, _ = build(mx, name, batch or usual)
    clock.append(time.perf_counter())
    graphs = [graph for part, graph in ahead.graphs_of(net, x, train=True).items() if part in ("forward", "backward")]
    clock.append(time.perf_counter())
    sources = [source for graph in graphs for source in kernels_of(graph)[2]]
    clock.append(time.perf_counter())
    before, spent = _binaries(), time.process_time() + _spent()
    compiling.compile_all(sources, target, {})
    for source in sources:
        compiling._loaded(source, target_of(target))
    clock.append(time.perf_counter())
    seconds = [after - before for before, after in pairwise(clock)]
    return {
        **dict(zip(("network", "graphs", "kernels", "compile"), seconds, strict=True)),
        "spent": time.process_time() + _spent() - spent,
        "started": _binaries() - before,
        "launches": len(sources),
    }


def other_batches(title: str, target: str, mode: str) -> list[dict[str, Any]]:
    """Milliseconds until the program of a call is there, and how many binaries it needs that none before it did."""
    from gluon_workloads import build

    import hybrid_lab as mx
    from hybrid_lab import autograd
    from hybrid_lab.engines.triton.build.compiling import request_of
    from hybrid_lab.engines.triton.build.targets import target_of
    from hybrid_lab.engines.triton.run.steps import KernelOperator
    from hybrid_lab.hybridize.structure import ONE_TENSOR

    name, usual = WORKLOADS[title]
    net, x, _, _ = build(mx, name, usual)
    net.hybridize(engine="triton")
    rows, known = [], set[str]()
    for batch in (usual, 24, 48, 37, 16, 40, 2 * usual, usual // 2 - 1, 128):
        given = mx.nd.zeros((batch, *x.shape[1:]))
        with autograd.record() if mode == "train" else autograd.predict_mode():
            started = time.perf_counter()
            program = net._graph_calls.program(ONE_TENSOR, (given,))
            seconds = time.perf_counter() - started
        parts = [part for part in (program.forward, program.backward) if part is not None]
        operators = [node.op for part in parts for node in part.graph.nodes if isinstance(node.op, KernelOperator)]
        keys = {request_of(kernel.source, target_of(target))["key"] for op in operators for kernel in op.kernels}
        rows.append({"batch": batch, "ms": 1e3 * seconds, "binaries": len(keys - known)})
        known |= keys
    return rows


def _binaries() -> int:
    from hybrid_lab.engines.triton.build.binaries import BINARIES

    folder = BINARIES.disk.folder()
    return len(list(folder.glob("*"))) if folder is not None and folder.is_dir() else 0


# -- the page ----------------------------------------------------------------------------------------------------------

PARTS = "## Graphs\n\n| workload | graph | kernels | distinct | operators | operators per kernel | without a kernel | MB moved | MB ideal | ratio | seconds to write |"  # noqa: E501
TARGETS_HEAD = "## Targets\n\n| workload | target | binaries | do not compile | spilling pointwise and reductions | spilling products and others | most registers | binaries, KiB | data-sheet estimate, ms | seconds to compile, cold | of processors | scalar registers moved aside |"  # noqa: E501
TIMES = "## A start of ResNet-18, forward and backward, on gfx942\n\n| start | network and weights, s | graphs, s | writing kernels, s | compiling or loading, s | of processors, s | without the network, s | binaries compiled |"  # noqa: E501
BATCHES = "## Other batches of ResNet-18 in one process, in this order\n\n| mode | batch | until its launches are there, ms | binaries that are new, gfx942 |"  # noqa: E501
NOTES = "## What is missing"


def page(rows: list[dict[str, Any]], started: list[str], others: list[str]) -> str:
    """The whole text; rows that were not measured now are kept as they stand in the file."""
    old = RESULT.read_text(encoding="utf-8") if RESULT.exists() else ""
    parts, targets, notes = [], [], []
    for row in rows:
        name = f"{row['title']}, batch {row['batch']}"
        for part in row["parts"]:
            ratio = part["moved"] / part["ideal"] if part["ideal"] else 1.0
            parts.append(
                f"| {name} | {part['part']} | {part['kernels']} | {part['distinct']} | {part['operators']} | "
                f"{part['operators'] / max(part['kernels'], 1):.1f} | {part['missing']} | {part['moved'] / 1e6:.1f} | "
                f"{part['ideal'] / 1e6:.1f} | {ratio:.2f} | {part['seconds']:.1f} |"
            )
        for target in row["targets"]:
            targets.append(
                f"| {name} | {target['target']} | {target['binaries']} | {len(target['failed'])} | "
                f"{len(target['spilling'])} | {len(target['others'])} | {target['registers']} | "
                f"{target['bytes'] / 1024:.0f} | {target['estimate'] * 1e3:.2f} | "
                f"{target['seconds']:.0f} | {target['spent']:.0f} | {target['aside']} |"
            )
            notes += [f"- {name}, {target['target']}: does not compile: {text}" for text in target["failed"]]
            notes += [f"- {name}, {target['target']}: registers spilled, {text}" for text in target["spilling"]]
            notes += [f"- {name}, {target['target']}: registers spilled, {text}" for text in target["others"]]
        counted: dict[str, int] = {}
        for text in row["missing"]:
            counted[text] = counted.get(text, 0) + 1
        notes += [f"- {name}: no kernel, {number} x {text}" for text, number in counted.items()]
    sections = [(PARTS, parts), (TARGETS_HEAD, targets), (TIMES, started), (BATCHES, others)]
    text = [_head()]
    for head, lines in sections:
        kept = _lines(old, head.splitlines()[0])
        if head in (TIMES, BATCHES):
            lines = lines or kept
        else:
            now = {_key(line) for line in lines}
            lines = _ordered([*(line for line in kept if _key(line) not in now), *lines])
        rule = re.sub(r"[^|]+", "---", head.splitlines()[-1])
        text += ["", head, rule, *lines]
    kept = [line for line in _lines(old, NOTES, "- ") if not _measured(line, rows)]
    notes = _ordered([*kept, *notes])
    text += ["", NOTES, "", *(notes or ["Nothing."])]
    return "\n".join(text) + "\n"


def _head() -> str:
    import triton  # machine() tells its version
    from harness import machine

    assert triton is not None
    return (
        "# Kernels ahead of time\n\n"
        f"{machine()}. No GPU is in the machine: `make bench-aot` compiles.\n\n"
        "Each training step has a forward, a backward and an SGD update with momentum. "
        "The operator counts leave views out. "
        "Bytes: what kernels read and write in one run, and what is unavoidable between the cuts named in "
        "benchmarks/traffic.py (attention in one kernel does without one, so a ratio may be below 1). The "
        "estimate is the sum of max(bytes / bandwidth, operations / peak) by the data sheet of one chip of the kind; "
        "nothing was measured on a GPU. Spilled registers are in memory. AMD's scalar registers that are moved aside "
        "are in lanes of vector registers, at the cost of an instruction each way and no memory; the last column has "
        "how many binaries do that. Seconds are those of a machine that others used too; processor seconds are what "
        "counts: two idle cores take half of them."
    )


def _lines(old: str, head: str, mark: str = "| ") -> list[str]:
    """The rows under a heading."""
    found = re.search(rf"^{re.escape(head)}$(.*?)(?=^## |\Z)", old, re.M | re.S)
    rows = [line for line in found[1].splitlines() if line.startswith(mark)] if found else []
    return rows[1:] if mark == "| " else rows


def _key(line: str) -> tuple[str, ...]:
    """The workload and the graph or target of a row."""
    return tuple(cell.strip() for cell in line.split("|")[1:3])


def _measured(note: str, rows: list[dict[str, Any]]) -> bool:
    """Whether a remark is about what was measured now."""
    row = next((row for row in rows if row["title"] == _title(note)), None)
    if row is None:
        return False
    targets = [target["target"] for target in row["targets"]]
    return ": no kernel, " in note or any(f", {target}: " in note for target in targets)


def _title(line: str) -> str:
    return line.lstrip("|- ").partition(",")[0]


def _ordered(lines: list[str]) -> list[str]:
    """By workload; rows of targets in the order of TARGETS, others as they came."""
    from hybrid_lab.engines.triton.build.targets import TARGETS

    def place(line: str) -> tuple[int, int]:
        titles, key = list(WORKLOADS), _key(line)
        target = key[1] if len(key) > 1 else ""
        return titles.index(_title(line)), TARGETS.index(target) if target in TARGETS else 0

    return sorted(lines, key=place)


def main() -> None:
    from hybrid_lab.engines.triton.build.targets import TARGETS

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", choices=list(WORKLOADS))
    parser.add_argument("--target", action="append", choices=list(TARGETS))
    parser.add_argument("--times", action="store_true", help="measure starts and other batches only")
    parser.add_argument("--start", help=argparse.SUPPRESS)
    parser.add_argument("--batches", help=argparse.SUPPRESS)
    parser.add_argument("--mode", help=argparse.SUPPRESS)
    parser.add_argument("--batch", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.start:
        print(json.dumps(start(given.start, given.target[0], given.batch)))
        return
    if given.batches:
        print(json.dumps(other_batches(given.batches, given.target[0], given.mode)))
        return
    os.environ["HYBRID_LAB_CPU"] = "numpy"
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        os.environ["HYBRID_LAB_CACHE"] = folder
        for title in given.only or ([] if given.times else WORKLOADS):
            try:
                rows.append(measure(title, given.target or list(TARGETS)))
            except Exception as error:  # the others are measured all the same
                print(f"{title} could not be measured: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
                continue
            RESULT.write_text(page(rows, [], []), encoding="utf-8")
    started, others = (times(), batches()) if given.times or not given.only else ([], [])
    RESULT.write_text(page(rows, started, others), encoding="utf-8")
    print(RESULT.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
