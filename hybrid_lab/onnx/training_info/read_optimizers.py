"""Optimizers of ONNX files, read: the nodes that change the weights as a Trainer.

A file of ours holds the Trainer's settings in its metadata; its nodes must be the nodes that this Trainer would be
written as. In other files ONNX's optimizers and a plain Sub(weight, Mul(rate, gradient)) are read if one of our rules
computes the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hybrid_lab import optimizer as our_optimizers
from hybrid_lab.diagnostics.errors import HybridLabError
from hybrid_lab.gluon.parameter import Parameter
from hybrid_lab.gluon.trainer import Trainer
from hybrid_lab.onnx.errors import OnnxError
from hybrid_lab.onnx.reading.importers.functions import Attributes
from hybrid_lab.onnx.reading.model_file import OnnxFile
from hybrid_lab.onnx.training_info import optimizers
from hybrid_lab.onnx.training_info.optimizers import Weight, WeightGroup, groups, stored_state
from hybrid_lab.onnx.writing.nodes import TRAINING

if TYPE_CHECKING:
    from onnx import NodeProto


@dataclass
class Update:
    """The nodes of an algorithm that change the weights.

    nodes : without constants; constants, arrays : name -> array, of Constant nodes and of initializers
    bindings : name of an initializer -> the name of its new value; gradients : name of a weight -> of its gradient
    """

    file: OnnxFile
    nodes: list[NodeProto]
    constants: dict[str, np.ndarray]
    arrays: Mapping[str, np.ndarray]
    bindings: dict[str, str]
    gradients: Mapping[str, str]
    opset: int


def read_optimizer(update: Update, parameters: Sequence[Parameter], settings: Mapping[str, Any] | None) -> Trainer:
    """The Trainer of these parameters, in the order of `update.gradients`, with its states and counters.

    settings : the result of a Trainer's `get_states` when the file was written; None in other files
    """
    if settings is None:
        return _foreign(update, parameters)
    kind = settings.get("optimizer")
    known = {name for name in our_optimizers.__all__ if isinstance(getattr(our_optimizers, name), type)}
    if kind not in known or not issubclass(getattr(our_optimizers, kind), our_optimizers.Optimizer):
        raise OnnxError(f"the file's metadata name the optimizer {kind!r:.60}, which is not known")
    given, names = settings.get("parameters"), list(update.gradients)
    if not isinstance(given, list) or [_entry(item, "name", str) for item in given] != names:
        raise OnnxError("the file's metadata and its algorithm disagree about which parameters are trained")
    for parameter, item in zip(parameters, given, strict=True):
        parameter.lr_mult = _entry(item, "lr_mult", (int, float))
        parameter.wd_mult = _entry(item, "wd_mult", (int, float))
    optimizer = getattr(our_optimizers, kind)()
    momentum = _entry(settings.get("hyperparameters"), "momentum", (int, float), optional=True)
    if momentum is not None and hasattr(optimizer, "momentum"):
        optimizer.momentum = momentum  # whether there is a state depends on it
    if hasattr(optimizer, "centered"):
        optimizer.centered = bool(_entry(settings.get("hyperparameters"), "centered", bool, optional=True))
    trainer = Trainer(parameters, optimizer)
    kinds = optimizer.state_names()
    arrays: dict[str, np.ndarray] = {}
    for number, parameter in enumerate(parameters):
        for place, state in enumerate(kinds):
            name = f"{optimizers.PREFIX}{parameter.name}.{state}"
            array = update.arrays.get(name)
            if array is None:
                raise OnnxError(f"the algorithm has no initializer {name!r}")
            arrays[str(number) if len(kinds) == 1 else f"{number}.{place}"] = stored_state(optimizer, array)
    try:
        trainer.set_states({**settings, "scheduler": None, "amp": None}, arrays)
    except HybridLabError as error:
        raise OnnxError(f"the optimizer's states do not fit its settings: {error}") from None
    _compare(update, trainer, parameters)
    return trainer


def _entry(item: object, name: str, kind: Any, optional: bool = False) -> Any:
    found = item.get(name) if isinstance(item, Mapping) else None
    wrong = isinstance(found, bool) and kind is not bool
    if (found is None and optional) or (isinstance(found, kind) and not wrong):
        return found
    raise OnnxError(f"the file's metadata have no {name!r} of a parameter, or one that makes no sense")


# -- files of ours ---------------------------------------------------------------------------------------------------


def _compare(update: Update, trainer: Trainer, parameters: Sequence[Parameter]) -> None:
    """Raise OnnxError if the nodes differ from the nodes that the Trainer would be written as; take over the counts."""
    optimizer = trainer.optimizer
    weights = [
        Weight(
            parameter.name, parameter.shape or (), np.dtype(parameter.dtype), *optimizer.settings_of(number),
            [np.zeros(parameter.shape or (), parameter.dtype) for _ in optimizer.state_names()],
        )
        for number, parameter in enumerate(parameters)
    ]  # fmt: skip
    wrong = [weight.name for weight in weights if update.gradients[weight.name] != weight.gradient]
    if wrong:
        raise OnnxError(f"the gradient of {wrong[0]!r} has another name than the file's metadata say")
    step = optimizers.written(optimizer, weights, update.opset)
    expected = [_described(node.op_type, getattr(node, "domain", ""), node.inputs, node.outputs, node.attributes)
                for node in step.nodes]  # fmt: skip
    found = [
        _described(
            node.op_type, node.domain, node.input, node.output,
            {item.name: update.file.attribute(item) for item in node.attribute},
        )
        for node in update.nodes
    ]  # fmt: skip
    for one, two in zip([*found, None], [*expected, None], strict=False):
        if one != two:
            raise OnnxError(
                f"the node {(one or two or [''])[0]} is not what {type(optimizer).__name__} is written as, which the "
                "file's metadata name"
            )
    own = {name: update.constants.get(name) for name in step.constants}
    if not all(_same(own[name], array) for name, array in step.constants.items()):
        raise OnnxError("the constants of the algorithm differ from the settings in the file's metadata")
    statistics = {name: new for name, new in update.bindings.items() if name not in step.bindings}
    if statistics or any(update.bindings.get(name) != new for name, new in step.bindings.items()):
        raise OnnxError("update_binding changes other values than the optimizer does")
    if update.arrays.keys() != step.arrays.keys():
        raise OnnxError("the algorithm has other initializers than the optimizer has states")
    _take_counts(update, groups(weights), trainer, step.arrays)


def _described(
    op_type: str, domain: str, inputs: Sequence[str], outputs: Sequence[str], attributes: Attributes
) -> list[Any]:
    """A node as data; numbers as float32, which attributes are."""
    kept = {
        name: float(np.float32(value)) if isinstance(value, float)
        else list(value) if isinstance(value, (tuple, list))
        else value
        for name, value in attributes.items()
    }  # fmt: skip
    return [op_type, domain, list(inputs), list(outputs), kept]


def _same(one: np.ndarray | None, two: np.ndarray) -> bool:
    return one is not None and one.shape == two.shape and one.dtype == two.dtype and np.array_equal(one, two)


def _take_counts(
    update: Update, known: Sequence[WeightGroup], trainer: Trainer, expected: Mapping[str, np.ndarray]
) -> None:
    """The algorithm's own counts: every run since the file was written has counted on."""
    optimizer = trainer.optimizer
    places = {parameter.name: number for number, parameter in enumerate(_parameters(trainer))}
    counted = {group.count: group for group in known}
    for name, array in expected.items():
        own = update.arrays[name]
        if own.shape != array.shape or own.dtype != array.dtype:
            raise OnnxError(f"initializer {name!r}: shape or type differ from the optimizer's")
        group = counted.get(name)
        if group is None:
            if name not in update.bindings and not np.array_equal(own, array):
                raise OnnxError(f"initializer {name!r}: not the number that the file's metadata say")
            continue
        count = int(own) - 1
        if not optimizer.begin_num_update <= count < 2**31:
            raise OnnxError(f"initializer {name!r}: {int(own)} is no number of an update")
        for weight in group.weights:
            optimizer.set_update_count(places[weight.name], count)


def _parameters(trainer: Trainer) -> list[Parameter]:
    from hybrid_lab.gluon import access

    return access.trainer_parameters(trainer)


# -- other files -------------------------------------------------------------------------------------------------------


@dataclass
class _WeightUpdate:
    """The effect of a node of a foreign file on one weight: our optimizer, its settings, rate, states, and the
    count.
    """

    kind: str
    settings: dict[str, float]
    rate: float
    states: list[np.ndarray]
    updates: int


def _foreign(update: Update, parameters: Sequence[Parameter]) -> Trainer:
    weight_updates = _Foreign(update).weight_updates()
    found = [weight_updates.get(parameter.name) for parameter in parameters]
    if any(each is None for each in found):
        name = next(
            parameter.name for parameter, weight_update in zip(parameters, found, strict=True) if weight_update is None
        )
        raise OnnxError(f"the algorithm computes the gradient of {name!r}, and does not update it")
    known = [each for each in found if each is not None]
    first = known[0]
    for parameter, weight_update in zip(parameters, known, strict=True):
        if (weight_update.kind, weight_update.settings) != (first.kind, first.settings):
            raise OnnxError(f"{parameter.name!r} is updated by another rule than {parameters[0].name!r}")
        if first.rate == 0 != weight_update.rate:
            raise OnnxError(f"{parameter.name!r} is updated, and {parameters[0].name!r} has a learning rate of 0")
        parameter.lr_mult = 1.0 if weight_update.rate == first.rate else weight_update.rate / first.rate
    trainer = Trainer(parameters, first.kind, {"learning_rate": first.rate, **first.settings})
    data, _ = trainer.get_states()
    data["counts"] = {str(number): weight_update.updates for number, weight_update in enumerate(known)}
    data["num_update"] = max(weight_update.updates for weight_update in known)
    arrays = {
        str(number) if len(weight_update.states) == 1 else f"{number}.{place}": state
        for number, weight_update in enumerate(known)
        for place, state in enumerate(weight_update.states)
    }
    trainer.set_states(data, arrays)
    return trainer


class _Foreign:
    """Reads the nodes of a file that this package did not write."""

    def __init__(self, update: Update) -> None:
        self.update = update
        self.makers = {name: node for node in update.nodes for name in node.output if name}
        self.weights = {new: name for name, new in update.bindings.items() if name in update.gradients}
        self.of_gradient = {gradient: name for name, gradient in update.gradients.items()}
        self.used: set[int] = set()
        self.bound = dict(update.bindings)

    def weight_updates(self) -> dict[str, _WeightUpdate]:
        """Name of a weight -> its update."""
        found: dict[str, _WeightUpdate] = {}
        forms = {"Adam": self._adam, "Momentum": self._momentum, "Adagrad": self._adagrad}
        for node in self.update.nodes:
            if node.domain == TRAINING and node.op_type in forms:
                self.used.add(id(node))
                attributes = {item.name: self.update.file.attribute(item) for item in node.attribute}
                found.update(forms[node.op_type](node, attributes))
            elif node.op_type == "Sub" and not node.domain and any(name in self.weights for name in node.output):
                found.update(self._descent(node))
        left = [node for node in self.update.nodes if id(node) not in self.used]
        if left:
            raise OnnxError(f"node {left[0].name!r} ({left[0].op_type}): no part of a rule that is known here")
        if self.bound:
            raise OnnxError(f"update_binding: {next(iter(self.bound))!r} changes by no rule that is known here")
        return found

    def _refuse(self, node: NodeProto, reason: str) -> OnnxError:
        return OnnxError(f"node {node.name or next(iter(node.output), '')!r} ({node.op_type}): {reason}")

    def _number(self, node: NodeProto, name: str) -> np.ndarray:
        """A number that training does not change."""
        array = self.update.arrays.get(name, self.update.constants.get(name))
        if array is None or array.size != 1 or name in self.update.bindings:
            raise self._refuse(node, f"{name!r} is no number that stays the same")
        return array

    def _rate(self, node: NodeProto, name: str) -> float:
        array = self._number(node, name)
        return float(str(array.reshape(-1)[0]))

    def _count(self, node: NodeProto, name: str) -> int:
        """The number of the step, which must grow by one."""
        array, new = self.update.arrays.get(name), self.makers.get(self.update.bindings.get(name, ""))
        grows = new is not None and new.op_type == "Add" and not new.domain and name in new.input
        if array is None or array.size != 1 or not grows:
            raise self._refuse(node, f"the step {name!r} is no initializer that grows by one")
        other = [item for item in new.input if item != name] if new is not None else []
        if len(other) != 1 or int(self._number(node, other[0]).reshape(-1)[0]) != 1:
            raise self._refuse(node, f"the step {name!r} does not grow by one")
        self.used.add(id(new))
        self.bound.pop(name, None)
        return int(array.reshape(-1)[0])

    def _operands(self, node: NodeProto, kinds: int) -> list[tuple[str, list[np.ndarray]]]:
        """The weights of a node and their states; each new value must be bound."""
        rest, made = list(node.input[2:]), list(node.output)
        count = len(rest) // kinds
        if not count or len(rest) != count * kinds or len(made) != count * (kinds - 1):
            raise self._refuse(node, f"{len(rest)} operands and {len(made)} results")
        found = []
        for place in range(count):
            weight, gradient, *states = rest[place::count]
            news = made[place::count]
            if self.of_gradient.get(gradient) != weight:
                raise self._refuse(node, f"{gradient!r} is not the gradient of {weight!r}")
            arrays = [self.update.arrays.get(name) for name in states]
            for name, new in zip([weight, *states], news, strict=True):
                if self.bound.pop(name, None) != new:
                    raise self._refuse(node, f"update_binding does not give {name!r} its new value")
            if any(array is None for array in arrays):
                raise self._refuse(node, f"a state of {weight!r} is no initializer of the algorithm")
            found.append((weight, [array for array in arrays if array is not None]))
        return found

    def _adam(self, node: NodeProto, attributes: Attributes) -> dict[str, _WeightUpdate]:
        rate, count = self._rate(node, node.input[0]), self._count(node, node.input[1])
        if attributes.get("norm_coefficient_post"):
            raise self._refuse(node, "our Adam has no norm_coefficient_post")
        if count < 1:
            raise self._refuse(node, "its step begins at 0, without the correction for the moments' start at zero")
        settings = {
            "beta1": attributes.get("alpha", 0.9), "beta2": attributes.get("beta", 0.999),
            "epsilon": attributes.get("epsilon", 1e-6), "wd": attributes.get("norm_coefficient", 0.0),
        }  # fmt: skip
        return {
            name: _WeightUpdate("adam", settings, rate, states, count - 1) for name, states in self._operands(node, 4)
        }

    def _momentum(self, node: NodeProto, attributes: Attributes) -> dict[str, _WeightUpdate]:
        rate, count = self._rate(node, node.input[0]), self._count(node, node.input[1])
        beta, decay, mode = (attributes.get(name) for name in ("beta", "norm_coefficient", "mode"))
        if mode not in ("standard", "nesterov") or not isinstance(beta, float) or not isinstance(decay, float):
            raise self._refuse(node, "an attribute is missing")
        if count < 1 and beta != 1:
            raise self._refuse(node, f"its first step takes the gradient whole, and later ones by {beta:g}")
        if mode == "nesterov" and (beta != 1 or decay):
            raise self._refuse(node, "our NAG has beta=1, and keeps its decay in another way")
        settings = {"momentum": attributes.get("alpha", 0.0), "wd": decay}
        kind = "sgd" if mode == "standard" else "nag"
        # Our momentum has the learning rate in it, with the opposite sign.
        return {
            name: _WeightUpdate(
                kind, settings, rate * beta, [states[0] * states[0].dtype.type(-rate)], max(count - 1, 0)
            )
            for name, states in self._operands(node, 3)
        }

    def _adagrad(self, node: NodeProto, attributes: Attributes) -> dict[str, _WeightUpdate]:
        rate, count = self._rate(node, node.input[0]), self._count(node, node.input[1])
        if attributes.get("epsilon", 1e-6) or attributes.get("decay_factor") or attributes.get("norm_coefficient"):
            raise self._refuse(node, "our AdaGrad has its epsilon inside the root, and decay apart from the gradient")
        return {
            name: _WeightUpdate("adagrad", {"eps": 0.0}, rate, states, max(count - 1, 0))
            for name, states in self._operands(node, 3)
        }

    def _descent(self, node: NodeProto) -> dict[str, _WeightUpdate]:
        """Sub(weight, Mul(rate, gradient))"""
        new = node.output[0]
        weight = self.weights[new]
        product = self.makers.get(node.input[1])
        if node.input[0] != weight or product is None or product.op_type != "Mul" or product.domain:
            raise self._refuse(node, f"not {weight!r} less a rate by its gradient")
        gradient = self.update.gradients[weight]
        rates = [name for name in product.input if name != gradient]
        if len(rates) != 1 or len(product.input) != 2:
            raise self._refuse(product, f"not a rate by the gradient of {weight!r}")
        self.used |= {id(node), id(product)}
        self.bound.pop(weight)
        return {weight: _WeightUpdate("sgd", {}, self._rate(product, rates[0]), [], 0)}
