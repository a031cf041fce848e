"""Operators with weights as modules of torch.nn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hybrid_lab.graph.node import Value

from .rules import each, needs, rule, shape_of, weights_of

if TYPE_CHECKING:
    from hybrid_lab.graph.node import Node

    from .rules import AnyOperator
    from .writer import SourceWriter


def _all_weights(writer: SourceWriter, node: Node, places: Sequence[int]) -> bool:
    return all(writer.array(node.inputs[place]) is not None for place in places)


def _arguments(**settings: object) -> str:
    """Keyword arguments of a module; callers pass None for torch's defaults, which are left out."""
    return "".join(f", {name}={value!r}" for name, value in settings.items() if value is not None)


def _unless(value: object, default: object) -> object:
    return None if value == default else value


@rule("Convolution", "Convolution_v1")
def _convolution(writer: SourceWriter, node: Node, op: AnyOperator, inputs: Sequence[str]) -> str:
    rank = len(op.kernel)
    needs(op.layout in (None, "NCW", "NCHW", "NCDHW"), node, f"layout={op.layout!r}")
    settings = _arguments(
        stride=_unless(each(op.stride, rank, 1), 1),
        padding=_unless(each(op.pad, rank, 0), 0),
        dilation=_unless(each(op.dilate, rank, 1), 1),
        groups=_unless(op.num_group, 1),
    )
    places = range(1, len(inputs))
    if not _all_weights(writer, node, places):
        return f"F.conv{rank}d({', '.join(inputs)}{settings})"
    no_bias = _arguments(bias=_unless(len(inputs) == 3, True))
    made = f"nn.Conv{rank}d({shape_of(node, 0)[1]}, {op.num_filter}, {each(op.kernel, rank, 1)!r}{settings}{no_bias})"
    return f"{writer.layer(node, made, _weight_and_bias(node))}({inputs[0]})"


def _weight_and_bias(node: Node) -> dict[str, Any]:
    return dict(zip(("weight", "bias"), node.inputs[1:], strict=False))


@rule("Deconvolution")
def _deconvolution(writer: SourceWriter, node: Node, op: AnyOperator, inputs: Sequence[str]) -> str:
    rank = len(op.kernel)
    needs(op.layout in (None, "NCW", "NCHW", "NCDHW"), node, f"layout={op.layout!r}")
    sizes, out = shape_of(node, 0)[2:], node.outputs[0].shape[2:]
    stride, dilate = op.stride or (1,) * rank, op.dilate or (1,) * rank
    pad, adj = [], []
    for place, (size, result) in enumerate(zip(sizes, out, strict=True)):
        full = (size - 1) * stride[place] + dilate[place] * (op.kernel[place] - 1) + 1
        border = (op.pad or (0,) * rank)[place] if not any(op.target_shape) else -((result - full) // 2)
        border = max(border, 0)
        pad.append(border)
        adj.append(result - full + 2 * border)
    needs(all(0 <= extra < step for extra, step in zip(adj, stride, strict=True)), node, f"an output of {out}")
    settings = _arguments(
        stride=_unless(each(stride, rank, 1), 1),
        padding=_unless(each(pad, rank, 0), 0),
        output_padding=_unless(each(adj, rank, 0), 0),
        groups=_unless(op.num_group, 1),
        dilation=_unless(each(dilate, rank, 1), 1),
    )
    if not _all_weights(writer, node, range(1, len(inputs))):
        return f"F.conv_transpose{rank}d({', '.join(inputs)}{settings})"
    no_bias = _arguments(bias=_unless(len(inputs) == 3, True))
    channels, kernel = shape_of(node, 0)[1], each(op.kernel, rank, 1)
    made = f"nn.ConvTranspose{rank}d({channels}, {op.num_filter}, {kernel!r}{settings}{no_bias})"
    return f"{writer.layer(node, made, _weight_and_bias(node))}({inputs[0]})"


@rule("FullyConnected")
def _linear(writer: SourceWriter, node: Node, op: AnyOperator, inputs: Sequence[str]) -> str:
    data = shape_of(node, 0)
    flat = f"{inputs[0]}.flatten(1)" if op.flatten and len(data) > 2 else inputs[0]
    if not _all_weights(writer, node, range(1, len(inputs))):
        return f"F.linear({', '.join([flat, *inputs[1:]])})"
    rows, columns = shape_of(node, 1)
    made = f"nn.Linear({columns}, {rows}{_arguments(bias=_unless(len(inputs) == 3, True))})"
    return f"{writer.layer(node, made, _weight_and_bias(node))}({flat})"


@rule("BatchNorm", "BatchNorm_v1", "_contrib_BatchNormWithReLU")
def _batch_norm(writer: SourceWriter, node: Node, op: AnyOperator, inputs: Sequence[str]) -> str:
    shape = shape_of(node, 0)
    axis = op.axis % len(shape) if len(shape) else 0
    needs(not op.output_mean_var, node, "output_mean_var")
    needs(2 <= len(shape) <= 5, node, f"data with {len(shape)} axes")
    needs(_all_weights(writer, node, range(1, 5)), node, "a statistic that is no parameter")
    gamma = np.ones_like(writer.array(node.inputs[1])) if op.fix_gamma else node.inputs[1]
    state = dict(zip(("weight", "bias", "running_mean", "running_var"), (gamma, *node.inputs[2:5]), strict=True))
    state["num_batches_tracked"] = np.zeros((), np.int64)
    settings = _arguments(eps=_unless(op.eps, 1e-5), momentum=_unless(round(1 - op.momentum, 10), 0.1))
    rank = {2: 1, 3: 1, 4: 2, 5: 3}[len(shape)]
    # Nodes that share weights share the module: the arrays that are made here would tell them apart.
    key = {name: item for name, item in state.items() if isinstance(item, Value)}
    path = writer.layer(node, f"nn.BatchNorm{rank}d({shape[axis]}{settings})", key)
    for name in state.keys() - key.keys():
        writer.state[f"{path.removeprefix('self.')}.{name}"] = state[name]
    if axis == 1:
        made = f"{path}({inputs[0]})"
    else:
        made = f"{path}({inputs[0]}.movedim({axis}, 1)).movedim(1, {axis})"
    return f"F.relu({made})" if node.op.name == "_contrib_BatchNormWithReLU" else made


@rule("LayerNorm")
def _layer_norm(writer: SourceWriter, node: Node, op: AnyOperator, inputs: Sequence[str]) -> str:
    shape = shape_of(node, 0)
    axis = op.axis % len(shape)
    needs(not op.output_mean_var, node, "output_mean_var")
    needs(_all_weights(writer, node, (1, 2)), node, "a scale that is no parameter")
    made = f"nn.LayerNorm({shape[axis]}{_arguments(eps=_unless(op.eps, 1e-5))})"
    path = writer.layer(node, made, _weight_and_bias(node))
    if axis == len(shape) - 1:
        return f"{path}({inputs[0]})"
    return f"{path}({inputs[0]}.movedim({axis}, -1)).movedim(-1, {axis})"


@rule("GroupNorm")
def _group_norm(writer: SourceWriter, node: Node, op: AnyOperator, inputs: Sequence[str]) -> str:
    """MXNet scales groups, torch channels."""
    channels = shape_of(node, 0)[1]
    needs(not op.output_mean_var, node, "output_mean_var")
    needs(_all_weights(writer, node, (1, 2)), node, "a scale that is no parameter")
    made = f"nn.GroupNorm({op.num_groups}, {channels}{_arguments(eps=_unless(op.eps, 1e-5))})"
    path = writer.layer(node, made, _weight_and_bias(node))
    for name, item in _weight_and_bias(node).items():
        array = writer.array(item)
        assert array is not None
        writer.state[f"{path.removeprefix('self.')}.{name}"] = np.repeat(array, channels // len(array))
    return f"{path}({inputs[0]})"


@rule("InstanceNorm")
def _instance_norm(writer: SourceWriter, node: Node, op: AnyOperator, inputs: Sequence[str]) -> str:
    shape = shape_of(node, 0)
    needs(_all_weights(writer, node, (1, 2)) and 3 <= len(shape) <= 5, node, "such data")
    made = f"nn.InstanceNorm{len(shape) - 2}d({shape[1]}, eps={op.eps!r}, affine=True)"
    return f"{writer.layer(node, made, _weight_and_bias(node))}({inputs[0]})"


@rule("Embedding", "_contrib_SparseEmbedding")
def _embedding(writer: SourceWriter, node: Node, op: AnyOperator, inputs: Sequence[str]) -> str:
    index = f"{inputs[0]}.long().clamp(0, {op.input_dim - 1})"
    if writer.array(node.inputs[1]) is None:
        return f"F.embedding({index}, {inputs[1]})"
    made = f"nn.Embedding({op.input_dim}, {op.output_dim})"
    return f"{writer.layer(node, made, {'weight': node.inputs[1]})}({index})"


@rule("Dropout")
def _dropout(writer: SourceWriter, node: Node, op: AnyOperator, inputs: Sequence[str]) -> str:
    needs(not op.axes, node, f"axes={op.axes}")
    return f"{writer.layer(node, f'nn.Dropout({op.p!r})', {})}({inputs[0]})"


@rule("LeakyReLU")
def _leaky_relu(writer: SourceWriter, node: Node, op: AnyOperator, inputs: Sequence[str]) -> str:
    data = inputs[0]
    if op.act_type == "prelu":
        if writer.array(node.inputs[1]) is None or len(shape_of(node, 1)) != 1:
            return f"{writer.helper('prelu')}({data}, {inputs[1]})"
        made = f"nn.PReLU({shape_of(node, 1)[0]})"
        return f"{writer.layer(node, made, {'weight': node.inputs[1]})}({data})"
    return {
        "leaky": f"F.leaky_relu({data}, {op.slope!r})",
        "elu": f"F.elu({data}, {op.slope!r})",
        "selu": f"F.selu({data})",
        "gelu": f"F.gelu({data})",
        "rrelu": f"F.leaky_relu({data}, {(op.lower_bound + op.upper_bound) / 2!r})",
    }[str(op.act_type)]


@rule("RNN")
def _recurrent(writer: SourceWriter, node: Node, op: AnyOperator, inputs: Sequence[str]) -> list[str] | str:
    needs(not op.use_sequence_length, node, "use_sequence_length")
    needs((op.projection_size or 0) < op.state_size, node, "projection_size as large as state_size")
    needs(op.lstm_state_clip_min is None and op.lstm_state_clip_max is None, node, "clipping of states")
    packed = [writer.array(item) for item in weights_of(node.inputs[1])]
    needs(bool(packed) and all(array is not None for array in packed), node, "a weight that is no parameter")
    flat = np.concatenate([np.ravel(array) for array in packed if array is not None])
    size = shape_of(node, 0)[2]
    kinds = {"lstm": "LSTM", "gru": "GRU", "rnn_tanh": "RNN", "rnn_relu": "RNN"}
    settings = _arguments(
        num_layers=_unless(op.num_layers, 1),
        nonlinearity="relu" if op.mode == "rnn_relu" else None,
        dropout=_unless(op.p if op.num_layers > 1 else 0.0, 0.0),
        bidirectional=_unless(op.bidirectional, False),
        proj_size=op.projection_size,
    )
    made = f"nn.{kinds[op.mode]}({size}, {op.state_size}{settings})"
    key = {str(place): item for place, item in enumerate(weights_of(node.inputs[1]))}
    path = writer.layer(node, made, key)
    stem = path.removeprefix("self.")
    for place in key:
        writer.state.pop(f"{stem}.{place}", None)
    for name, array in unpacked(flat, op, size).items():
        writer.state[f"{stem}.{name}"] = array
    states = inputs[2 : 4 if op.mode == "lstm" else 3]
    begun = node.inputs[2 : 2 + len(states)]
    zero = all(isinstance(item, Value) and item.node.op.name == "_zeros" for item in begun)
    given = "" if zero else f", ({', '.join(states)})" if op.mode == "lstm" else f", {states[0]}"
    call = f"{path}({inputs[0]}{given})"
    states_read = [writer.is_read(value) for value in node.outputs[1 : node.op.signature.visible]]
    if not any(states_read):
        return [f"{call}[0]", *[""] * len(states_read)]
    if op.mode == "lstm":
        return f"{writer.helper('with_states')}({call})"
    return call


def unpacked(flat: np.ndarray, op: AnyOperator, inputs: int) -> dict[str, np.ndarray]:
    """The packed vector as torch's parameters: first all weights, then all biases, for each layer and direction."""
    gates = {"lstm": 4, "gru": 3}.get(op.mode, 1) * op.state_size
    ways = ("", "_reverse")[: 1 + op.bidirectional]
    state = op.projection_size or op.state_size
    shapes: dict[str, tuple[int, ...]] = {}
    for layer in range(op.num_layers):
        for way in ways:
            width = inputs if layer == 0 else state * len(ways)
            shapes[f"weight_ih_l{layer}{way}"] = (gates, width)
            shapes[f"weight_hh_l{layer}{way}"] = (gates, state)
            if op.projection_size:
                shapes[f"weight_hr_l{layer}{way}"] = (state, op.state_size)
    for layer in range(op.num_layers):
        for way in ways:
            shapes[f"bias_ih_l{layer}{way}"] = shapes[f"bias_hh_l{layer}{way}"] = (gates,)
    found, start = {}, 0
    for name, shape in shapes.items():
        count = int(np.prod(shape))
        found[name] = flat[start : start + count].reshape(shape)
        start += count
    assert start == flat.size, (start, flat.size)
    return found
