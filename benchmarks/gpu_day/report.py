"""report: tables of the results in a folder, as Markdown; runs anywhere, without a GPU.

gpu-<GPU>.md has everything: what passed, layers beside torch, kernels by how far they are from what the GPU allows,
tiles, and steps. If a stage was cut off, its table has what there is, and the page counts and names the missing items.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from gpu_day.options import STAGES
from gpu_day.results import DIED, FAILED, LATE, PASSED, SKIPPED, Results

TABLES = Path(__file__).resolve().parents[1] / "results"
RUNTIMES = ("hybrid", "hybrid captured", "torch eager", "torch.compile")

Row = Sequence[str]


def write(out: Path, tables: Path | None = None) -> int:
    """Write gpu-<GPU>.md; 1 where the folder has no results."""
    stages = {stage: Results(out, stage) for stage in STAGES}
    machines = [stage.machine for stage in stages.values() if stage.machine]
    if not machines:
        print(f"{out} has no results")
        return 1
    folder = tables or TABLES
    folder.mkdir(parents=True, exist_ok=True)
    label = re.sub(r"\W+", "-", machines[0]["gpu"]).strip("-").lower()
    path = folder / f"gpu-{label.removeprefix('gpu-')}.md"
    path.write_text(page(stages), encoding="utf-8")
    print(path)
    return 0


def page(stages: dict[str, Results]) -> str:
    """The whole text."""
    machine = next(stage.machine for stage in stages.values() if stage.machine)
    others = [stage.machine["gpu"] for stage in stages.values() if stage.machine]
    parts = [f"# {machine['gpu']}", _machine(machine)]
    if len(set(others)) > 1:
        parts.append(f"The stages ran on different machines: {', '.join(dict.fromkeys(others))}.")
    parts += [
        "## What ran",
        table(["stage", PASSED, FAILED, LATE, DIED, SKIPPED, "not reached"], _counts(stages.values())),
    ]
    parts += _problems(stages)
    parts += _unreached(stages)
    kernels, steps = stages["kernels"].items, stages["steps"].items
    for title, text, head, rows in (
        ("Steps", "Medians in ms, a process for each figure; the GPU's work is waited for after every step.",
         ["step", *RUNTIMES, "torch eager / ours", "torch.compile / ours"], step_rows(steps)),
        ("First calls, launches and memory", "The first call, and how many kernels were compiled in it; launches "
         "of a step, which are replays and copies where they are captured; the host's microseconds for each.",
         ["step", "first, s", "compiled", "host, ms", "launches", "us a launch", "kernels", "memory, MiB"],
         detail_rows(steps)),
        ("Layers", "Microseconds with a cold cache, on random numbers; of what takes the host longer than the GPU, the "
         "host's. `vendor` is torch's library, called by the "
         "engine in the kernel's place. The last column is the kernels' time over the least that this GPU allows.",
         ["layer", "kernels", "vendor", "torch", "torch / ours", "TFLOP/s", "over the limit"],
         layer_rows(kernels)),
        ("Kernels of the networks", "The slowest of each training step, with how often it runs: seconds times runs.",
         ["network", "kernel", "kind", "runs", "us", "over the limit"], network_rows(kernels)),
        ("Tiles", "Microseconds of every candidate; the first is what is taken without tuning.",
         ["kernel", "candidates", "left out"], tile_rows(kernels)),
    ):  # fmt: skip
        if rows:
            parts += [f"## {title}", text, table(head, rows)]
    return "\n\n".join(parts) + "\n"


def table(head: Sequence[str], rows: Iterable[Row]) -> str:
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *(f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in rows)])


def _machine(machine: dict[str, Any]) -> str:
    names = ("driver", "toolkit", "python", "torch", "triton", "numpy", "hybrid_lab", "cores", "system")
    facts = ", ".join(f"{name} {machine[name]}" for name in names if machine.get(name))
    return (
        f"{machine['target']}, {machine['memory MiB']} MiB, {machine['multiprocessors']} multiprocessors, "
        f"{machine['L2 MiB']} MiB of L2; {facts}."
    )


def _counts(stages: Iterable[Results]) -> list[Row]:
    statuses = (PASSED, FAILED, LATE, DIED, SKIPPED)
    return [
        [stage.path.stem, *(str(stage.counts().get(status, 0)) for status in statuses), str(len(stage.unreached))]
        for stage in stages
        if stage.items or stage.unreached
    ]


def _problems(stages: dict[str, Results]) -> list[str]:
    lines = []
    for stage, results in stages.items():
        for name, record in results.items.items():
            if record["status"] in (FAILED, LATE, DIED):
                said = (record.get("error") or "").strip().splitlines()
                lines.append(f"- {stage}, {name}: {record['status']}; {said[-1][:200] if said else ''}")
    return ["## What went wrong", "\n".join(lines[:100])] if lines else []


def _unreached(stages: dict[str, Results]) -> list[str]:
    """Items that the time did not suffice for. One that was running may hang."""
    lines = []
    for stage, results in stages.items():
        begun = {name: ran for name, ran in results.unreached.items() if ran}
        lines += [f"- {stage}, {name}: the time was up after {ran:.0f} s of it" for name, ran in begun.items()]
        waiting = [name for name in results.unreached if name not in begun]
        lines += [f"- {stage}: {'; '.join(waiting[:50])}" + "; ..." * (len(waiting) > 50)] if waiting else []
    return ["## What was not reached", "\n".join(lines)] if lines else []


# -- steps -------------------------------------------------------------------------------------------------------------


def _passed(items: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {
        name: record["result"]
        for name, record in items.items()
        if record["status"] == PASSED and not name.startswith("compile: ")
    }


def step_rows(items: dict[str, dict[str, Any]]) -> list[Row]:
    """One row for a mode, network and precision, and the geometric means of what is faster by how much."""
    found: dict[tuple[str, str, str], dict[str, float]] = {}
    for name, result in _passed(items).items():
        mode, network, runtime, precision = name.split(", ")
        found.setdefault((mode, network, precision), {})[runtime] = result["ms"]
    rows, ratios = [], dict[str, list[float]]()
    for key, times in found.items():
        ours = min((times[name] for name in RUNTIMES[:2] if name in times), default=None)
        row = [", ".join(key), *(f"{times[name]:.3g}" if name in times else "" for name in RUNTIMES)]
        for rival in RUNTIMES[2:]:
            if ours is None or rival not in times:
                row.append("")
                continue
            ratios.setdefault(rival, []).append(times[rival] / ours)
            row.append(f"{times[rival] / ours:.2f}")
        rows.append(row)
    if rows:
        means = [f"{statistics.geometric_mean(ratios[name]):.2f}" if name in ratios else "" for name in RUNTIMES[2:]]
        rows.append(["geometric mean", *[""] * len(RUNTIMES), *means])
    return rows


def detail_rows(items: dict[str, dict[str, Any]]) -> list[Row]:
    rows = []
    for name, result in _passed(items).items():
        launches = result["launches"]
        each = result["host us a launch"]
        rows.append([
            name, f"{result['first s']:.2f}", str(result.get("compiled", "")), f"{result['host ms']:.3g}",
            " + ".join(f"{number:g} {what}" for what, number in launches.items() if number) if launches else "",
            f"{each:.1f}" if each is not None else "", str(result["kernels"] or ""), f"{result['memory MiB']:.0f}",
        ])  # fmt: skip
    return rows


# -- kernels -----------------------------------------------------------------------------------------------------------


def limit(kernel: dict[str, Any], ceilings: dict[str, float], precision: str) -> float:
    """The least seconds for what a kernel moves and computes, by what a copy and torch's products reached here."""
    peak = ceilings.get(f"{precision} TFLOP/s") or ceilings.get("float32 TFLOP/s") or float("inf")
    return max(kernel["bytes"] / (ceilings["copy GB/s"] * 1e9), _product_flops(kernel) / (peak * 1e12))


def _product_flops(kernel: dict[str, Any]) -> float:
    """Operations of products; those of other kernels cost next to nothing."""
    multiplies = any(word in kernel["kind"] for word in ("product", "attention", "recurrence"))
    return kernel["flops"] if multiplies else 0


def layer_rows(items: dict[str, dict[str, Any]]) -> list[Row]:
    found = _passed(items)
    ceilings = found.get("ceilings")
    rows = []
    for name, result in found.items():
        if "torch" not in result:
            continue
        kernels, precision = result["kernels"], name.rpartition(", ")[2]
        ours = sum(kernel["seconds"]["rule"] * kernel["times"] for kernel in kernels)
        vendor = sum(kernel["seconds"].get("vendor", kernel["seconds"]["rule"]) * kernel["times"] for kernel in kernels)
        has_vendor = any("vendor" in kernel["seconds"] for kernel in kernels)
        torch = {key: each for key, each in result["torch"].items() if not isinstance(each, str)}
        best = min(torch.values(), default=None)
        least = sum(limit(kernel, ceilings, precision) * kernel["times"] for kernel in kernels) if ceilings else None
        rows.append([
            name, f"{1e6 * ours:.1f}", f"{1e6 * vendor:.1f}" if has_vendor else "",
            ", ".join(f"{key.removeprefix('torch').strip()} {1e6 * each:.1f}".strip() for key, each in torch.items()),
            f"{best / ours:.2f}" if best else "", f"{result['flops'] / ours / 1e12:.1f}" if result["flops"] else "",
            f"{ours / least:.2f}" if least else "",
        ])  # fmt: skip
    return rows


def network_rows(items: dict[str, dict[str, Any]], most: int = 12) -> list[Row]:
    """The kernels of each network that take longest, and what all of them take."""
    found = _passed(items)
    ceilings = found.get("ceilings")
    rows = []
    for name, result in found.items():
        if not name.startswith("network: ") or not ceilings:
            continue
        network, precision = name.removeprefix("network: "), name.rpartition(", ")[2]
        kernels = sorted(result["kernels"], key=lambda each: -each["seconds"]["rule"] * each["times"])
        whole = sum(each["seconds"]["rule"] * each["times"] for each in kernels)
        least = sum(limit(each, ceilings, precision) * each["times"] for each in kernels)
        runs = sum(each["times"] for each in kernels)
        rows.append([network, "all", "", str(runs), f"{1e6 * whole:.0f}", f"{whole / least:.2f}" if least else ""])
        for each in kernels[:most]:
            seconds, best = each["seconds"]["rule"], limit(each, ceilings, precision)
            rows.append([
                network, each["name"], each["kind"], str(each["times"]), f"{1e6 * seconds:.1f}", f"{seconds / best:.2f}"
            ])  # fmt: skip
    return rows


def tile_rows(items: dict[str, dict[str, Any]]) -> list[Row]:
    rows = []
    for name, result in _passed(items).items():
        if name.startswith("tiles: "):
            for each in result["kernels"]:
                first = each["seconds"]["rule"]
                times = ", ".join(
                    f"{title} {1e6 * seconds:.1f}" + " (faster)" * (seconds < 0.97 * first)
                    for title, seconds in each["seconds"].items()
                )
                left = "; ".join(f"{title}: {reason}" for title, reason in each["left_out"].items())
                rows.append([f"{name.removeprefix('tiles: ')}, {each['name']}", times, left[:300]])
    return rows
