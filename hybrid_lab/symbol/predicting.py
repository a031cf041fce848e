"""Symbols for training as they predict: operators such as SoftmaxOutput without the labels that only gradients read."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from hybrid_lab import symbol
from hybrid_lab.graph.node import Node, Value
from hybrid_lab.symbol.symbol import Symbol


def predicting(
    net: Symbol, shapes: Mapping[str, Sequence[int]] | None = None, labels: Collection[str] | None = None
) -> Symbol:
    """The Symbol with what its operators for training, such as SoftmaxOutput, predict: it reads no labels for them.

    shapes : of inputs, so that SoftmaxOutput becomes a plain softmax where the rank of its data follows from them
    labels : names of variables; operators whose label is another one stay as they are. None takes all
    """

    def rewrite(node: Node, inputs: tuple[object, ...]) -> Sequence[Value] | None:
        data = inputs[0] if inputs else None
        if node.op.name not in _PREDICTED or not isinstance(data, Value):
            return None
        if labels is not None and _label(node) not in labels:
            return None
        return _PREDICTED[node.op.name](node, Symbol((data,)), shapes or {}).outputs

    return type(net)(net.graph().map(rewrite).outputs)


def labels_of(net: Symbol) -> list[str]:
    """The names of the variables that are read as labels of operators for training, and as nothing else."""
    read = set(predicting(net).list_inputs())
    return [name for name in net.list_inputs() if name not in read and name in _labels(net)]


def _labels(net: Symbol) -> set[str | None]:
    return {_label(node) for node in net.graph().nodes if node.op.name in _PREDICTED}


def _label(node: Node) -> str | None:
    """The name of the variable that is the label of an operator for training."""
    label = node.inputs[1] if len(node.inputs) > 1 else None
    return label.node.name if isinstance(label, Value) and label.is_input else None


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
