"""A worker process: names of items as JSON lines on standard input, one line of answer for each.

Its first line describes the machine, or says what is missing. An answer has "lost" where the GPU's context cannot be
used any more, as after an illegal access: every later call of such a process would fail.
"""

from __future__ import annotations

import faulthandler
import json
import os
import platform
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from gpu_day.options import Options
from gpu_day.results import FAILED, PASSED, SKIPPED


class Skip(Exception):
    """Raised by an item that this machine cannot run; the message says why."""


def main(options: Options) -> None:
    """Answer until the input ends. Whatever else is printed goes to standard error."""
    requests = os.fdopen(os.dup(0), encoding="utf-8")  # pytest closes standard input to tests
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    faulthandler.enable()

    def send(answer: dict[str, Any]) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    stage = options.module()
    use_folders(options)
    missing = use_gpu(options)
    if missing:
        send({"error": missing})
        return

    def serve() -> None:
        send({"machine": machine()})
        for line in requests:
            answer = outcome(stage, json.loads(line), options)
            send(answer | ({"lost": True} if is_lost() else {}))

    if hasattr(stage, "around"):
        stage.around(options, serve)
    else:
        serve()


def outcome(stage: ModuleType, name: str, options: Options) -> dict[str, Any]:
    """Run one item: its status with the result or the error."""
    try:
        found = stage.run(name, options)
    except Skip as reason:
        return {"status": SKIPPED, "error": str(reason)}
    except Exception:
        return {"status": FAILED, "error": traceback.format_exc(limit=-6)[-3000:]}
    # A stage that knows more than "it did not raise" says the status itself.
    return found if "status" in found else {"status": PASSED, "result": found}


def use_folders(options: Options) -> None:
    """Compiled kernels of every kind go to the stage's cache folder."""
    os.environ["HYBRID_LAB_CACHE"] = str(Path(options.cache) / "hybrid_lab")
    os.environ["TRITON_CACHE_DIR"] = str(Path(options.cache) / "triton")
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(Path(options.cache) / "inductor")
    os.environ["HYBRID_LAB_CPU"] = "numpy"


def use_gpu(options: Options) -> str | None:
    """Find the GPU; return what is missing, in words, where there is none."""
    if options.simulate:
        import tests.simulated_gpu as simulated_gpu
        from tests.simulated_gpu.plugin import stand_in

        simulated_gpu.start(options.simulate)
        if os.environ.get("SIMULATED_COMPILE") != "1":
            stand_in()
    from hybrid_lab.engines.triton.run import availability

    if availability.interpreting():
        return "HYBRID_LAB_TRITON=interpret is set: there is no GPU to be measured"
    return availability.missing()


def is_lost() -> bool:
    """Whether the GPU does not answer this process any more."""
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    try:
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
    except RuntimeError:
        return True
    return False


def machine() -> dict[str, Any]:
    """The GPU, its driver and the versions."""
    import numpy
    import torch
    import triton

    import hybrid_lab
    from hybrid_lab.engines.triton.run import availability

    properties = torch.cuda.get_device_properties(0)
    return {
        "gpu": torch.cuda.get_device_name(0),
        "target": availability.device_name(),
        "memory MiB": properties.total_memory >> 20,
        "multiprocessors": properties.multi_processor_count,
        "L2 MiB": getattr(properties, "L2_cache_size", 0) >> 20,
        "driver": _driver(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "toolkit": f"ROCm {torch.version.hip}" if torch.version.hip else f"CUDA {torch.version.cuda}",
        "triton": triton.__version__,
        "numpy": numpy.__version__,
        "hybrid_lab": hybrid_lab.__version__,
        "cores": os.cpu_count(),
        "system": platform.platform(),
    }


def _driver() -> str:
    """The driver's version as the kernel's modules say it; "" where they do not."""
    for path in ("/sys/module/nvidia/version", "/sys/module/amdgpu/version"):
        try:
            return Path(path).read_text(encoding="utf-8").strip()
        except OSError:
            continue
    return ""
