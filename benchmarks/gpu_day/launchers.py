"""Launchers of kernels, built for a GPU that need not be here.

Triton up to 3.6 has a C compiler build a launcher for each list of argument types, and once the module that talks to
the driver. For NVIDIA their text and their names in Triton's cache are the same on every machine; for AMD they hold the
path of the driver's library, so AMD's cannot be built elsewhere. Newer Tritons build none.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "gpu_day.py"
#: The files' folder in an archive and under the folder of `prepare`.
FOLDER = "launchers"


def build(requests: Iterable[dict[str, Any]], folder: Path) -> str:
    """Build the launchers of compiled kernels into a folder that is Triton's cache; what went wrong, "" if nothing did.

    requests : what `compiling.request_of` gives; of kernels with the same types one is enough. For NVIDIA only
    The work is a process's of its own, which takes the simulated GPU's library for the driver's.
    """
    environment = os.environ | {"TRITON_CACHE_DIR": str(folder)}
    environment.pop("TRITON_INTERPRET", None)
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--launchers"], input=json.dumps(list(requests)), env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    return "" if done.returncode == 0 else (done.stdout.strip() or f"status {done.returncode}")


def main() -> None:
    """Build what standard input asks for."""
    from hybrid_lab.engines.triton.build import internals
    from hybrid_lab.engines.triton.build.binaries import BINARIES
    from tests.simulated_gpu import driver_library

    requests: Sequence[dict[str, Any]] = json.load(sys.stdin)
    if not internals.builds_launchers("cuda"):
        return
    with tempfile.TemporaryDirectory(prefix="hybrid_lab_driver_") as folder:
        ctypes.CDLL(str(driver_library(folder, hip=False)), mode=ctypes.RTLD_GLOBAL)
        internals.build_driver_module("cuda")
        compiled = []
        for request in requests:
            binary = BINARIES.find(request["key"])
            assert binary is not None, f"{request['name']} was not compiled"
            parts = (request[name] for name in ("name", "signature", "constants", "divisible", "far", "target"))
            compiled.append(internals.load_binary(*parts, binary.files, binary.key))
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            list(pool.map(lambda each: internals.build_launcher(each, "cuda"), compiled))
