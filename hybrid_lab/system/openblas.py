"""Which kernels OpenBLAS takes: looked after before NumPy loads it, because later is too late.

OpenBLAS chooses by the processor's family, and takes its AVX2 kernels on AMD processors that are newer than it. If such
a processor has AVX-512, naming OpenBLAS's AVX-512 kernels doubles the speed of matrix products (measured on Zen 5: 114
and 218 GF/s).
"""

from __future__ import annotations

import os
import sys
from collections.abc import MutableMapping
from pathlib import Path

VARIABLE, KERNELS = "OPENBLAS_CORETYPE", "SkylakeX"
#: Processor features that the kernels need.
_FLAGS = frozenset({"avx512f", "avx512bw", "avx512dq", "avx512vl"})


def choose_kernels(environment: MutableMapping[str, str] = os.environ, cpuinfo: str = "/proc/cpuinfo") -> None:
    """Set OPENBLAS_CORETYPE if it pays, the variable is not set, and NumPy is not loaded yet."""
    if "numpy" not in sys.modules and VARIABLE not in environment and _pays(cpuinfo):
        environment[VARIABLE] = KERNELS


def advice(environment: MutableMapping[str, str] = os.environ, cpuinfo: str = "/proc/cpuinfo") -> str:
    """Advice if NumPy was loaded first; "" if there is nothing to do."""
    if VARIABLE in environment or not _pays(cpuinfo):
        return ""
    return f"set {VARIABLE}={KERNELS} before Python starts: NumPy was imported first and may use slower kernels"


def _pays(cpuinfo: str) -> bool:
    try:
        with Path(cpuinfo).open(encoding="utf-8", errors="replace") as file:
            first = file.read(4096).split("\n\n")[0]
    except OSError:
        return False
    fields = dict(line.split(":", 1) for line in first.splitlines() if ":" in line)
    named = {key.strip(): value.strip() for key, value in fields.items()}
    return named.get("vendor_id") == "AuthenticAMD" and set(named.get("flags", "").split()) >= _FLAGS
