"""sanitize: the small items of smoke under NVIDIA's compute-sanitizer, which sees accesses out of bounds and races.

Where there is no such program, or it refuses the device, the items say so.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from gpu_day import smoke
from gpu_day.cases import CASES
from gpu_day.options import Item, Options

JOBS = 4
LIMIT = 240.0
TOOLS = ("memcheck", "racecheck")
SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "gpu_day.py"
#: What the program says when it cannot work here.
_REFUSALS = ("not supported", "Failed to initialize", "Unable to")


def items(options: Options) -> list[Item]:
    names = [f"{case}, small, float32" for case in CASES]
    names += ["training by sgd", "dropout"]
    return [Item(f"{tool}: {name}", LIMIT) for tool in TOOLS for name in names]


def run(name: str, options: Options) -> dict[str, Any]:
    """How many errors the tool has seen. Raises AssertionError where there are some."""
    from gpu_day.worker import Skip

    program = shutil.which("compute-sanitizer") or shutil.which("/usr/local/cuda/bin/compute-sanitizer")
    if program is None:
        raise Skip("compute-sanitizer is not installed here")
    tool, _, item = name.partition(": ")
    inner = [sys.executable, str(SCRIPT), "--item", item, options.text()]
    command = [program, "--tool", tool, "--print-limit", "20", "--target-processes", "all", *inner]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return judged(done.stdout)


def judged(text: str) -> dict[str, Any]:
    """The number of errors in the tool's output. Raises Skip, or AssertionError with its first lines."""
    from gpu_day.worker import Skip

    told = [line for line in text.splitlines() if line.startswith("=========")]
    summary = re.search(r"(?:ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: (\d+) hazard)", text)
    if summary is None:
        if any(refusal in line for line in told for refusal in _REFUSALS) or not told:
            raise Skip(f"compute-sanitizer does not work here: {' '.join(told[:3]) or text[-300:]}")
        raise AssertionError("\n".join(told[:40]) or text[-2000:])
    errors = int(summary[1] or summary[2] or 0)
    assert errors == 0, "\n".join(told[:40])
    assert "item passed" in text, text[-2000:]
    return {"errors": errors}


def run_one(item: str, options: Options) -> None:
    """Run one item of the stage `smoke` inside the tool."""
    smoke.run(item, options)
    print("item passed", flush=True)
