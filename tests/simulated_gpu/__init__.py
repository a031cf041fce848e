"""A GPU that is not there: everything but the chip.

`start("sm90")` lets this process believe that it has one. Kernels are compiled for it, kept, loaded and launched as on
a machine with a GPU, by Triton's own launchers and through a driver's library (driver.c), whose memory is this
process's. A launch that a GPU would refuse or run wrongly is refused here:

- addresses that are not the multiples that the binary was compiled for; memory of the host, or memory that was freed
- loads and stores outside of the arguments' memory; offsets that AMD's buffer instructions do not reach
- more programs, threads or shared memory than a launch can have; grids and sizes that Triton's launcher would cut
- a binary for another chip, other arguments than the text's, a stream that is none
- memory that another stream may still be at; reading numbers back while launches are captured

`faults.py` has an example of each. Then Triton's interpreter runs the kernel's text on the addresses that arrived, its
programs in an order of chance: a GPU promises none.

What it cannot show: whether compiled code is right, races inside one kernel, tensors of torch's own calls that are on
the wrong device or stream (tests/engines/test_torch_devices.py has the devices), and how long anything takes.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import os
import shutil
import subprocess
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.simulated_gpu.memory import Accesses, DeviceMemory, Refused, watch_interpreter
from tests.simulated_gpu.streams import STREAM, SimulatedEvent, Streams
from tests.triton_device import in_an_order_of_chance

#: The most programs of a launch along its axes, and the most threads of a program, of NVIDIA and of AMD.
GRID, THREADS = ((1 << 31) - 1, 65535, 65535), 1024
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


class SimulatedGpu:
    """launches : how often each kernel ran; problems : what was wrong with launches, in words

    capturing : takes launches while they are captured
    """

    def __init__(self, target: str):
        self.target, self.hip = target, target.startswith("gfx")
        self.launches: Counter[str] = Counter()
        self.problems: list[str] = []
        self.capturing: list[Any] | None = None
        self.streams = Streams()
        self.memory = DeviceMemory(self.streams.forget)
        self._accesses: Accesses | None = None  # of the kernel that runs
        self._texts: dict[int, Any] = {}
        self._functions: list[tuple[Any, Any]] = []
        self._loading: Any = None
        self._one_at_a_time = threading.Lock()

    # -- the driver's side ---------------------------------------------------------------------------------

    def install(self, folder: str) -> None:
        """Build the driver's library, and let Triton find it."""
        from hybrid_lab.engines.triton.build.targets import shared_limit, target_of

        driver = ctypes.CDLL(str(driver_library(folder, self.hip)), mode=ctypes.RTLD_GLOBAL)
        if self.hip or not os.environ.get("TRITON_CACHE_DIR"):  # AMD's launchers are for this path of the library
            os.environ["TRITON_CACHE_DIR"] = str(Path(folder) / "triton")
        word, unsigned = ctypes.c_size_t, ctypes.c_uint
        load = ctypes.CFUNCTYPE(word, ctypes.c_void_p, ctypes.c_char_p)
        launch = ctypes.CFUNCTYPE(ctypes.c_int, word, *[unsigned] * 5, word, ctypes.POINTER(ctypes.c_void_p))
        self._held = driver, load(self._load), launch(self._launch)
        self._target = target_of(self.target)
        self._most_shared = shared_limit(self._target)
        number = 0 if self.hip else int(self.target[2:])
        driver.simulate(*self._held[1:], self.target.encode(), number, self._most_shared)

    def _load(self, image: int, name: bytes) -> int:
        """The number of a function: of the kernel whose handles are being made."""
        compiled, self._loading = self._loading, None
        if compiled is None or name.decode() != compiled.name or ctypes.string_at(image, 4) != b"\x7fELF":
            self.problems.append(f"{name.decode()} is loaded unasked, or is no binary")
            return 0
        made_for = compiled.metadata.target
        if (made_for.backend, made_for.arch) != self._target[:2]:
            self.problems.append(f"{compiled.name} is a binary for {made_for.arch}, and this is a {self.target}")
            return 0
        self._functions.append((compiled, self._texts[id(compiled)]))
        return len(self._functions)

    def _launch(self, function: int, x: int, y: int, z: int, threads: int, shared: int, stream: int, given: Any) -> int:
        compiled, source = self._functions[function - 1]
        try:
            self._check(compiled, source, (x, y, z), threads, shared, stream)
            arguments = self._arguments(compiled, source, given)
            run = functools.partial(self._run, compiled, source, (x, y, z), arguments)
            if self.capturing is not None:
                self.capturing.append(functools.partial(self._replay, source.name, run))
            else:
                run(stream)
        except BaseException as error:
            self._note(source.name, error)
            return 1
        return 0

    def _replay(self, name: str, run: Callable[[int], None]) -> None:
        """A captured launch, on torch's current stream."""
        try:
            run(self.streams.current.cuda_stream)
        except BaseException as error:
            self._note(name, error)
            raise

    def _note(self, name: str, error: BaseException) -> None:
        self.problems.append(f"{name}: {type(error).__name__}: {error}")

    def _check(
        self, compiled: Any, source: Any, grid: tuple[int, int, int], threads: int, shared: int, stream: int
    ) -> None:
        metadata = compiled.metadata
        # A kernel that spilled was compiled again with more threads: what counts is what the binary says.
        expected = metadata.num_warps * metadata.target.warp_size
        if threads != expected:
            raise Refused(f"{threads} threads, the binary is for {expected}")
        if threads > THREADS:
            raise Refused(f"{threads} threads, a program has at most {THREADS}")
        if shared != metadata.shared:
            raise Refused(f"{shared} bytes of shared memory, the binary takes {metadata.shared}")
        if shared > self._most_shared:
            raise Refused(f"{shared} bytes of shared memory, a program has at most {self._most_shared}")
        for axis, most, count in zip("xyz", GRID, grid, strict=True):
            if not 1 <= count <= most:
                raise Refused(f"{count} programs along {axis}, a launch has 1 to {most}")
        if self.hip and grid[0] * threads >= 1 << 32:
            raise Refused(f"{grid[0]} programs of {threads} threads, AMD's launches have less than 2^32 threads")
        self.streams.check(stream)

    def _arguments(self, compiled: Any, source: Any, given: Any) -> list[Any]:
        """What arrived, as the interpreter takes it."""
        import torch
        from torch.utils._python_dispatch import _disable_current_modes

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
                self.memory.at(address, name)
                cell = np.frombuffer((ctypes.c_byte * 8).from_address(address), np.int8)
                cell = cell[: np.dtype(_POINTEES[kind[1:]]).itemsize].view(_POINTEES[kind[1:]])
                with _disable_current_modes():  # a capture listens to calls of torch
                    array = torch.from_numpy(cell)
                    found.append(array.view(torch.bfloat16) if kind == "*bf16" else array)
            else:
                number = _NUMBERS[kind].from_address(given[index]).value
                found.append(number)
            if number % promised.get(index, 1):
                raise Refused(f"{name} is {number}, and the binary is for multiples of {promised[index]}")
        return found

    def _run(self, compiled: Any, source: Any, grid: tuple[int, int, int], arguments: list[Any], stream: int) -> None:
        from hybrid_lab.engines.triton.run.kernel import load_function

        pointers = [item.data_ptr() for item in arguments if hasattr(item, "data_ptr")]
        # The tables of an update have addresses.
        reached = self.memory.alive() if source.kind == "update" else [self.memory.at(each, "it") for each in pointers]
        buffers = sum(["tt.pointer_range", 32] in facts for facts in compiled.src.attrs.values()) == len(pointers)
        with self._one_at_a_time, np.errstate(all="ignore"):
            self.launches[source.name] += 1
            self._accesses = accesses = Accesses(reached, pointers if buffers and source.kind != "update" else ())
            try:
                load_function(source.name, source.code)[grid](*arguments, **source.blocks)
            finally:
                self._accesses = None
            self.streams.launched(stream, accesses.writes)

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
            run, function, metadata = handles(compiled)
            return self._through(compiled, run), function, metadata

        compiling.load, internals.handles = listening_loaded, listening_handles

    def _through(self, compiled: Any, run: Callable[..., None]) -> Callable[..., None]:
        """The launcher `run`, behind a look at what it would cut to 32 bits."""
        kinds = list(compiled.src.signature.items())

        def launcher(x: int, y: int, z: int, *more: Any) -> None:
            try:
                # Triton's launchers multiply the three in 32 bits, and launch nothing if the product is not above 0.
                if x * y * z >= 1 << 31:
                    raise Refused(f"a grid of {x} x {y} x {z} programs, of which Triton's launcher starts none")
                for (name, kind), number in zip(kinds, more[6:], strict=True):
                    if kind == "i32" and not -1 << 31 <= number < 1 << 31:
                        raise Refused(f"{name} is {number}, which Triton's launcher cuts to 32 bits")
            except Refused as error:
                self._note(compiled.name, error)
                raise
            run(x, y, z, *more)

        return launcher

    def pretend(self) -> None:
        """Let torch, and with it the package, see the GPU. Its memory is torch's on the CPU."""
        import torch

        from hybrid_lab.engines import libraries, memory
        from hybrid_lab.engines.triton.run import availability, capture
        from hybrid_lab.ndarray import context
        from tests.simulated_gpu.recorder import SimulatedRecorder

        major, minor = (9, 4) if self.hip else divmod(int(self.target[2:]), 10)
        properties = SimpleNamespace(
            name=f"simulated {self.target}", major=major, minor=minor, gcnArchName=f"{self.target}:sramecc+:xnack-",
            total_memory=8 << 30, multi_processor_count=132, L2_cache_size=50 << 20, warp_size=32,
        )  # fmt: skip
        streams = self.streams
        seen = {
            "is_available": lambda: True,
            "is_initialized": lambda: True,
            "device_count": lambda: 1,
            "current_device": lambda: 0,
            "get_device_properties": lambda device=None: properties,
            "get_device_capability": lambda device=None: (major, minor),
            "get_device_name": lambda device=None: properties.name,
            "current_stream": lambda device=None: streams.current,
            "default_stream": lambda device=None: streams.at(0),
            "set_stream": streams.set,
            "stream": streams.within,
            "Stream": streams.new,
            "ExternalStream": streams.at,
            "Event": SimulatedEvent,
            "is_current_stream_capturing": lambda: self.capturing is not None,
            "synchronize": self._synchronize,
            "empty_cache": lambda: None,
            "mem_get_info": lambda device=None: (6 << 30, 8 << 30),
            "memory_reserved": lambda device=None: 1 << 30,
            "_sleep": lambda cycles: None,
        }
        for name, value in seen.items():
            setattr(torch.cuda, name, value)
        torch.Tensor.record_stream = lambda tensor, stream: None  # type: ignore[method-assign]
        to_host = memory.to_host

        def synchronizing_to_host(tensor: Any, out: np.ndarray | None = None) -> np.ndarray:
            streams.current.synchronize()
            return to_host(tensor, out)

        memory.to_host = synchronizing_to_host
        torch.version.hip = "6.4" if self.hip else None
        availability.TORCH_NAME = "cpu"
        libraries.driver_seen = lambda: True
        capture.recorder = lambda: None if availability.device().interpreted else SimulatedRecorder(self).capture
        for cached in (availability.device, availability.torch_device, availability._gpu_problem, context._gpus):
            cached.cache_clear()

    def _synchronize(self, device: object = None) -> None:
        """As torch.cuda.synchronize."""
        if self.capturing is not None:
            raise RuntimeError("operation not permitted when stream is capturing")
        self.streams.synchronize()


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
    gpu.memory.listen()
    internals.interpret()
    watch_interpreter(lambda: gpu._accesses)  # noqa: SLF001 - its own
    in_an_order_of_chance()
    gpu.listen()
    _started.append(gpu)
    return gpu
