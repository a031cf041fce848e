"""Loops and branches as single nodes: Foreach, WhileLoop and Cond, operators that hold graphs.

What a body reads from outside - parameters, tensors of the code around it - are inputs of the node ("captures"), so
that every pass sees them. A node takes one draw number; inside, draws are numbered anew in a stream of their own
(`philox.substream`), step after step, so that however often a loop turns, it never shifts anybody's random numbers.

The backward of a loop goes through the steps in reverse, and computes each step's forward a second time from the
states it began with, which the forward keeps. It keeps those auxiliary states too that the body's outputs are computed
from; what a body only updates, as BatchNorm does with its running statistics, no gradient reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from hybrid_lab.diagnostics.errors import DTypeError, ShapeError
from hybrid_lab.graph.body import Body
from hybrid_lab.graph.composed import Backward, Composed
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.loop import (
    KEY,
    Kept,
    as_key,
    check_equal,
    entries,
    entry_of,
    from_key,
    handed_on,
    loop_backward,
    loop_leading,
    seed_of,
)
from hybrid_lab.ops.framework.dtypes import is_floating
from hybrid_lab.ops.framework.memory import into
from hybrid_lab.ops.framework.operator import Operator
from hybrid_lab.ops.framework.signature import Signature
from hybrid_lab.ops.framework.types import Array, Outs, PartialShape, PartialShapes, Shape

if TYPE_CHECKING:
    from hybrid_lab.ops.framework.types import Array, Outs, PartialShape, PartialShapes, Shape


class ControlFlow(Composed):
    """Base of the three.

    bodies : the graphs, which all read the inputs from number `first` on
    carried : inputs that are auxiliary states which the bodies update; each body's last outputs are their new values
    """

    bodies: tuple[Body, ...]
    labels: ClassVar[tuple[str, ...]] = ()
    first: ClassVar[int] = 0
    carried: tuple[int, ...] = ()
    mode_dependent: ClassVar[bool] = True
    num_visible: int = 0
    num_hidden: int = 0

    @cached_property
    def signature(self) -> Signature:  # type: ignore[override]
        """Outputs: visible ones, the new values of carried states, and what the backward reads."""
        names = tuple(f"arg{index}" for index in range(self.first + len(self.bodies[0].graph.inputs)))
        states = tuple(names[index] for index in self.carried) or self._states_inside(names)
        return Signature(names, self.num_visible + len(self.carried) + self.num_hidden, self.num_visible, states)

    @property
    def random(self) -> bool:  # type: ignore[override]
        return any(body.graph.draws for body in self.bodies)

    @property
    def draws(self) -> int:
        """Random numbers of one step."""
        return sum(body.graph.draws for body in self.bodies)

    @property
    def subgraphs(self) -> tuple[tuple[str, Graph], ...]:
        """The graphs inside with what they are, for printers and writers."""
        return tuple((label, body.graph) for label, body in zip(self.labels, self.bodies, strict=True))

    def typed_subgraphs(
        self, shapes: Sequence[PartialShape], dtypes: Sequence[object]
    ) -> tuple[tuple[str, Graph], ...]:
        """The graphs inside with types on every node, for inputs of these shapes and dtypes."""
        inside = self.inside(shapes)
        return tuple(
            (label, body.inferred(inside, dtypes[self.first :]))
            for label, body in zip(self.labels, self.bodies, strict=True)
        )

    def inside(self, shapes: Sequence[PartialShape]) -> list[PartialShape]:
        """The shapes of the bodies' inputs."""
        return list(shapes[self.first :])

    def _states_inside(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """The inputs that operators of the bodies use as auxiliary states."""
        states: list[str] = []
        for body in self.bodies:
            places = {value: index for index, value in enumerate(body.graph.inputs)}
            for node in body.graph.nodes:
                inner = node.op.signature
                for name, item in zip(inner.inputs, node.inputs, strict=False) if inner.aux else ():
                    if name in inner.aux and item in places:
                        states.append(names[places[item] + self.first])
        return tuple(dict.fromkeys(states))

    def aux(self, F: object, inputs: tuple[object, ...], outputs: tuple[object, ...]) -> dict[str, Any]:
        names = self.signature.inputs
        return {names[index]: new for index, new in zip(self.carried, outputs[self.num_visible :], strict=False)}

    def rebuilt(self, bodies: Sequence[Graph], carried: tuple[int, ...]) -> ControlFlow:
        """The same operator over other bodies."""
        members = {key: value for key, value in vars(self).items() if not key.startswith("_")}
        for key in ("attributes", "inferred", "signature"):
            members.pop(key)
        return type(self)(**{**members, "bodies": tuple(map(Body, bodies)), "carried": carried})

    def bind_mode(self, train: bool) -> Operator:
        """Bind the bodies; updates of states become outputs of them."""
        if self.carried:
            return self  # bound already
        by_mode: dict[bool, Operator] = self.__dict__.setdefault("_bound_modes", {})
        if train not in by_mode:
            bound = [body.bound(train) for body in self.bodies]
            updates = [{graph.inputs.index(target): new for target, new in graph.effects} for graph in bound]
            places = tuple(sorted({place for update in updates for place in update}))
            graphs = [
                Graph(
                    graph.inputs,
                    [*graph.outputs, *(update.get(place, graph.inputs[place]) for place in places)]
                    if self.updates(index)
                    else graph.outputs,
                    (),
                    graph.draws,
                    graph.name,
                )
                for index, (graph, update) in enumerate(zip(bound, updates, strict=True))
            ]
            by_mode[train] = self.rebuilt(graphs, tuple(place + self.first for place in places))
        return by_mode[train]

    def updates(self, index: int) -> bool:
        """Whether body number `index` gives new values of states; a loop's condition only looks."""
        return True

    # -- what outputs are computed from ----------------------------------------------------------------------------

    def reads_for(self, output: int, index: int) -> bool:
        hidden = output >= self.num_visible + len(self.carried)
        return index in self.read_for(frozenset(range(self.num_visible) if hidden else (output,)))

    def read_for(self, outputs: frozenset[int]) -> frozenset[int]:
        """The inputs whose values these outputs, visible ones and new values of carried states, are computed from."""
        known: dict[frozenset[int], frozenset[int]] = self.__dict__.setdefault("_read_for", {})
        if outputs not in known:
            wanted, read, before = set(outputs), set(range(self.first)), -1
            while len(wanted) > before:
                before = len(wanted)
                for number, body in enumerate(self.bodies):
                    read |= {self.first + index for index in body.read_for(wanted if self.updates(number) else {0})}
                # A state comes from the step before, or from the input where there is none.
                read |= {index for index, number in self.handed_on.items() if number in wanted}
                wanted |= {number for index, number in self.handed_on.items() if index in read}
            known[outputs] = frozenset(read)
        return known[outputs]

    @property
    def handed_on(self) -> dict[int, int]:
        """Inputs that change from step to step, with the outputs of the body that are their next values."""
        return {}

    @property
    def history(self) -> tuple[int, ...]:
        """Inputs whose values at the beginning of every step are kept for the backward."""
        read = self.read_for(frozenset(range(self.num_visible)))
        return tuple([index for index, number in self.handed_on.items() if number < self.num_visible or index in read])

    # -- gradients ---------------------------------------------------------------------------------------------

    def grad(self, F: Any, *values: object, wanted: Any = None) -> tuple[Any, ...]:
        count = len(self.signature.inputs)
        inputs, outputs, douts = (
            values[:count],
            values[count : count + self.signature.outputs],
            values[count + self.signature.outputs :],
        )
        heads = tuple(index for index, dout in enumerate(douts) if dout is not None)
        leading = self.leading(heads)
        chosen = tuple(index for index in sorted(leading) if wanted is None or wanted[index])
        if not chosen:
            return (None,) * count
        hidden = outputs[self.num_visible + len(self.carried) :]
        op = Backward(forward=self, heads=heads, wanted=chosen)
        results = F.apply(op, (*inputs, *hidden, *(douts[index] for index in heads)))
        results = results if isinstance(results, (tuple, list)) else (results,)
        by_input = dict(zip(chosen, results, strict=True))
        return tuple(by_input.get(index) for index in range(count))

    def run_backward(
        self, inputs: Sequence[Array], hidden: Sequence[Array], heads: dict[int, Array], wanted: Sequence[int]
    ) -> dict[int, Array]:
        """Gradients of those of the wanted inputs that get one in this call."""
        raise NotImplementedError

    def leading(self, heads: tuple[int, ...], differentiable: bool = True) -> set[int]:
        """The inputs that lead to one of these outputs, in some call; a condition leads to none.

        differentiable : those that a gradient may arrive at
        """
        raise NotImplementedError

    def certain(self, heads: tuple[int, ...]) -> frozenset[int]:
        """Those that get one in every call."""
        return frozenset()

    @property
    def changed(self) -> dict[str, Any]:
        """The numbers that a printed graph shows."""
        return {key: vars(self)[key] for key in ("num_out", "num_states", "max_iterations") if key in vars(self)}

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(f'{key}={value}' for key, value in self.changed.items())})"


class Foreach(ControlFlow):
    """Runs its body once per entry of the first axis of data.

    inputs : num_data arrays (n, ...), num_states states, captures. The body takes one entry of each data, the states,
    the captures; it returns num_out outputs, which are stacked to (n, ...), and the new states
    returns : the stacked outputs, the last states. An entry of (n,) has the shape (1,).
    """

    name: ClassVar[str] = "_foreach"
    labels: ClassVar[tuple[str, ...]] = ("body",)
    num_data: int
    num_states: int
    num_out: int

    @property
    def num_visible(self) -> int:  # type: ignore[override]
        return self.num_out + self.num_states

    @property
    def num_hidden(self) -> int:  # type: ignore[override]
        return len(self.history) + 1

    @property
    def handed_on(self) -> dict[int, int]:
        return handed_on(self, self.num_data)

    def _shapes(self, shapes: Sequence[Any]) -> tuple[int, list[Any]]:
        """The number of steps, and the shapes inside."""
        data = shapes[: self.num_data]
        for shape in data:
            if not shape:
                raise ShapeError("foreach: data is a number; it needs a first axis to go along")
            if shape[0] != data[0][0]:
                raise ShapeError(f"foreach: data have {' and '.join(str(item[0]) for item in data)} entries")
        return data[0][0], [*(shape[1:] or (1,) for shape in data), *shapes[self.num_data :]]

    def inside(self, shapes: Sequence[PartialShape]) -> list[PartialShape]:
        return self._shapes(shapes)[1]

    def infer_shape(self, *shapes: Shape) -> list[Shape]:
        steps, inside = self._shapes(shapes)
        outputs = self.bodies[0].shapes(inside)
        states = inside[self.num_data : self.num_data + self.num_states]
        new_states = outputs[self.num_out : self.num_visible]
        check_equal("foreach", "state", states, new_states, ShapeError)
        carried = [shapes[index] for index in self.carried]
        stacked = [(steps, *shape) for shape in outputs[: self.num_out]]
        return [*stacked, *new_states, *carried, *((steps, *inside[index]) for index in self.history), (1,)]

    def infer_type(self, *dtypes: np.dtype | None) -> list[np.dtype | None]:
        outputs = self.bodies[0].types(dtypes)
        states = dtypes[self.num_data : self.num_data + self.num_states]
        check_equal("foreach", "state", states, outputs[self.num_out : self.num_visible], DTypeError)
        kept = [dtypes[index] for index in (*self.carried, *self.history)]
        return [*outputs[: self.num_visible], *kept, KEY]

    def complete(self, *shapes: PartialShape) -> PartialShapes:
        data = shapes[: self.num_data]
        steps = next((shape[0] for shape in data if shape), None)
        inside = self.bodies[0].complete([*(shape and shape[1:] for shape in data), *shapes[self.num_data :]])
        outer = [None if shape is None else (steps, *shape) for shape in inside[: self.num_data]]
        return (*outer, *inside[self.num_data :])

    def numpy(
        self, *inputs: Array, out: Outs = None, rng: tuple[int, int] = (0, 0), need: Sequence[bool] | None = None
    ) -> tuple[Array | None, ...]:
        data = [entries(item) for item in inputs[: self.num_data]]
        steps = len(data[0])
        arrays = [*(entry_of(item) for item in data), *inputs[self.num_data :]]
        history = Kept(self, inputs, steps, out, need)
        run = self.bodies[0].program(arrays)
        seed = seed_of(rng)
        for step in range(steps):
            for index, item in enumerate(data):
                arrays[index] = item[step]
            history.note(step, arrays)
            outputs = run(arrays, (seed, step * self.draws))
            history.write(step, outputs[: self.num_out])
            arrays[self.num_data : self.num_data + self.num_states] = outputs[self.num_out : self.num_visible]
            for place, new in zip(self.carried, outputs[self.num_visible :], strict=True):
                arrays[place] = new
        states = arrays[self.num_data : self.num_data + self.num_states]
        return history.finish(states, [arrays[place] for place in self.carried], (as_key(seed),))

    def run_backward(
        self, inputs: Sequence[Array], hidden: Sequence[Array], heads: dict[int, Array], wanted: Sequence[int]
    ) -> dict[int, Array]:
        data = inputs[: self.num_data]
        return loop_backward(
            self, inputs, hidden[:-1], hidden[-1], heads, wanted, len(data[0]), self.num_data, self.bodies[0], 0
        )

    def leading(self, heads: tuple[int, ...], differentiable: bool = True) -> set[int]:
        return loop_leading(self, self.bodies[0], self.num_data, heads, differentiable)

    def certain(self, heads: tuple[int, ...]) -> frozenset[int]:
        """What the last step reads, but for what is read inside a loop or branch of that step."""
        nested = any(node.op.subgraphs for node in self.bodies[0].graph.nodes)
        return frozenset() if nested else self.bodies[0].leading(heads)


class WhileLoop(ControlFlow):
    """Runs its body while its condition holds, max_iterations times at most.

    inputs : num_states loop variables, captures. The condition takes them and returns one number; the body returns
    num_out outputs and the new variables
    returns : the outputs, stacked to (max_iterations, ...) with zeros behind the last step, and the last variables
    """

    name: ClassVar[str] = "_while_loop"
    labels: ClassVar[tuple[str, ...]] = ("condition", "body")
    num_data: ClassVar[int] = 0
    num_states: int
    num_out: int
    max_iterations: int

    @property
    def num_visible(self) -> int:  # type: ignore[override]
        return self.num_out + self.num_states

    @property
    def num_hidden(self) -> int:  # type: ignore[override]
        return len(self.history) + 2

    @property
    def handed_on(self) -> dict[int, int]:
        return handed_on(self, self.num_data)

    def updates(self, index: int) -> bool:
        return index == 1

    def infer_shape(self, *shapes: Shape) -> list[Shape]:
        (condition,) = self.bodies[0].shapes(shapes)
        if int(np.prod(condition)) != 1:
            raise ShapeError(f"while_loop: the condition has shape {condition}; one number is needed")
        outputs = self.bodies[1].shapes(shapes)
        new_states = outputs[self.num_out : self.num_visible]
        check_equal("while_loop", "loop variable", shapes[: self.num_states], new_states, ShapeError)
        stacked = [(self.max_iterations, *shape) for shape in outputs[: self.num_out]]
        histories = [(self.max_iterations, *shapes[index]) for index in self.history]
        return [*stacked, *new_states, *(shapes[index] for index in self.carried), *histories, (1,), (1,)]

    def infer_type(self, *dtypes: np.dtype | None) -> list[np.dtype | None]:
        outputs = self.bodies[1].types(dtypes)
        states = dtypes[: self.num_states]
        check_equal("while_loop", "loop variable", states, outputs[self.num_out : self.num_visible], DTypeError)
        kept = [dtypes[index] for index in (*self.carried, *self.history)]
        return [*outputs[: self.num_visible], *kept, KEY, KEY]

    def complete(self, *shapes: PartialShape) -> PartialShapes:
        return tuple(self.bodies[0].complete(self.bodies[1].complete(shapes)))

    def numpy(
        self, *inputs: Array, out: Outs = None, rng: tuple[int, int] = (0, 0), need: Sequence[bool] | None = None
    ) -> tuple[Array | None, ...]:
        arrays = list(inputs)
        history = Kept(self, inputs, self.max_iterations, out, need)
        seed, first = seed_of(rng), self.bodies[0].graph.draws
        check, run = self.bodies[0].program(arrays), self.bodies[1].program(arrays)
        step = 0
        while step < self.max_iterations and check(arrays, (seed, step * self.draws))[0].item():
            history.note(step, arrays)
            outputs = run(arrays, (seed, step * self.draws + first))
            history.write(step, outputs[: self.num_out])
            arrays[: self.num_states] = outputs[self.num_out : self.num_visible]
            for index, new in zip(self.carried, outputs[self.num_visible :], strict=True):
                arrays[index] = new
            step += 1
        history.clear(step)
        carried = [arrays[index] for index in self.carried]
        return history.finish(arrays[: self.num_states], carried, (np.array([step], KEY), as_key(seed)))

    def run_backward(
        self, inputs: Sequence[Array], hidden: Sequence[Array], heads: dict[int, Array], wanted: Sequence[int]
    ) -> dict[int, Array]:
        *history, steps, key = hidden
        first = self.bodies[0].graph.draws
        return loop_backward(self, inputs, history, key, heads, wanted, int(steps[0]), 0, self.bodies[1], first)

    def leading(self, heads: tuple[int, ...], differentiable: bool = True) -> set[int]:
        return loop_leading(self, self.bodies[1], 0, heads, differentiable)


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
        differentiated = tuple(index for index, head in heads.items() if is_floating(head.dtype))
        wrt = tuple(index - 1 for index in wanted if is_floating(inputs[index].dtype))
        run = self._taken(number).backward(captures, differentiated, wrt)
        gradients = run(
            [*captures, *(np.asarray(heads[index], order="C") for index in differentiated)], (from_key(hidden[0]), 0)
        )
        return {index + 1: gradient for index, gradient in gradients.items()}

    def leading(self, heads: tuple[int, ...], differentiable: bool = True) -> set[int]:
        return {index + 1 for body in self.bodies for index in body.leading(heads, differentiable)}

    def certain(self, heads: tuple[int, ...]) -> frozenset[int]:
        """What both branches read."""
        if any(node.op.subgraphs for body in self.bodies for node in body.graph.nodes):
            return frozenset()
        then, other = (body.leading(heads) for body in self.bodies)
        return frozenset(index + 1 for index in then & other)
