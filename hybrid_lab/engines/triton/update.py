"""DeviceUpdate: one optimizer step of many weights on the device, one launch of the same kernel for each of them.

The graph is that of the blockwise program (engines/numpy/blockwise.py), and so are the numbers: what depends on rates
alone is computed on the host in float64, and goes to the device as the arguments of fills, which copy nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from typing import Any

from hybrid_lab.diagnostics.errors import EngineError
from hybrid_lab.engines.memory import empty, torch_dtype
from hybrid_lab.engines.triton import availability, internals
from hybrid_lab.engines.triton.kernel import Kernel
from hybrid_lab.engines.triton.source import KernelSource
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Input, Value, input_node
from hybrid_lab.ops.pointwise import Binary, Unary

#: What a step runs, with the stream it is launched on.
Launch = Callable[[int], None]


class DeviceUpdate:
    """The kernel of an update graph: inputs arrays of one size and "number" inputs; effects on some of the arrays.

    Raises EngineError where it is not one pointwise kernel.
    """

    def __init__(self, graph: Graph):
        from hybrid_lab.engines.triton.engine import kernels_of

        self.graph = graph
        self._device = availability.torch_device()
        self._given = [value for value in graph.inputs if _is_number(value)]
        arrays = [value for value in graph.inputs if not _is_number(value)]
        self._host: list[Any] = []
        uniform = set(self._given)
        for node in graph.operators:
            if node.values_in and all(value in uniform for value in node.values_in):
                if not isinstance(node.op, (Binary, Unary)):
                    raise EngineError(f"{node.op!r} on numbers cannot be part of an update")
                self._host.append(node)
                uniform.update(node.outputs)
        read = dict.fromkeys(
            value for node in graph.operators if node not in self._host for value in node.values_in if value in uniform
        )
        fresh = {value: input_node("number", "number", shape=(1,), dtype=arrays[0].dtype) for value in read}
        targets = [target for target, new in graph.effects if new is not target]
        part = Graph([*arrays, *fresh], [new for _, new in graph.effects if new not in graph.inputs], name=graph.name)
        part = part.substitute(dict(fresh))
        part = Graph([*arrays, *fresh.values()], part.outputs, name=graph.name)
        lowered, _, sources = kernels_of(part)
        if len(sources) != 1 or sources[0].kind != "pointwise" or set(sources[0].sizes) != {"n"}:
            raise EngineError(f"the update {graph.name} is not one pointwise kernel")
        self.source: KernelSource = sources[0]
        self._read, self._dtype = list(fresh), torch_dtype(arrays[0].dtype)
        #: Of each pointer of the kernel, the array of a row that it is, or ~number.
        self._order = [_place(value, lowered.inputs, len(arrays)) for value in self.source.inputs]
        self._order += [arrays.index(targets[lowered.outputs.index(value)]) for value in self.source.outputs]
        self._kernels: dict[int, Kernel] = {}
        self._start()

    def _start(self) -> None:
        self._numbers = empty((max(len(self._read), 1),), self._dtype, self._device)
        self._held: list[Any] = [None] * len(self._read)

    def with_own_numbers(self) -> DeviceUpdate:
        """The same kernel for weights with numbers of their own."""
        made = copy(self)
        made._start()
        return made

    def set_numbers(self, numbers: Sequence[float]) -> None:
        """The values of the graph's "number" inputs for the steps from now on."""
        known: dict[Value, Any] = dict(zip(self._given, map(float, numbers), strict=True))
        for node in self._host:
            operands = [known[item] if isinstance(item, Value) else float(item) for item in node.inputs]
            known[node.outputs[0]] = float(node.op.ufunc(*operands))
        for index, value in enumerate(self._read):
            if self._held[index] != known[value]:
                self._held[index] = known[value]
                self._numbers[index].fill_(known[value])

    def prepare(self, row: Sequence[Any]) -> Launch:
        """The launch for one weight. row : weight, gradient and states, flat tensors of one size"""
        size = row[0].numel()
        if size not in self._kernels:
            self._kernels[size] = Kernel(replace(self.source, sizes={"n": size}))
        tensors = [row[place] if place >= 0 else self._numbers[~place : ~place + 1] for place in self._order]
        return self._kernels[size].bound(tensors)

    def __repr__(self) -> str:
        return self.source.text


def _place(value: Value, inputs: Sequence[Value], arrays: int) -> int:
    place = list(inputs).index(value)
    return place if place < arrays else ~(place - arrays)


def _is_number(value: Value) -> bool:
    return isinstance(value.node.op, Input) and value.node.op.role == "number"


def run(launches: Sequence[Launch]) -> None:
    """Launch them all on torch's current stream."""
    stream = 0 if availability.device().interpreted else internals.current_stream()
    for launch in launches:
        launch(stream)
