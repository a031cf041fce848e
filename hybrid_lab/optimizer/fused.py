"""FusedUpdate: one optimizer step of many weights as one compiled program, instead of a Python loop over them.

The program is made from the optimizer's update operator (ops.update): its graph runs block by block over all weights,
and overwrites weights and states. Rates, decay and counts are arguments of each call, so a schedule never compiles a
new program.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from operator import is_not
from typing import TYPE_CHECKING, Any

import numpy as np

from hybrid_lab.diagnostics.errors import EngineError
from hybrid_lab.diagnostics.formatting import count
from hybrid_lab.engines.numpy.blockwise import (
    BLOCK,
    SHARED,
    SHARED_BLOCK,
    Blockwise,
    Temporaries,
    cut,
    write_blockwise,
)
from hybrid_lab.graph.builder import Builder, Expr
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import input_node
from hybrid_lab.ndarray import NDArray
from hybrid_lab.ops.framework.dtypes import is_floating, is_narrow
from hybrid_lab.ops.framework.operator import Operator
from hybrid_lab.ops.framework.precision import SINGLE
from hybrid_lab.system.threads import thread_count

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from .optimizer import Optimizer


def update_graph(
    op: Any, dtype: np.dtype, numbers: tuple[str, ...], size: int = BLOCK, half: np.dtype | None = None
) -> Graph:
    """The graph of one step of one block: inputs weight, grad, states and the named numbers; effects on all but grad.

    op : an update operator
    numbers : learning rate, decay and the like; decay and rescaling that are not among them are left out
    size : of the block, in values
    dtype : of the arrays; float16 and bfloat16 are updated in float32, with numbers of float32, and rounded
    half : of weights with copies in `dtype`: the copy stands for the weight, the gradient comes in `half`, and the
        weight itself is one more input behind the states, written to
    """
    builder = Builder()
    narrow = is_narrow(np.dtype(dtype))
    wide = np.dtype("float32" if narrow else dtype)

    def array(name: str, dtype: DTypeLike = dtype) -> Expr:
        return Expr(builder, input_node(name, "param", shape=(size,), dtype=dtype))

    weight, grad = array("weight" if half is None else "weight32"), array("grad", half or dtype)
    states = [array(name) for name in op.signature.aux]
    values = {name: Expr(builder, input_node(name, "number", shape=(1,), dtype=wide)) for name in numbers}
    old = [weight, *states]
    if narrow:
        old = [builder.Cast(each, dtype=wide.name) for each in old]
    gradient = builder.Cast(grad, dtype=wide.name) if narrow or half is not None else grad
    settings = {"wd": 0.0, "rescale_grad": 1.0, **values}
    new: tuple[Any, ...] = op.step(builder, old[0], gradient, *old[1:], *(settings[name] for name in op.scalars))
    if narrow:
        new = tuple(builder.Cast(each, dtype=np.dtype(dtype).name) for each in new)
    effects = [(old.value, updated.value) for old, updated in zip((weight, *states), new, strict=True)]
    arrays = [weight, grad, *states]
    if half is not None:
        arrays.append(array("weight", half))
        effects.append((arrays[-1].value, builder.Cast(new[0], dtype=half.name).value))
    inputs = [each.value for each in (*arrays, *values.values())]
    return Graph(inputs, (), effects, name=op.name)


_cached_graph: Callable[..., Graph] = lru_cache(maxsize=256)(update_graph)


@lru_cache(maxsize=256)
def _program(op: Operator, dtype: np.dtype, numbers: tuple[str, ...]) -> Blockwise:
    """The compiled step; Trainers with the same settings share it."""
    return write_blockwise(update_graph(op, dtype, numbers))


@lru_cache(maxsize=256)
def _device_update(graphs: tuple[Graph, ...]) -> Any:
    """The update graphs as one kernel on the device, or None if that is impossible."""
    from hybrid_lab.engines.triton.run.update import DeviceUpdate

    try:
        return DeviceUpdate(graphs)
    except EngineError:
        return None


@cache
def _own_rules(kind: type[Optimizer]) -> str:
    """The name of a method that the class overrides and that the fused update would not call; "" if there is none."""
    from .optimizer import Optimizer

    for name in ("update", "update_multi_precision", "_get_lr", "_get_wd", "_update_count", "_multiplier"):
        if getattr(kind, name) is not getattr(Optimizer, name):
            return name
    return ""


class _UpdateGroup:
    """The blocks of all weights that one run of a program updates with the same numbers.

    program : for the host; None for weights with float32 copies, which are updated together on devices only
    """

    def __init__(self, graph: Graph, program: Blockwise | None):
        self.graph, self.program = graph, program
        self.blocks: list[tuple[np.ndarray, ...]] = []


class _Arrays:
    """The arrays of one step, and the blocks into which programs cut them.

    rows : of each weight: weight, gradient, states; for a weight with a float32 copy: copy, gradient, states, weight
    halves : of each weight, its dtype if it has a float32 copy, else None
    """

    def __init__(
        self,
        op: Operator,
        weights: Sequence[NDArray],
        gradients: Sequence[NDArray],
        states: list[Any],
        multi_precision: bool,
    ):
        self.op, self.weights, self.gradients, self.states = op, tuple(weights), tuple(gradients), states
        self.rows, self.halves = [], []
        for weight, grad, state in zip(weights, gradients, states, strict=True):
            half = multi_precision and is_narrow(weight.host_view.dtype)
            copy, inner = state if half else (weight, state)
            part = () if inner is None else inner if isinstance(inner, tuple) else (inner,)
            self.rows.append((copy, grad, *part, *([weight] if half else ())))
            self.halves.append(weight.host_view.dtype if half else None)
        self.narrow = {weight.host_view.dtype for weight, *_ in self.rows if is_narrow(weight.host_view.dtype)}
        self.written = [array.buffer for weight, _, *part in self.rows for array in (weight, *part)]
        self.buffers = self.written + [grad.buffer for grad in gradients]
        self.partition: Any = None
        self.groups: list[_UpdateGroup] = []
        self.threads = thread_count() if sum(weight.size for weight in self.weights) >= SHARED else 1
        self._blocks: dict[int, list[tuple[np.ndarray, ...]]] = {}
        self.on_device: Any = None  # the launches, and the arrays they were made for

    def device(self) -> Any:
        """torch's device if all gradients are on it or belong on it; None for the host."""
        if max(weight.size for weight in self.weights) >= 2**31:  # kernels index with 32 bits
            return None
        buffers = [grad.buffer for grad in self.gradients]
        if all(each.lives_on_device for each in buffers):
            from hybrid_lab.engines.triton.run.availability import torch_device

            return torch_device()
        first = buffers[0].device
        if first is None:
            return None
        return first.device if all(each.device is not None and not each.device_stale for each in buffers) else None

    def serves(
        self, op: Operator, weights: Sequence[NDArray], gradients: Sequence[NDArray], states: list[object]
    ) -> bool:
        """Whether the arrays are the same."""
        if op is not self.op or len(weights) != len(self.weights):
            return False
        pairs = ((weights, self.weights), (gradients, self.gradients), (states, self.states))
        return all(now is known or not any(map(is_not, now, known)) for now, known in pairs)

    def misfit(self) -> str:
        """Why a blockwise program cannot update these arrays, or ""."""
        for (weight, grad, *rest), half in zip(self.rows, self.halves, strict=True):
            if len(rest) != len(self.op.signature.aux) + (half is not None):
                return "the states were made for other settings"
            dtype = np.dtype(weight.dtype)
            wanted = [half or dtype, *[dtype] * len(self.op.signature.aux), half]
            if not is_floating(weight.host_view.dtype) or any(
                not isinstance(array, NDArray) or array.shape != weight.shape or array.dtype != expected
                for array, expected in zip((grad, *rest), wanted)
            ):
                return "a state or a gradient has another shape or dtype than its weight"
        return ""

    def blocks(self, position: int) -> list[tuple[np.ndarray, ...]]:
        """The blocks of one weight, its gradient and states."""
        if position not in self._blocks:
            arrays = [array.host_view for array in self.rows[position]]
            self._blocks[position] = cut(arrays, BLOCK if self.threads == 1 else SHARED_BLOCK)
        return self._blocks[position]


def _group(op: Operator, dtype: np.dtype, half: np.dtype | None, numbers: tuple[str, ...]) -> _UpdateGroup:
    if half is not None or is_narrow(dtype):
        return _UpdateGroup(_cached_graph(op, dtype, numbers, half=half), None)
    program = _program(op, dtype, numbers)
    return _UpdateGroup(program.graph, program)


class _DeviceSteps:
    """The launches of a step on a device, one for all weights of one dtype.

    partition : the arrays' partition into groups, for which the launches were made
    steps : engines.triton.run.update.DeviceStep; groups : of each step, the numbers of its groups
    """

    def __init__(self, partition: Any):
        self.partition = partition
        self.steps: list[Any] = []
        self.groups: list[list[int]] = []
        self._rows: list[list[int]] = []
        self._tensors: list[Any] = []

    @classmethod
    def of(cls, arrays: _Arrays, device: object) -> _DeviceSteps | None:
        """The launches for these arrays; None if an update cannot be written as one kernel."""
        from hybrid_lab.engines.triton.run.update import DeviceStep

        device_steps, group_of = cls(arrays.partition), arrays.partition[0]
        kinds: dict[Any, list[int]] = {}
        for position, row in enumerate(arrays.rows):
            kinds.setdefault((row[0].host_view.dtype, arrays.halves[position]), []).append(position)
        for positions in kinds.values():
            groups = list(dict.fromkeys(group_of[position] for position in positions))
            # In an order that does not depend on the weights', so that the kernel is the same.
            graphs = sorted({arrays.groups[group].graph for group in groups}, key=_input_names)
            update = _device_update(tuple(graphs))
            if update is None:
                return None
            rules = [graphs.index(arrays.groups[group].graph) for group in groups]
            rows = [[array.raw(device).view(-1) for array in arrays.rows[position]] for position in positions]
            own = [groups.index(group_of[position]) for position in positions]
            device_steps.steps.append(DeviceStep(update, rules, own, rows))
            device_steps.groups.append(groups)
            device_steps._rows.append(positions)
        device_steps._tensors = [buffer.device for buffer in arrays.buffers]
        return device_steps

    def follow(self, arrays: _Arrays, device: str | None) -> None:
        """Write the tables of addresses again if arrays have moved."""
        for buffer in arrays.buffers:
            if buffer.device_stale or buffer.device is None:
                buffer.push(device)
        if not any(map(is_not, (buffer.device for buffer in arrays.buffers), self._tensors)):
            return
        for step, positions in zip(self.steps, self._rows, strict=True):
            step.point_at([[array.raw(device).view(-1) for array in arrays.rows[position]] for position in positions])
        self._tensors = [buffer.device for buffer in arrays.buffers]


def _input_names(graph: Graph) -> list[str]:
    return [value.node.name for value in graph.inputs]


class FusedUpdate:
    """The fused update of the weights of one Updater.

    refusal : why the last step went weight by weight instead, or ""
    """

    def __init__(self, optimizer: Optimizer):
        self.optimizer = optimizer
        self.refusal = ""
        self._arrays: _Arrays | None = None
        self._temporaries = [Temporaries()]

    def __reduce__(self) -> tuple[object, ...]:
        """Pickled and copied without programs: the next step compiles them for its arrays, or finds them compiled."""
        return FusedUpdate, (self.optimizer,)

    def __repr__(self) -> str:
        name = type(self.optimizer).__name__
        arrays = self._arrays
        if self.refusal:
            return f"{name}: one weight after the other, because {self.refusal}"
        if arrays is None:
            return f"{name}: no step so far"
        values = sum(weight.size for weight in arrays.weights)
        if arrays.on_device is not None:
            steps = arrays.on_device.steps
            weights = f"{count(len(arrays.weights), 'weight')}, {count(values, 'value')}"
            blocks = count(sum(step.blocks for step in steps), "block")
            tables = f"tables written {count(max(step.tables for step in steps), 'time')}"
            many = "1 launch" if len(steps) == 1 else f"{len(steps)} launches"
            return f"{name}: {weights}, {many} of {arrays.op.name} on the device, {blocks}; {tables}"
        blocks = count(sum(len(group.blocks) for group in arrays.groups), "block")
        if arrays.threads > 1:
            blocks += f" on {arrays.threads} threads"
        weights = f"{count(len(arrays.weights), 'weight')}, {count(values, 'value')}"
        return f"{name}: {weights}, in one pass of {arrays.op.name}, {blocks}"

    @property
    def graphs(self) -> dict[Graph, int]:
        """The graphs that the last step ran, and how many weights each has updated."""
        arrays = self._arrays
        if arrays is None or arrays.partition is None or self.refusal:
            return {}
        weights = Counter(arrays.partition[0])
        graphs: Counter[Graph] = Counter()
        for number, group in enumerate(arrays.groups):
            graphs[group.graph] += weights[number]
        return dict(graphs)

    @property
    def engine(self) -> str:
        """The engine of the last step."""
        return "triton" if self._arrays is not None and self._arrays.on_device is not None else "numpy"

    def source(self, graph: Graph) -> str:
        """The text of the program that runs this graph, one of `graphs`."""
        arrays = self._arrays
        if arrays is not None and arrays.on_device is not None:
            steps = zip(arrays.on_device.steps, arrays.on_device.groups, strict=True)
            own = [step for step, groups in steps if any(arrays.groups[group].graph is graph for group in groups)]
            return "\n\n".join(step.source.text for step in own)
        return next((str(program) for program in self.programs if program.graph is graph), "")

    @property
    def programs(self) -> list[Blockwise]:
        """The programs of the last step, printable."""
        groups = self._arrays.groups if self._arrays is not None and not self.refusal else []
        return list(dict.fromkeys(group.program for group in groups if group.program is not None))

    def __call__(
        self, indices: Sequence[int], gradients: Sequence[NDArray], weights: Sequence[NDArray], states: dict[int, Any]
    ) -> bool:
        """Update all weights; False, with nothing done, if this optimizer or these arrays cannot be fused."""
        arrays = self._prepare(indices, gradients, weights, states)
        if arrays is None:
            return False
        numbers = self._regroup(arrays, self._count(indices))
        while len(self._temporaries) < arrays.threads:
            self._temporaries.append(Temporaries())
        device = arrays.device()
        if device is not None and self._on_device(arrays, numbers, device):
            return True
        for buffer in arrays.buffers:
            if buffer.host_stale:
                buffer.pull()
        try:
            for group, values in zip(arrays.groups, numbers, strict=True):
                assert group.program is not None  # _prepare has turned down what only devices have
                group.program.update(values, group.blocks, self._temporaries[: arrays.threads])
        finally:
            for buffer in arrays.written:
                buffer.written()
        return True

    def _on_device(self, arrays: _Arrays, numbers: list[list[float]], device: object) -> bool:
        """The step where weights, gradients and states live on a device; False if it is not one kernel there."""
        from hybrid_lab.engines.triton.run.availability import torch_device

        if device != torch_device():
            return False
        device_steps = arrays.on_device
        if device_steps is None or device_steps.partition != arrays.partition:
            device_steps = _DeviceSteps.of(arrays, device)
            if device_steps is None:
                return False
            arrays.on_device = device_steps
        device_steps.follow(arrays, device)
        for step, groups in zip(device_steps.steps, device_steps.groups, strict=True):
            step.set_numbers([numbers[group] for group in groups])
        try:
            for step in device_steps.steps:
                step()
        finally:
            for buffer in arrays.written:
                buffer.written_on_device()
        return True

    def _prepare(
        self,
        indices: Sequence[int],
        gradients: Sequence[NDArray],
        weights: Sequence[NDArray],
        states: dict[int, object],
    ) -> _Arrays | None:
        """The arrays of this step; None, with `refusal` saying why, if they cannot be fused."""
        optimizer = self.optimizer
        kind: Any = type(optimizer)
        own, op = _own_rules(kind), optimizer.operator()
        if op is None:
            self.refusal = "there is no update operator for it"
            return None
        if own:
            self.refusal = f"{kind.__name__} has its own {own}()"
            return None
        own_states = [states[index] for index in indices]
        arrays = self._arrays
        if arrays is None or not arrays.serves(op, weights, gradients, own_states):
            if any(array.buffer.stored for array in (*weights, *gradients)):
                self.refusal = "a weight or a gradient is sparse"
                return None
            arrays = _Arrays(op, weights, gradients, own_states, optimizer.multi_precision)
            self.refusal = arrays.misfit()
            if self.refusal:
                return None
            self._arrays = arrays
        self.refusal = ""
        if (any(arrays.halves) or arrays.narrow) and not self._half_precision_on(arrays.device(), arrays):
            copied = {half.name for half in arrays.halves if half is not None}
            names = " and ".join(sorted(copied or {dtype.name for dtype in arrays.narrow}))
            way = "through float32 copies" if copied else "in float32 one by one, and rounded"
            self.refusal = f"{names} weights are updated {way}"
            return None
        return arrays

    def _half_precision_on(self, device: str | None, arrays: _Arrays) -> bool:
        """Whether weights of half precision, with float32 copies or without, can be updated together there."""
        if device is None:
            return False
        from hybrid_lab.engines.triton.run.availability import torch_device

        names = tuple(self.optimizer.scaled_numbers(1.0, 1.0, 1, np.dtype("float32")))
        graphs = [_cached_graph(arrays.op, SINGLE, names, half=half) for half in set(arrays.halves) - {None}]
        graphs += [_cached_graph(arrays.op, dtype, names, half=None) for dtype in arrays.narrow]
        return device == torch_device() and all(_device_update((graph,)) is not None for graph in graphs)

    def _count(self, indices: Sequence[int]) -> list[tuple[float, float, int]]:
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
        settings = []
        for index in indices:
            optimizer._update_count(index)
            settings.append((optimizer._get_lr(index), optimizer._get_wd(index), counts[index]))
        return settings

    def _regroup(self, arrays: _Arrays, settings: list[tuple[float, float, int]]) -> list[list[float]]:
        """Put the weights that share all numbers together; returns the numbers of each group."""
        kinds: dict[Any, int] = {}
        rows = [
            (*setting, row[0].host_view.dtype, half)
            for setting, row, half in zip(settings, arrays.rows, arrays.halves, strict=True)
        ]
        partition = [kinds.setdefault(row, len(kinds)) for row in rows]
        numbers_of = []
        for lr, wd, steps, dtype, _ in kinds:
            numbers = self.optimizer.scaled_numbers(lr, wd, steps, dtype)
            # Without decay there is nothing to multiply by zero; whether there is one decides about the program.
            numbers_of.append({name: number for name, number in numbers.items() if name != "wd" or number})
        names = [tuple(numbers) for numbers in numbers_of]
        if arrays.partition != (partition, names):
            arrays.groups = [
                _group(arrays.op, dtype, half, each) for (*_, dtype, half), each in zip(kinds, names, strict=True)
            ]
            for position, number in enumerate(partition):
                group = arrays.groups[number]
                if group.program is not None:
                    group.blocks += arrays.blocks(position)
            arrays.partition = partition, names
        return [list(numbers.values()) for numbers in numbers_of]
