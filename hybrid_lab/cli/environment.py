"""`hybrid-lab env`: the software and hardware of this machine for each engine and for the lab, missing parts, and how
to get them.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from argparse import Namespace
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from hybrid_lab import _version
from hybrid_lab.system import openblas as _openblas
from hybrid_lab.system import telemetry as _telemetry

from .command import Commands, has_module, install_hint, version_of


@dataclass(frozen=True)
class Component:
    """One line of the report. found : text, or None if it is missing; get : how to get it; needed : for what."""

    name: str
    found: str | None
    needed: str = ""
    get: str = ""


def add_commands(commands: Commands) -> None:
    """Register `env`."""
    env = commands.add_parser(
        "env",
        help="what this machine has, what is missing and how to get it",
        description="Lists Python, the packages that this package can use, the GPU, its driver and the compiler. For "
        "each missing part it says what the part is for and how to get it. Exit status: 0.",
        allow_abbrev=False,
    )
    env.add_argument("--json", action="store_true", help="print JSON")
    env.set_defaults(run=run_env)


def run_env(arguments: Namespace) -> int:
    """Print the report; a missing component is information, so the status is 0."""
    components = list(report())
    print(
        json.dumps([asdict(component) for component in components], indent=2) if arguments.json else render(components)
    )
    return 0


def render(components: list[Component]) -> str:
    """A table for the terminal; below a missing component are its purpose and the command that installs it."""
    width = max(len(component.name) for component in components)
    lines = []
    for component in components:
        lines.append(f"{component.name:{width}}  {component.found if component.found is not None else 'missing'}")
        if component.found is None:
            lines.append(f"{'':{width}}    for {component.needed}: {component.get}")
    return "\n".join(lines)


def report() -> Iterator[Component]:
    """The whole report, component by component. A component that fails is reported as broken, and the others follow."""
    yield Component("hybrid-lab", f"{_version.__version__} in {Path(__file__).resolve().parents[1]}")
    yield Component("python", f"{platform.python_version()} ({sys.executable}), {platform.platform()}")
    yield Component("processors", str(os.cpu_count()))
    for probe in (_numpy, _onnx, _onnxruntime, _torch, _triton, _gpu_driver, _compiler, _gpu):
        yield _guarded(probe)
    for probe in (_compiling, _kernel_cache, _opencv, _jupyterlab, _front_end, _server, _widgets):
        yield _guarded(probe)
    yield from _engines()


def _guarded(probe: Callable[[], Component]) -> Component:
    try:
        return probe()
    except Exception as error:  # a broken library raises anything; this command reports it and goes on
        return Component(probe.__name__.strip("_").replace("_", " "), f"broken: {type(error).__name__}: {error}")


def _numpy() -> Component:
    import numpy

    blas = numpy.show_config(mode="dicts").get("Build Dependencies", {}).get("blas", {})
    threads = os.environ.get("OPENBLAS_NUM_THREADS") or os.environ.get("OMP_NUM_THREADS")
    text = f"{numpy.__version__}, BLAS {blas.get('name', 'unknown')} {blas.get('version', '')}".rstrip()
    text += f", threads limited to {threads}" if threads else ""
    advice = _openblas.advice()
    return Component("numpy", f"{text}; {advice}" if advice else text)


def _onnx() -> Component:
    version = version_of("onnx") if has_module("onnx") else None
    return Component("onnx", version, "ONNX files and the onnxruntime engine", install_hint("cpu"))


def _onnxruntime() -> Component:
    needed = "the fast engine on a CPU"
    if not has_module("onnxruntime"):
        return Component("onnxruntime", None, needed, install_hint("cpu"))
    from hybrid_lab.engines.libraries import import_library

    onnxruntime = import_library("onnxruntime")
    telemetry = "off" if _telemetry.is_off() else f"on, as {_telemetry.VARIABLE} says"
    providers = ", ".join(onnxruntime.get_available_providers())
    return Component("onnxruntime", f"{onnxruntime.__version__}, {providers}, telemetry {telemetry}", needed)


def _torch() -> Component:
    from hybrid_lab.engines.triton.run.availability import ROCM_INSTALL

    needed = "the Triton engine on a GPU"
    if not has_module("torch"):
        return Component("torch", None, needed, f"NVIDIA: {install_hint('cuda')}; AMD: {ROCM_INSTALL}")
    import torch

    builds = (("CUDA", torch.version.cuda), ("ROCm", torch.version.hip))
    build = next((f"{name} {version}" for name, version in builds if version), "CPU build")
    return Component("torch", f"{torch.__version__}, {build}", needed)


def _is_rocm() -> bool:
    """Whether torch is there, and a build for AMD GPUs."""
    if not has_module("torch"):
        return False
    import torch

    return torch.version.hip is not None


def _opencv() -> Component:
    needed = "images: reading and writing files, mx.image, nd.image.resize"
    if not has_module("cv2"):
        return Component("OpenCV", None, needed, install_hint("images"))
    import cv2

    return Component("OpenCV", cv2.__version__, needed)


def _compiling() -> Component:
    from hybrid_lab.engines.triton.build.targets import TARGETS

    name, needed = "compiling", "kernels for GPUs of other machines: hybrid-lab compile, net.compile_for"
    if not has_module("triton"):
        return Component(name, None, needed, "pip install triton (Linux only; neither a GPU nor torch is needed)")
    return Component(name, f"for {', '.join(TARGETS)} and others, no GPU needed: hybrid-lab compile, net.compile_for")


def _triton() -> Component:
    from ..engines.triton.run.availability import (
        ROCM_INSTALL,
        fitting_extra,
        interpreting,
        triton_distributions,
        two_tritons,
    )

    needed = "the Triton engine"
    if not has_module("triton"):
        return Component("triton", None, needed, f"NVIDIA: {install_hint('cuda')}; AMD: {ROCM_INSTALL} (Linux only)")
    distributions = triton_distributions()
    names = ", ".join(f"{version} from {name}" for name, version in distributions.items())
    text = names or "a module that no known distribution provides"
    if len(distributions) == 1:
        text += f", for hybrid-lab[{fitting_extra(distributions, _is_rocm())}]"
    text += ", interpreter on (HYBRID_LAB_TRITON=interpret)" * interpreting()
    return Component("triton", text if len(distributions) < 2 else f"{text}; {two_tritons(distributions)}", needed)


def _compiler() -> Component:
    from hybrid_lab.engines.triton.run.availability import c_compiler

    name, needed = "C compiler", "Triton's launchers, which it builds at first use"
    get = "apt-get install gcc libc6-dev (Debian), dnf install gcc (Fedora), xcode-select --install (macOS)"
    compiler = c_compiler()
    if compiler is None:
        chosen = os.environ.get("CC")
        return Component(name, None, needed, f"unset CC={chosen}, which is not there, or {get}" if chosen else get)
    first = subprocess.run([compiler, "--version"], capture_output=True, text=True, timeout=20).stdout.splitlines()
    text = f"{compiler}: {first[0] if first else 'no version'}"
    if not (Path(sysconfig.get_paths()["include"]) / "Python.h").exists():
        text += "; Python.h is missing, which some releases of Triton need: apt-get install python3-dev (Debian)"
    return Component(name, text, needed)


def _gpu_driver() -> Component:
    drivers = [f"{vendor} {version}" for vendor, version in _drivers()]
    nodes = [path for path in ("/dev/kfd", "/dev/nvidia0", "/dev/dxg") if Path(path).exists()]
    if nodes and not drivers:
        drivers = [f"version unknown ({', '.join(nodes)} is there)"]
    get = "NVIDIA: the driver package of this system (Debian: apt-get install nvidia-driver); AMD: amdgpu is part of "
    get += "Linux, amdgpu-install brings the newest, and the user must be in the groups render and video"
    return Component("GPU driver", "; ".join(drivers) or None, "the Triton engine on a GPU", get)


def _gpu() -> Component:
    gpus = _gpus_by_torch() or _gpus_by_driver()
    get = "an AMD or NVIDIA GPU with its driver (in a container: docker run --gpus all, or --device=/dev/kfd "
    get += "--device=/dev/dri); HYBRID_LAB_TRITON=interpret tries the generated kernels without one"
    return Component("GPU", "; ".join(gpus) if gpus else None, "the Triton engine", get)


def _gpus_by_torch() -> list[str]:
    if not has_module("torch"):
        return []
    import torch

    if not torch.cuda.is_available():
        return []
    from hybrid_lab.engines.triton.build.targets import supported

    gpus = []
    for index in range(torch.cuda.device_count()):
        device = torch.cuda.get_device_properties(index)
        amd = getattr(device, "gcnArchName", None) if torch.version.hip else None
        kind = amd.split(":")[0] if amd else f"sm{device.major}{device.minor}"
        note = "" if supported(kind) else ", which Triton does not compile for"
        gpus.append(f"{device.name} ({kind}{note}, {device.total_memory / 2**30:.0f} GiB)")
    return gpus


def _gpus_by_driver() -> list[str]:
    """GPUs that only their driver knows of: torch is missing, or is a build that cannot use them."""
    if shutil.which("nvidia-smi"):
        command = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
        answer = subprocess.run(command, capture_output=True, text=True, timeout=20)
        if answer.returncode == 0:
            names = filter(None, map(str.strip, answer.stdout.splitlines()))
            return [f"{name} (not usable by the installed torch)" for name in names]
    if Path("/dev/kfd").exists():
        return ["AMD (not usable by the installed torch)"]
    return []


def _drivers() -> Iterator[tuple[str, str]]:
    """(vendor, version) of the drivers that the kernel has loaded. AMD's in the kernel has the kernel's version."""
    for vendor, module in (("NVIDIA", "nvidia"), ("AMD", "amdgpu")):
        folder = Path("/sys/module") / module
        if (folder / "version").is_file():
            yield vendor, (folder / "version").read_text().strip()
        elif folder.is_dir():
            yield vendor, f"{module} of Linux {platform.release()}"


def _kernel_cache() -> Component:
    from hybrid_lab.engines.store import root_folder, why_untrusted

    root = root_folder()
    if root is None:
        return Component("kernel cache", "off (HYBRID_LAB_CACHE is empty)")
    for path in (root, *sorted(root.glob("*") if root.is_dir() else ())):
        reason = why_untrusted(path, may_be_link=path is root)
        if reason is not None:
            return Component("kernel cache", f"{path} is not used: {reason}")
    there = next(path for path in (root, *root.parents) if path.exists())
    try:  # permissions do not reveal a read-only file system
        tempfile.TemporaryFile(dir=there).close()
    except OSError:
        return Component("kernel cache", f"{root} cannot be written; HYBRID_LAB_CACHE names another folder")
    sizes = [path.lstat().st_size for path in root.rglob("*") if path.is_file()]
    return Component(
        "kernel cache", f"{len(sizes)} files, {sum(sizes) / 2**20:.1f} MiB in {root}, which may be deleted"
    )


def _jupyterlab() -> Component:
    versions = _versions("jupyterlab", "notebook", "ipykernel")
    return Component(
        "jupyterlab", ", ".join(versions) if version_of("jupyterlab") else None, "the lab", install_hint("lab")
    )


def _versions(*distributions: str) -> list[str]:
    """Name and version of the installed distributions."""
    return [f"{name} {version}" for name in distributions if (version := version_of(name))]


def _front_end() -> Component:
    name = "lab extension"
    reinstall = "pip install --force-reinstall --no-deps hybrid-lab (in a clone: make install)"
    if not has_module("jupyter_core"):
        return Component(name, None, "panel and marks in JupyterLab", install_hint("lab"))
    from jupyter_core.paths import jupyter_path

    for folder in jupyter_path("labextensions"):
        file = Path(folder) / "hybrid-lab" / "package.json"
        if file.is_file():
            version = json.loads(file.read_text(encoding="utf-8")).get("version")
            same = version == _version.__version__
            note = "" if same else f"; the kernel's version is {_version.__version__}: {reinstall}"
            return Component(name, f"{version} in {file.parent}{note}")
    return Component(name, None, "panel and marks in JupyterLab", reinstall)


def _server() -> Component:
    name = "server extension"
    if not has_module("jupyter_core"):
        return Component(name, None, "lint while the kernel is busy", install_hint("lab"))
    from jupyter_core.paths import jupyter_config_path

    for folder in jupyter_config_path():
        file = Path(folder) / "jupyter_server_config.d" / "hybrid_lab.json"
        if file.is_file():
            return Component(name, f"enabled by {file}")
    return Component(
        name, None, "lint while the kernel is busy", "jupyter server extension enable hybrid_lab.lab.server"
    )


def _widgets() -> Component:
    versions = _versions("anywidget", "ipywidgets")
    return Component(
        "widgets", ", ".join(versions) if len(versions) == 2 else None, "mx.view(net)", install_hint("lab")
    )


def _engines() -> Iterator[Component]:
    """Which engines `hybridize()` can use here, as the engines themselves say, and which one is the default."""
    from hybrid_lab import engines
    from hybrid_lab.diagnostics import EngineUnavailable

    default = None
    try:
        default = engines.default()
        if default is None:
            yield Component("default engine", "chosen for each call; mx.explain(net) shows which one, and why")
    except EngineUnavailable as error:  # a setting names a missing engine
        yield Component("default engine", f"none: {error}")
    except Exception as error:  # as in _guarded: report it, go on
        yield Component("default engine", f"broken: {type(error).__name__}: {error}")
    for name in engines.names():
        try:
            engines.get(name)
            state = "usable, the default" if default is not None and name == default.name else "usable"
        except EngineUnavailable as error:
            state = f"not usable: {error}"
        except Exception as error:  # as in _guarded: report it, go on
            state = f"broken: {type(error).__name__}: {error}"
        yield Component(f"engine {name}", state)
