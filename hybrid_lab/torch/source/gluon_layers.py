"""Operators with weights as layers of `gluon.nn` and `gluon.rnn`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from hybrid_lab.graph.node import Value

from .layers import unpacked
from .rules import AnyOperator, each, shape_of, weights_of

if TYPE_CHECKING:
    from hybrid_lab.graph.node import Node

    from .gluon_writer import GluonWriter

#: As rules.Rule; None if the operator, used like this, is no layer
LayerRule: TypeAlias = "Callable[[GluonWriter, Node, AnyOperator, Sequence[str]], str | Sequence[str] | None]"

LAYERS: dict[str, LayerRule] = {}


def _layer(*names: str) -> Callable[[LayerRule], LayerRule]:
    def register(function: LayerRule) -> LayerRule:
        LAYERS.update(dict.fromkeys(names, function))
        return function

    return register


def _arguments(*positional: object, **settings: tuple[object, object]) -> str:
    """The arguments of a constructor. settings : (value, the default, with which it is left out)"""
    named = [f"{name}={value!r}" for name, (value, default) in settings.items() if value != default]
    return ", ".join([*map(repr, positional), *named])


def _state(writer: GluonWriter, node: Node, *names: str) -> dict[str, Any] | None:
    """The parameters of a layer, by their names there; None if one is computed."""
    state = dict(zip(names, node.inputs[1:], strict=False))
    return state if all(writer.array(item) is not None for item in state.values()) else None


def _convolution_arguments(node: Node, op: AnyOperator, layout: str) -> dict[str, tuple[object, object]]:
    rank = len(op.kernel)
    return {
        "strides": (each(op.stride, rank, 1), 1),
        "padding": (each(op.pad, rank, 0), 0),
        "dilation": (each(op.dilate, rank, 1), 1),
        "groups": (op.num_group, 1),
        "layout": (op.layout or layout, layout),
        "use_bias": (len(node.inputs) == 3, True),
        "in_channels": (shape_of(node, 0)[(op.layout or layout).index("C")], 0),
    }


@_layer("Convolution", "Convolution_v1")
def _convolution(writer: GluonWriter, node: Node, op: AnyOperator, inputs: Sequence[str]) -> str | None:
    state, rank = _state(writer, node, "weight", "bias"), len(op.kernel)
    layout = {1: "NCW", 2: "NCHW", 3: "NCDHW"}.get(rank)
    if state is None or layout is None or (rank == 1 and op.layout not in (None, layout)):
        return None
    settings = _convolution_arguments(node, op, layout)
    made = f"nn.Conv{rank}D({_arguments(op.num_filter, each(op.kernel, rank, 1), **settings)})"
    return f"{writer.layer(node, made, state)}({inputs[0]})"


@_layer("Deconvolution")
def _deconvolution(writer: GluonWriter, node: Node, op: AnyOperator, inputs: Sequence[str]) -> str | None:
    state, rank = _state(writer, node, "weight", "bias"), len(op.kernel)
    layout = {1: "NCW", 2: "NCHW", 3: "NCDHW"}.get(rank)
    if state is None or layout is None or any(op.target_shape or ()) or op.layout not in (None, layout):
        return None
    settings = _convolution_arguments(node, op, layout)
    settings["output_padding"] = (each(op.adj, rank, 0), 0)
    made = f"nn.Conv{rank}DTranspose({_arguments(op.num_filter, each(op.kernel, rank, 1), **settings)})"
    return f"{writer.layer(node, made, state)}({inputs[0]})"


@_layer("FullyConnected")
def _dense(writer: GluonWriter, node: Node, op: AnyOperator, inputs: Sequence[str]) -> str | None:
    state = _state(writer, node, "weight", "bias")
    if state is None:
        return None
    rows, columns = shape_of(node, 1)
    bias = (len(node.inputs) == 3, True)
    made = f"nn.Dense({_arguments(rows, flatten=(op.flatten, True), use_bias=bias, in_units=(columns, 0))})"
    return f"{writer.layer(node, made, state)}({inputs[0]})"


@_layer("BatchNorm", "BatchNorm_v1", "_contrib_BatchNormWithReLU")
def _batch_norm(writer: GluonWriter, node: Node, op: AnyOperator, inputs: Sequence[str]) -> str | None:
    state = _state(writer, node, "gamma", "beta", "running_mean", "running_var")
    if state is None or op.output_mean_var or len(state) < 4:
        return None
    settings = _arguments(
        axis=(getattr(op, "axis", 1), 1),
        momentum=(op.momentum, 0.9),
        epsilon=(op.eps, 1e-5),
        scale=(not op.fix_gamma, True),
        use_global_stats=(op.use_global_stats, False),
        in_channels=(shape_of(node, 1)[0], 0),
    )
    kind = "BatchNormReLU" if op.name == "_contrib_BatchNormWithReLU" else "BatchNorm"
    return f"{writer.layer(node, f'nn.{kind}({settings})', state)}({inputs[0]})"


@_layer("LayerNorm", "GroupNorm", "InstanceNorm")
def _norm(writer: GluonWriter, node: Node, op: AnyOperator, inputs: Sequence[str]) -> str | None:
    state = _state(writer, node, "gamma", "beta")
    if state is None or getattr(op, "output_mean_var", False):
        return None
    epsilon, channels = (op.eps, 1e-5), (shape_of(node, 1)[0], 0)
    settings = {
        "LayerNorm": lambda: _arguments(axis=(op.axis, -1), epsilon=epsilon, in_channels=channels),
        "GroupNorm": lambda: _arguments(op.num_groups, epsilon=epsilon),
        "InstanceNorm": lambda: _arguments(epsilon=epsilon, scale=(True, False), in_channels=channels),
    }[op.name]()
    return f"{writer.layer(node, f'nn.{op.name}({settings})', state)}({inputs[0]})"


@_layer("Embedding", "_contrib_SparseEmbedding")
def _embedding(writer: GluonWriter, node: Node, op: AnyOperator, inputs: Sequence[str]) -> str | None:
    state = _state(writer, node, "weight")
    if state is None:
        return None
    sparse = (op.name == "_contrib_SparseEmbedding", False)
    made = f"nn.Embedding({_arguments(op.input_dim, op.output_dim, sparse_grad=sparse)})"
    return f"{writer.layer(node, made, state)}({inputs[0]})"


@_layer("Dropout")
def _dropout(writer: GluonWriter, node: Node, op: AnyOperator, inputs: Sequence[str]) -> str | None:
    if op.mode != "training":
        return None
    return f"{writer.layer(node, f'nn.Dropout({_arguments(op.p, axes=(op.axes, ()))})', {})}({inputs[0]})"


@_layer("LeakyReLU")
def _leaky_relu(writer: GluonWriter, node: Node, op: AnyOperator, inputs: Sequence[str]) -> str | None:
    state = _state(writer, node, "alpha")
    if op.act_type == "prelu" and state and len(shape_of(node, 1)) == 1:
        made = f"nn.PReLU({_arguments(in_channels=(shape_of(node, 1)[0], 1))})"
        return f"{writer.layer(node, made, state)}({inputs[0]})"
    return None


@_layer("RNN")
def _recurrent(writer: GluonWriter, node: Node, op: AnyOperator, inputs: Sequence[str]) -> list[str] | None:
    """A layer if only its outputs are read; else a call of F.RNN."""
    packed = weights_of(node.inputs[1])
    arrays = [array for array in map(writer.array, packed) if array is not None]
    states_read = [writer.is_read(value) for value in node.outputs[1 : node.op.signature.visible]]
    clipped = op.lstm_state_clip_min is not None or op.lstm_state_clip_max is not None
    if not packed or len(arrays) < len(packed) or any(states_read) or op.use_sequence_length or clipped:
        return None
    size = shape_of(node, 0)[2]
    kind = {"lstm": "LSTM", "gru": "GRU"}.get(op.mode, "RNN")
    settings = _arguments(
        op.state_size,
        num_layers=(op.num_layers, 1),
        activation=("tanh" if op.mode == "rnn_tanh" else "relu", "relu" if kind == "RNN" else op.mode),
        dropout=(op.p, 0.0),
        bidirectional=(op.bidirectional, False),
        projection_size=(op.projection_size, None),
        input_size=(size, 0),
    )
    if kind != "RNN":
        settings = ", ".join(part for part in settings.split(", ") if not part.startswith("activation="))
    path = writer.layer(node, f"rnn.{kind}({settings})", {str(place): item for place, item in enumerate(packed)})
    stem = path.removeprefix("self.")
    for place in range(len(packed)):
        writer.state.pop(f"{stem}.{place}", None)
    flat = np.concatenate([np.ravel(array) for array in arrays])
    for name, array in unpacked(flat, op, size).items():
        writer.state[f"{stem}.{_cell_path(name, op.bidirectional)}"] = array
    states = inputs[2 : 4 if op.mode == "lstm" else 3]
    begun = node.inputs[2 : 2 + len(states)]
    zero = all(isinstance(item, Value) and item.node.op.name == "_zeros" for item in begun)
    call = f"{path}({inputs[0]})" if zero else f"{path}({inputs[0]}, [{', '.join(states)}])[0]"
    return [call, *[""] * len(states_read)]


_KINDS = {"weight_ih": "i2h_weight", "weight_hh": "h2h_weight", "weight_hr": "h2r_weight", "bias_ih": "i2h_bias",
          "bias_hh": "h2h_bias"}  # fmt: skip


def _cell_path(name: str, bidirectional: bool) -> str:
    """torch's "weight_ih_l1_reverse" as Gluon's files have it: "_unfused.1.r_cell.i2h_weight"."""
    kind, _, place = name.partition("_l")
    number, _, way = place.partition("_")
    side = f"{'r' if way else 'l'}_cell." if bidirectional else ""
    return f"_unfused.{number}.{side}{_KINDS[kind]}"
