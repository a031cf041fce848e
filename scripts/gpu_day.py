"""python3 scripts/gpu_day.py STAGE --out DIR: what the Triton engine does on this machine's GPU, AMD or NVIDIA.

Stages: smoke, tests, kernels, steps, sanitize; `all` runs one after the other. Each takes at most nine minutes and
writes DIR/STAGE.jsonl after every item; started again, it goes on where it stopped. `report` makes tables of the files,
`prepare` compiles kernels ahead for a GPU that is elsewhere. Nothing needs to be installed but torch, triton and numpy:
the package is taken from this checkout. docs/gpu.md tells more.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks"), str(ROOT / "benchmarks" / "cpu")]

if __name__ == "__main__":
    from gpu_day.command import main

    sys.exit(main(sys.argv[1:]))
