"""Optimizers in ONNX files: one step of a Trainer's optimizer as nodes.

    Adam(learning_rate, update_count, weights ..., gradients ..., means ..., variances ...)  ->  the new arrays

If ONNX has an operator for the rule, it is used, with nodes around it for the differences (`FORMS`). Other rules are
written as the records of `ops/updates` compute them. The names of all values begin with `training/`, so that the same
optimizer and weights give the same nodes: a reader compares a file's nodes with these nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hybrid_lab import optimizer as optimizers
from hybrid_lab.diagnostics.errors import Unmappable
from hybrid_lab.graph.builder import Builder, Expr
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import input_node
from hybrid_lab.ops.framework.onnx_emit import OnnxNode
from hybrid_lab.optimizer.optimizer import Optimizer

from ..writing.emitter import FileEmitter
from ..writing.nodes import TrainingNode

PREFIX = "training/"
"""How the names of all values of an algorithm begin; no name of a network does."""


@dataclass
class Weight:
    """A weight that the step updates.

    name : of its initializer; rate, decay : learning rate and weight decay with the Parameter's own factors
    updates : how often it was updated; states : the optimizer's arrays for it, in the order of `state_names()`
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    rate: float
    decay: float
    updates: int
    states: Sequence[np.ndarray]

    @property
    def gradient(self) -> str:
        """The name of its gradient."""
        return f"{PREFIX}{self.name}.gradient"


@dataclass
class WeightGroup:
    """Weights with the same rate, decay and count: they can share nodes. suffix : of the names of shared values"""

    weights: list[Weight]
    suffix: str

    @property
    def first(self) -> Weight:
        """Any weight of the group."""
        return self.weights[0]

    @property
    def rate(self) -> str:
        """The name of the learning rate."""
        return f"{PREFIX}learning_rate{self.suffix}"

    @property
    def count(self) -> str:
        """The name of the number of the coming update, which begins at 1."""
        return f"{PREFIX}update_count{self.suffix}"


@dataclass
class OptimizerStep:
    """One step of an optimizer.

    nodes : from weights, gradients and states to their new values; constants : name -> array
    arrays : name -> its value now, for states and numbers, which are initializers of the algorithm
    start : name -> its value before the first step, for what changes
    bindings : name of an initializer -> the name of its new value
    """

    nodes: list[OnnxNode] = field(default_factory=list)
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    start: dict[str, np.ndarray] = field(default_factory=dict)
    bindings: dict[str, str] = field(default_factory=dict)

    def add(self, op_type: str, inputs: Sequence[str], output: str, **attributes: Any) -> str:
        """Add a node of ONNX's own domain with one output."""
        name = f"{PREFIX}{output}"
        self.nodes.append(OnnxNode(op_type, tuple(inputs), (name,), attributes, name))
        return name

    def number(self, name: str, value: float, dtype: Any) -> str:
        """The name of a constant."""
        name = f"{PREFIX}{name}"
        self.constants[name] = np.array(value, dtype)
        return name

    def optimize(
        self, op_type: str, group: WeightGroup, rate: str, operands: Sequence[Sequence[str]], **attributes: Any
    ) -> list[list[str]]:
        """Add ONNX's node of an optimizer. operands : names by kind: weights, gradients, states; returns the new names
        by kind: weights, states
        """
        kinds = ["new", *(f"new_{number}" for number in range(len(operands) - 2))]
        outputs = [[f"{PREFIX}{weight.name}.{kind}" for weight in group.weights] for kind in kinds]
        inputs = [rate, group.count, *(name for kind in operands for name in kind)]
        results = tuple(name for kind in outputs for name in kind)
        name = f"{PREFIX}{op_type}{group.suffix}"
        self.nodes.append(TrainingNode(op_type, tuple(inputs), results, attributes, name))
        return outputs

    def states(self, group: WeightGroup, names: Sequence[str], sign: float = 1.0) -> list[list[str]]:
        """The names of the states of all weights, by kind. sign : -1 for states that the file stores negated"""
        found: list[list[str]] = []
        for place, kind in enumerate(names):
            found.append([])
            for weight in group.weights:
                name = state_name(weight, kind)
                self.arrays[name] = weight.states[place] * weight.dtype.type(sign)
                self.start[name] = np.zeros(weight.shape, weight.dtype)
                found[-1].append(name)
        return found

    def bind(self, names: Sequence[str], new: Sequence[str]) -> None:
        """Let these initializers have these values after the step."""
        self.bindings.update(zip(names, new, strict=True))


def state_name(weight: Weight, kind: str) -> str:
    """The name of a state of the optimizer."""
    return f"{PREFIX}{weight.name}.{kind}"


def written(optimizer: Optimizer, weights: Sequence[Weight], opset: int) -> OptimizerStep:
    """One step of the optimizer for these weights. Raises Unmappable for a rule that has no form."""
    form = _form(optimizer)
    step = OptimizerStep()
    for group in groups(weights):
        if group.first.dtype not in (np.float32, np.float64):
            raise Unmappable(f"ONNX's optimizers update float32 and float64, not {group.first.dtype} weights")
        step.arrays[group.rate] = np.array(group.first.rate, group.first.dtype)
        step.arrays[group.count] = np.array(group.first.updates + 1, np.int64)
        step.start[group.count] = np.array(optimizer.begin_num_update + 1, np.int64)
        form(step, optimizer, group, opset)
        one = step.number(f"one{group.suffix}", 1, np.int64)
        step.bind([group.count], [step.add("Add", [group.count, one], f"next_count{group.suffix}")])
    return step


def groups(weights: Sequence[Weight]) -> list[WeightGroup]:
    """The weights that can share a node."""
    kinds: dict[Any, list[Weight]] = {}
    for weight in weights:
        kinds.setdefault((weight.rate, weight.decay, weight.updates, weight.dtype), []).append(weight)
    return [
        WeightGroup(members, "" if len(kinds) == 1 else f".{number}") for number, members in enumerate(kinds.values())
    ]


# -- rules for which ONNX has an operator ------------------------------------------------------------------------------


def _limited(step: OptimizerStep, optimizer: Optimizer, name: str, weight: Weight) -> str:
    """A gradient within the limits of `clip_gradient`."""
    if not optimizer.clip_gradient:
        return name
    limits = [
        step.number(f"{which}.{weight.dtype.name}", value, weight.dtype)
        for which, value in (("least", -optimizer.clip_gradient), ("most", optimizer.clip_gradient))
    ]
    return step.add("Clip", [name, *limits], f"{weight.name}.limited")


def _momentum(step: OptimizerStep, optimizer: Any, group: WeightGroup, opset: int) -> None:
    """SGD and NAG: momentum <- momentum * m - lr * g, where ONNX has V <- alpha * V + g and X <- X - R * V. With the
    rate in the gradient and R = 1, V is -m exactly.
    """
    first = group.first
    scaled = [
        step.add(
            "Mul", [_limited(step, optimizer, weight.gradient, weight), group.rate], f"{weight.name}.scaled"
        )
        for weight in group.weights
    ]  # fmt: skip
    (kept,) = step.states(group, ["momentum"], -1.0)
    decay = first.rate * first.decay
    nesterov = type(optimizer) is optimizers.NAG
    names = [weight.name for weight in group.weights]
    new, new_kept = step.optimize(
        "Momentum", group, step.number(f"whole{group.suffix}", 1.0, first.dtype), [names, scaled, kept],
        alpha=optimizer.momentum, beta=1.0, mode="nesterov" if nesterov else "standard", norm_coefficient=decay,
    )  # fmt: skip
    if nesterov and decay:
        # Our momentum has the decay of the new weight in it, ONNX's the decay of the old weight.
        factor = step.number(f"decay{group.suffix}", decay, first.dtype)
        for place, weight in enumerate(group.weights):
            moved = step.add("Sub", [new[place], weight.name], f"{weight.name}.moved")
            more = step.add("Mul", [moved, factor], f"{weight.name}.decayed")
            new_kept[place] = step.add("Add", [new_kept[place], more], f"{weight.name}.kept")
    step.bind([*names, *kept], [*new, *new_kept])


def _adagrad(step: OptimizerStep, optimizer: Any, group: WeightGroup, opset: int) -> None:
    """AdaGrad: w <- w - lr * (g / sqrt(h + eps) + wd * w), where ONNX has X <- X - R * G / (sqrt(H) + epsilon): H is
    h + eps, and epsilon 0.
    """
    dtype = group.first.dtype
    names = [weight.name for weight in group.weights]
    gradients = [_limited(step, optimizer, weight.gradient, weight) for weight in group.weights]
    (history,) = step.states(group, ["history"])
    small = step.number(f"epsilon{group.suffix}", optimizer.float_stable_eps, dtype)
    raised = [
        step.add("Add", [name, small], f"{weight.name}.raised")
        for name, weight in zip(history, group.weights, strict=True)
    ]
    new, _ = step.optimize(
        "Adagrad", group, group.rate, [names, gradients, raised], decay_factor=0.0, epsilon=0.0, norm_coefficient=0.0
    )
    for place, weight in enumerate(group.weights):
        if weight.decay:
            factor = step.number(f"decay{group.suffix}", weight.rate * weight.decay, dtype)
            less = step.add("Mul", [weight.name, factor], f"{weight.name}.decayed")
            new[place] = step.add("Sub", [new[place], less], f"{weight.name}.less")
        square = step.add("Mul", [gradients[place], gradients[place]], f"{weight.name}.square")
        total = step.add("Add", [history[place], square], f"{weight.name}.total")
        step.bind([weight.name, history[place]], [new[place], total])


def _adam(step: OptimizerStep, optimizer: Any, group: WeightGroup, opset: int) -> None:
    """Adam: ONNX's rule is ours, except for the limit, which holds for the gradient with the decay in it. AdamW takes
    its step from the decayed weight.
    """
    gradients, decay = [], group.first.decay
    names = [weight.name for weight in group.weights]
    from_weights = names
    if type(optimizer) is optimizers.AdamW:
        if not optimizer.correct_bias:
            raise Unmappable("AdamW with correct_bias=False: ONNX' Adam always corrects the moments' start at zero")
        if decay:
            left = step.number(f"left{group.suffix}", 1.0 - group.first.rate * decay, group.first.dtype)
            from_weights = [step.add("Mul", [name, left], f"{name}.left") for name in names]
        decay = 0.0
    for weight in group.weights:
        name = weight.gradient
        if optimizer.clip_gradient and decay:
            factor = step.number(f"decay{group.suffix}", decay, weight.dtype)
            more = step.add("Mul", [weight.name, factor], f"{weight.name}.decayed")
            name = step.add("Add", [name, more], f"{weight.name}.regularized")
        gradients.append(_limited(step, optimizer, name, weight))
    states = step.states(group, optimizer.state_names())
    new = step.optimize(
        "Adam", group, group.rate, [from_weights, gradients, *states],
        alpha=optimizer.beta1, beta=optimizer.beta2, epsilon=optimizer.epsilon,
        norm_coefficient=0.0 if optimizer.clip_gradient else decay, norm_coefficient_post=0.0,
    )  # fmt: skip
    for kind, results in zip([names, *states], new, strict=True):
        step.bind(kind, results)


# -- all others --------------------------------------------------------------------------------------------------------


def _as_record(step: OptimizerStep, optimizer: Any, group: WeightGroup, opset: int) -> None:
    """The rule as its record computes it, each weight by itself."""
    operator = optimizer.operator()
    for weight in group.weights:
        numbers = optimizer.numbers(weight.rate, weight.decay, 1)
        if numbers != optimizer.numbers(weight.rate, weight.decay, 1000):
            raise Unmappable(f"{type(optimizer).__name__}: ONNX has no operator for it, and its rate changes by itself")
        emitter = FileEmitter(opset)
        emitter.prefix = f"{PREFIX}{weight.name}/"
        kinds = optimizer.state_names()
        states = [kind[0] for kind in step.states(WeightGroup([weight], group.suffix), kinds)]
        used = {name: number for name, number in numbers.items() if name != "wd" or number}
        places = {name: f"{PREFIX}{name}{group.suffix}" for name in used}
        if "lr" in places:
            places["lr"] = group.rate
        step.arrays.update({place: np.array(used[name], weight.dtype) for name, place in places.items()})
        names = [weight.name, weight.gradient, *states, *places.values()]
        builder = Builder()
        shapes = [weight.shape] * (2 + len(states)) + [()] * len(places)
        values = [
            input_node(emitter.declare(name, shape, weight.dtype), "data", shape=shape, dtype=weight.dtype)
            for name, shape in zip(names, shapes, strict=True)
        ]
        arrays = [Expr(builder, value) for value in values]
        settings = {"wd": 0.0, "rescale_grad": 1.0, **dict(zip(used, arrays[2 + len(states) :], strict=True))}
        new = operator.step(builder, *arrays[: 2 + len(states)], *(settings[name] for name in operator.scalars))
        graph = Graph(values, [each.value for each in new])
        known = dict(zip(values, names, strict=True))
        for node in graph.operators:
            emitter.emit_node(node, known)
        step.nodes += emitter.nodes
        step.constants.update(emitter.initializers)
        step.bind([weight.name, *states], [known[value] for value in graph.outputs])


Form = Callable[[OptimizerStep, Any, WeightGroup, int], None]
FORMS: dict[type[Optimizer], Form] = {
    optimizers.AdaGrad: _adagrad, optimizers.Adam: _adam, optimizers.AdamW: _adam,
}  # fmt: skip
"""Optimizers for which ONNX has an operator, besides those with a momentum."""
NEGATED = (optimizers.SGD, optimizers.NAG)
"""Optimizers whose momentum the file keeps negated."""


def _form(optimizer: Optimizer) -> Form:
    kind = type(optimizer)
    if kind in NEGATED and optimizer.hyperparameters().get("momentum"):
        return _momentum
    if kind in FORMS:
        return FORMS[kind]
    if not kind.__module__.startswith("hybrid_lab.optimizer."):
        raise Unmappable(f"the optimizer {kind.__name__} is not one of this package, so it cannot be written")
    if optimizer.operator() is None:
        raise Unmappable(f"{kind.__name__}: there is no update operator for it")
    return _as_record


def stored_state(optimizer: Optimizer, array: np.ndarray) -> np.ndarray:
    """A state as the file keeps it -> as the optimizer does."""
    return -array if type(optimizer) in NEGATED else array
