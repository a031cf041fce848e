"""Training information of ONNX files, read: the network, its loss, and a Trainer that goes on where the file stands.

A file says how a network is trained by a second graph, the algorithm: loss, `Gradient`, optimizer. It is read if it
means what `record`, `backward` and `step` do; a file whose algorithm does anything else is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hybrid_lab import initializer, ops
from hybrid_lab.diagnostics.errors import HybridLabError
from hybrid_lab.diagnostics.file_errors import FileError
from hybrid_lab.gluon.hybrid import HybridBlock
from hybrid_lab.gluon.loss import SoftmaxCrossEntropyLoss
from hybrid_lab.gluon.trainer import Trainer
from hybrid_lab.graph.equal import equal
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Node, Value
from hybrid_lab.ndarray.context import Context
from hybrid_lab.onnx.errors import OnnxError
from hybrid_lab.onnx.reading.block import ImportedGraph
from hybrid_lab.onnx.reading.compose import Composed, compose, name_file
from hybrid_lab.onnx.reading.importers.functions import Attributes
from hybrid_lab.onnx.reading.model_file import OnnxFile, check_names
from hybrid_lab.onnx.training_info import initial_values
from hybrid_lab.onnx.training_info.read_optimizers import Update, read_optimizer
from hybrid_lab.onnx.writing.exporting import TRAINING_METADATA
from hybrid_lab.onnx.writing.nodes import TRAINING
from hybrid_lab.system.progress import shows_work

if TYPE_CHECKING:
    from onnx import NodeProto, StringStringEntryProto

_MOST_METADATA = 16 << 20
"""Bytes of the settings of a Trainer with some hundred thousand parameters."""


class Training(NamedTuple):
    """The training information of a file. One step of it is

        with autograd.record():
            loss = training.loss(training.net(data), label)
        loss.backward()
        training.trainer.step(loss.size)

    net : the network; loss : of its outputs and the labels; trainer : of the parameters that the algorithm updates
    """

    net: HybridBlock
    loss: HybridBlock
    trainer: Trainer


@shows_work("importing")
def imports_training(
    path: str | PathLike[str], ctx: Context | Sequence[Context] | None = None, *,
    shapes: Mapping[str, Sequence[int | None]] | None = None, values: Mapping[str, object] | None = None,
) -> Training:  # fmt: skip
    """The model in an ONNX file with its training information: (net, loss, trainer), which train on where the file
    stands. `mx.onnx.export(..., training=True)` writes such files.

    path, ctx, shapes, values : as of `imports`. Each parameter's `init` is the initializer that the file gives for it.
    Raises OnnxError for a file without training information, or with some that is no `backward` and `step`.
    """
    try:
        return _Reader(OnnxFile(path), ctx, shapes, values).training()
    except OnnxError as error:
        name_file(error, path)
        raise
    except FileError:
        raise
    except HybridLabError as error:
        raise OnnxError(f"the training information cannot be used: {error} ({path!s})") from error


class _Reader:
    """Reads the training information of one file.

    nodes : of the algorithm; makers : name -> the node of the algorithm that computes it
    bindings : name of an initializer -> the name of its new value
    """

    def __init__(
        self, file: OnnxFile, ctx: Context | Sequence[Context] | None,
        shapes: Mapping[str, Sequence[int | None]] | None, values: Mapping[str, object] | None,
    ) -> None:  # fmt: skip
        self.file, self.ctx, self.shapes, self.values = file, ctx, shapes, values
        number = len(file.model.training_info)
        if number != 1:
            many = "no training information" if not number else f"{number} parts of training information, not one"
            raise OnnxError(f"the file has {many}; mx.onnx.imports reads the network alone")
        (info,) = file.model.training_info
        self.graph, self.algorithm, self.initialization = file.model.graph, info.algorithm, info.initialization
        self.nodes = list(self.algorithm.node)
        self.makers = {name: node for node in self.nodes for name in node.output if name}
        self.bindings = _pairs(info.update_binding, "update_binding")
        self.first_values = _pairs(info.initialization_binding, "initialization_binding")
        if self.algorithm.sparse_initializer or self.initialization.input:
            raise OnnxError("sparse initializers of the algorithm, and inputs of the initialization, are not supported")
        self.arrays = self._arrays()
        self._check()
        self.metadata = self._metadata()

    def _arrays(self) -> dict[str, np.ndarray]:
        """The initializers of the algorithm."""
        found: dict[str, np.ndarray] = {}
        for tensor in self.algorithm.initializer:
            if tensor.name in found:
                raise OnnxError(f"the initializer {tensor.name!r} appears twice")
            found[tensor.name] = self.file.array(tensor, f"initializer {tensor.name!r}")[0]
        return found

    def _check(self) -> None:
        """Raise OnnxError if the network and the algorithm together are no sound graph."""
        own = {item.name for item in self.graph.initializer}
        known = {*own, *(item.name for item in self.graph.input)}
        computed = {name for node in self.graph.node for name in node.output}
        for name in (*self.arrays, *(item.name for item in self.algorithm.input)):
            if name in known or name in computed:
                raise OnnxError(f"the network and the algorithm both have the name {name!r}")
            known.add(name)
        check_names(self.nodes, known | computed, "the algorithm")
        outputs = {item.name for item in (*self.algorithm.output, *self.graph.output)}
        for key, value in self.bindings.items():
            if key not in own and key not in self.arrays:
                raise OnnxError(f"update_binding: {key!r} is no initializer")
            if value not in outputs:
                raise OnnxError(f"update_binding: {value!r} is no output of the algorithm")
        for key in self.first_values:
            if key not in own and key not in self.arrays:
                raise OnnxError(f"initialization_binding: {key!r} is no initializer")

    def _metadata(self) -> dict[str, Any]:
        text = next((item.value for item in self.file.model.metadata_props if item.key == TRAINING_METADATA), None)
        if text is None:
            return {}
        try:
            data = json.loads(text) if len(text) <= _MOST_METADATA else None
        except (ValueError, RecursionError):
            data = None
        kinds = {"trainer": dict, "outputs": dict}
        if not isinstance(data, dict) or not all(isinstance(data.get(key), kind) for key, kind in kinds.items()):
            raise OnnxError(f"the file's metadata {TRAINING_METADATA!r} are damaged")
        if data.get("version") != 1:
            raise OnnxError(f"the file's training information has the version {data.get('version')!r:.40}, 1 is known")
        return data

    # -- parts -------------------------------------------------------------------------------------------------

    def training(self) -> Training:
        gradient = self._gradient()
        target = _text(self.file, gradient, "y")
        predictions = self._predictions()
        forward = self._needed(predictions)
        of_loss = self._needed([target], set(predictions))
        net = self._net(predictions, forward)
        loss = self._loss(predictions, of_loss, target)
        update = self._update(gradient, [*forward, *of_loss, gradient])
        statistics = self._statistics(forward)
        for name, value in statistics.items():
            if update.bindings.pop(name, None) != value:
                raise OnnxError(f"the running statistic {name!r} does not follow the batches as BatchNorm's does")
        trainer = self._trainer(net, update)
        self._initialize(net)
        return Training(net, loss, trainer)

    def _needed(self, wanted: Iterable[str], known: Iterable[str] = ()) -> list[NodeProto]:
        """The nodes of the algorithm that compute these values from the network's and from `known`, in order."""
        left = list(wanted)
        found: dict[int, NodeProto] = {}
        seen = set(known)
        while left:
            name = left.pop()
            node = self.makers.get(name)
            if name in seen or node is None:
                continue
            seen.add(name)
            if node.domain == TRAINING:
                raise OnnxError(f"node {node.name!r} ({node.op_type}): the loss depends on what it computes")
            found[id(node)] = node
            left += node.input
            left += [name for item in node.attribute for inner in item.g.node for name in inner.input]
        return [node for node in self.nodes if id(node) in found]

    def _gradient(self) -> NodeProto:
        found = [node for node in self.nodes if node.op_type == "Gradient" and node.domain == TRAINING]
        if len(found) != 1:
            raise OnnxError(f"the algorithm has {len(found)} nodes of the operator Gradient; one is read")
        (gradient,) = found
        names = (*_texts(self.file, gradient, "xs"), *_texts(self.file, gradient, "zs"))
        if tuple(gradient.input) != names:
            raise OnnxError(f"node {gradient.name!r} (Gradient): derivatives at other values than its xs and zs")
        return gradient

    def _predictions(self) -> list[str]:
        """The names of the network's outputs in the algorithm."""
        outputs = [item.name for item in self.graph.output]
        named = self.metadata.get("outputs", {})
        return [str(named.get(name, name)) for name in outputs]

    def _net(self, predictions: Sequence[str], forward: Sequence[NodeProto]) -> HybridBlock:
        if not forward:
            unknown = [name for name in predictions if name not in {item.name for item in self.graph.output}]
            if unknown:
                raise OnnxError(f"the algorithm does not compute {unknown[0]!r}")
            return ImportedGraph(compose(self.file, self.shapes, self.values), self.ctx)
        predicting = compose(self.file, self.shapes, self.values, by_nodes=True)
        self.graph.node.extend(forward)
        for item, name in zip(self.graph.output, predictions, strict=True):
            item.name = name
        training = compose(self.file, self.shapes, self.values, training=True)
        if not equal(_comparable(predicting, predicting), _comparable(training, predicting)):
            raise OnnxError("the algorithm trains another network than the one that predicts")
        return ImportedGraph(training, self.ctx)

    def _loss(self, predictions: Sequence[str], nodes: Sequence[NodeProto], target: str) -> HybridBlock:
        """The Block of the loss: its inputs are the network's outputs and the algorithm's."""
        own = self._own_loss(predictions, target)
        if own is not None:
            return own
        if not nodes:
            raise OnnxError(f"the loss {target!r} is no value that the algorithm computes")
        last = self.makers[target]
        attributes = {item.name: self.file.attribute(item) for item in last.attribute}
        if last.op_type == "ReduceMean" and not last.domain and attributes == {"keepdims": 0} and len(last.input) == 1:
            # The mean over the samples is what step(loss.size) divides by.
            (target,) = last.input
            nodes = [node for node in nodes if node is not last]
        import onnx

        model = onnx.ModelProto(ir_version=self.file.model.ir_version)
        model.opset_import.extend(self.file.model.opset_import)
        model.functions.extend(self.file.model.functions)
        model.graph.name = "loss"
        model.graph.node.extend(nodes)
        model.graph.output.add(name=target)
        for item, name in zip(self.graph.output, predictions, strict=True):
            added = model.graph.input.add()
            added.CopyFrom(item)
            added.name = name
        model.graph.input.extend(self.algorithm.input)
        return ImportedGraph(compose(model), self.ctx)

    def _own_loss(self, predictions: Sequence[str], target: str) -> HybridBlock | None:
        """The loss of this package that ONNX has an operator for, if it is that operator."""
        node = self.makers.get(target)
        if node is None or node.domain or node.op_type not in ("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"):
            return None
        attributes = {item.name: self.file.attribute(item) for item in node.attribute}
        if attributes.pop("reduction", "mean") != "mean" or attributes or len(node.input) != 2:
            return None
        label = node.input[1]
        cast = self.makers.get(label)
        if cast is not None and cast.op_type == "Cast" and not cast.domain:
            label = cast.input[0]
        if [node.input[0], label] != [*predictions, *(item.name for item in self.algorithm.input)]:
            return None
        shape = self.graph.output[0].type.tensor_type.shape
        axis = -1 if len(shape.dim) == 2 else 1
        return SoftmaxCrossEntropyLoss(axis=axis, from_logits=node.op_type == "NegativeLogLikelihoodLoss")

    def _statistics(self, forward: Sequence[NodeProto]) -> dict[str, str]:
        """The running statistics that the network updates in training: name -> the name of the new value."""
        roots: dict[str, str] = {}
        news: dict[str, str] = {}
        for node in forward:
            attributes = {item.name: self.file.attribute(item) for item in node.attribute}
            if node.op_type == "BatchNormalization" and not node.domain and attributes.get("training_mode"):
                for source, new in zip(node.input[3:5], node.output[1:3], strict=False):
                    root = roots.get(source, source)
                    roots[new], news[root] = root, new
        return news

    # -- the optimizer -----------------------------------------------------------------------------------------

    def _update(self, gradient: NodeProto, known: Sequence[NodeProto]) -> Update:
        """The part of the algorithm that changes the weights."""
        skipped = {id(node) for node in known}
        constants, nodes = dict[str, np.ndarray](), []
        for node in self.nodes:
            if id(node) in skipped:
                continue
            if node.op_type == "Constant" and not node.domain:
                found = self.file.attribute(node.attribute[0]) if len(node.attribute) == 1 else None
                if isinstance(found, tuple) and isinstance(found[0], np.ndarray):
                    constants[node.output[0]] = found[0]
                    continue
            nodes.append(node)
        names = _texts(self.file, gradient, "xs")
        if len(gradient.output) != len(names):
            raise OnnxError(f"node {gradient.name!r} (Gradient): {len(gradient.output)} outputs for {len(names)} xs")
        gradients = dict(zip(names, gradient.output, strict=True))
        opset = self.file.opsets.get("", 0)
        return Update(self.file, nodes, constants, self.arrays, dict(self.bindings), gradients, opset)

    def _trainer(self, net: HybridBlock, update: Update) -> Trainer:
        parameters = {parameter.name: parameter for parameter in net.collect_params().values()}
        missing = [name for name in update.gradients if name not in parameters]
        if missing:
            raise OnnxError(f"the algorithm trains {missing[0]!r}, which is no parameter of the network")
        for name, parameter in parameters.items():
            parameter.grad_req = "write" if name in update.gradients else "null"
        trained = [parameters[name] for name in update.gradients]
        return read_optimizer(update, trained, self.metadata.get("trainer"))

    # -- first values ------------------------------------------------------------------------------------------

    def _initialize(self, net: HybridBlock) -> None:
        """Give each parameter the initializer that the initialization graph stands for."""
        parameters = {parameter.name: parameter for parameter in net.collect_params().values()}
        constants = {
            tensor.name: self.file.array(tensor, f"initializer {tensor.name!r}")[0]
            for tensor in self.initialization.initializer
        }
        makers: dict[str, tuple[NodeProto, Attributes]] = {}
        for node in self.initialization.node:
            attributes = {item.name: self.file.attribute(item) for item in node.attribute}
            if node.domain or len(node.output) != 1:
                raise OnnxError(f"node {node.name!r} ({node.op_type}): unknown in an initialization graph")
            if node.op_type == "Constant" and isinstance(attributes.get("value"), tuple):
                constants[node.output[0]] = attributes["value"][0]
            makers[node.output[0]] = node, attributes
        for key, value in self.first_values.items():
            if value not in makers:
                raise OnnxError(f"initialization_binding: {value!r} is no value of the initialization graph")
            found = initial_values.read(*makers[value], constants)
            if key in parameters:
                parameters[key].init = found
            elif not isinstance(found, initializer.Constant):
                raise OnnxError(f"initialization_binding: {key!r} begins with random numbers, ours begin with zeros")


def _comparable(composed: Composed, like: Composed) -> Graph:
    """The graph as it predicts, without shapes and modes, with its inputs in the order of `like`."""
    identity = ops.get("identity")

    def rewrite(node: Node, inputs: tuple[object, ...]) -> Sequence[Value] | None:
        op: Any = node.op
        if (op.name == "Dropout" and op.mode == "training") or isinstance(op, identity):
            return [inputs[0]] * len(node.outputs)  # type: ignore[list-item]
        if op.name == "BatchNorm":
            return node.replace(op=op.variant(use_global_stats=True, momentum=0.9), inputs=inputs).outputs
        return None

    graph = composed.graph.map(rewrite)
    by_name = {value.node.name: value for value in graph.inputs}
    order = [value.node.name for value in like.graph.inputs]
    if by_name.keys() != {*order}:
        raise OnnxError("the algorithm trains a network of other parameters than the one that predicts")
    return Graph([by_name[name] for name in order], graph.outputs)


def _pairs(entries: Sequence[StringStringEntryProto], where: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for item in entries:
        if item.key in found:
            raise OnnxError(f"{where}: {item.key!r} appears twice")
        found[item.key] = item.value
    return found


def _texts(file: OnnxFile, node: NodeProto, name: str) -> tuple[str, ...]:
    found = next((file.attribute(item) for item in node.attribute if item.name == name), ())
    if not isinstance(found, tuple) or not all(isinstance(item, str) for item in found) or len({*found}) < len(found):
        raise OnnxError(f"node {node.name!r} ({node.op_type}): its attribute {name!r} is no list of different names")
    return found


def _text(file: OnnxFile, node: NodeProto, name: str) -> str:
    found = next((file.attribute(item) for item in node.attribute if item.name == name), None)
    if not isinstance(found, str):
        raise OnnxError(f"node {node.name!r} ({node.op_type}): its attribute {name!r} is no name")
    return found
