"""Gradient programs: a record's gradient rule as a list of steps, written once per operator and set of wanted inputs.

A program has only the steps for the wanted gradients, and the tape keeps only the values that some step reads. The same
steps run on raw arrays, and on NDArrays for gradients of gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from hybrid_lab.graph.builder import Builder, Expr
from hybrid_lab.graph.graph import reachable
from hybrid_lab.graph.node import Constant, Value, input_node
from hybrid_lab.ops.framework.operator import Operator
from hybrid_lab.ops.framework.run import run_gradient, run_kernel

#: (op, inputs) -> all outputs (raw arrays) or the visible ones (NDArrays)
Apply = Callable[[Operator, list[Any]], Sequence[Any]]


class GradientProgram:
    """The gradient of one operator with respect to some of its inputs.

    Slots 0 ... are the operator's inputs, all its outputs, then one output gradient per visible output.

    reads : slots (of inputs and outputs) whose values are read
    inputs_read, outputs_read, hidden_read : these slots, apart
    shapes_read : slots of which only the shape is read
    refuses : whether a step has no gradient itself
    """

    __slots__ = (
        "hidden_read",
        "inputs_read",
        "op",
        "outputs_read",
        "refuses",
        "reads",
        "results",
        "shapes_read",
        "steps",
        "template",
    )

    def __init__(self, op: Operator, immediates: tuple[Any, ...], needed: tuple[bool, ...], douts: tuple[bool, ...]):
        self.op = op
        builder = Builder()

        def fresh(name: str) -> Expr:
            return Expr(builder, input_node(name))

        inputs = [fresh(f"input{index}") if item is None else item for index, item in enumerate(immediates)]
        outputs = [fresh(f"output{index}") for index in range(op.signature.outputs)]
        heads = [fresh(f"dout{index}") if arrives else None for index, arrives in enumerate(douts)]
        gradients = run_gradient(op, builder, inputs, outputs, heads, needed)
        wanted = [
            gradient.value if want and isinstance(gradient, Expr) else None
            for want, gradient in zip(needed, gradients, strict=True)
        ]

        values = [*inputs, *outputs, *heads]
        slots = {expr.value: slot for slot, expr in enumerate(values) if isinstance(expr, Expr)}
        self.template: list[object] = [None if isinstance(item, Expr) else item for item in values]
        self._write_steps([value for value in wanted if value is not None], slots)
        self.results = tuple(None if value is None else slots[value] for value in wanted)
        self.refuses = any(step.refuses_gradient for step, *_ in self.steps)
        self._note_reads(len(inputs), len(outputs), immediates)

    def _note_reads(self, num_inputs: int, num_outputs: int, immediates: tuple[object, ...]) -> None:
        read = {slot for slot in self.results if slot is not None}
        shaped: set[int] = set()
        for step, arguments, _, _ in self.steps:
            for index, slot in enumerate(arguments):
                (read if step.reads_values(index) else shaped).add(slot)
        arrays = {slot for slot in range(num_inputs) if immediates[slot] is None}
        arrays.update(range(num_inputs, num_inputs + num_outputs))
        if self.op.signature.visible > 1:
            shaped = arrays  # if an output gradient is missing, rules read the shape of its output instead
        self.reads = frozenset(read & arrays)
        self.shapes_read = tuple(sorted((shaped - read) & arrays))
        visible = num_inputs + self.op.signature.visible
        self.inputs_read = tuple(sorted(slot for slot in self.reads if slot < num_inputs))
        self.outputs_read = tuple(sorted(slot for slot in self.reads if num_inputs <= slot < visible))
        self.hidden_read = tuple(sorted(slot for slot in self.reads if slot >= visible))

    def _write_steps(self, wanted: list[Value], slots: dict[Value, int]) -> None:
        template = self.template

        def constant(item: object) -> int:
            template.append(item)
            return len(template) - 1

        nodes = [node for node in reachable(wanted) if node.outputs[0] not in slots]
        last_read: dict[int, int] = {}
        steps: list[tuple[Operator, tuple[int, ...], int]] = []
        for node in nodes:
            if isinstance(node.op, Constant):
                slots[node.outputs[0]] = constant(node.op.array)
                continue
            arguments = tuple(slots[item] if isinstance(item, Value) else constant(item) for item in node.inputs)
            first = len(template)
            for value in node.outputs:
                slots[value] = len(template)
                template.append(None)
            for slot in arguments:
                last_read[slot] = len(steps)
            steps.append((node.op, arguments, first))
        keep = {slots[value] for value in wanted}
        self.steps = [
            (
                op,
                arguments,
                first,
                tuple(slot for slot in set(arguments) if last_read[slot] == number and slot not in keep),
            )
            for number, (op, arguments, first) in enumerate(steps)
        ]

    def run(self, values: Sequence[Any], apply: Apply) -> list[Any]:
        """One gradient per input of the operator (None if there is none or none was asked for).

        values : the inputs, outputs and output gradients; stand-ins of the right shape will do for slots not in `reads`
        """
        memory = list(self.template)
        for slot, value in enumerate(values):
            if value is not None:
                memory[slot] = value
        for op, arguments, first, dead in self.steps:
            outputs = apply(op, [memory[slot] for slot in arguments])
            memory[first : first + len(outputs)] = outputs
            for slot in dead:
                memory[slot] = None
        return [None if slot is None else memory[slot] for slot in self.results]

    def __repr__(self) -> str:
        lines = [f"gradient of {self.op!r}: reads {sorted(self.reads)}"]
        lines += [
            f"  %{first} = {op!r}({', '.join(f'%{slot}' for slot in arguments)})"
            for op, arguments, first, _ in self.steps
        ]
        lines.append(f"  -> {', '.join('None' if slot is None else f'%{slot}' for slot in self.results)}")
        return "\n".join(lines)


_programs: dict[object, GradientProgram] = {}


def gradient_program(
    op: Operator, immediates: tuple[object, ...], needed: tuple[bool, ...], douts: tuple[bool, ...]
) -> GradientProgram:
    """The program, made on first use.

    immediates : per input, the Python scalar, or None for an array
    needed : per input, whether its gradient is wanted
    douts : per visible output, whether there is an output gradient
    """
    # 2 and 2.0 are equal as keys, but not as exponents of integers.
    key = (op, immediates, needed, douts, *[type(item) for item in immediates if item is not None])
    program = _programs.get(key)
    if program is None:
        if len(_programs) > 4096:  # a loop over ever new scalars
            _programs.clear()
        program = _programs[key] = GradientProgram(op, immediates, needed, douts)
    return program


def apply_raw(op: Operator, inputs: list[object]) -> tuple[Any, ...]:
    """Apply on NumPy arrays."""
    return run_kernel(op, inputs)


@lru_cache(maxsize=512)
def stand_in(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An array without memory (all strides zero) for where only a shape is read."""
    return np.broadcast_to(np.zeros((), dtype), shape)
