"""The package of scripts/gpu_day.py is found as the script finds it."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
for folder in ("benchmarks/cpu", "benchmarks"):
    if str(ROOT / folder) not in sys.path:
        sys.path.append(str(ROOT / folder))
