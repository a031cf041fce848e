"""A region as one straight-line function of torch calls on tensors that share the arrays' memory."""

from __future__ import annotations

import functools
import itertools
import math
import re
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from hybrid_lab.engines.memory import plain, torch_dtype
from hybrid_lab.engines.planned.program import function_of
from hybrid_lab.engines.torch_kernels.fused import Item, TorchCall, calls_of
from hybrid_lab.engines.torch_kernels.registry import plain_operator
from hybrid_lab.graph.node import Constant, Value
from hybrid_lab.graph.printer import format_origin

if TYPE_CHECKING:
    from types import ModuleType

    from torch import Tensor

    from hybrid_lab.engines.engine import Ready
    from hybrid_lab.graph.passes.partition import Region

_serial = itertools.count()


@functools.cache
def _quieten(torch: ModuleType) -> None:
    """Regions read arrays that may not be written to. torch warns of the first one in a process: of this one."""
    array = np.zeros(1)
    array.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.from_numpy(array)


class TorchProgram:
    """One region. Call it with arrays; it returns a list of arrays in fresh memory, in C order.

    source : the generated text
    """

    #: The function with the further argument `ready`; written on first use.
    _run_with_ready: Callable[..., tuple[Tensor, ...]] | None = None

    def __init__(self, region: Region):
        import torch

        _quieten(torch)
        self._guard, self._share = torch.inference_mode, torch.from_numpy
        self._region = region
        self._run, self.source = _RegionWriter(torch, region).finish()

    def __call__(self, inputs: Sequence[np.ndarray], ready: Ready | None = None) -> list[np.ndarray]:
        """ready : told of each output as soon as nothing writes to it any more"""
        tensors = map(self._tensor, inputs)
        with self._guard():
            if ready is None:
                return [result.numpy() for result in self._run(*tensors)]
            if self._run_with_ready is None:
                import torch

                self._run_with_ready = _RegionWriter(torch, self._region, takes_ready=True).finish()[0]
            tell = ready
            results = self._run_with_ready(*tensors, lambda output, tensor: tell(output, tensor.numpy()))
            return [result.numpy() for result in results]

    def _tensor(self, array: np.ndarray) -> Tensor:
        """The array as a tensor, in the same memory if torch can share it."""
        try:
            return self._share(array)
        except (TypeError, ValueError):
            return self._share(plain(array))


class _RegionWriter:
    """Writes the function of a region, line by line."""

    def __init__(self, torch: ModuleType, region: Region, takes_ready: bool = False):
        self.torch, self.region, self.takes_ready = torch, region, takes_ready
        self.calls = calls_of(region)
        self.names: dict[Value, str] = {value: f"x{index}" for index, value in enumerate(region.inputs)}
        #: The values of the function's names: kernels and constants.
        self.bound: dict[str, object] = {"torch": torch}
        #: The value whose memory a value lies in; None if the memory is an input's, or shared by calls.
        self.origins: dict[Value, Value | None] = {}
        self.outputs = set(region.outputs)
        self.readers: dict[Value, list[int]] = {}
        for index, call in enumerate(self.calls):
            for value in call.values:
                self.readers.setdefault(value, []).append(index)

    def finish(self) -> tuple[Callable[..., tuple[Tensor, ...]], str]:
        """The function and its text."""
        parameters = [*self.names.values(), "ready"] if self.takes_ready else self.names.values()
        lines = [f"def program({', '.join(parameters)}):"]
        numbers = {value: number for number, value in enumerate(self.region.outputs)} if self.takes_ready else {}
        for index, call in enumerate(self.calls):
            lines.append(self.write_call(index, call))
            outputs = [value for value in call.node.outputs if value in numbers]
            lines += [f"ready({numbers[value]}, {self.names[value]})" for value in outputs]
            dead = [value for value in dict.fromkeys((*call.values, *call.node.outputs)) if self.is_dead(value, index)]
            names = [self.names[value] for value in dead if not isinstance(value.node.op, Constant)]
            lines += [f"del {', '.join(names)}"] if names else []
        source = "\n    ".join([*lines, f"return ({', '.join(self.results())},)"]) + "\n"
        return function_of(source, f"torch program {next(_serial)}", self.bound), source

    def is_dead(self, value: Value, index: int) -> bool:
        """Whether no call after number `index` reads the value."""
        return value not in self.outputs and self.readers.get(value, [index])[-1] <= index

    def write_call(self, index: int, call: TorchCall) -> str:
        node = call.node
        entry, kernel = call.entry, call.entry.kernel(self.torch, node, plain_operator(node.op))
        name = re.sub(r"\W", "_", node.op.name).strip("_") or "op"
        if self.bound.get(name, kernel) is not kernel:
            name = f"{name}_{index}"
        self.bound[name] = kernel
        operands = [self.operand(item, node.op.reads_values(at)) for at, item in enumerate(call.inputs)]
        if entry.out:
            operands += [f"out={self.names[value]}" for value in call.values if self.may_overwrite(value, index)][:1]
        if entry.need:
            operands.append(f"need={[value in self.outputs or value in self.readers for value in node.outputs]}")
        for position, value in enumerate(node.outputs):
            self.names[value] = f"t{index}" if len(node.outputs) == 1 else f"t{index}_{position}"
            self.origins[value] = value
            if entry.shared:
                reads = bool(call.values) and node.op.reads_values(0)
                self.origins[value] = self.origins.get(call.values[0]) if reads else None
        targets = ", ".join(self.names[value] for value in node.outputs)
        line = f"{targets} = {name}({', '.join(operands)})"
        comment = "".join(letter if letter.isprintable() else "?" for letter in f"{node.op!r}  {format_origin(node)}")
        return f"{line:<56}  # {comment}".rstrip()

    def may_overwrite(self, value: Value, index: int) -> bool:
        """Whether call number `index` may write its result over `value`, an input with memory of its own."""
        result = self.calls[index].node.outputs[0]
        if self.origins.get(value) is not value or not self.is_dead(value, index):
            return False
        has_views = any(self.calls[reader].entry.shared for reader in self.readers[value])
        return (value.shape, value.dtype) == (result.shape, result.dtype) and not has_views

    def operand(self, item: Item, read: bool) -> str:
        """The text for an input of a call. read : its numbers are read, not only its shape"""
        if not isinstance(item, Value):
            # Infinity and NaN have no literal.
            return repr(item) if not isinstance(item, float) or math.isfinite(item) else f"float({str(item)!r})"
        if item in self.names:
            return self.names[item]
        assert isinstance(item.node.op, Constant), item
        if read:
            self.names[item] = name = f"k{len(self.names)}"
            self.bound[name] = self.torch.from_numpy(np.array(item.node.op.array))
            return name
        # Memory that is never touched, so that the system allocates no pages for it.
        name = f"shape_{'x'.join(map(str, item.shape))}_{item.dtype.name}"
        self.bound.setdefault(name, self.torch.empty(item.shape, dtype=torch_dtype(item.dtype)))
        return name

    def results(self) -> list[str]:
        """The outputs, each in memory of its own."""
        taken: set[Value] = set()
        results = []
        for value in self.region.outputs:
            name, origin = self.names[value], self.origins.get(value)
            if origin is None or origin in taken:
                results.append(f"{name}.clone(memory_format=torch.contiguous_format)")
                continue
            taken.add(origin)
            results.append(f"{name}.contiguous()")
        return results
