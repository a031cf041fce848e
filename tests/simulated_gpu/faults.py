"""python -m tests.simulated_gpu.faults sm90: launches that a GPU would refuse or run wrongly, each planted here.

Prints, as JSON, for each fault what the simulated GPU said of it, "" if it let the launch pass; and the same for the
launches beside them that are right.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from tests.simulated_gpu import SimulatedGpu, start
from tests.simulated_gpu.plugin import stand_in

SHAPE = (64, 4)
#: Elements of float32 of which some lie 2 GiB behind the first.
FAR = (1 << 29) + 64


def doubled(place: str = "offsets", **more: Any) -> Any:
    """The source of a kernel that doubles its input. place : of what it loads and stores; more : other fields"""
    from hybrid_lab.engines.triton.write.source import KernelSource
    from hybrid_lab.graph.node import input_node

    x, y = (input_node(name, shape=SHAPE, dtype=np.dtype("float32")) for name in ("x", "y"))
    head = ["import triton", "import triton.language as tl", "", "", "@triton.jit",
            "def doubled(x_ptr, y_ptr, n, BLOCK: tl.constexpr):"]  # fmt: skip
    lines = [
        "    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)",
        "    inside = offsets < n",
        f"    x = tl.load(x_ptr + {place}, mask=inside)",
        f"    tl.store(y_ptr + {place}, x * 2, mask=inside)",
    ]
    source = KernelSource(
        "doubled", "pointwise", ["x_ptr", "y_ptr", "n", "BLOCK"], head, lines, lambda: ("", ()), (x,), (y,), (),
        {"n": 256}, {"BLOCK": 256}, {}, (("n", "BLOCK"),),
    )  # fmt: skip
    return replace(source, **more)


class Faults:
    """The launches, by name: `wrong` ones and `right` ones. gpu : the simulated one"""

    def __init__(self, gpu: SimulatedGpu):
        import torch

        self.gpu, self.torch = gpu, torch
        self.stream = gpu.streams.current.cuda_stream

    def tensors(self) -> tuple[Any, Any]:
        return self.torch.ones(SHAPE), self.torch.zeros(SHAPE)

    def launch(self, source: Any, tensors: Any = None, stream: int | None = None) -> None:
        from hybrid_lab.engines.triton.run.kernel import Kernel

        kernel = Kernel(source)
        kernel.bound(self.tensors() if tensors is None else tensors)(self.stream if stream is None else stream)

    # -- addresses -----------------------------------------------------------------------------------------

    def unaligned(self) -> None:
        x, y = self.torch.ones(257)[1:], self.torch.zeros(SHAPE)
        self.launch(doubled(), (x, y))

    def of_the_host(self) -> None:
        self.launch(doubled(), (self.torch.from_numpy(np.ones((1 << 16,), "float32"))[:256], self.torch.zeros(SHAPE)))

    def freed(self) -> None:
        from hybrid_lab.engines.triton.build import internals
        from hybrid_lab.engines.triton.run.kernel import Kernel

        kernel, (x, y) = Kernel(doubled()), self.tensors()
        arguments = [x.data_ptr(), y.data_ptr(), *kernel.numbers(), 256]
        launch = internals.bound_launch(kernel.handle, kernel.grid(), arguments)
        del x
        launch(self.stream)

    def beyond_the_end(self) -> None:
        self.launch(doubled(sizes={"n": 260}))

    def before_the_beginning(self) -> None:
        self.launch(doubled("offsets - 8"))

    def overflowing_offsets(self) -> None:
        self.launch(doubled("(offsets + 536870912) * 4"))

    def beyond_buffers(self) -> None:
        big = self.torch.empty(FAR)
        self.launch(doubled(f"offsets + {FAR - 256}"), (big, big))

    # -- grids and numbers ---------------------------------------------------------------------------------

    def many_programs_along_y(self) -> None:
        self.launch(doubled(sizes={"n": 256, "m": 65536}, grid=(("n", "BLOCK"), ("m", ""))))

    def many_programs_along_z(self) -> None:
        self.launch(doubled(sizes={"n": 256, "m": 65536}, grid=(("n", "BLOCK"), ("n", "BLOCK"), ("m", ""))))

    def more_programs_than_32_bits(self) -> None:
        self.launch(doubled(sizes={"n": 256, "m": 65535}, grid=(("n", "BLOCK"), ("m", ""), ("m", ""))))

    def a_number_of_more_than_32_bits(self) -> None:
        from hybrid_lab.engines.triton.build import internals
        from hybrid_lab.engines.triton.run.kernel import Kernel

        kernel, (x, y) = Kernel(doubled()), self.tensors()
        arguments = [x.data_ptr(), y.data_ptr(), 256 + (1 << 32), 256]
        internals.bound_launch(kernel.handle, kernel.grid(), arguments, (x, y))(self.stream)

    # -- binaries ------------------------------------------------------------------------------------------

    def _with(self, **metadata: Any) -> None:
        """A launch of a binary that says other things of itself."""
        from hybrid_lab.engines.triton.build import compiling

        source = doubled(name="doubled", stages=len(metadata) + next(_numbers))  # a binary of its own
        compiled = compiling.load(source)
        compiled.metadata = compiled.metadata._replace(**metadata)
        self.launch(source)

    def many_threads(self) -> None:
        self.launch(doubled(warps=2048 // (64 if self.gpu.hip else 32)))

    def much_shared_memory(self) -> None:
        self._with(shared=1 << 18)

    def for_another_chip(self) -> None:
        from triton.backends.compiler import GPUTarget

        self._with(target=GPUTarget("hip", "gfx90a", 64) if self.gpu.hip else GPUTarget("cuda", 80, 32))

    # -- streams -------------------------------------------------------------------------------------------

    def on_no_stream(self) -> None:
        self.launch(doubled(), stream=0x1230)

    def another_stream(self, waits: bool = False) -> None:
        tensors, other = self.tensors(), self.torch.cuda.Stream()
        self.launch(doubled(), tensors)
        if waits:
            other.wait_stream(self.torch.cuda.current_stream())
        self.launch(doubled(), tensors[::-1], other.cuda_stream)

    def an_arena_on_another_stream(self, waits: bool = False) -> None:
        """A program called on two streams, which lets the second wait for the first, unless that is taken away."""
        from hybrid_lab.engines.triton.run import program

        follow = program.follow
        if not waits:
            program.follow = lambda arena, stream: None
        try:
            executable = _executable()
            x = self.torch.ones((64, 300))
            executable.run([x], (0, 0))
            with self.torch.cuda.stream(self.torch.cuda.Stream()):
                executable.run([x.clone()], (0, 0))
        finally:
            program.follow = follow

    # -- captures ------------------------------------------------------------------------------------------

    def _captured(self, function: Callable[[], list[Any]]) -> None:
        from hybrid_lab.engines.triton.run import capture

        record = capture.recorder()
        assert record is not None
        replay, _ = record(function)
        replay()

    def numbers_read_back_in_a_capture(self) -> None:
        self._captured(lambda: [self.torch.ones(3) * float(self.torch.ones(3).sum())])

    def memory_of_the_host_in_a_capture(self) -> None:
        self._captured(lambda: [self.torch.empty(3).copy_(self.torch.from_numpy(np.ones(3, "float32")))])

    def waiting_in_a_capture(self) -> None:
        self._captured(lambda: [self.torch.cuda.synchronize()])

    def memory_freed_after_a_capture(self, kept: bool = False) -> None:
        from hybrid_lab.engines.triton.run import capture

        record, given = capture.recorder(), [self.torch.ones(SHAPE)]
        assert record is not None

        def function() -> list[Any]:
            made = self.torch.empty(SHAPE)
            self.launch(doubled(), (given[0], made))
            return []

        replay, _ = record(function)
        if not kept:
            given.clear()
        replay()


_numbers = iter(range(1, 1 << 16))


def _executable() -> Any:
    """A program with two kernels and an arena between them."""
    from hybrid_lab import engines
    from tests.graph.building import graph_of

    return engines.get("triton").compile(graph_of(lambda F, x: F.exp(F.sort(x * 2 + 1, axis=1)) / 3, (64, 300)))


def launches(faults: Faults) -> Iterator[tuple[str, Callable[[], None]]]:
    """(name, the launch); those that are right begin with "right: "."""
    for name, method in vars(Faults).items():
        if not name.startswith("_") and name not in ("launch", "tensors"):
            yield name.replace("_", " "), method.__get__(faults)
    yield "right: a launch", lambda: faults.launch(doubled())
    yield "right: another stream", lambda: faults.another_stream(waits=True)
    yield "right: an arena on another stream", lambda: faults.an_arena_on_another_stream(waits=True)
    yield "right: a capture", lambda: faults.memory_freed_after_a_capture(kept=True)


def main(target: str) -> None:
    gpu = start(target)
    stand_in()
    said = {}
    for name, launch in launches(Faults(gpu)):
        gpu.problems.clear()
        error = ""
        try:
            launch()
        except Exception as raised:
            error = f"{type(raised).__name__}: {raised}"
        said[name] = "; ".join(gpu.problems) or error
    print(json.dumps(said, indent=1))


if __name__ == "__main__":
    main(*sys.argv[1:])
