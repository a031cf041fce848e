"""Composed: base of the operators that are made from graphs; ControlFlow: of those that hold graphs, and its gradient.

What the bodies read from outside - parameters, tensors of the code around them - are inputs of the node ("captures"),
so that every pass sees them. A node takes one draw number; inside, draws are numbered anew in a stream of their own
(`philox.substream`), step after step, so that however often a loop turns, it never shifts anybody's random numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from hybrid_lab.diagnostics.errors import ShapeError
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.loops.body import Body
from hybrid_lab.ops.framework.memory import into
from hybrid_lab.ops.framework.operator import Operator
from hybrid_lab.ops.framework.signature import Signature
from hybrid_lab.ops.kernels import philox

if TYPE_CHECKING:
    from hybrid_lab.graph.node import Node, Value
    from hybrid_lab.ops.framework.types import Array, Outs, PartialShape, Shape

#: The dtype of a key, the hidden output that holds a call's seed: Philox' 64 bits as a signed number.
KEY = np.dtype("int64")


class Composed(Operator):
    """Base of operators that are made from graphs instead of attributes; an instance is equal to itself only."""

    fields: ClassVar[dict[str, Any]] = {}
    own_bfloat16: ClassVar[bool] = True
    run_keywords: ClassVar[frozenset[str]] = frozenset({"out", "rng", "need"})
    differentiable: ClassVar[bool] = True
    grad_wants: ClassVar[bool] = True

    def __init__(self, **members: Any):
        for key, value in {"attributes": {}, "inferred": {}, **members}.items():
            object.__setattr__(self, key, value)

    def infer_shape(self, *shapes: Shape) -> list[Shape]:
        raise NotImplementedError

    def __reduce__(self) -> Any:
        return object.__reduce__(self)


class ControlFlow(Composed):
    """Base of the operators that hold graphs: loops and branches.

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
        """Outputs: visible outputs, the new values of carried states, and values for the backward."""
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

    def fix_mode(self, train: bool) -> Operator:
        """The operators of the bodies were fixed when the bodies were traced."""
        return self

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
                # A step reads a state from the step before; the first step reads it from the input.
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
        """Gradients of the wanted inputs. An input without a gradient in this call is left out."""
        raise NotImplementedError

    def leading(self, heads: tuple[int, ...], differentiable: bool = True) -> set[int]:
        """The inputs that lead to one of these outputs, in some call; a condition leads to none.

        differentiable : only inputs at which a gradient may arrive
        """
        raise NotImplementedError

    def certain(self, heads: tuple[int, ...]) -> frozenset[int]:
        """The inputs that get a gradient in every call."""
        return frozenset()

    @property
    def changed(self) -> dict[str, Any]:
        """The numbers that a printed graph shows."""
        return {key: vars(self)[key] for key in ("num_out", "num_states", "max_iterations") if key in vars(self)}

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(f'{key}={value}' for key, value in self.changed.items())})"


class Backward(Composed):
    """The gradient of a control-flow operator: its inputs, its hidden outputs, and the gradients `heads` of its outputs
    -> the gradients of its inputs number `wanted`, and hidden, for each of them whether there is one in this call.
    """

    name: ClassVar[str] = "_control_flow_grad"
    refuses_gradient: ClassVar[bool] = True
    run_keywords: ClassVar[frozenset[str]] = frozenset({"out"})
    differentiable: ClassVar[bool] = False
    grad_wants: ClassVar[bool] = False
    forward: ControlFlow
    heads: tuple[int, ...]
    wanted: tuple[int, ...]

    @cached_property
    def signature(self) -> Signature:  # type: ignore[override]
        count = len(self.forward.signature.inputs) + self.forward.num_hidden + len(self.heads)
        return Signature(tuple(f"arg{index}" for index in range(count)), 2 * len(self.wanted), len(self.wanted))

    @cached_property
    def shape_only(self) -> tuple[str, ...]:  # type: ignore[override]
        """States without effect on the outputs, and states whose value at every step is in the history of a loop."""
        forward = self.forward
        read = forward.read_for(frozenset(range(forward.num_visible))) - set(forward.history)
        names = forward.signature.inputs
        return tuple([names[index] for index in forward.carried if index not in read])

    def presence(self, node: Node, index: int) -> Value | None:
        certain = self.wanted[index] in self.forward.certain(self.heads)
        return None if certain else node.outputs[len(self.wanted) + index]

    def infer_shape(self, *shapes: Shape) -> list[Shape]:
        return [*(shapes[index] for index in self.wanted), *((1,) for _ in self.wanted)]

    def infer_type(self, *dtypes: np.dtype | None) -> list[np.dtype | None]:
        return [*(dtypes[index] for index in self.wanted), *(np.dtype(np.float32) for _ in self.wanted)]

    def numpy(self, *inputs: Array, out: Outs = None) -> tuple[Array, ...]:
        count = len(self.forward.signature.inputs)
        first = count + self.forward.num_hidden
        heads = dict(zip(self.heads, inputs[first:], strict=True))
        gradients = self.forward.run_backward(inputs[:count], inputs[count:first], heads, self.wanted)
        results = [
            np.zeros_like(inputs[index]) if index not in gradients else gradients[index] for index in self.wanted
        ]
        results += [np.array([index in gradients], np.float32) for index in self.wanted]
        outs = (None,) * len(results) if out is None else out
        return tuple(into(value, target) for value, target in zip(results, outs, strict=True))

    def __repr__(self) -> str:
        return f"gradient of {self.forward!r}"


def check_equal(
    what: str,
    kind: str,
    wanted: Sequence[object],
    made: Sequence[object],
    error: type[Exception],
    before: str = "before a step",
    after: str = "after it",
) -> None:
    word = "shape" if error is ShapeError else "dtype"
    for index, (one, other) in enumerate(zip(wanted, made, strict=True)):
        if one != other:
            raise error(f"{what}: {kind} {index} has {word} {one} {before} and {other} {after}; they must be equal")


def seed_of(rng: tuple[int, int] | None) -> int:
    """The seed of the stream inside a call that has this draw."""
    return philox.substream(*(rng if rng is not None else (0, 0)))


def as_key(seed: int) -> np.ndarray:
    return np.array([seed], np.uint64).view(KEY)


def from_key(key: np.ndarray) -> int:
    return int(np.ascontiguousarray(key).view(np.uint64)[0])
