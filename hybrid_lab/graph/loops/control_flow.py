"""Loops and branches as single nodes: Foreach, WhileLoop and Cond, operators that hold graphs (see composed.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from hybrid_lab.diagnostics.errors import DTypeError, ShapeError
from hybrid_lab.graph.loops.body import Body
from hybrid_lab.graph.loops.composed import KEY, ControlFlow, as_key, check_equal, from_key, seed_of
from hybrid_lab.graph.loops.steps import Loop
from hybrid_lab.ops.framework.memory import into

if TYPE_CHECKING:
    from hybrid_lab.ops.framework.types import Array, Outs, PartialShape, PartialShapes, Shape


class Foreach(Loop):
    """Runs its body once per entry of the first axis of data.

    inputs : num_data arrays (n, ...), num_states states, captures. The body takes one entry of each data, the states,
    the captures; it returns num_out outputs, which are stacked to (n, ...), and the new states
    returns : the stacked outputs, the last states. An entry of (n,) has the shape (1,).
    """

    name: ClassVar[str] = "_foreach"
    labels: ClassVar[tuple[str, ...]] = ("body",)
    title: ClassVar[str] = "foreach"
    state: ClassVar[str] = "state"
    counts_steps: ClassVar[bool] = False

    def unrolled(self, shapes: Sequence[Any]) -> tuple[int, list[Any]]:
        data = shapes[: self.num_data]
        for shape in data:
            if not shape:
                raise ShapeError("foreach: data is a number; it needs a first axis to go along")
            if shape[0] != data[0][0]:
                raise ShapeError(f"foreach: data have {' and '.join(str(item[0]) for item in data)} entries")
        return data[0][0], [*(shape[1:] or (1,) for shape in data), *shapes[self.num_data :]]

    def complete(self, *shapes: PartialShape) -> PartialShapes:
        data = shapes[: self.num_data]
        steps = next((shape[0] for shape in data if shape), None)
        inside = self.bodies[0].complete([*(shape and shape[1:] for shape in data), *shapes[self.num_data :]])
        outer = [None if shape is None else (steps, *shape) for shape in inside[: self.num_data]]
        return (*outer, *inside[self.num_data :])

    def certain(self, heads: tuple[int, ...]) -> frozenset[int]:
        """The inputs that the last step reads; empty if the body has a loop or branch, which may not run."""
        nested = any(node.op.subgraphs for node in self.bodies[0].graph.nodes)
        return frozenset() if nested else self.bodies[0].leading(heads)


class WhileLoop(Loop):
    """Runs its body while its condition holds, max_iterations times at most.

    inputs : num_states loop variables, captures. The condition takes them and returns one number; the body returns
    num_out outputs and the new variables
    returns : the outputs, stacked to (max_iterations, ...) with zeros behind the last step, and the last variables
    """

    name: ClassVar[str] = "_while_loop"
    labels: ClassVar[tuple[str, ...]] = ("condition", "body")
    title: ClassVar[str] = "while_loop"
    state: ClassVar[str] = "loop variable"
    counts_steps: ClassVar[bool] = True
    max_iterations: int

    def updates(self, index: int) -> bool:
        return index == 1

    def unrolled(self, shapes: Sequence[Any]) -> tuple[int, list[Any]]:
        return self.max_iterations, list(shapes)

    def infer_shape(self, *shapes: Shape) -> list[Shape]:
        (condition,) = self.bodies[0].shapes(shapes)
        if int(np.prod(condition)) != 1:
            raise ShapeError(f"while_loop: the condition has shape {condition}; one number is needed")
        return super().infer_shape(*shapes)

    def complete(self, *shapes: PartialShape) -> PartialShapes:
        return tuple(self.bodies[0].complete(self.bodies[1].complete(shapes)))


class Cond(ControlFlow):
    """One of two branches, decided by a number.

    inputs : the number, captures; both branches take the captures and return values of the same shapes and dtypes
    returns : what the chosen branch returned
    """

    name: ClassVar[str] = "_cond"
    labels: ClassVar[tuple[str, ...]] = ("then", "else")
    first: ClassVar[int] = 1
    num_out: int

    @property
    def num_visible(self) -> int:  # type: ignore[override]
        return self.num_out

    num_hidden: ClassVar[int] = 1  # type: ignore[misc]

    @property
    def draws(self) -> int:
        return max(body.graph.draws for body in self.bodies)

    def infer_shape(self, *shapes: Shape) -> list[Shape]:
        number, captures = shapes[0], shapes[1:]
        if int(np.prod(number)) != 1:
            raise ShapeError(f"cond: the condition has shape {number}; one number is needed")
        then, other = (body.shapes(captures)[: self.num_out] for body in self.bodies)
        check_equal("cond", "output", then, other, ShapeError, "in the then branch", "in the else branch")
        return [*then, *(captures[index - 1] for index in self.carried), (1,)]

    def infer_type(self, *dtypes: np.dtype | None) -> list[np.dtype | None]:
        captures = dtypes[1:]
        then, other = (body.types(captures)[: self.num_out] for body in self.bodies)
        check_equal("cond", "output", then, other, DTypeError, "in the then branch", "in the else branch")
        return [*then, *(captures[index - 1] for index in self.carried), KEY]

    def complete(self, *shapes: PartialShape) -> PartialShapes:
        return (shapes[0], *self.bodies[1].complete(self.bodies[0].complete(shapes[1:])))

    def _taken(self, number: Any) -> Body:
        return self.bodies[0 if number.item() else 1]

    def numpy(
        self, *inputs: Array, out: Outs = None, rng: tuple[int, int] = (0, 0), need: Sequence[bool] | None = None
    ) -> tuple[Array | None, ...]:
        number, captures = inputs[0], inputs[1:]
        seed = seed_of(rng)
        outputs = [*self._taken(number).program(captures)(captures, (seed, 0)), as_key(seed)]
        outs = (None,) * len(outputs) if out is None else out
        return tuple(into(value, target) for value, target in zip(outputs, outs, strict=True))

    def run_backward(
        self, inputs: Sequence[Array], hidden: Sequence[Array], heads: dict[int, Array], wanted: Sequence[int]
    ) -> dict[int, Array]:
        number, *captures = inputs
        run = self._taken(number).backward(captures, tuple(heads), tuple([index - 1 for index in wanted]))
        douts = [np.asarray(head, order="C") for head in heads.values()]
        gradients = run([*captures, *douts], (from_key(hidden[0]), 0))
        return {index + 1: gradient for index, gradient in gradients.items()}

    def leading(self, heads: tuple[int, ...], differentiable: bool = True) -> set[int]:
        return {index + 1 for body in self.bodies for index in body.leading(heads, differentiable)}

    def certain(self, heads: tuple[int, ...]) -> frozenset[int]:
        """What both branches read."""
        if any(node.op.subgraphs for body in self.bodies for node in body.graph.nodes):
            return frozenset()
        then, other = (body.leading(heads) for body in self.bodies)
        return frozenset(index + 1 for index in then & other)
