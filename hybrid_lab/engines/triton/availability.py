"""What the Triton engine can run on here: a GPU that torch reaches, Triton's interpreter, or nothing - and then why."""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hybrid_lab.engines.triton.internals import interpret

INTERPRET = "interpret"


@dataclass(frozen=True)
class Device:
    """name : for people, "gfx1100", "sm90" or "the interpreter"; torch : torch's name of it; interpreted : no GPU
    at all
    """

    name: str
    torch: str
    interpreted: bool


def interpreting() -> bool:
    """Whether HYBRID_LAB_TRITON=interpret lets Triton's interpreter stand in for a GPU."""
    return os.environ.get("HYBRID_LAB_TRITON") == INTERPRET


def missing() -> str | None:
    """What is missing, with the next step; None where kernels can run. Imports torch only where a GPU's driver is
    seen.
    """
    for module in ("triton", "torch"):
        if importlib.util.find_spec(module) is None:
            extras = "hybrid-lab[cuda] for NVIDIA, hybrid-lab[rocm] with the documented index for AMD"
            return f"{module} is not installed; pip install {extras}"
    if interpreting():
        return None
    if not _driver_seen():
        return (
            "no AMD or NVIDIA GPU is seen on this machine; hybridize() without engine= takes onnxruntime or numpy, and "
            "HYBRID_LAB_TRITON=interpret runs the kernels in Triton's interpreter (slow, for tests)"
        )
    return _gpu_problem()


def _driver_seen() -> bool:
    return any(Path(path).exists() for path in ("/dev/kfd", "/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg"))


@functools.lru_cache
def _gpu_problem() -> str | None:
    import torch

    if not torch.cuda.is_available():
        build = "ROCm" if torch.version.hip else "CUDA" if torch.version.cuda else "CPU"
        return (
            f"torch {torch.__version__} ({build} build) reaches no GPU; install the torch build for this GPU and check "
            "its driver"
        )
    if not any(shutil.which(name) for name in (os.environ.get("CC", "cc"), "gcc", "clang")):
        return "Triton builds a small helper at first use and finds no C compiler; install gcc or clang, or set CC"
    return None


@functools.lru_cache
def device() -> Device:
    """The device that kernels run on; call it only where `missing()` is None."""
    if interpreting():
        interpret()
        return Device("the interpreter", "cpu", True)
    import torch

    properties = torch.cuda.get_device_properties(0)
    if torch.version.hip:
        return Device(properties.gcnArchName.split(":")[0], "cuda", False)
    return Device(f"sm{properties.major}{properties.minor}", "cuda", False)


@functools.lru_cache
def torch_device() -> Any:
    """torch's name of the device's memory. The interpreter's is on the CPU, apart from the host's arrays."""
    import torch

    return torch.device(device().torch, 0) if device().torch != "cpu" else torch.device("cpu")
