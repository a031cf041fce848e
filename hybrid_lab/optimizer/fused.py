"""FusedUpdate: one optimizer step of many weights as one compiled program, instead of a Python loop over them.

The program is made from the optimizer's update operator (ops.update): its graph runs block by block over all weights,
and writes new weights and states over the old ones. Rates, decay and counts are numbers that it takes at each call, so
a schedule never makes a new one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache
from operator import is_not
from typing import TYPE_CHECKING, Any

import numpy as np

from hybrid_lab.diagnostics.errors import EngineError
from hybrid_lab.diagnostics.words import count
from hybrid_lab.engines.numpy.blockwise import (
    BLOCK,
    SHARED,
    SHARED_BLOCK,
    Blockwise,
    Temporaries,
    cut,
    write_blockwise,
)
from hybrid_lab.engines.threads import thread_count
from hybrid_lab.graph.builder import Builder, Expr
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import input_node
from hybrid_lab.ndarray import NDArray
from hybrid_lab.ops.operator import Operator

if TYPE_CHECKING:
    from .optimizer import Optimizer


def update_graph(
    kind: type[Optimizer], op: Operator, dtype: Any, numbers: tuple[str, ...], size: int = BLOCK
) -> Graph:
    """The graph of one step of one block: inputs weight, grad, states and the named numbers; effects on all but grad.

    size : of the block, in values. Decay and rescaling that are not among `numbers` are left out.
    """
    builder = Builder()

    def array(name: str) -> Expr:
        return Expr(builder, input_node(name, "param", shape=(size,), dtype=dtype))

    weight, grad, *states = [array(name) for name in ("weight", "grad", *op.aux_names)]
    given = {name: Expr(builder, input_node(name, "number", shape=(1,), dtype=dtype)) for name in numbers}
    new = kind.graph_step(builder, op, weight, grad, states, given)
    effects = [(old.value, made.value) for old, made in zip((weight, *states), new, strict=True)]
    inputs = [each.value for each in (weight, grad, *states, *given.values())]
    return Graph(inputs, (), effects, name=op.name)


@lru_cache(maxsize=256)
def _program(kind: type[Optimizer], op: Operator, dtype: np.dtype, numbers: tuple[str, ...]) -> Blockwise:
    """The compiled step; Trainers with the same settings share it."""
    return write_blockwise(update_graph(kind, op, dtype, numbers))


@lru_cache(maxsize=256)
def _device_program(program: Blockwise) -> Any:
    """The same step as a kernel on the device, or None where it is not one."""
    from hybrid_lab.engines.triton.update import DeviceUpdate

    try:
        return DeviceUpdate(program.graph)
    except EngineError:
        return None


@cache
def _own_rules(kind: type[Optimizer]) -> str:
    """Which method of a class the fused update would pass over; "" where it does the same."""
    from .optimizer import Optimizer

    for name in ("update", "update_multi_precision", "_get_lr", "_get_wd", "_update_count", "_multiplier"):
        if getattr(kind, name) is not getattr(Optimizer, name):
            return name
    order = [vars(base) for base in kind.__mro__]
    loop, operator, graph = (
        next(place for place, held in enumerate(order) if name in held)
        for name in ("element_update", "operator", "graph_step")
    )
    return "element_update" if loop < min(operator, graph) else ""


class _Group:
    """Weights that one run of a program updates with the same numbers: the blocks of all of them."""

    def __init__(self, program: Blockwise, names: tuple[str, ...]):
        self.program, self.names = program, names
        self.blocks: list[tuple[np.ndarray, ...]] = []


class _Arrays:
    """The arrays of one step, and the blocks that programs have cut them into."""

    def __init__(self, op: Operator, weights: Any, gradients: Any, states: list[Any]):
        self.op, self.weights, self.gradients, self.states = op, tuple(weights), tuple(gradients), states
        parts = [() if each is None else each if isinstance(each, tuple) else (each,) for each in states]
        self.rows = [(weight, grad, *part) for weight, grad, part in zip(weights, gradients, parts, strict=True)]
        self.written = [array._buffer for weight, _, *part in self.rows for array in (weight, *part)]
        self.buffers = self.written + [grad._buffer for grad in gradients]
        self.partition: Any = None
        self.groups: list[_Group] = []
        self.threads = thread_count() if sum(weight.size for weight in self.weights) >= SHARED else 1
        self._blocks: dict[int, list[tuple[np.ndarray, ...]]] = {}
        self.launches: Any = None  # on a device: what they were made for, and the launches themselves

    def device(self) -> Any:
        """torch's device, where all gradients are there; None for the host."""
        first = self.gradients[0]._buffer.device
        if first is None:
            return None
        held = [grad._buffer for grad in self.gradients]
        return first.device if all(each.device is not None and not each.device_stale for each in held) else None

    def serves(self, op: Operator, weights: Any, gradients: Any, states: list[Any]) -> bool:
        """Whether these are the same arrays."""
        if op is not self.op or len(weights) != len(self.weights):
            return False
        pairs = ((weights, self.weights), (gradients, self.gradients), (states, self.states))
        return all(now is held or not any(map(is_not, now, held)) for now, held in pairs)

    def misfit(self) -> str:
        """Why a blockwise program cannot take them, or ""."""
        for weight, *rest in self.rows:
            if len(rest) != 1 + len(self.op.aux_names):
                return "the states were made for other settings"
            if weight._view.dtype.kind != "f" or any(
                type(array) is not NDArray or array.shape != weight.shape or array.dtype != weight.dtype
                for array in rest
            ):
                return "a state or a gradient has another shape or dtype than its weight"
        return ""

    def blocks(self, position: int) -> list[tuple[np.ndarray, ...]]:
        """The blocks of one weight, its gradient and states."""
        if position not in self._blocks:
            arrays = [array._view for array in self.rows[position]]
            self._blocks[position] = cut(arrays, BLOCK if self.threads == 1 else SHARED_BLOCK)
        return self._blocks[position]


class FusedUpdate:
    """The fused update of the weights of one Updater.

    refusal : why the last step went weight by weight instead, or ""
    """

    def __init__(self, optimizer: Optimizer):
        self.optimizer = optimizer
        self.refusal = ""
        self._held: _Arrays | None = None
        self._temporaries = [Temporaries()]

    def __repr__(self) -> str:
        name = type(self.optimizer).__name__
        held = self._held
        if self.refusal:
            return f"{name}: one weight after the other, because {self.refusal}"
        if held is None:
            return f"{name}: no step so far"
        values = sum(weight.size for weight in held.weights)
        if held.launches is not None:
            weights = f"{count(len(held.weights), 'weight')}, {count(values, 'value')}"
            return f"{name}: {weights}, one kernel of {held.op.name} on the device for each weight"
        blocks = count(sum(len(group.blocks) for group in held.groups), "block")
        if held.threads > 1:
            blocks += f" on {held.threads} threads"
        weights = f"{count(len(held.weights), 'weight')}, {count(values, 'value')}"
        return f"{name}: {weights}, in one pass of {held.op.name}, {blocks}"

    @property
    def programs(self) -> list[Blockwise]:
        """What the last step ran, printable."""
        groups = self._held.groups if self._held is not None and not self.refusal else []
        return list(dict.fromkeys(group.program for group in groups))

    def __call__(
        self, indices: Sequence[Any], gradients: Sequence[NDArray], weights: Sequence[NDArray], states: dict[Any, Any]
    ) -> bool:
        """Update all weights; False, with nothing done, where this optimizer or these arrays cannot be fused."""
        held = self._prepare(indices, gradients, weights, states)
        if held is None:
            return False
        numbers = self._regroup(held, self._count(indices))
        while len(self._temporaries) < held.threads:
            self._temporaries.append(Temporaries())
        device = held.device()
        if device is not None and self._on_device(held, numbers, device):
            return True
        for buffer in held.buffers:
            if buffer.host_stale:
                buffer.pull()
        try:
            for group, given in zip(held.groups, numbers, strict=True):
                group.program.update(given, group.blocks, self._temporaries[: held.threads])
        finally:
            for buffer in held.written:
                buffer.written()
        return True

    def _on_device(self, held: _Arrays, numbers: list[list[float]], device: Any) -> bool:
        """The step where weights, gradients and states live on a device; False where it is not one kernel there."""
        from hybrid_lab.engines.triton.availability import torch_device
        from hybrid_lab.engines.triton.capture import CapturedLaunches
        from hybrid_lab.engines.triton.update import run

        known = [_device_program(group.program) for group in held.groups]
        if None in known or device != torch_device():
            return False
        made_for = held.launches[0] if held.launches is not None else (None, [])
        same = made_for[0] == held.partition and all(
            buffer.device is tensor and not buffer.device_stale
            for buffer, tensor in zip(held.buffers, made_for[1], strict=True)
        )
        if not same:
            rows = [[array.raw(device).view(-1) for array in row] for row in held.rows]
            made_for = held.partition, [buffer.device for buffer in held.buffers]
            places, programs = held.partition[0], [program.with_own_numbers() for program in known]
            launches = [programs[place].prepare(row) for place, row in zip(places, rows, strict=True)]
            written = [tensor for row in rows for at, tensor in enumerate(row) if at != 1]  # all but gradients
            held.launches = made_for, CapturedLaunches(lambda: run(launches), written), programs
        for program, given in zip(held.launches[2], numbers, strict=True):
            program.set_numbers(given)
        try:
            held.launches[1]()
        finally:
            for buffer in held.written:
                buffer.written_on_device()
        return True

    def _prepare(
        self, indices: Sequence[Any], gradients: Sequence[NDArray], weights: Sequence[NDArray], states: dict[Any, Any]
    ) -> _Arrays | None:
        """The arrays of this step; None, with `refusal` saying why, where they cannot be fused."""
        optimizer = self.optimizer
        kind: Any = type(optimizer)
        own, op = _own_rules(kind), optimizer.operator()
        if op is None:
            self.refusal = "there is no update operator for it"
            return None
        if own:
            self.refusal = f"{kind.__name__} has its own {own}()"
            return None
        found = [states[index] for index in indices]
        held = self._held
        if held is None or not held.serves(op, weights, gradients, found):
            half = any(weight._view.dtype == np.float16 for weight in weights)
            if half and optimizer.multi_precision:
                self.refusal = "float16 weights are updated through float32 copies"
                return None
            held = _Arrays(op, weights, gradients, found)
            self.refusal = held.misfit()
            if self.refusal:
                return None
            self._held = held
        return held

    def _count(self, indices: Sequence[Any]) -> list[tuple[float, float, int]]:
        """Count this step; (learning rate, decay, number of updates) of each weight."""
        optimizer = self.optimizer
        counts, begin = optimizer._index_update_count, optimizer.begin_num_update
        done = [counts.get(index, begin) for index in indices]
        owners: list[Any] = [optimizer.param_dict.get(index) for index in indices]
        if done.count(done[0]) == len(done) and all(owners):
            count = done[0] + 1
            counts.update(dict.fromkeys(indices, count))
            optimizer.num_update = max(count, optimizer.num_update)
            rate, decay = optimizer.learning_rate, optimizer.wd
            return [(rate * owner.lr_mult, decay * owner.wd_mult, count) for owner in owners]
        found = []
        for index in indices:
            optimizer._update_count(index)
            found.append((optimizer._get_lr(index), optimizer._get_wd(index), counts[index]))
        return found

    def _regroup(self, held: _Arrays, settings: list[tuple[float, float, int]]) -> list[list[float]]:
        """Put the weights that share all numbers together; returns the numbers of each group."""
        kinds: dict[Any, int] = {}
        rows = [(*setting, weight._view.dtype) for setting, weight in zip(settings, held.weights, strict=True)]
        partition = [kinds.setdefault(row, len(kinds)) for row in rows]
        given = []
        for lr, wd, steps, dtype in kinds:
            numbers = self.optimizer.scaled_numbers(lr, wd, steps, dtype)
            # Without decay there is nothing to multiply by zero; whether there is one decides about the program.
            given.append({name: number for name, number in numbers.items() if name != "wd" or number})
        names = [tuple(numbers) for numbers in given]
        if held.partition != (partition, names):
            kind: Any = type(self.optimizer)
            held.groups = [
                _Group(_program(kind, held.op, row[3], each), each) for row, each in zip(kinds, names, strict=True)
            ]
            for position, number in enumerate(partition):
                group = held.groups[number]
                group.blocks += held.blocks(position)
            held.partition = partition, names
        return [list(numbers.values()) for numbers in given]
