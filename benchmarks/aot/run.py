"""Kernels compiled ahead of time for five GPUs that need not be here; writes benchmarks/results/aot.md.

`python benchmarks/aot/run.py [--only LeNet] [--target gfx942] [--times]` measures a part; rows of the rest stay.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
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
    from hybrid_lab.engines.triton import compiling, traffic
    from hybrid_lab.engines.triton.engine import kernels_of
    from hybrid_lab.engines.triton.kernels import kernels_in
    from hybrid_lab.engines.triton.targets import CHIPS

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
    """Cold, warm and with another batch, forward and backward; each in a process of its own, imports left out."""
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "HYBRID_LAB_CACHE": folder}
        for how, batch in (("cold", None), ("warm", None), ("another batch", 2 * WORKLOADS[title][1])):
            command = [sys.executable, str(HERE), "--start", title, "--target", target]
            command += [] if batch is None else ["--batch", str(batch)]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
            found = json.loads(done.stdout.splitlines()[-1])
            print(how, found, flush=True)
            seconds = " | ".join(f"{found[name]:.2f}" for name in ("graphs", "kernels", "spent", "compile"))
            lines.append(f"| {how} | {seconds} | {found['started']} |")
    return lines


def start(title: str, target: str, batch: int | None) -> dict[str, Any]:
    """What a start takes in this process."""
    from hybrid_lab.engines.triton import compiling, internals
    from hybrid_lab.engines.triton.engine import kernels_of
    from hybrid_lab.engines.triton.targets import target_of

    internals.version()
    kernels_of(graphs_of("LeNet", 2)["forward"])
    begun = time.process_time()
    graphs = [graph for part, graph in graphs_of(title, batch).items() if part in ("forward", "backward")]
    traced = time.process_time()
    sources = [source for graph in graphs for source in kernels_of(graph)[2]]
    written = time.process_time()
    before, spent, clock = _binaries(), _spent(), time.perf_counter()
    made = compiling.compile_all(sources, target, {})
    for source, binary in zip(sources, made, strict=True):
        if binary is not None:
            request = compiling.request_of(source, target_of(target))
            internals.load_binary(
                source.name, request["signature"], request["constants"], request["divisible"], target_of(target),
                binary.paths, binary.key,
            )  # fmt: skip
    return {
        "graphs": traced - begun,
        "kernels": written - traced,
        "compile": time.perf_counter() - clock,
        "spent": time.process_time() - written + _spent() - spent,
        "started": _binaries() - before,
        "launches": len(sources),
    }


def _binaries() -> int:
    from hybrid_lab.engines.triton.binaries import store

    return len(list(store().folder.glob("*"))) if store().folder.is_dir() else 0


# -- the page ----------------------------------------------------------------------------------------------------------

PARTS = "## Graphs\n\n| workload | graph | kernels | distinct | operators | operators per kernel | without a kernel | MB moved | MB ideal | ratio | seconds to write |"  # noqa: E501
TARGETS_HEAD = "## Targets\n\n| workload | target | binaries | do not compile | spilling pointwise and reductions | spilling products and others | most registers | binaries, KiB | data-sheet estimate, ms | seconds to compile, cold | of processors | scalar registers moved aside |"  # noqa: E501
TIMES = "## A start of ResNet-18, forward and backward, on gfx942\n\n| start | graphs, processor s | writing kernels, processor s | compiling or loading, processor s | compiling or loading, s | binaries compiled |"  # noqa: E501
NOTES = "## What is missing"


def page(rows: list[dict[str, Any]], started: list[str]) -> str:
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
    sections = [(PARTS, parts), (TARGETS_HEAD, targets), (TIMES, started)]
    text = [_head()]
    for head, lines in sections:
        kept = _lines(old, head.splitlines()[0])
        if head is TIMES:
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
        "Training steps: forward, backward, and an update by SGD with momentum. Operators are counted without views. "
        "Bytes: what kernels read and write in one run, and what no choice of kernels could save (engines/triton/"
        "traffic.py says how it is counted). The estimate is the sum of max(bytes / bandwidth, operations / peak) by "
        "the data sheet of one chip of the kind; nothing was measured on a GPU. Spilled registers are in memory. "
        "AMD's scalar registers that are moved aside are in lanes of vector registers, at the cost of an instruction "
        "each way and no memory; the last column has how many binaries do that. Seconds are those of a machine that "
        "others used too; processor seconds are what counts: two idle cores take half of them."
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
    from hybrid_lab.engines.triton.targets import TARGETS

    def place(line: str) -> tuple[int, int]:
        titles, key = list(WORKLOADS), _key(line)
        target = key[1] if len(key) > 1 else ""
        return titles.index(_title(line)), TARGETS.index(target) if target in TARGETS else 0

    return sorted(lines, key=place)


def main() -> None:
    from hybrid_lab.engines.triton.targets import TARGETS

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", choices=list(WORKLOADS))
    parser.add_argument("--target", action="append", choices=list(TARGETS))
    parser.add_argument("--times", action="store_true", help="measure the starts only")
    parser.add_argument("--start", help=argparse.SUPPRESS)
    parser.add_argument("--batch", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.start:
        print(json.dumps(start(given.start, given.target[0], given.batch)))
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
            RESULT.write_text(page(rows, []), encoding="utf-8")
    started = times() if given.times or not given.only else []
    RESULT.write_text(page(rows, started), encoding="utf-8")
    print(RESULT.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
