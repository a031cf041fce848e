"""A GPU that is not there: everything but the chip.

`start("sm90")` lets this process believe that it has one. Kernels are compiled for it, kept, loaded and launched as on
a machine with a GPU, by Triton's own launchers and through a driver's library (driver.c), whose memory is this
process's. What arrives at that driver is held against what the binary was compiled for - the address and size of every
argument, multiples of 16, threads, the stream - and the kernel's text is then run by Triton's interpreter on the
addresses that arrived, its programs in an order of chance: a GPU promises none.

What it cannot show: whether compiled code is right, what happens at the same time, and how long anything takes.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.triton_device import in_an_order_of_chance

#: The stream that torch is said to launch on.
STREAM = 0x5EED0
#: Kind of a number in a signature -> its C type.
_NUMBERS = {"i32": ctypes.c_int32, "i64": ctypes.c_int64, "fp32": ctypes.c_float}
_POINTEES = {
    "fp16": np.float16, "fp32": np.float32, "fp64": np.float64, "i1": np.bool_, "i8": np.int8, "i16": np.int16,
    "i32": np.int32, "i64": np.int64, "u8": np.uint8, "bf16": np.int16,
}  # fmt: skip


def driver_library(folder: str, hip: bool) -> Path:
    """Build the library that stands in for the driver's, AMD's if `hip`, and let Triton find it."""
    import triton

    from hybrid_lab.engines.triton.run import availability

    include = Path(triton.__file__).parent / "backends" / ("amd" if hip else "nvidia") / "include"
    name = "libamdhip64.so" if hip else "libcuda.so.1"
    library = Path(folder) / name
    subprocess.run(
        [availability.c_compiler() or "cc", "-shared", "-fPIC", "-w", "-std=gnu2x", f"-I{include}",
         *["-DSIMULATE_HIP"] * hip, str(Path(__file__).with_name("driver.c")), f"-Wl,-soname,{name}",
         "-o", str(library)],
        check=True,
    )  # fmt: skip
    if not hip:
        (Path(folder) / "libcuda.so").symlink_to(name)
    os.environ["TRITON_LIBHIP_PATH" if hip else "TRITON_LIBCUDA_PATH"] = str(library if hip else folder)
    return library


class Refused(AssertionError):
    """A launch that a GPU would run wrongly."""


class SimulatedGpu:
    """launches : how often each kernel ran; problems : what was wrong with launches, in words

    capturing : takes launches while they are captured
    """

    def __init__(self, target: str):
        self.target, self.hip = target, target.startswith("gfx")
        self.launches: Counter[str] = Counter()
        self.problems: list[str] = []
        self.capturing: list[Any] | None = None
        self._texts: dict[int, Any] = {}
        self._functions: list[tuple[Any, Any]] = []
        self._loading: Any = None
        self._one_at_a_time = threading.Lock()

    # -- the driver's side ---------------------------------------------------------------------------------

    def install(self, folder: str) -> None:
        """Build the driver's library, and let Triton find it."""
        driver = ctypes.CDLL(str(driver_library(folder, self.hip)), mode=ctypes.RTLD_GLOBAL)
        if self.hip or not os.environ.get("TRITON_CACHE_DIR"):  # AMD's launchers are for this path of the library
            os.environ["TRITON_CACHE_DIR"] = str(Path(folder) / "triton")
        word, unsigned = ctypes.c_size_t, ctypes.c_uint
        load = ctypes.CFUNCTYPE(word, ctypes.c_void_p, ctypes.c_char_p)
        launch = ctypes.CFUNCTYPE(ctypes.c_int, word, *[unsigned] * 5, word, ctypes.POINTER(ctypes.c_void_p))
        self._held = driver, load(self._load), launch(self._launch)
        driver.simulate(*self._held[1:], self.target.encode(), 0 if self.hip else int(self.target[2:]))

    def _load(self, image: int, name: bytes) -> int:
        """The number of a function: of the kernel whose handles are being made."""
        compiled, self._loading = self._loading, None
        if compiled is None or name.decode() != compiled.name or ctypes.string_at(image, 4) != b"\x7fELF":
            self.problems.append(f"{name.decode()} is loaded unasked, or is no binary")
            return 0
        self._functions.append((compiled, self._texts[id(compiled)]))
        return len(self._functions)

    def _launch(self, function: int, x: int, y: int, z: int, threads: int, shared: int, stream: int, given: Any) -> int:
        compiled, source = self._functions[function - 1]
        try:
            self._check(compiled, source, threads, shared, stream)
            arguments = self._arguments(compiled, source, given)
            if self.capturing is not None:
                self.capturing.append(lambda: self._run(source, (x, y, z), arguments))
                return 0
            self._run(source, (x, y, z), arguments)
        except BaseException as error:
            self.problems.append(f"{source.name}: {type(error).__name__}: {error}")
            return 1
        return 0

    def _check(self, compiled: Any, source: Any, threads: int, shared: int, stream: int) -> None:
        metadata = compiled.metadata
        # A kernel that spilled was compiled again with more threads: what counts is what the binary says.
        expected = metadata.num_warps * metadata.target.warp_size
        if threads != expected:
            raise Refused(f"{threads} threads, the binary is for {expected}")
        if shared != metadata.shared:
            raise Refused(f"{shared} bytes of shared memory, the binary takes {metadata.shared}")
        if stream != STREAM:
            raise Refused(f"the stream is {stream:#x}")

    def _arguments(self, compiled: Any, source: Any, given: Any) -> list[Any]:
        """What arrived, as the interpreter takes it."""
        import torch

        promised = {
            index: many for (index,), facts in compiled.src.attrs.items() for what, many in facts
            if what == "tt.divisibility"
        }  # fmt: skip
        kinds = {name: kind for name, kind in compiled.src.signature.items() if kind != "constexpr"}
        if list(kinds.values()) != [kind for kind in source.signature.values() if kind != "constexpr"]:
            raise Refused("the binary takes other arguments than the text")
        found: list[Any] = []
        for index, (name, kind) in enumerate(kinds.items()):
            if kind.startswith("*"):
                address = ctypes.c_uint64.from_address(given[index]).value
                if address == 0:
                    raise Refused(f"{name} is no address")
                number = address
                cell = np.frombuffer((ctypes.c_byte * 8).from_address(address), np.int8)
                array = torch.from_numpy(cell[: np.dtype(_POINTEES[kind[1:]]).itemsize].view(_POINTEES[kind[1:]]))
                found.append(array.view(torch.bfloat16) if kind == "*bf16" else array)
            else:
                number = _NUMBERS[kind].from_address(given[index]).value
                found.append(number)
            if number % promised.get(index, 1):
                raise Refused(f"{name} is {number}, and the binary is for multiples of {promised[index]}")
        return found

    def _run(self, source: Any, grid: tuple[int, int, int], arguments: list[Any]) -> None:
        from hybrid_lab.engines.triton.run.kernel import load_function

        with self._one_at_a_time, np.errstate(all="ignore"):
            self.launches[source.name] += 1
            load_function(source.name, source.code)[grid](*arguments, **source.blocks)

    # -- the package's side --------------------------------------------------------------------------------

    def listen(self) -> None:
        """Learn which text a binary was compiled of, and which one is being loaded."""
        from hybrid_lab.engines.triton.build import compiling, internals

        loaded, handles = compiling.load, internals.handles

        def listening_loaded(source: Any, target: Any = None) -> Any:
            compiled = loaded(source, target)
            self._texts[id(compiled)] = source
            return compiled

        def listening_handles(compiled: Any) -> Any:
            self._loading = compiled
            return handles(compiled)

        compiling.load, internals.handles = listening_loaded, listening_handles

    def pretend(self) -> None:
        """Let torch, and with it the package, see the GPU. Its memory is torch's on the CPU."""
        import torch

        from hybrid_lab.engines import libraries
        from hybrid_lab.engines.triton.run import availability, capture
        from hybrid_lab.ndarray import context
        from tests.simulated_gpu.recorder import SimulatedRecorder

        major, minor = (9, 4) if self.hip else divmod(int(self.target[2:]), 10)
        properties = SimpleNamespace(
            name=f"simulated {self.target}", major=major, minor=minor, gcnArchName=f"{self.target}:sramecc+:xnack-",
            total_memory=8 << 30, multi_processor_count=132, L2_cache_size=50 << 20, warp_size=32,
        )  # fmt: skip
        stream = SimpleNamespace(cuda_stream=STREAM, device_index=0)
        seen = {
            "is_available": lambda: True,
            "is_initialized": lambda: True,
            "device_count": lambda: 1,
            "current_device": lambda: 0,
            "get_device_properties": lambda device=None: properties,
            "get_device_capability": lambda device=None: (major, minor),
            "get_device_name": lambda device=None: properties.name,
            "current_stream": lambda device=None: stream,
            "synchronize": lambda device=None: None,
            "empty_cache": lambda: None,
            "mem_get_info": lambda device=None: (6 << 30, 8 << 30),
            "memory_reserved": lambda device=None: 1 << 30,
            "Event": _Event,
            "_sleep": lambda cycles: None,
        }
        for name, value in seen.items():
            setattr(torch.cuda, name, value)
        torch.version.hip = "6.4" if self.hip else None
        availability.TORCH_NAME = "cpu"
        libraries.driver_seen = lambda: True
        capture.recorder = lambda: None if availability.device().interpreted else SimulatedRecorder(self).capture
        for cached in (availability.device, availability.torch_device, availability._gpu_problem, context._gpus):
            cached.cache_clear()


class _Event:
    """A GPU's event, by the host's clock."""

    def __init__(self, enable_timing: bool = False):
        self.at = 0.0

    def record(self, stream: Any = None) -> None:
        self.at = time.perf_counter()

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, other: _Event) -> float:
        return (other.at - self.at) * 1e3


_started: list[SimulatedGpu] = []


def start(target: str) -> SimulatedGpu:
    """Let this process, for the rest of its life, have a GPU of this kind, "sm90" or "gfx942".

    Raises EngineError for what is none. Of a chip it has the name, the architecture and the width of its warps; other
    numbers are the same for all.
    """
    if _started:
        assert _started[0].target == target, "a process has one simulated GPU"
        return _started[0]
    from hybrid_lab.engines.triton.build import internals, targets

    targets.target_of(target)
    gpu = SimulatedGpu(target)
    folder = tempfile.mkdtemp(prefix="simulated_gpu_")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    gpu.install(folder)
    gpu.pretend()
    internals.interpret()
    in_an_order_of_chance()
    gpu.listen()
    _started.append(gpu)
    return gpu
