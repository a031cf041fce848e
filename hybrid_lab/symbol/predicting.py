"""Symbols for training as they predict: operators such as SoftmaxOutput without the labels that only gradients read."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from hybrid_lab import symbol
from hybrid_lab.graph.graph import reachable
from hybrid_lab.graph.node import Node, Value
from hybrid_lab.symbol.symbol import Symbol


def predicting(
    net: Symbol, shapes: Mapping[str, Sequence[int]] | None = None, labels: Collection[str] | None = None
) -> Symbol:
    """The Symbol with the predictions of its operators for training, such as SoftmaxOutput: it reads no labels for
    them.

    shapes : of inputs, so that SoftmaxOutput becomes a plain softmax if the rank of its data follows from them
    labels : names of variables; operators whose label reads no such variable are unchanged. None takes all
    """

    def rewrite(node: Node, inputs: tuple[object, ...]) -> Sequence[Value] | None:
        data = inputs[0] if inputs else None
        if node.op.name not in _PREDICTED or not isinstance(data, Value):
            return None
        if labels is not None and not _label_variables(node).intersection(labels):
            return None
        return _PREDICTED[node.op.name](node, Symbol((data,)), shapes or {}).outputs

    return type(net)(net.graph().map(rewrite).outputs)


def labels_of(net: Symbol) -> list[str]:
    """The names of the variables that only the labels of operators for training read."""
    read = set(predicting(net).list_inputs())
    labels = {name for node in net.graph().nodes if node.op.name in _PREDICTED for name in _label_variables(node)}
    return [name for name in net.list_inputs() if name not in read and name in labels]


def without_labels(net: Symbol, labels: Collection[str]) -> tuple[Symbol, list[str]]:
    """The Symbol as it predicts, without outputs that need a label of `labels`, such as losses; and the names of the
    outputs left out. If each output needs a label, the Symbol unchanged.
    """
    whole = predicting(net, labels=labels)
    kept, left_out = [], []
    for value, name in zip(whole.outputs, whole.list_outputs(), strict=True):
        needed = {node.name for node in reachable([value]) if node.outputs and node.outputs[0].is_input}
        if needed.isdisjoint(labels):
            kept.append(value)
        else:
            left_out.append(name)
    return (type(net)(tuple(kept)), left_out) if kept else (net, [])


def _label_variables(node: Node) -> set[str]:
    """The names of the variables that the label of an operator for training is computed from."""
    label = node.inputs[1] if len(node.inputs) > 1 else None
    if not isinstance(label, Value):
        return set()
    return {read.name for read in reachable([label]) if read.outputs and read.outputs[0].is_input}


def _softmax(node: Node, data: Symbol, shapes: Mapping[str, Sequence[int]]) -> Symbol:
    settings = node.op.attributes
    if settings.get("multi_output"):
        return symbol.softmax(data, axis=1, name=node.name)
    if settings.get("preserve_shape"):
        return symbol.softmax(data, axis=-1, name=node.name)
    known = {name: shape for name, shape in shapes.items() if name in data.list_inputs()}
    (shape,) = data.infer_shape_partial(**known)[1] if known else (None,)
    if shape and len(shape) == 2:
        return symbol.softmax(data, axis=1, name=node.name)
    return symbol.reshape_like(symbol.softmax(symbol.flatten(data), axis=1), data, name=node.name)


def _identity(node: Node, data: Symbol, shapes: Mapping[str, Sequence[int]]) -> Symbol:
    return symbol.identity(data, name=node.name)


def _sigmoid(node: Node, data: Symbol, shapes: Mapping[str, Sequence[int]]) -> Symbol:
    return symbol.sigmoid(data, name=node.name)


_PREDICTED = {
    "SoftmaxOutput": _softmax,
    "LinearRegressionOutput": _identity,
    "MAERegressionOutput": _identity,
    "LogisticRegressionOutput": _sigmoid,
    "SVMOutput": _identity,
}
"""Operators that compute a loss's gradient from a label -> the Symbol of what they predict."""
