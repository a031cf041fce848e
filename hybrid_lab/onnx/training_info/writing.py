"""The training information of an exported model: how its parameters begin, and one step of its training.

The algorithm is added to the network's own graph. It has the network in training mode if that differs from prediction,
the loss, ONNX's operator `Gradient`, and the optimizer's nodes. One run of it, with the bindings, is

    with autograd.record():
        loss = loss_function(net(data), label)
    loss.backward()
    trainer.step(loss.size)

`Gradient` names the value whose derivative it is, so that a reader knows the trained loss, and can derive it himself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from hybrid_lab.diagnostics.errors import HybridLabError, MissingGraphError, SettingError, Unmappable
from hybrid_lab.diagnostics.formatting import count
from hybrid_lab.gluon import access
from hybrid_lab.gluon.hybrid import HybridBlock
from hybrid_lab.gluon.loss import SoftmaxCrossEntropyLoss
from hybrid_lab.gluon.parameter import Parameter
from hybrid_lab.gluon.trainer import Trainer
from hybrid_lab.graph.builder import make_node
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Node, Value
from hybrid_lab.graph.passes.bind_mode import channels_first, lowered_by_shapes
from hybrid_lab.graph.passes.infer import infer as inferred_graph
from hybrid_lab.hybridize.neutral import NeutralGraph
from hybrid_lab.hybridize.structure import LEAF, Spec
from hybrid_lab.ndarray import NDArray
from hybrid_lab.ndarray.context import resolve
from hybrid_lab.ndarray.tape import Mode
from hybrid_lab.ops.framework.dtypes import dtype_of
from hybrid_lab.ops.framework.onnx_emit import OnnxNode
from hybrid_lab.ops.framework.sizes import NeedsNumber, Size, SymbolicSize
from hybrid_lab.optimizer.adaptive import AdaGrad
from hybrid_lab.optimizer.optimizer import Optimizer

from ..writing import batch_norm
from ..writing.asked import asked_of
from ..writing.emitter import FileEmitter
from ..writing.network import Body, Network, NetworkWriter, pruned, unused
from ..writing.nodes import Tensor, TrainingNode
from . import initial_values, optimizers
from .optimizers import PREFIX, OptimizerStep, Weight

if TYPE_CHECKING:
    from numpy.typing import DTypeLike


@dataclass
class Settings:
    """What `mx.onnx.export(..., training=True)` was given. label : its shape or an array; None for the last call's"""

    loss: HybridBlock
    trainer: Trainer
    label: object = None


@dataclass
class Training:
    """The training information of a file.

    initialization, algorithm : the two graphs; their arrays and inputs are beside them
    inputs : of the algorithm, without the network's; outputs : of the algorithm
    gradients : types of the gradients, which ONNX's schema does not tell
    arrays : name -> array, the initializers of the algorithm
    first_values, bindings : name of an initializer -> the name of its first value, of its new value
    metadata : further data for a reader, for JSON; notes : parts that could not be written
    """

    initialization: Body
    algorithm: Body
    inputs: list[Tensor]
    outputs: list[Tensor]
    first_outputs: list[Tensor]
    gradients: list[Tensor]
    arrays: Mapping[str, np.ndarray]
    first_values: Mapping[str, str]
    bindings: Mapping[str, str]
    metadata: Mapping[str, object]
    notes: tuple[str, ...]


def settings_of(training: bool, loss: object, trainer: object, label: object) -> Settings | None:
    """The checked arguments of `mx.onnx.export`; None without training."""
    if not training:
        given = [name for name, item in (("loss", loss), ("trainer", trainer), ("label", label)) if item is not None]
        if given:
            raise SettingError(f"{given[0]}= is part of the training information; give training=True with it")
        return None
    if not isinstance(loss, HybridBlock) or not isinstance(trainer, Trainer):
        raise SettingError(
            "training=True needs what the network is trained with: loss=, a HybridBlock such as "
            "gluon.loss.SoftmaxCrossEntropyLoss(), and trainer=, a gluon.Trainer"
        )
    if access.parameters_by_path(loss):
        raise HybridLabError(f"{loss.name}: a loss with parameters of its own cannot be exported")
    return Settings(loss, trainer, label)


def training_of(
    settings: Settings, net: HybridBlock, neutral: NeutralGraph, network: Network, inputs: Sequence[str],
    parameters: Sequence[str], outputs: Sequence[str],
) -> Training:  # fmt: skip
    """The training information for a network that was written.

    neutral : the graph that it was written from; inputs, parameters, outputs : names of the graph's values
    Raises Unmappable and HybridLabError for what ONNX cannot say.
    """
    try:
        return _Writing(settings, net, neutral, network, inputs, parameters, outputs).training()
    except NeedsNumber as error:
        raise HybridLabError(
            f"the training information needs a size as a number that the file leaves open ({error}); give the shapes "
            "of the inputs as numbers, inputs=(32, 10)"
        ) from None


class _Writing:
    def __init__(
        self, settings: Settings, net: HybridBlock, neutral: NeutralGraph, network: Network, inputs: Sequence[str],
        parameters: Sequence[str], outputs: Sequence[str],
    ) -> None:  # fmt: skip
        self.settings, self.net, self.neutral, self.network = settings, net, neutral, network
        self.inputs, self.outputs = inputs, outputs
        self.owners = dict(zip(parameters, neutral.parameters, strict=True))
        self.emitter = FileEmitter(network.opset)
        self.emitter.prefix = PREFIX
        self.bindings: dict[str, str] = {}

    def training(self) -> Training:
        weights, data = self._weights()
        predictions = self._predictions()
        labels, loss = self._loss(predictions)
        step = optimizers.written(self.settings.trainer.optimizer, weights, self.network.opset)
        self._add_gradient(weights, [*self.inputs, *(label[0] for label in labels)], loss)
        for node in step.nodes:
            self.emitter.nodes.append(node)
            self.emitter.operators.append(None)
        self.emitter.initializers.update(step.constants)
        self.bindings.update(step.bindings)
        for name, array in step.arrays.items():
            self.emitter.declare(name, array.shape, array.dtype)
        news = list(self.bindings.values())
        algorithm = pruned("", tuple(label[0] for label in labels), (loss, *news), self.emitter)
        outputs: list[Tensor] = [(loss, (), self.emitter.dtype(loss))]
        for name, new in self.bindings.items():
            if name in step.arrays:
                outputs.append((new, step.arrays[name].shape, step.arrays[name].dtype))
            else:
                outputs.append((new, self.owners[name].shape or (), np.dtype(self.owners[name].dtype)))
        first, first_outputs, first_values, notes = self._initialization(step)
        metadata = {
            "version": 1,
            "trainer": data,
            "outputs": dict(zip(self.outputs, predictions, strict=True)),
        }  # fmt: skip
        gradients = [(weight.gradient, weight.shape, weight.dtype) for weight in weights]
        return Training(
            first, algorithm, labels, outputs, first_outputs, gradients, step.arrays, first_values,
            self.bindings, metadata, notes,
        )  # fmt: skip

    # -- the network and the loss ------------------------------------------------------------------------------

    def _predictions(self) -> list[str]:
        """The names of the network's outputs in training: the same as in prediction if nothing differs."""
        neutral = self.neutral
        if neutral.bound or neutral.observation.training is not None or neutral.observation.recording is not None:
            raise HybridLabError(
                f"{self.net.name}: its code asks whether it is training, so that prediction and training are two "
                "networks; training information is written for networks of which only operators such as Dropout differ"
            )
        values = self.network.graph.inputs
        names = [*self.inputs, *self.owners]
        graph = _typed(neutral.graph, [(value.shape, value.dtype) for value in values])
        if not any(map(_differs, graph.operators)):
            return list(self.outputs)
        graph = graph.map(_bound_where_equal)
        writer = NetworkWriter(graph, names, len(self.inputs), self.network.opset)
        known = dict(writer.names)
        for value, name in known.items():
            self.emitter.declare(name, value.shape, value.dtype)
        states: set[Value] = set()
        for node in graph.operators:
            if not _differs(node):
                writer.emit_node(self.emitter, node, known)
            elif node.op.name == "BatchNorm":
                states.update(self._emit_batch_norm(node, known))
            elif node.op.name == "Dropout":
                self._emit_dropout(node, known)
            else:
                raise Unmappable(f"{node.op.name}: ONNX has no operator for what it does in training")
        self.bindings.update({writer.names[value]: known[value] for value in graph.inputs if value in states})
        return [self.emitter.Identity(self.emitter.operand(value, known)) for value in graph.outputs]

    def _emit_batch_norm(self, node: Node, known: dict[Value, str]) -> list[Value]:
        """BatchNorm of the batch's own statistics; returns the states, whose names in `known` are the new names
        then.
        """
        g, op = self.emitter, cast(Any, node.op)
        if op.output_mean_var:
            raise Unmappable("BatchNorm with output_mean_var in training: ONNX does not return the batch's statistics")
        data, gamma, beta, mean, var = (self.emitter.operand(item, known) for item in node.inputs)
        if op.fix_gamma:
            gamma = g.const(np.ones(g.shape(beta)), g.dtype(beta))
        first = len(g.nodes)
        joined = batch_norm.joined(g, data, op.axis)
        y, new_mean, new_var = g.BatchNormalization(
            joined, gamma, beta, mean, var, outputs=3, epsilon=op.eps, momentum=op.momentum, training_mode=1
        )
        y = batch_norm.restored(g, g.declare(y, g.shape(joined), g.dtype(data)), data)
        states = [item for item in node.inputs[3:] if isinstance(item, Value)]
        for value, name in zip([node.outputs[0], *states], [y, new_mean, new_var], strict=True):
            known[value] = g.declare(name, value.shape, value.dtype)
        g.operators[first:] = [node] * (len(g.nodes) - first)
        return [value for value in states if value.is_input]

    def _emit_dropout(self, node: Node, known: dict[Value, str]) -> None:
        g, op = self.emitter, cast(Any, node.op)
        if op.axes:
            raise Unmappable("Dropout with axes in training: ONNX' Dropout draws for each element")
        data = g.operand(node.inputs[0], known)
        y = g.Dropout(data, g.const(op.p, g.dtype(data)), g.const(True, "bool"))
        g.operators[-1] = node
        known[node.outputs[0]] = g.declare(y, node.outputs[0].shape, node.outputs[0].dtype)

    def _loss(self, predictions: Sequence[str]) -> tuple[list[Tensor], str]:
        """The labels, and the name of the mean of the losses."""
        g, loss = self.emitter, self.settings.loss
        values = self.network.graph.outputs
        spec, known = self._call_of_loss([(value.shape, value.dtype) for value in values])
        leaves = [
            NDArray.from_host(np.broadcast_to(np.zeros((), dtype_of(dtype)), _hints(shape)), resolve(None))
            for shape, dtype in known
        ]
        with Mode(True, True):
            neutral = access.calls(loss).twin(traces=True).neutral(spec, leaves)
        for name, value in zip(predictions, values, strict=True):
            g.declare(name, value.shape, value.dtype)
        number = len(known) - len(values)
        taken = {*self.inputs, *self.outputs, *self.owners}
        names = [unused(f"label{place if number > 1 else ''}", taken) for place in range(number)]
        mean = unused("loss", taken)
        labels = [
            (name, shape, dtype_of(dtype)) for name, (shape, dtype) in zip(names, known[len(values) :], strict=True)
        ]
        for name, shape, dtype in labels:
            g.declare(name, shape, dtype)
        own = self._own_operator(loss, predictions, labels)
        if own is not None:
            g.nodes[-1] = g.nodes[-1]._replace(outputs=(mean,))
            return labels, g.declare(mean, (), g.dtype(predictions[0]))
        graph = _typed(neutral.graph, [(shape, dtype_of(dtype)) for shape, dtype in known])
        if len(graph.outputs) != 1:
            raise HybridLabError(f"{loss.name} returns {count(len(graph.outputs), 'tensor')}; a loss is one tensor")
        writer = NetworkWriter(graph, [*predictions, *names], len(known), self.network.opset)
        places = dict(writer.names)
        for node in graph.operators:
            writer.emit_node(g, node, places)
        each = g.operand(graph.outputs[0], places)
        g.nodes.append(OnnxNode("ReduceMean", (each,), (mean,), {"keepdims": 0}, f"{PREFIX}mean"))
        g.operators.append(None)
        return labels, g.declare(mean, (), graph.outputs[0].dtype)

    def _call_of_loss(self, outputs: Sequence[tuple[Any, Any]]) -> tuple[Spec, list[tuple[Any, Any]]]:
        """Structure and types of the loss's arguments: the network's outputs, and labels with the same open sizes."""
        loss, label = self.settings.loss, self.settings.label
        if label is not None:
            (described,) = asked_of(loss, label).inputs
            types = [(_hints(shape), dtype) for shape, dtype in outputs]
            spec: Spec = ("tuple", (LEAF,) * (len(outputs) + 1))
            called = [*types, (described.sizes, described.dtype)]
        else:
            try:
                asked = asked_of(loss, None)
            except MissingGraphError:
                raise MissingGraphError(
                    f"{loss.name} was never called, so the shape of the labels is not known; call it once, or pass "
                    "label="
                ) from None
            spec, called = asked.spec, [(item.sizes, item.dtype) for item in asked.inputs]
        number = len(outputs)
        same = len(called) > number and all(
            len(one[0]) == len(two[0]) and dtype_of(one[1]) == dtype_of(two[1])
            for one, two in zip(called, outputs, strict=False)
        )
        if not same:
            raise HybridLabError(
                f"{loss.name} is called with other tensors than the outputs of {self.net.name} and labels; put what is "
                "between them into a HybridBlock"
            )
        open_sizes = {
            (axis, size): outputs[0][0][axis] for axis, size in enumerate(called[0][0])
        }  # the labels have the batch of the first output
        labels = [
            (tuple(open_sizes.get((axis, size), size) for axis, size in enumerate(shape)), dtype)
            for shape, dtype in called[number:]
        ]
        return spec, [*outputs, *labels]

    def _own_operator(self, loss: HybridBlock, predictions: Sequence[str], labels: Sequence[Tensor]) -> str | None:
        """The loss by ONNX's own operator, or None if it has none."""
        g = self.emitter
        if type(loss) is not SoftmaxCrossEntropyLoss or len(predictions) != 1 or len(labels) != 1:
            return None
        rank = len(g.shape(predictions[0]))
        settings = access.settings(loss)
        usual = settings["_sparse_label"] and settings["_weight"] in (None, 1) and settings["_batch_axis"] == 0
        if not usual or rank < 2 or settings["_axis"] % rank != 1 or len(labels[0][1]) != rank - 1:
            return None
        label, dtype = labels[0][0], labels[0][2]
        label = label if dtype in (np.int32, np.int64) else g.cast(label, "int64")
        form = g.NegativeLogLikelihoodLoss if settings["_from_logits"] else g.SoftmaxCrossEntropyLoss
        return str(form(predictions[0], label, reduction="mean"))

    # -- gradients and the optimizer ---------------------------------------------------------------------------

    def _weights(self) -> tuple[list[Weight], dict[str, Any]]:
        """The weights that the optimizer updates, and the trainer's settings and counters as a reader restores them."""
        trainer, optimizer = self.settings.trainer, self.settings.trainer.optimizer
        _refuse(trainer)
        data, arrays = trainer.get_states()
        names = {id(parameter): name for name, parameter in self.owners.items()}
        weights: list[Weight] = []
        for number, parameter in enumerate(access.trainer_parameters(trainer)):
            if parameter.grad_req == "null":
                continue
            if parameter.grad_req == "add":
                raise HybridLabError(f"{parameter.name}: grad_req='add'; gradients that add up over calls are no step")
            name = names.get(id(parameter))
            if name is None:
                raise HybridLabError(
                    f"the trainer updates {parameter.name}, which the network does not read; make the trainer of the "
                    "parameters of the network that is exported"
                )
            kinds = optimizer.state_names()
            shape, dtype = tuple(parameter.shape or ()), np.dtype(parameter.dtype)
            found = _states_of(arrays, number, len(kinds))
            if found and len(found) != len(kinds):
                raise HybridLabError(f"{parameter.name}: the optimizer's states are of another kind than its settings")
            lr, wd, _ = optimizer.settings_of(number)
            _refuse_rows(optimizer, parameter, wd)
            weights.append(Weight(
                name, shape, dtype, lr, wd, data["counts"].get(str(number), optimizer.begin_num_update),
                found or [np.zeros(shape, dtype) for _ in kinds],
            ))  # fmt: skip
        if not weights:
            raise HybridLabError("the trainer updates no parameter of the network")
        owners = [self.owners[weight.name] for weight in weights]
        data["hyperparameters"]["rescale_grad"] = 1.0
        data["counts"] = {str(place): weight.updates for place, weight in enumerate(weights)}
        data["parameters"] = [
            {"name": weight.name, "shape": list(weight.shape), "lr_mult": owner.lr_mult, "wd_mult": owner.wd_mult}
            for weight, owner in zip(weights, owners, strict=True)
        ]
        return weights, data

    def _add_gradient(self, weights: Sequence[Weight], others: Sequence[str], loss: str) -> None:
        """Gradient: of the loss, by the weights. Its other sources are inputs, and fixed parameters."""
        trained = [weight.name for weight in weights]
        read = {name for node in (*self.network.body.nodes, *self.emitter.nodes) for name in node.inputs}
        fixed = [name for name in (*others, *self.owners) if name in read and name not in trained]
        self.emitter.nodes.append(TrainingNode(
            "Gradient", (*trained, *fixed), tuple(weight.gradient for weight in weights),
            {"xs": trained, "zs": fixed, "y": loss}, f"{PREFIX}gradients",
        ))  # fmt: skip
        self.emitter.operators.append(None)

    # -- first values ------------------------------------------------------------------------------------------

    def _initialization(self, step: OptimizerStep) -> tuple[Body, list[Tensor], dict[str, str], tuple[str, ...]]:
        """The graph of first values, its outputs and bindings, and a note about parameters without."""
        nodes, constants, values = [], dict[str, np.ndarray](), dict[str, str]()
        outputs: list[Tensor] = []
        unknown: list[str] = []

        def add(
            name: str, node: OnnxNode, arrays: Mapping[str, np.ndarray], shape: Sequence[Size] | None, dtype: DTypeLike
        ) -> None:
            nodes.append(node)
            constants.update(arrays)
            values[name] = node.outputs[0]
            outputs.append((node.outputs[0], tuple(shape or ()), np.dtype(dtype)))

        read = {name for node in (*self.network.body.nodes, *self.emitter.nodes) for name in node.inputs}
        for name, parameter in self.owners.items():
            made = initial_values.written(parameter, f"{PREFIX}{name}.first") if name in read else None
            if made is not None:
                add(name, *made, parameter.shape, parameter.dtype)
            elif name in read:
                unknown.append(name)
        for name, array in step.start.items():
            add(name, *initial_values.constant(array, f"{name}.first"), array.shape, array.dtype)
        notes: tuple[str, ...] = ()
        if unknown:
            notes = (
                f"the first values of {', '.join(unknown[:3])}{' ...' if len(unknown) > 3 else ''} are not in the "
                "initialization graph: they were loaded, or come from an initializer that ONNX has no operators for",
            )
        names = tuple(output[0] for output in outputs)
        return Body("", (), names, tuple(nodes), constants, (None,) * len(nodes)), outputs, values, notes


def _hints(shape: Sequence[Size]) -> tuple[int, ...]:
    """A shape in numbers, from the call."""
    return tuple(size.hint if isinstance(size, SymbolicSize) else int(size) for size in shape)


def _typed(graph: Graph, types: Sequence[tuple[Any, np.dtype]]) -> Graph:
    """The graph for inputs of these types, with channels first, which is what ONNX has operators for."""
    shapes, dtypes = ([pair[place] for pair in types] for place in (0, 1))
    inferred = inferred_graph(
        graph, dict(zip(graph.inputs, shapes, strict=True)), dict(zip(graph.inputs, dtypes, strict=True))
    )
    return channels_first(lowered_by_shapes(inferred))


def _differs(node: Node) -> bool:
    """Whether an operator computes otherwise in training than in prediction."""
    op: Any = node.op
    if not op.mode_dependent:
        return False
    if op.name == "BatchNorm":
        return not op.use_global_stats
    if op.name in ("RNN", "Dropout"):
        return op.p > 0 and getattr(op, "mode", "") != "always"
    return bool(op.bind_mode(True) != op.bind_mode(False))


def _bound_where_equal(node: Node, inputs: tuple[object, ...]) -> Sequence[Value] | None:
    """Operators that have modes and compute the same in both, as in prediction."""
    if not node.op.mode_dependent or _differs(node):
        return None
    op = node.op.bind_mode(False)
    return make_node(op, inputs[: len(op.signature.inputs)] if not op.variadic else inputs, origin=node).outputs


def _states_of(arrays: Mapping[str, np.ndarray], number: int, kinds: int) -> list[np.ndarray]:
    """The arrays of one weight, in order."""
    whole = [arrays[f"{number}"]] if f"{number}" in arrays else []
    return whole or [arrays[f"{number}.{place}"] for place in range(kinds) if f"{number}.{place}" in arrays]


def _refuse(trainer: Trainer) -> None:
    """Raise HybridLabError for settings that no step in a file can have."""
    optimizer = trainer.optimizer
    reasons = {
        "its learning rate follows an lr_scheduler, which ONNX has no form for": optimizer.lr_scheduler is not None,
        "multi_precision=True keeps float32 copies of weights, which ONNX's optimizers do not": (
            optimizer.multi_precision
        ),
        "it scales the loss (contrib.amp), which depends on the steps before": access.scales_loss(trainer),
        "rescale_grad multiplies the gradients; leave it at 1 and give step() the batch size": (
            access.own_scale(trainer) != 1
        ),
    }
    for reason, applies in reasons.items():
        if applies:
            raise HybridLabError(f"the trainer cannot be written to a file: {reason}")


def _refuse_rows(optimizer: Optimizer, parameter: Parameter, wd: float) -> None:
    """Raise HybridLabError if a file's step would change rows of a weight that the trainer's step does not change.

    Rows without a gradient change by weight decay, and by states that change without one; AdaGrad's do not.
    """
    lazy = access.gradient_stype(parameter) == "row_sparse" and optimizer.updates_rows(parameter.list_data()[0])
    if lazy and (wd != 0 or (optimizer.state_names() and not isinstance(optimizer, AdaGrad))):
        raise HybridLabError(
            f"the trainer cannot be written to a file: the gradient of {parameter.name} is row_sparse, of which "
            f"{type(optimizer).__name__} updates the stored rows only; ONNX's optimizers update all rows. Give the "
            "parameter a dense gradient (sparse_grad=False), or SGD and Adam lazy_update=False"
        )
