"""Blockwise: a pointwise graph that overwrites its inputs, as a loop over blocks of memory that fit the cache."""

from __future__ import annotations

import itertools
import keyword
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from hybrid_lab.diagnostics.errors import EngineError
from hybrid_lab.engines.planned.program import function_of
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Constant, Input, Node, Value
from hybrid_lab.graph.printer import Names, format_statement
from hybrid_lab.ops.framework.pointwise import Binary, Elementwise, Unary
from hybrid_lab.ops.kernels.blas import share

BLOCK = 32768
"""Elements of a block: weight, gradient, two states and temporaries in float32 take about half a megabyte, so that they
stay in a second-level cache; of smaller ones the calls would cost more than the arithmetic."""
SHARED_BLOCK = 1 << 18
"""The same where several threads take blocks: between two calls they wait for one another (Python runs one of them at a
time), so each call must be worth it. Passes then go through the third-level cache."""
SHARED = 1 << 22
"""From so many elements on an update is shared among threads: five milliseconds or more on one."""

_serial = itertools.count()


@dataclass(frozen=True)
class Blockwise:
    """A compiled update.

    run : `run(numbers, blocks)`; numbers are the values of the graph's "number" inputs in order, blocks are tuples of
        flat arrays of equal size: the array inputs in order, then `scratch` temporaries
    source : the program as text
    """

    graph: Graph
    run: Callable[[Sequence[float], Iterable[Sequence[np.ndarray]]], None]
    source: str
    scratch: int
    dtype: np.dtype

    def __str__(self) -> str:
        return self.source

    def update(
        self,
        numbers: Sequence[float],
        blocks: Sequence[tuple[np.ndarray, ...]],
        temporaries: Sequence[Callable[[Blockwise, int], Sequence[np.ndarray]]],
    ) -> None:
        """Run over blocks that share no memory, on as many threads as there are `temporaries`. Threads take the next
        block when they are done with one; the results are the same for any number of them.

        temporaries : one per thread, (program, size) -> `scratch` arrays of this size
        """
        if len(temporaries) == 1:
            (own,) = temporaries
            self.run(numbers, ((*block, *own(self, block[0].size)) for block in blocks))
            return
        errors = np.geterr()

        def work(own: Callable[[Blockwise, int], Sequence[np.ndarray]], block: tuple[np.ndarray, ...]) -> None:
            with np.errstate(**errors):  # the warnings that the caller wants; every thread has its own settings
                self.run(numbers, ((*block, *own(self, block[0].size)),))

        share(blocks, [partial(work, own) for own in temporaries])


def cut(arrays: Sequence[np.ndarray], size: int = BLOCK) -> list[tuple[np.ndarray, ...]]:
    """Contiguous arrays of one size in flat blocks of at most `size` elements, all about as long."""
    flat = [array.reshape(-1) for array in arrays]
    count = -(-flat[0].size // size)
    bounds = [flat[0].size * number // count for number in range(count + 1)] if count else []
    return [tuple([array[first:last] for array in flat]) for first, last in pairwise(bounds)]


class Temporaries:
    """The temporaries of one thread, for programs of all dtypes and blocks of all sizes."""

    def __init__(self) -> None:
        self._whole: dict[np.dtype, np.ndarray] = {}
        self._cut: dict[tuple[np.dtype, int, int], list[np.ndarray]] = {}

    def __call__(self, program: Blockwise, size: int) -> list[np.ndarray]:
        """`program.scratch` arrays of this size."""
        key = program.dtype, program.scratch, size
        found = self._cut.get(key)
        if found is None:
            whole = self._whole.get(program.dtype)
            if whole is None or whole.size < program.scratch * size:
                self._whole[program.dtype] = whole = np.empty(program.scratch * size, program.dtype)
                self._cut = {other: made for other, made in self._cut.items() if other[0] != program.dtype}
            rows = whole[: program.scratch * size].reshape(program.scratch, size)
            found = self._cut[key] = list(rows)
        return found


def write_blockwise(graph: Graph) -> Blockwise:
    """Compile a graph without outputs, all of whose effects overwrite inputs of one shape (n,) and dtype.

    Values that depend on "number" inputs and scalars alone are computed once a call, in float64, and then rounded to
    the dtype; everything else runs block by block, and new values overwrite old values after their last use. Raises
    EngineError if an operator is not pointwise.
    """
    return _LoopWriter(graph).finish()


class _LoopWriter:
    def __init__(self, graph: Graph):
        self.graph = graph
        self.steps = [node for node in graph.operators if not isinstance(node.op, Constant)]
        self.names: dict[Any, str] = {}
        self.bound: dict[str, Any] = {"copyto": np.copyto, "numbers": None, "blocks": None, "update": None}
        self._bound_ids: dict[Any, str] = {}
        self.head: list[str] = []
        self.body: list[str] = []
        self.printed = Names(graph)
        self.numbers = [value for value in graph.inputs if _is_number(value)]
        self.arrays = [value for value in graph.inputs if not _is_number(value)]
        self.dtype = self.arrays[0].dtype
        self.uniform = set(self.numbers)
        for value in graph.inputs:
            name = re.sub(r"\W", "_", value.node.name, flags=re.ASCII) or "x"
            while name in self.bound or keyword.iskeyword(name):
                name += "_"
            self.bound[name] = None
            self.names[value] = name

    def _bind(self, hint: str, item: object, key: object = None) -> str:
        key = id(item) if key is None else key
        if key not in self._bound_ids:
            name, number = hint, 1
            while name in self.bound or keyword.iskeyword(name):
                number += 1
                name = f"{hint}_{number}"
            self.bound[name], self._bound_ids[key] = item, name
        return self._bound_ids[key]

    def finish(self) -> Blockwise:
        varying = []
        for node in self.steps:
            if all(value in self.uniform for value in node.values_in):
                self._once(node)
            else:
                varying.append(node)
        memory = _Memory(self.graph, varying)
        for index, node in enumerate(varying):
            self._per_block(node, memory.place(index, node))
        for target, new in memory.left:
            self.body.append(f"copyto({self.names[target]}, {self._operand(new)})")
        temporaries = [f"t{number}" for number in range(memory.temporaries)]
        lines = ["def update(numbers, blocks):"]
        if self.numbers:
            lines.append(f"    {', '.join(self.names[value] for value in self.numbers)}, = numbers")
        lines += [f"    {line}" for line in self.head]
        lines.append(f"    for {', '.join([*(self.names[value] for value in self.arrays), *temporaries])}, in blocks:")
        lines += [f"        {line}" for line in self.body] or ["        pass"]
        source = "\n".join(lines) + "\n"
        run = function_of(source, f"update {next(_serial)} {self.graph.name}".rstrip(), self.bound)
        return Blockwise(self.graph, run, source, len(temporaries), self.dtype)

    def _once(self, node: Node) -> None:
        """A number, computed in float64 before the loop."""
        if not isinstance(node.op, (Binary, Unary)):
            raise EngineError(f"{node.op!r} on numbers cannot be part of a blockwise program")
        value = node.outputs[0]
        self.uniform.add(value)
        self.names[value] = name = f"s{len(self.head)}"
        kernel = self._bind(node.op.ufunc.__name__, node.op.ufunc)
        operands = [self.names[item] if isinstance(item, Value) else repr(float(item)) for item in node.inputs]
        self.head.append(f"{name} = {kernel}({', '.join(operands)})")

    def _operand(self, item: object) -> str:
        """An operand inside the loop; numbers as arrays without dimensions, which NumPy need not convert."""
        if isinstance(item, Value) and item not in self.uniform:
            return self.names[item]
        if isinstance(item, Value):
            if ("rounded", item) not in self.names:
                self.names["rounded", item] = name = f"c{len(self.head)}"
                convert = self._bind("array", np.array)
                dtype = self._bind(self.dtype.name, self.dtype, self.dtype)
                self.head.append(f"{name} = {convert}({self.names[item]}, {dtype})")
            return self.names["rounded", item]
        return self._bind("k", np.array(item, self.dtype), (type(item), repr(item)))

    def _per_block(self, node: Node, place: object) -> None:
        value = node.outputs[0]
        self.names[value] = target = place if isinstance(place, str) else self.names[place]
        comment = "".join(letter if letter.isprintable() else "?" for letter in format_statement(node, self.printed))
        op = node.op
        if isinstance(op, (Binary, Unary)) and type(op).numpy in (Binary.numpy, Unary.numpy):
            kernel, ending = self._bind(op.ufunc.__name__, op.ufunc), target
            if op.ufunc in (np.maximum, np.minimum):  # NumPy deprecates a third positional argument of these functions
                ending = f"out={target}"
        else:
            kernel, ending = self._bind(re.sub(r"\W", "_", op.name), op.numpy, op), f"out={target}"
        operands = ", ".join(map(self._operand, node.inputs))
        self.body.append(f"{f'{kernel}({operands}, {ending})':<48}  # {comment}")


class _Memory:
    """The location of each value of the loop: the array that the value overwrites, or a free temporary.

    left : effects whose new value could not be made in place, to be copied at the end
    """

    def __init__(self, graph: Graph, steps: Sequence[Node]):
        self.temporaries = 0
        self.left: list[tuple[Value, Any]] = []
        self.last_use: dict[Value, int] = dict.fromkeys(graph.inputs, -1)
        for index, node in enumerate(steps):
            if not isinstance(node.op, Elementwise) or "out" not in node.op.run_keywords:
                raise EngineError(f"{node.op!r} cannot be part of a blockwise program")
            if node.outputs[0].dtype != graph.effects[0][0].dtype:
                raise EngineError(f"{node.op!r} changes the dtype; a blockwise program has one")
            for value in node.values_in:
                self.last_use[value] = index
        made_at = {node.outputs[0]: index for index, node in enumerate(steps)}
        self.target_of: dict[Value, Value] = {}
        for target, new in graph.effects:
            if new in made_at and new not in self.target_of and made_at[new] >= self.last_use[target]:
                self.target_of[new] = target
            else:
                self.left.append((target, new))
        targets = {target for target, _ in graph.effects}
        if any(new in targets for _, new in self.left):
            raise EngineError("a blockwise program cannot exchange arrays")
        # An array that is overwritten at step `deadline` serves as a temporary between its last reader and that step.
        self.deadline = {target: made_at[new] for new, target in self.target_of.items()}
        self.end = len(steps)
        for _, new in graph.effects:
            self.last_use[new] = self.end
        self.free: list[Any] = []
        self.held: dict[Value, Any] = {}
        self.taken: set[Any] = set()

    def place(self, index: int, node: Node) -> Any:
        """Memory for the output of step `index`: a target Value, or the name of a temporary."""
        value = node.outputs[0]
        for item in dict.fromkeys(node.values_in):  # what dies here may be overwritten: the operators allow it
            if self.last_use[item] == index:
                if item in self.held:
                    self.taken.discard(self.held.pop(item))
                if item in self.deadline and item not in self.free:
                    self.free.append(item)
        target = self.target_of.get(value)
        if target is not None and target not in self.taken:
            found: Any = target
        else:
            if target is not None:
                self.left.append((target, value))
            found = self._free_for(index, value, node)
        self.taken.add(found)
        self.held[value] = found
        if self.last_use.get(value, -1) < 0:
            self.last_use[value] = index
        return found

    def _free_for(self, index: int, value: Value, node: Node) -> Any:
        last = self.last_use.get(value, index)
        for target in self.free:
            if target not in self.taken and last <= self.deadline[target]:
                return target
        for number in range(self.temporaries):
            if f"t{number}" not in self.taken:
                return f"t{number}"
        self.temporaries += 1
        return f"t{self.temporaries - 1}"


def _is_number(value: Value) -> bool:
    return isinstance(value.node.op, Input) and value.node.op.role == "number"
