"""A region as one straight-line function of torch calls on tensors that share the arrays' memory."""

from __future__ import annotations

import functools
import itertools
import linecache
import math
import re
import warnings
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hybrid_lab.engines.memory import plain
from hybrid_lab.engines.torch_kernels.rules import NEED, OUT, SHARED, rule_of
from hybrid_lab.graph.node import Constant, Node, Value
from hybrid_lab.graph.partition import Region
from hybrid_lab.graph.printer import format_origin

if TYPE_CHECKING:
    from types import ModuleType

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

    def __init__(self, region: Region):
        import torch

        _quieten(torch)
        self._torch = torch
        self.region = region
        self._guard = torch.inference_mode
        self._run, self.source = self._write()

    def __call__(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        with self._guard():
            return [result.numpy() for result in self._run(*map(self._tensor, inputs))]

    def _tensor(self, array: np.ndarray) -> Any:
        """The array as a tensor, in the same memory where torch can share it."""
        try:
            return self._torch.from_numpy(array)
        except (TypeError, ValueError):
            return self._torch.from_numpy(plain(array))

    # -- writing -----------------------------------------------------------------------------------------------

    def _write(self) -> tuple[Any, str]:
        region = self.region
        self._names: dict[Value, str] = {}
        self._bound: dict[str, Any] = {"torch": self._torch}
        self._origins: dict[Value, Value | None] = {}
        self._standins: dict[Any, Any] = {}
        for index, value in enumerate(region.inputs):
            self._names[value] = f"x{index}"
        arguments = list(self._names.values())
        lines: list[str] = []
        last_use: dict[Value, int] = {}
        for index, node in enumerate(region.nodes):
            for value in node.values_in:
                last_use[value] = index
        kept = set(region.outputs)
        users: dict[Value, list[Node]] = {}
        for node in region.nodes:
            for value in node.values_in:
                users.setdefault(value, []).append(node)
        for index, node in enumerate(region.nodes):
            lines.append(self._call(index, node, last_use, kept, users))
            gone = [
                self._names[value]
                for value in dict.fromkeys((*node.values_in, *node.outputs))
                if last_use.get(value, index) == index
                and value in self._names
                and value not in kept
                and self._names[value][0] in "xt"
            ]
            if gone:
                lines.append(f"del {', '.join(gone)}")
        results = self._results()
        text = [f"def program({', '.join(arguments)}):", *(f"    {line}" for line in lines)]
        source = "\n".join([*text, f"    return ({', '.join(results)},)"]) + "\n"
        file = f"<torch program {next(_serial)}>"
        exec(compile(source, file, "exec"), self._bound)
        run = self._bound.pop("program")
        linecache.cache[file] = (len(source), None, source.splitlines(True), file)
        weakref.finalize(run, linecache.cache.pop, file, None).atexit = False
        return run, source

    def _call(
        self, index: int, node: Node, last_use: dict[Value, int], kept: set[Value], users: dict[Value, list[Node]]
    ) -> str:
        kernel = rule_of(node.op)(self._torch, node)
        name = re.sub(r"\W", "_", node.op.name).strip("_") or "op"
        if self._bound.get(name, kernel) is not kernel:
            name = f"{name}_{index}"
        self._bound[name] = kernel
        operands = [self._operand(node, position) for position in range(len(node.inputs))]
        if node.op.name in OUT:
            for item in node.values_in:
                alone = self._origins.get(item) is item and item not in kept and last_use[item] == index
                if alone and item.shape == node.outputs[0].shape and item.dtype == node.outputs[0].dtype:
                    if not any(user.op.name in SHARED for user in users[item]):
                        operands.append(f"out={self._names[item]}")
                        break
        if node.op.name in NEED:
            operands.append(f"need={[value in kept or value in last_use for value in node.outputs]}")
        for position, value in enumerate(node.outputs):
            self._names[value] = f"t{index}" if len(node.outputs) == 1 else f"t{index}_{position}"
            self._origins[value] = value
            if node.op.name in SHARED:
                source = next((item for item in node.values_in), None)
                read = source is not None and node.op.reads_values(0)
                self._origins[value] = self._origins.get(source) if read else None  # type: ignore[arg-type]
        targets = ", ".join(self._names[value] for value in node.outputs)
        line = f"{targets} = {name}({', '.join(operands)})"
        comment = "".join(letter if letter.isprintable() else "?" for letter in f"{node.op!r}  {format_origin(node)}")
        return f"{line:<56}  # {comment}".rstrip()

    def _operand(self, node: Node, position: int) -> str:
        item = node.inputs[position]
        if not isinstance(item, Value):
            # Infinity and NaN have no literal.
            return repr(item) if not isinstance(item, float) or math.isfinite(item) else f"float({str(item)!r})"
        if item not in self._names:
            assert isinstance(item.node.op, Constant), item
            if node.op.reads_values(position):
                self._bound[f"k{len(self._names)}"] = self._constant(node, position)
                self._names[item] = f"k{len(self._names)}"
            else:
                key = (item.shape, item.dtype.name)
                if key not in self._standins:
                    name = self._standins[key] = f"s{len(self._standins)}"
                    self._bound[name] = self._constant(node, position)
                return self._standins[key]
        return self._names[item]

    def _constant(self, node: Node, position: int) -> Any:
        """A constant as a tensor. Where only its shape is read its memory is never touched, so that none is taken."""
        item = node.inputs[position]
        if node.op.reads_values(position):
            return self._torch.from_numpy(np.array(item.node.op.array))
        return self._torch.empty(item.shape, dtype=getattr(self._torch, item.dtype.name))

    def _results(self) -> list[str]:
        """The outputs, in memory of their own each."""
        taken: set[Value] = set()
        results = []
        for value in self.region.outputs:
            name, origin = self._names[value], self._origins.get(value)
            if origin is None or origin in taken:
                results.append(f"{name}.clone(memory_format=torch.contiguous_format)")
                continue
            taken.add(origin)
            results.append(f"{name}.contiguous()")
        return results
