"""Captured launches (static_shape): a whole program as one CUDA or HIP graph, replayed from call to call.

A training step is two replays, forward and backward, and the update's one launch (update.py), which a graph of its own
would not make cheaper. One graph for all three is impossible: between `record()`, `backward()` and `Trainer.step()` the
caller's code runs, which may read the loss, clip gradients, skip the step or set another rate. Whether it does is
unknown beforehand.

A captured graph reads and writes the addresses it was captured with. Before a replay, data is copied to the graph's own
memory; outputs are copied out of it. Values computed from parameters alone are copied whenever they were recomputed.
Parameters and gradients are used where they lie, and when they lie elsewhere the program is captured anew. The first
replay is compared bit by bit with a plain run. If they differ, or if a program cannot be captured, it runs plainly and
the report gives the reason.

If the vendor's library computes products, the order of its sums may differ from run to run (cuDNN adds parts of a
weight's gradient up by atomic additions), so the first replay need only be near: `torch.use_deterministic_algorithms`
makes it equal.

Programs that draw are not captured: seed and draws are arguments of their launches, which a graph would repeat, so that
every call had the same numbers. Programs with steps on the host are not either.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from hybrid_lab.engines.engine import CONSTANT_ROLES, Executable, ForwardState, Ready, Training
from hybrid_lab.engines.launches import launches
from hybrid_lab.engines.planned.build import Later, write
from hybrid_lab.engines.report import Report
from hybrid_lab.engines.triton.run import availability
from hybrid_lab.engines.triton.run.addresses import ALIGNED
from hybrid_lab.engines.triton.run.arena import wait_for
from hybrid_lab.engines.triton.run.program import DeviceWriter
from hybrid_lab.engines.triton.run.steps import KernelOperator, has_rule, on_torch
from hybrid_lab.engines.triton.run.vendor import VendorKernel
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Constant, Input
from hybrid_lab.system import forks

#: The capture of a function: a function that repeats the captured launches, and the tensors that these launches write
#: to. Nothing has run before: the first replay is the first run.
Captured = tuple[Callable[[], None], list[Any]]
#: A program is captured at most CAPTURES times; after that its memory moves too much.
CAPTURES = 4
#: How far a replay with products by the vendor's library may be from a plain run, relative to the largest number.
NEAR = {"float64": 1e-9, "float32": 1e-3, "float16": 2e-2, "bfloat16": 1e-1}


def by_torch(function: Callable[[], list[object]]) -> Captured:
    """Capture launches by torch's CUDA graphs, which are HIP graphs on AMD."""
    import torch

    graph, before = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
    try:
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            outputs = function()
    finally:
        torch.cuda.set_stream(before)  # if a capture fails, torch stays on the stream of its own
    return graph.replay, outputs


def recorder() -> Callable[[Callable[[], list[Any]]], Captured] | None:
    """The function that captures on this machine's device; None in the interpreter."""
    return None if availability.device().interpreted else by_torch


def obstacle(graph: Graph) -> str:
    """Why the program of a graph cannot be captured, or ""."""
    for node in graph.operators:
        op = node.op
        if isinstance(op, KernelOperator):
            if any(kernel.source.draws for kernel in op.kernels):
                return "it draws random numbers, which a replay would repeat"
        elif not (isinstance(op, Constant) or op.view or has_rule(node)):
            return f"{op.name} {'reads numbers back' if on_torch(node) else 'runs on the host'}"
    return ""


def same_bits(first: Any, second: Any) -> bool:
    """Whether two tensors hold the same bits; NaNs too."""
    import torch

    return bool(torch.equal(first.reshape(-1).view(torch.uint8), second.reshape(-1).view(torch.uint8)))


def calls_vendor(graph: Graph) -> bool:
    """Whether the program of a graph has a product by the vendor's library."""
    operators = [node.op for node in graph.operators if isinstance(node.op, KernelOperator)]
    return any(isinstance(kernel, VendorKernel) for op in operators for kernel in op.kernels)


def is_near(first: Any, second: Any) -> bool:
    """Whether two tensors are equal up to sums in another order; whole numbers must be equal bit by bit.

    What recurrent layers of the vendor's library keep for their gradient, as bytes, is not compared: parts of it are
    never written.
    """
    import torch

    if first.dtype == torch.uint8 or same_bits(first, second):
        return True
    if not first.is_floating_point():
        return False
    one, other = first.double(), second.double()
    finite = one[torch.isfinite(one)]
    allowed = NEAR[str(first.dtype).removeprefix("torch.")] * (float(finite.abs().max()) if finite.numel() else 1.0)
    return bool(torch.allclose(other, one, rtol=0, atol=allowed, equal_nan=True))


class Steady:
    """Which inputs of a graph keep their addresses, and memory for the other inputs.

    inputs : of the captured program

    Hoisted values are recomputed into new buffers whenever a parameter changes. They are copied, too, but only if the
    tensor is another than the one copied last. That tensor is kept alive, so that no other can have its address.
    """

    def __init__(self, graph: Graph):
        roles = [value.node.op.role if isinstance(value.node.op, Input) else "" for value in graph.inputs]
        self._hoisted = [role == "hoisted" for role in roles]
        self._stays = [role in CONSTANT_ROLES and role != "hoisted" for role in roles]
        self.inputs: list[Any] = []
        self._copied: list[Any] = []
        self._addresses: list[int] = []

    def addresses(self, inputs: Sequence[Any]) -> list[int]:
        return [tensor.data_ptr() for tensor, stays in zip(inputs, self._stays, strict=True) if stays]

    def serves(self, inputs: Sequence[object]) -> bool:
        return bool(self.inputs or not inputs) and self.addresses(inputs) == self._addresses

    def take(self, inputs: Sequence[Any]) -> None:
        """Copy the inputs that do not stay; the captured program then reads the copies."""
        self.inputs = [tensor if stays else tensor.clone() for tensor, stays in zip(inputs, self._stays, strict=True)]
        self._copied = [tensor if hoisted else None for tensor, hoisted in zip(inputs, self._hoisted, strict=True)]
        self._addresses = self.addresses(inputs)

    def fill(self, inputs: Sequence[object]) -> None:
        """Copy the data to the program's input memory, and hoisted values if they have changed."""
        for index, (tensor, stays) in enumerate(zip(inputs, self._stays, strict=True)):
            if stays or self._copied[index] is tensor:
                continue
            self.inputs[index].copy_(tensor)
            launches.others += 1
            if self._hoisted[index]:
                self._copied[index] = tensor

    def forget(self) -> None:
        """Drop the memory; `serves` none until `take`."""
        self.inputs, self._copied, self._addresses = [], [], []


class _Capturing:
    """Base of captured programs: the memory that their launches read, and the rule when they give up capturing.

    graphs : the graphs of the program; the first one reads that memory
    """

    def __init__(self, report: Report, *graphs: Graph):
        self._report, self._steady, self._lock = report, Steady(graphs[0]), forks.lock()
        self._capture_launches = recorder()
        self._alike = is_near if any(map(calls_vendor, graphs)) else same_bits
        self._calls = self._captures = 0
        self._last: int | None = None  # the stream of the last replay
        self._forget()
        self.reason = next(filter(None, map(obstacle, graphs)), "")
        if self._capture_launches is None:
            self.reason = self.reason or "Triton's interpreter has no captured launches"
        if self.reason:
            self._report.notes.append(f"launches are not captured: {self.reason}")

    def _in_order(self) -> None:
        """Let this replay wait for the one before, which may have been on another stream: they have one memory."""
        if not availability.device().interpreted:
            before, self._last = self._last, availability.current_stream()
            if before != self._last:
                wait_for(before)

    def _forget(self) -> None:
        """Drop the capture, with its memory."""
        self._replay: Callable[[], None] | None = None
        self._outputs: list[Any] = []
        self._steady.forget()

    def _give_up(self, reason: str) -> None:
        self.reason = reason
        self._forget()
        self._report.notes.append(f"launches are not captured: {reason}")

    def _takes(self, inputs: Sequence[Any]) -> bool:
        """Make memory for the inputs of a new capture; or give up after too many captures."""
        self._forget()
        self._captures += 1
        if self._captures > CAPTURES:
            self._give_up(f"parameters have moved {CAPTURES} times")
        else:
            self._steady.take(inputs)
        return not self.reason

    def _recorded(
        self, function: Callable[[], list[object]], expected: Sequence[object], what: str = ""
    ) -> tuple[Callable[[], None] | None, list[Any]]:
        """The replay of a function's launches and the tensors that it writes to; (None, []) if it gives up.

        expected : the results of a run without capture; the first replay must give the same
        what : the part of the program for messages, such as "of the forward"
        """
        assert self._capture_launches is not None
        try:
            replay, outputs = self._capture_launches(function)
            replay()
        except RuntimeError as error:
            self._give_up(_failure(error))
            return None, []
        if not all(map(self._alike, expected, outputs)):
            self._give_up(f"the first replay{what} gave other numbers than a plain run")
            return None, []
        return replay, outputs


class CapturedRun(_Capturing):
    """A program's function that replays the launches captured in its second call; arguments and results are the
    program's.
    """

    def __init__(self, executable: Executable):
        self._plain: Any = executable.run
        self._alone: Any = None
        self._write: Any = functools.partial(write, executable.graph, executable.report, True, DeviceWriter)
        super().__init__(executable.report, executable.graph)

    def __call__(self, inputs: Sequence[Any], rng: tuple[int, int]) -> list[Any]:
        if self.reason or not inputs:
            return self._plain(inputs, rng)
        with self._lock:
            if self._replay is not None and self._steady.serves(inputs):
                self._in_order()
                self._steady.fill(inputs)
                self._replay()
                return _replayed(self._outputs)
            self._calls += 1
            results = self._plain(inputs, rng)
            if self._calls > 1 and self._takes(inputs):
                # This arena lives as long as the capture: the pool would give the plain program's arena to others, or
                # back to the system.
                self._alone = alone = self._write()
                self._replay, self._outputs = self._recorded(lambda: alone(self._steady.inputs, rng), results)
            return results

    def _forget(self) -> None:
        super()._forget()
        self._alone = None

    def forget(self) -> None:
        """Drop the capture, with its memory."""
        with self._lock:
            self._forget()
            self._calls = 0
        if isinstance(self._plain, Later):
            self._plain.forget()


class CapturedTraining(_Capturing, Training):
    """Forward and backward of a recorded call, each one captured graph over memory that both have for themselves.

    A forward whose predecessor waits for its backward still runs plainly.
    """

    def __init__(self, inner: Any, sources: Sequence[tuple[str, int]]):
        self._inner, self._sources = inner, sources
        self.forward, self.backward = inner.forward, inner.backward
        self.begin = self._begin
        self.busy = False  # a forward's memory waits for its backward
        self._moves = 0
        super().__init__(self.forward.report, self.forward.graph, self.backward.graph)

    def _forget(self) -> None:
        super()._forget()
        self._kept: Any = None
        self._backward: Callable[[], None] | None = None
        self._operands: list[Any] = []
        self._gradients: list[Any] = []
        self._places: list[int] = []

    @property
    def plain(self) -> Training:
        return self

    def release(self) -> None:
        with self._lock:
            if not self.busy:
                self._forget()
        self._inner.release()

    def _begin(self, inputs: Sequence[Any], rng: tuple[int, int]) -> tuple[list[Any], ForwardState]:
        if self.reason or self.busy:
            return self._inner.begin(inputs, rng)
        with self._lock:
            if self.busy:
                return self._inner.begin(inputs, rng)
            if self._replay is not None and self._steady.serves(inputs):
                self._in_order()
                self._steady.fill(inputs)
                self._replay()
                outputs = _replayed(self._outputs)
                self.busy = True
                return outputs, ForwardState(self._kept.saved, self, _free)
            self._calls += 1
            results, kept = self._inner.begin(inputs, rng)
            if self._calls > 1 and self._takes(inputs):
                self._capture(rng, [*results, *kept.saved])
            return results, kept

    def _capture(self, rng: tuple[int, int], expected: list[object]) -> None:
        first: list[Any] = []

        def forward() -> list[Any]:
            results, kept = self._inner.begin(self._steady.inputs, rng)
            if not first:
                first.append(kept)
            return [*results, *kept.saved]

        self._replay, outputs = self._recorded(forward, expected, " of the forward")
        if self._replay is not None:
            self._outputs, self._kept = outputs[: len(outputs) - len(first[0].saved)], first[0]

    def finish(
        self,
        kept: ForwardState,
        operands: Sequence[Any],
        rng: tuple[int, int],
        last: bool = True,
        out: Sequence[Any] | None = None,
        ready: Ready | None = None,
    ) -> list[Any]:
        if kept.lease is not self:
            return self._inner.finish(kept, operands, rng, last, out, ready)
        if not last or self.reason:
            return self.backward.run(operands, rng)
        kept.lease, kept.saved = None, ()
        try:
            return self._replay_backward(operands, rng, out)
        finally:
            self.busy = False

    def _replay_backward(self, operands: Sequence[Any], rng: tuple[int, int], out: Sequence[Any] | None) -> list[Any]:
        # Gradients that lie elsewhere in every step are not written in place: each place would be a capture.
        apart = out is None or self._moves > CAPTURES
        # Gradients at unaligned addresses are not written in place either: no kernel takes the addresses.
        places = [
            None if apart or place is None or place.data_ptr() % ALIGNED else place
            for place in out or [None] * len(self.backward.graph.outputs)
        ]
        addresses = [0 if place is None else place.data_ptr() for place in places]
        if self._backward is None or addresses != self._places:
            self._moves += self._backward is not None
            return self._capture_backward(operands, rng, places, addresses)
        self._in_order()
        for (kind, _), place, tensor in zip(self._sources, self._operands, operands, strict=True):
            if kind == "head":
                place.copy_(tensor)
                launches.others += 1
        self._backward()
        pairs = zip(self._gradients, places, strict=True)
        fresh = iter(_replayed([gradient for gradient, place in pairs if place is None]))
        return [next(fresh) if place is None else place for place in places]

    def _capture_backward(
        self, operands: Sequence[Any], rng: tuple[int, int], places: list[Any], addresses: list[int]
    ) -> list[Any]:
        """Run it plainly, and see whether a captured run gives the same."""
        expected = self.backward.run(operands, rng)
        self._operands = []
        for (kind, index), tensor in zip(self._sources, operands, strict=True):
            if kind == "input":  # the place that the captured forward read it from
                self._operands.append(self._steady.inputs[index])
            elif kind == "output":
                self._operands.append(self._outputs[index])
            else:
                self._operands.append(tensor if kind == "saved" else tensor.clone())
        # In the arena of the captured forward, which stays leased.
        run = functools.partial(self._inner.run_backward, self._operands, rng, self._kept.lease, places)
        self._backward, self._gradients = self._recorded(run, expected, " of the backward")
        self._places = addresses if self._backward is not None else []
        return expected


def _replayed(outputs: Sequence[Any]) -> list[Any]:
    """Copies of a replay's outputs, which are the caller's."""
    launches.replays += 1
    launches.others += len(outputs)
    return [tensor.clone() for tensor in outputs]


def _failure(error: RuntimeError) -> str:
    """What went wrong in a capture: torch then ends it with an error that only says that something did."""
    first = error.__context__ if isinstance(error.__context__, RuntimeError) else error
    return f"it failed: {(str(first).splitlines() or [type(first).__name__])[0]}"


def _free(training: CapturedTraining) -> None:
    training.busy = False
