"""The device of the Triton engine on this machine: a GPU that torch reaches, Triton's interpreter, or nothing, with the
reason.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hybrid_lab.diagnostics.errors import EngineError
from hybrid_lab.engines import libraries
from hybrid_lab.engines.libraries import import_library
from hybrid_lab.engines.triton.build import internals
from hybrid_lab.engines.triton.build.internals import interpret
from hybrid_lab.engines.triton.build.targets import names, supported
from hybrid_lab.system.logger import logger

INTERPRET = "interpret"
#: torch's name of a GPU, of AMD's too.
TORCH_NAME = "cuda"
#: AMD's builds are on no index that pip knows by itself.
ROCM_INSTALL = (
    "pip install torch pytorch-triton-rocm --index-url https://download.pytorch.org/whl/rocm6.4 (for torch 2.10 and "
    "newer take a newer index, and leave pytorch-triton-rocm out: their torch brings a Triton of another name)"
)


@dataclass(frozen=True)
class Device:
    """name : for people, "gfx1100", "sm90" or "the interpreter"; torch : torch's name of it; interpreted : no GPU
    at all
    """

    name: str
    torch: str
    interpreted: bool


def setting() -> str:
    """What HYBRID_LAB_TRITON says, "" if it is not set."""
    return os.environ.get("HYBRID_LAB_TRITON", "")


def interpreting() -> bool:
    """Whether HYBRID_LAB_TRITON=interpret lets Triton's interpreter stand in for a GPU."""
    return setting() == INTERPRET


def missing() -> str | None:
    """The missing part, with the next step; None if kernels can run. Imports torch only if a GPU's driver is seen."""
    if setting() not in ("", INTERPRET):
        return f"HYBRID_LAB_TRITON={setting()}: the variable takes {INTERPRET}, or nothing"
    if sys.platform != "linux" and "triton" in _absent():
        return f"Triton runs on Linux, not on {sys.platform}; hybridize() without engine= takes another engine"
    if interpreting():
        absent = _absent()
        # The interpreter runs with any build of torch.
        return f"{_are_missing(absent)}; pip install {' '.join(absent)}" if absent else None
    if not libraries.driver_seen():
        return (
            "no AMD or NVIDIA GPU is seen on this machine; hybridize() without engine= takes an engine of the CPU, "
            "net.compile_for('gfx942', inputs=x) has the kernels for one that is elsewhere, and "
            "HYBRID_LAB_TRITON=interpret runs them in Triton's interpreter (slow, for tests)"
        )
    absent = _absent()
    if absent:
        return f'{_are_missing(absent)}; NVIDIA: pip install "hybrid-lab[cuda]"; AMD: {ROCM_INSTALL}'
    return _gpu_problem()


def _absent() -> list[str]:
    return [module for module in ("triton", "torch") if importlib.util.find_spec(module) is None]


def _are_missing(modules: Sequence[str]) -> str:
    return f"{' and '.join(modules)} {'are' if len(modules) > 1 else 'is'} not installed"


def _may_use_amd() -> bool:
    node = Path("/dev/kfd")
    return not node.exists() or os.access(node, os.R_OK | os.W_OK)


@functools.lru_cache
def _gpu_problem() -> str | None:
    try:
        torch = import_library("torch")
        import_library("triton")
    except Exception as error:  # a library that is not there, or of another CUDA or ROCm
        return (
            f"torch and triton are installed but do not load ({type(error).__name__}: {error}); install a pair that "
            "belongs together: pip install --force-reinstall torch, from the index for this GPU"
        )
    if not torch.cuda.is_available():
        if torch.version.hip and not _may_use_amd():
            return (
                "the AMD GPU is there, but this user may not use it (/dev/kfd); sudo usermod -aG render,video $USER, "
                "then log in anew; in a container: --device=/dev/kfd --device=/dev/dri --group-add video"
            )
        build = "ROCm" if torch.version.hip else "CUDA" if torch.version.cuda else "CPU"
        return (
            f"torch {torch.__version__} ({build} build) reaches no GPU; install the torch build for this GPU and check "
            "its driver"
        )
    name = device_name()
    if not supported(name):
        return (
            f"this GPU is a {name}, which Triton does not compile for; it does for {', '.join(names())}; "
            "hybridize(engine='onnxruntime') runs on the CPU"
        )
    if c_compiler() is None:
        chosen = os.environ.get("CC")
        compiler = f"CC names {chosen!r}, which is not there" if chosen else "finds no C compiler"
        return (
            f"Triton builds a small helper at first use and {compiler}; install gcc or clang (Debian: apt-get install "
            "gcc libc6-dev), or set CC to one"
        )
    distributions = triton_distributions()
    if len(distributions) > 1:
        logger.warning(two_tritons(distributions))
    return None


def c_compiler() -> str | None:
    """The C compiler that Triton takes: $CC, else gcc or clang; None if there is none."""
    chosen = os.environ.get("CC")
    if chosen:
        return shutil.which(chosen.split()[0])
    return shutil.which("gcc") or shutil.which("clang")


#: The distributions that bring a module `triton`.
_DISTRIBUTIONS = (
    "triton", "pytorch-triton-rocm", "triton-rocm", "pytorch-triton", "pytorch-triton-xpu", "triton-windows",
)  # fmt: skip


def triton_distributions() -> dict[str, str]:
    """The installed distributions of Triton, with their versions. More than one is a mistake: they overwrite one
    another.
    """
    import importlib.metadata  # loads a dozen modules, and most machines have no GPU

    versions = {}
    for name in _DISTRIBUTIONS:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return versions


def fitting_extra(distributions: Mapping[str, str], rocm: bool) -> str:
    """The extra of this package that an installed Triton satisfies. rocm : torch is a build for AMD GPUs

    PyTorch's ROCm index calls it pytorch-triton-rocm up to torch 2.9, and triton-rocm from 2.10 on; AMD's own wheels
    bring a distribution called triton.
    """
    if "pytorch-triton-rocm" in distributions:
        return "rocm"
    return "amd" if rocm or "triton-rocm" in distributions else "cuda"


@functools.cache
def multiplies_float64() -> bool:
    """Whether `tl.dot` takes float64, as Triton does since 3.5. True if there is no Triton to ask."""
    versions = [re.match(r"(\d+)\.(\d+)", version) for version in triton_distributions().values()]
    return all(found is None or tuple(map(int, found.groups())) >= (3, 5) for found in versions)


def two_tritons(distributions: Mapping[str, str]) -> str:
    """What to do about several of them."""
    names = " and ".join(f"{name} {version}" for name, version in distributions.items())
    return (
        f"{names} are installed, which overwrite one another's files: pip uninstall {' '.join(distributions)}, then "
        "install the one that belongs to this torch (pip install --force-reinstall torch, from its index)"
    )


@functools.lru_cache
def device_index() -> int:
    """torch's number of the GPU that this process computes on: the current GPU (torch.cuda.set_device) at the first
    call. A worker's is the one with its local rank.
    """
    import torch

    # Without a context on a GPU no GPU was chosen, and asking would create a context on the first.
    return int(torch.cuda.current_device()) if torch.cuda.is_initialized() else 0


def card(number: int) -> int:
    """torch's number of `gpu(number)`: 0 is the GPU of this process, the others follow in torch's order."""
    own = device_index()
    return own if number == 0 else number - 1 if number <= own else number


def current_stream() -> int:
    """The address of torch's current stream. Raises EngineError if another GPU has become the current one."""
    stream = internals.current_stream()
    if stream.device_index != device_index():
        raise EngineError(
            f"this process computes on GPU {device_index()} of the machine, and GPU {stream.device_index} is torch's "
            "current one now. Call torch.cuda.set_device before the first array is made on mx.gpu(0), and leave it"
        )
    return int(stream.cuda_stream)


def device_name() -> str:
    """ "gfx1100" or "sm90" of the GPU that this process computes on."""
    import torch

    properties = torch.cuda.get_device_properties(device_index())
    if torch.version.hip:
        return str(properties.gcnArchName).split(":")[0]
    return f"sm{properties.major}{properties.minor}"


@functools.lru_cache
def device() -> Device:
    """The device that kernels run on; call it only where `missing()` is None."""
    if interpreting():
        interpret()
        return Device("the interpreter", "cpu", True)
    return Device(device_name(), TORCH_NAME, False)


@functools.lru_cache
def torch_device() -> Any:
    """torch's name of the device's memory. The interpreter's is on the CPU, apart from the host's arrays."""
    import torch

    return torch.device(device().torch, device_index()) if device().torch != "cpu" else torch.device("cpu")


def chip() -> str:
    """The device with its vendor's name and its number of processors, which differ between chips of one architecture: a
    measurement on one chip does not hold for another.
    """
    if device().interpreted:
        return device().name
    import torch

    properties = torch.cuda.get_device_properties(device_index())
    return f"{device().name}, {properties.name}, {properties.multi_processor_count} processors"


def has_cudnn() -> bool:
    """Whether torch's convolutions and recurrent layers on this machine's device are cuDNN's."""
    import torch

    if interpreting() or torch.version.hip or not torch.cuda.is_available() or device().torch != "cuda":
        return False
    return bool(torch.backends.cudnn.enabled and torch.backends.cudnn.is_available())
