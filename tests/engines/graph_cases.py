"""Cases: a neutral graph with its inputs, run eagerly operator by operator, and shrunk to the smallest that fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Constant, Input, Value, input_node
from hybrid_lab.ops.framework.namespace import F
from hybrid_lab.ops.framework.run import run_gradient, run_kernel

RNG = (20240607, 11)
"""Seed and first draw of every run."""


@dataclass
class Case:
    """A neutral graph (no shapes, mode-free) and one array per input."""

    graph: Graph
    arrays: list[np.ndarray]

    def __str__(self) -> str:
        given = [f"  %{v.node.name}: {a.dtype}{list(a.shape)}" for v, a in zip(self.graph.inputs, self.arrays)]
        return "\n".join([repr(self.graph), *given])

    @property
    def wrt(self) -> list[int]:
        """The inputs with gradients: all of floating numbers that are no states."""
        return [
            index
            for index, (value, array) in enumerate(zip(self.graph.inputs, self.arrays))
            if value.node.op.role != "aux" and array.dtype.kind == "f"
        ]

    def in_float64(self) -> Case:
        """The same numbers in double precision."""
        return Case(self.graph, [a.astype(np.float64) if a.dtype.kind == "f" else a for a in self.arrays])

    def changed(self, change: int) -> Case:
        """The same graph with numbers a little different, another way for each `change`; 0 leaves them as they are."""
        random = np.random.RandomState(change)
        factors = [1 + 1e-4 * random.uniform(-1, 1, a.shape) for a in self.arrays]
        whole = [not change or a.dtype.kind != "f" or not (a % 1).any() for a in self.arrays]
        made = [a if kept else (a * f).astype(a.dtype) for a, f, kept in zip(self.arrays, factors, whole)]
        return Case(self.graph, made)


# -- eager interpretation ----------------------------------------------------------------------------------------


def run_eagerly(case: Case, train: bool) -> tuple[list[np.ndarray], list[np.ndarray], dict[Value, Any], list[Any]]:
    """Outputs, new states (in the order of first update), every Value's array, and the tape of (op, node) in order."""
    values: dict[Value, Any] = dict(zip(case.graph.inputs, case.arrays, strict=True))
    updated: dict[Value, Any] = {}
    tape = []
    for node in case.graph.nodes:
        if isinstance(node.op, Input):
            continue
        op = node.op.bind_mode(train) if node.op.mode_dependent else node.op
        operands = [values[item] if isinstance(item, Value) else item for item in node.inputs[: count_inputs(op, node)]]
        rng = (RNG[0], RNG[1] + node.draw) if node.draw is not None else None
        results = run_kernel(op, operands, rng=rng)
        values.update(zip(node.outputs, map(np.asarray, results), strict=False))
        tape.append((op, node))
        if op.signature.aux:
            states = [
                updated.get(item, operand) if isinstance(item, Value) else operand
                for item, operand in zip(node.inputs, operands, strict=False)
            ]
            for name, new in op.aux(F, tuple(states), tuple(results)).items():
                target = node.inputs[op.signature.inputs.index(name)]
                if isinstance(target, Value) and target.is_input:
                    updated[target] = np.asarray(new)
    return [values[value] for value in case.graph.outputs], list(updated.values()), values, tape


def count_inputs(op: Any, node: Any) -> int:
    """How many inputs the operator takes that a node is bound to: in prediction some take fewer."""
    return len(node.inputs) if op.variadic else len(op.signature.inputs)


def gradients_eagerly(
    case: Case, values: dict[Value, Any], tape: list[Any], heads: Sequence[np.ndarray], wrt: Sequence[int]
) -> list[np.ndarray]:
    """Reverse mode over the tape on raw arrays."""
    found: dict[Value, Any] = {}

    def add(value: Value, gradient: Any) -> None:
        found[value] = found[value] + gradient if value in found else gradient

    for output, head in zip(case.graph.outputs, heads, strict=True):
        add(output, np.asarray(head, values[output].dtype))
    for op, node in reversed(tape):
        visible = node.outputs[: op.signature.visible]
        douts = [found.get(value) for value in visible]
        if not op.differentiable or not node.inputs or all(dout is None for dout in douts):
            continue
        operands = node.inputs[: count_inputs(op, node)]
        inputs = [values[item] if isinstance(item, Value) else item for item in operands]
        outputs = [values[value] for value in node.outputs[: op.signature.outputs]]
        for item, gradient in zip(node.inputs, run_gradient(op, F, inputs, outputs, douts)):
            if gradient is not None and isinstance(item, Value):
                add(item, gradient)
    sources = [case.graph.inputs[index] for index in wrt]
    return [np.asarray(found.get(value, np.zeros_like(values[value]))) for value in sources]


# -- shrinking ---------------------------------------------------------------------------------------------------


def shrink(case: Case, fails: Callable[[Case], bool], train: bool = True) -> Case:
    """A smaller case that still fails: fewer outputs, operators replaced by inputs that hold their values."""
    progress = True
    while progress:
        progress = False
        for smaller in _smaller(case, train):
            if fails(smaller):
                case, progress = smaller, True
                break
    return case


def _smaller(case: Case, train: bool) -> Iterator[Case]:
    graph, outputs = case.graph, case.graph.outputs
    if len(outputs) > 1:
        half = len(outputs) // 2
        parts = [outputs[:half], outputs[half:]] if len(outputs) > 3 else []
        for kept in [*parts, *(outputs[:index] + outputs[index + 1 :] for index in range(len(outputs)))]:
            yield _pruned(Graph(graph.inputs, kept, draws=graph.draws), case)
    values = run_eagerly(case, train)[2]
    operators = [node for node in graph.nodes if not isinstance(node.op, (Input, Constant))]
    for node in operators:
        if len(outputs) == 1 and outputs[0] in node.outputs:
            for value in node.values_in:
                if not value.is_input:
                    yield _pruned(Graph(graph.inputs, [value], draws=graph.draws), case)
            continue
        fresh = {
            value: input_node(f"{node.op.name}_{node.serial}_{value.index}")
            for value in node.outputs
            if value in values and values[value].dtype != object
        }
        rest = graph.substitute(dict(fresh))
        made = Graph([*rest.inputs, *fresh.values()], rest.outputs, draws=rest.draws)
        arrays = dict(zip(made.inputs, [*case.arrays, *(values[value] for value in fresh)], strict=True))
        yield _pruned(made, Case(made, list(arrays.values())))


def _pruned(graph: Graph, case: Case) -> Case:
    """Without the inputs that nothing reads."""
    arrays = dict(zip(case.graph.inputs, case.arrays, strict=True))
    read = {value for node in graph.nodes for value in node.values_in} | set(graph.outputs)
    inputs = [value for value in graph.inputs if value in read]
    return Case(Graph(inputs, graph.outputs, draws=graph.draws, name="smallest"), [arrays[value] for value in inputs])
