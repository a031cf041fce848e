"""Updates on the device: one optimizer step of all weights of one dtype in one launch.

The graphs are the graphs of the blockwise programs (engines/numpy/blockwise.py), and give the same numbers: values that
depend on rates alone are computed on the host in float64. Tables on the device have the addresses, sizes and numbers of
the weights; a program of the launch looks up its block of a weight. So the launch is the same from step to step: moved
arrays need a new table, new rates are fills, which copy nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from hybrid_lab.diagnostics.errors import EngineError
from hybrid_lab.engines import memory
from hybrid_lab.engines.launches import launches
from hybrid_lab.engines.triton.run import availability
from hybrid_lab.engines.triton.run.kernel import Kernel
from hybrid_lab.engines.triton.support import refusal
from hybrid_lab.engines.triton.write.body import INT32, Body, Refused
from hybrid_lab.engines.triton.write.core.pointwise import BLOCK
from hybrid_lab.engines.triton.write.kinds import is_pointwise
from hybrid_lab.engines.triton.write.source import KernelSource, counted, functions_in, kernel_source
from hybrid_lab.engines.triton.write.syntax import TYPES
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Constant, Input, Value, input_node
from hybrid_lab.graph.passes.decompose import decompose
from hybrid_lab.graph.passes.partition import Region, region_of
from hybrid_lab.graph.passes.simplify import simplify
from hybrid_lab.ops.elementwise.cast import Cast
from hybrid_lab.ops.framework.dtypes import is_narrow
from hybrid_lab.ops.framework.pointwise import Binary, Unary

#: The head of a weight's row in the table: twice its function's index, plus 1 for a ragged weight; the start of its
#: numbers; its number of elements. The addresses of its arrays follow.
HEAD = 3
#: Arrays at multiples of WHOLE bytes with multiples of WHOLE elements are read 16 bytes at a time.
WHOLE = 16
#: More numbers than this are copied at once; fewer numbers are filled in, one launch each.
FEW = 8


class UpdateFunction:
    """An update graph as a function of a kernel: inputs arrays of one size and "number" inputs; effects on arrays.

    arrays : the inputs that are no numbers, in the order of a weight's arrays
    name, text : of the function; places : for each pointer of it, the index of the array, or ~index of the number
    dtype : in which the numbers are read; group : the operators
    Raises EngineError if the graph is not one pointwise kernel.
    """

    def __init__(self, graph: Graph):
        self._given = [value for value in graph.inputs if _is_number(value)]
        self.arrays = [value for value in graph.inputs if not _is_number(value)]
        self.dtype = np.dtype("float32") if is_narrow(self.arrays[0].dtype) else self.arrays[0].dtype
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
        self._read = list(read)
        fresh = {value: input_node(_label(value), "number", shape=(1,), dtype=self.dtype) for value in read}
        self._targets = [target for target, new in graph.effects if new is not target]
        outputs = [new for target, new in graph.effects if new is not target]
        part = Graph([*self.arrays, *fresh], outputs, name=graph.name).substitute(dict(fresh))
        part = Graph([*self.arrays, *fresh.values()], part.outputs, name=graph.name)
        lowered = simplify(decompose(part, lambda node: refusal(node) is None))
        nodes = [node for node in lowered.operators if not isinstance(node.op, Constant)]
        # Programs write over their inputs: an element may depend on no other.
        apart = [is_pointwise(node) or isinstance(node.op, Cast) for node in nodes]
        if not all(apart) or any(refusal(node) is not None for node in nodes):
            raise EngineError(f"the update {graph.name} is not one pointwise kernel")
        self.group = region_of(nodes, lowered.users(), set(lowered.roots))
        by = "_".join(value.node.name for value in self._given)
        self.name = _identifier(f"{graph.name}_by_{by}" if by else f"{graph.name}_rule")
        self.text, self.places = self._written(lowered, self.group)

    def _written(self, graph: Graph, group: Region) -> tuple[str, list[int]]:
        body = Body(Region(group.nodes, group.inputs, ()))
        body.fresh("n")
        elements = prod(group.outputs[0].shape)
        offsets = body.declare("offsets", elements, "inside")
        try:
            names = [body.value(value, offsets.digits(value.shape)) for value in group.outputs]
        except Refused as reason:
            raise EngineError(f"the update {graph.name} is not one kernel: {reason}") from None
        inputs, places = list(graph.inputs), [self._place(graph, value) for value in body.inputs]
        for value, name in zip(group.outputs, names, strict=True):
            target = self._targets[graph.outputs.index(value)]
            place = self.arrays.index(target)
            pointer = body.inputs.get(inputs[place])
            if pointer is None:  # written without being read
                pointer = body.pointers[value] = body.fresh(f"{target.node.name}_ptr")
                places.append(place)
            body.line(f"tl.store({pointer} + offsets, {name}, mask=inside)")
        summary = f"{counted(group.nodes)} on a block of one weight."
        sizes = {"offsets": BLOCK, "n": elements}
        text = kernel_source(body, "update", self.name, summary, ["inside = offsets < n"], sizes, {}, {}, ()).text
        return text[text.rindex("@triton.jit") :], places

    def _place(self, graph: Graph, value: Value) -> int:
        place = list(graph.inputs).index(value)
        return place if place < len(self.arrays) else ~(place - len(self.arrays))

    def numbers(self, values: Sequence[float]) -> list[float]:
        """The kernel's numbers, from the values of the graph's "number" inputs, rounded to the kernel's dtype."""
        known: dict[Value, Any] = dict(zip(self._given, map(float, values), strict=True))
        for node in self._host:
            operands = [known[item] if isinstance(item, Value) else float(item) for item in node.inputs]
            known[node.outputs[0]] = float(node.op.ufunc(*operands))
        with np.errstate(over="ignore"):
            return [float(self.dtype.type(known[value])) for value in self._read]

    @property
    def count(self) -> int:
        """How many numbers the kernel reads."""
        return len(self._read)

    def call(self, whole: bool) -> list[str]:
        """The lines that call it. whole : for arrays at multiples of 16 bytes, with a multiple of 16 elements"""
        arguments = []
        for place in self.places:
            dtype = "" if place < 0 else TYPES[self.arrays[place].dtype.name]
            array = f"array_at(row_ptr + {HEAD + place}, {dtype}, {whole})"
            arguments.append(array if place >= 0 else f"number_ptr + {~place}")
        arguments += ["offsets", f"n // {WHOLE} * {WHOLE}" if whole else "n"]
        return [f"{self.name}(", *(f"    {item}," for item in arguments), ")"]


class DeviceUpdate:
    """The kernel of update graphs over the same arrays: each weight follows one graph.

    functions : one for each graph, in order; width : of a weight's row in the table
    Raises EngineError if one of the graphs is not one pointwise kernel.
    """

    def __init__(self, graphs: Sequence[Graph]):
        self.functions = [UpdateFunction(graph) for graph in graphs]
        self.width = HEAD + len(self.functions[0].arrays)
        self.name = _identifier(f"multi_{graphs[0].name}")

    def for_elements(self, largest: int) -> KernelSource:
        """The kernel's source. largest : elements of the largest weight; there are programs for no other"""
        dtypes = (("weights", "int64"), ("blocks", "int32"), ("numbers", self.functions[0].dtype))
        tables = tuple(input_node(name, shape=(1,), dtype=np.dtype(dtype)) for name, dtype in dtypes)
        programs = -(-largest // BLOCK)
        summary = "One step of all weights, a program for each block of one of them."
        arguments, head, lines = self.text
        if largest >= INT32:
            lines = [line.replace("tl.arange(0, BLOCK)", "tl.arange(0, BLOCK).to(tl.int64)") for line in lines]
            lines = [line.replace("tl.load(block_ptr + 1)", "tl.load(block_ptr + 1).to(tl.int64)") for line in lines]
            lines = [line.replace("(row_ptr + 2).to(tl.int32)", "(row_ptr + 2)") for line in lines]
        return KernelSource(
            self.name, "update", arguments, head, lines, lambda: (summary, ()), tables, (), (), {"programs": programs},
            {"BLOCK": BLOCK}, {"BLOCK": largest}, (("programs", ""),),
        )  # fmt: skip

    @cached_property
    def text(self) -> tuple[list[str], list[str], list[str]]:
        """The functions as text, and the kernel that calls them: its arguments, the lines before it, its lines."""
        lines = [
            "block_ptr = blocks_ptr + tl.program_id(0) * 2",
            f"row_ptr = weights_ptr + tl.load(block_ptr) * {self.width}",
            "offsets = tl.load(block_ptr + 1) * BLOCK + tl.arange(0, BLOCK)",
            "kind = tl.load(row_ptr)",
            "number_ptr = numbers_ptr + tl.load(row_ptr + 1)",
            "n = tl.load(row_ptr + 2).to(tl.int32)",
        ]
        for number, function in enumerate(self.functions):
            for whole in (True, False):
                kind = 2 * number + (not whole)
                case = f"elif kind == {kind}:" if kind else "if kind == 0:"
                case = "else:" if kind == 2 * len(self.functions) - 1 else case
                what = "" if whole else "  # ragged"
                lines += [case + what, *(f"    {line}" for line in function.call(whole))]
        arguments = ["weights_ptr", "blocks_ptr", "numbers_ptr", "BLOCK"]
        functions = "\n\n".join(function.text for function in self.functions)
        words = re.findall(r"\w+", "\n".join([functions, *lines]))
        head = [
            "import triton", "import triton.language as tl", *functions_in(words), "", "",
            *functions.splitlines(), "", "", "@triton.jit",
            f"def {self.name}({', '.join(arguments)}: tl.constexpr):",
        ]  # fmt: skip
        return arguments, head, [f"    {line}" for line in lines]

    def __repr__(self) -> str:
        return self.for_elements(BLOCK).text


class DeviceStep:
    """The launch of an update for certain weights.

    functions : for each group of weights with the same numbers, the index of its function
    groups : of each weight, its group
    rows : of each weight, its arrays: flat tensors of one size, in the order of the functions' `arrays`
    blocks : how many programs there are; tables : how often the addresses were written; source : of the kernel
    """

    def __init__(
        self, update: DeviceUpdate, functions: Sequence[int], groups: Sequence[int], rows: Sequence[Sequence[Any]]
    ):
        self._update, self._functions, self._groups = update, list(functions), list(groups)
        self._device = availability.torch_device()
        self._sizes = [row[0].numel() for row in rows]
        self.source = source = update.for_elements(max(self._sizes, default=1))
        block = Kernel(source).blocks["BLOCK"]
        counts = [-(-size // block) for size in self._sizes]
        self.blocks, self.tables = sum(counts), 0
        counts_of_functions = [update.functions[function].count for function in self._functions]
        self._starts = [sum(counts_of_functions[:group]) for group in range(len(counts_of_functions))]
        self._held: list[float | None] = [None] * sum(counts_of_functions)
        self._numbers = self._empty((max(len(self._held), 1),), update.functions[0].dtype)
        self._weights = self._empty((len(rows), update.width), np.dtype("int64"))
        self.point_at(rows)
        self._launch = None
        if self.blocks:
            places = np.empty((self.blocks, 2), np.int32)
            places[:, 0] = np.repeat(np.arange(len(counts)), counts)
            places[:, 1] = np.arange(self.blocks) - np.repeat(np.cumsum(counts) - counts, counts)
            tables = [self._weights, memory.to_device(places, self._device), self._numbers]
            kernel = Kernel(replace(source, sizes={"programs": self.blocks}))
            self._launch = kernel.bound(tables)

    def _empty(self, shape: tuple[int, ...], dtype: np.dtype) -> Any:
        return memory.empty(shape, memory.torch_dtype(dtype), self._device)

    def point_at(self, rows: Sequence[Sequence[Any]]) -> None:
        """The same weights, in other memory from now on."""
        table = np.zeros((len(rows), self._update.width), np.int64)
        for index, row in enumerate(rows):
            addresses = [tensor.data_ptr() for tensor in row]
            size, group = self._sizes[index], self._groups[index]
            ragged = size % WHOLE != 0 or any(address % WHOLE for address in addresses)
            table[index] = [2 * self._functions[group] + ragged, self._starts[group], size, *addresses]
        memory.to_device(table, self._device, self._weights)
        self._arrays = rows  # whose memory must live as long as the table
        self.tables += 1

    def set_numbers(self, values: Sequence[Sequence[float]]) -> None:
        """For each group, the values of its graph's "number" inputs for the steps from now on."""
        wanted: list[float | None] = []
        for function, numbers in zip(self._functions, values, strict=True):
            wanted += self._update.functions[function].numbers(numbers)
        changed = [index for index, number in enumerate(wanted) if number != self._held[index]]
        if len(changed) > FEW:
            memory.to_device(np.array(wanted, self._update.functions[0].dtype), self._device, self._numbers)
        else:
            for index in changed:
                self._numbers[index].fill_(wanted[index])
            launches.others += len(changed)
        self._held = wanted

    def __call__(self) -> None:
        """Make the step, on torch's current stream."""
        if self._launch is not None:
            self._launch(0 if availability.device().interpreted else availability.current_stream())
            launches.kernels += 1


def _identifier(text: str) -> str:
    return re.sub(r"\W", "_", text, flags=re.ASCII)


def _label(value: Value) -> str:
    """The name of a number in the kernel."""
    return str(value.node.name) if _is_number(value) else "number"


def _is_number(value: Value) -> bool:
    return isinstance(value.node.op, Input) and value.node.op.role == "number"
