"""Operators without weights as expressions of torch."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

from hybrid_lab.graph.node import Value
from hybrid_lab.ops.framework.dtypes import is_floating, name_of

from .rules import each, infix, needs, rule, shape_of

if TYPE_CHECKING:
    from hybrid_lab.graph.node import Node

    from .rules import AnyOperator
    from .writer import SourceWriter

# -- elementwise -----------------------------------------------------------------------------------------------------

_METHODS = {
    **{name: name for name in (
        "abs", "square", "sqrt", "rsqrt", "reciprocal", "exp", "expm1", "log", "log2", "log10", "log1p", "sin", "cos",
        "tan", "sinh", "cosh", "tanh", "ceil", "floor", "trunc", "erf", "erfinv", "sigmoid", "relu", "sign",
    )},
    "fix": "trunc", "arcsin": "asin", "arccos": "acos", "arctan": "atan", "arcsinh": "asinh", "arccosh": "acosh",
    "arctanh": "atanh", "gammaln": "lgamma", "degrees": "rad2deg", "radians": "deg2rad",
}  # fmt: skip


@rule(*_METHODS)
def _method(writer: SourceWriter, node: Node, op: AnyOperator, inputs: Sequence[str]) -> str:
    return f"{infix(inputs[0])}.{_METHODS[node.op.name]}()"


_WRITTEN = {
    "negative": "-{0}",
    "_softrelu": "F.softplus({0})",
    "softsign": "F.softsign({0})",
    "identity": "{0}",
    "BlockGrad": "{0}.detach()",
    "make_loss": "{0}",
    "MakeLoss": "{0}",
    "rint": "{0}.floor() + ({0} - {0}.floor() > 0.5)",
    "cbrt": "{0}.sign() * {0}.abs() ** (1 / 3)",
    "logical_not": "({0} == 0).to({0}.dtype)",
    "zeros_like": "torch.zeros_like({0})",
    "ones_like": "torch.ones_like({0})",
    "broadcast_like": "{0}.expand_as({1})",
    "_cast_like": "{0}.to({1}.dtype)",
}


@rule(*_WRITTEN)
def _written(writer: SourceWriter, node: Node, op: AnyOperator, inputs: Sequence[str]) -> str:
    needs(node.op.name != "broadcast_like" or not op.attributes.get("lhs_axes"), node, "lhs_axes")
    return _WRITTEN[node.op.name].format(*(infix(text) for text in inputs))


@rule("Activation")
def _activation(writer: SourceWriter, node: Node, op: AnyOperator, inputs: Sequence[str]) -> str:
    functions = {"softrelu": "softplus"}
    return f"F.{functions.get(op.act_type, op.act_type)}({inputs[0]})"


@rule("hard_sigmoid")
def _hard_sigmoid(writer: SourceWriter, node: Node, op: AnyOperator, inputs: Sequence[str]) -> str:
    return f"({infix(inputs[0])} * {op.alpha!r} + {op.beta!r}).clamp(0, 1)"


@rule("round")
def _round(writer: SourceWriter, node: Node, op: AnyOperator, inputs: Sequence[str]) -> str:
    """Halves go away from zero; torch rounds them to even numbers."""
    data = infix(inputs[0])
    if not is_floating(node.outputs[0].dtype):
        return inputs[0]
    return f"{data}.trunc() + ({data}.frac().abs() >= 0.5) * {data}.sign()"


_INFIX = {
    "broadcast_add": "+", "broadcast_sub": "-", "broadcast_mul": "*", "broadcast_div": "/", "broadcast_power": "**",
}  # fmt: skip
_COMPARED = {
    "broadcast_equal": "==", "broadcast_not_equal": "!=", "broadcast_greater": ">", "broadcast_greater_equal": ">=",
    "broadcast_lesser": "<", "broadcast_lesser_equal": "<=",
}  # fmt: skip
_LOGICAL = {"broadcast_logical_and": "&", "broadcast_logical_or": "|", "broadcast_logical_xor": "^"}


@rule(*_INFIX)
def _infix(writer: SourceWriter, node: Node, op: AnyOperator, inputs: Sequence[str]) -> str:
    floating = is_floating(node.outputs[0].dtype)
    needs(floating or node.op.name not in ("broadcast_div", "broadcast_power"), node, "this of whole numbers")
    return f" {_INFIX[node.op.name]} ".join(map(infix, inputs))


def _tensor(node: Node, inputs: Sequence[str]) -> str:
    """The text of the first input that is a tensor."""
    return next(infix(text) for item, text in zip(node.inputs, inputs, strict=True) if isinstance(item, Value))


@rule(*_COMPARED)
def _compared(writer: SourceWriter, node: Node, op: AnyOperator, inputs: Sequence[str]) -> str:
    return f"({f' {_COMPARED[node.op.name]} '.join(map(infix, inputs))}).to({_tensor(node, inputs)}.dtype)"


@rule(*_LOGICAL)
def _logical(writer: SourceWriter, node: Node, op: AnyOperator, inputs: Sequence[str]) -> str:
    sides = f" {_LOGICAL[node.op.name]} ".join(f"({infix(text)} != 0)" for text in inputs)
    return f"({sides}).to({_tensor(node, inputs)}.dtype)"


@rule("broadcast_maximum", "broadcast_minimum")
def _extreme(writer: SourceWriter, node: Node, op: AnyOperator, inputs: Sequence[str]) -> str:
    name = node.op.name.removeprefix("broadcast_")
    numbers = [text for item, text in zip(node.inputs, inputs, strict=True) if not isinstance(item, Value)]
    if numbers:
        return f"{_tensor(node, inputs)}.clamp({'min' if name == 'maximum' else 'max'}={numbers[0]})"
    return f"torch.{name}({', '.join(inputs)})"


@rule("broadcast_mod")
def _mod(writer: SourceWriter, node: Node, op: AnyOperator, inputs: Sequence[str]) -> str:
    if not isinstance(node.inputs[1], Value) and node.inputs[1]:
        return " % ".join(map(infix, inputs))
    needs(isinstance(node.inputs[1], Value), node, "a remainder of 0")
    return f"{writer.helper('mod')}({', '.join(inputs)})"


@rule("broadcast_hypot")
def _hypot(writer: SourceWriter, node: Node, op: AnyOperator, inputs: Sequence[str]) -> str:
    return f"({infix(inputs[0])} ** 2 + {infix(inputs[1])} ** 2).sqrt()"


@rule("add_n")
def _add_n(writer: SourceWriter, node: Node, op: AnyOperator, inputs: Sequence[str]) -> str:
    return " + ".join(map(infix, inputs))


@rule("clip")
def _clip(writer: SourceWriter, node: Node, op: AnyOperator, inputs: Sequence[str]) -> str:
    return f"{infix(inputs[0])}.clamp({op.a_min!r}, {op.a_max!r})"


@rule("where")
def _where(writer: SourceWriter, node: Node, op: AnyOperator, inputs: Sequence[str]) -> str:
    needs(shape_of(node, 0) in ((), node.outputs[0].shape), node, "a condition for each row")
    return f"torch.where({infix(inputs[0])} != 0, {inputs[1]}, {inputs[2]})"


@rule("Cast", "amp_cast")
def _cast(writer: SourceWriter, node: Node, op: AnyOperator, inputs: Sequence[str]) -> str:
    return f"{infix(inputs[0])}.to(torch.{name_of(node.outputs[0].dtype)})"


@rule("smooth_l1")
def _smooth_l1(writer: SourceWriter, node: Node, op: AnyOperator, inputs: Sequence[str]) -> str:
    return f"{writer.helper('smooth_l1')}({inputs[0]}, {op.scalar!r})"


@rule("_contrib_div_sqrt_dim")
def _div_sqrt_dim(writer: SourceWriter, node: Node, op: AnyOperator, inputs: Sequence[str]) -> str:
    return f"{infix(inputs[0])} / {infix(inputs[0])}.shape[-1] ** 0.5"


# -- shapes ----------------------------------------------------------------------------------------------------------


@rule("Reshape")
def _reshape(writer: SourceWriter, node: Node, op: AnyOperator, inputs: Sequence[str]) -> str:
    data, codes, before = infix(inputs[0]), list(op.shape), shape_of(node, 0)
    if op.reverse:
        return f"{data}.reshape({', '.join(map(str, node.outputs[0].shape))})"
    sizes: list[str] = []
    axis = 0
    while codes:
        code = codes.pop(0)
        if code == -2:
            sizes += [f"{data}.shape[{place}]" for place in range(axis, len(before))]
            axis = len(before)
        elif code == -3:
            sizes.append(f"{data}.shape[{axis}] * {data}.shape[{axis + 1}]")
            axis += 2
        elif code == -4:
            first, second = codes.pop(0), codes.pop(0)
            if -1 in (first, second):
                known = max(first, second)
                left = f"{data}.shape[{axis}] // {known}"
                sizes += [left, str(known)] if first == -1 else [str(known), left]
            else:
                sizes += [str(first), str(second)]
            axis += 1
        else:
            sizes.append(f"{data}.shape[{axis}]" if code == 0 else str(code))
            axis += 1
    if sizes == [f"{data}.shape[0]", "-1"] and len(before) > 1:
        return f"{data}.flatten(1)"
    return f"{data}.reshape({', '.join(sizes)})"


@rule("Flatten")
def _flatten(writer: SourceWriter, node: Node, op: AnyOperator, inputs: Sequence[str]) -> str:
    rank = len(shape_of(node, 0))
    return inputs[0] if rank == 2 else f"{infix(inputs[0])}.{'flatten' if rank > 2 else 'unsqueeze'}(1)"


@rule("reshape_like")
def _reshape_like(writer: SourceWriter, node: Node, op: AnyOperator, inputs: Sequence[str]) -> str:
    if shape_of(node, 0) == shape_of(node, 1):
        return inputs[0]
    needs(not any(value is not None for value in op.attributes.values()), node, "a part of a shape")
    return f"{infix(inputs[0])}.reshape({infix(inputs[1])}.shape)"


@rule("_np_reshape")
def _numpy_reshape(writer: SourceWriter, node: Node, op: AnyOperator, inputs: Sequence[str]) -> str:
    return f"{infix(inputs[0])}.reshape({tuple(op.newshape)!r})"


@rule("expand_dims")
def _expand_dims(writer: SourceWriter, node: Node, op: AnyOperator, inputs: Sequence[str]) -> str:
    return f"{infix(inputs[0])}.unsqueeze({op.axis})"


@rule("squeeze")
def _squeeze(writer: SourceWriter, node: Node, op: AnyOperator, inputs: Sequence[str]) -> str:
    if node.outputs[0].shape == (1,) and set(shape_of(node, 0)) == {1}:
        return f"{infix(inputs[0])}.reshape(1)"
    axes = "" if op.axis is None else repr(op.axis)
    return f"{infix(inputs[0])}.squeeze({axes})"


@rule("transpose")
def _transpose(writer: SourceWriter, node: Node, op: AnyOperator, inputs: Sequence[str]) -> str:
    return f"{infix(inputs[0])}.permute({', '.join(map(str, op.order(len(shape_of(node, 0)))))})"


@rule("SwapAxis")
def _swap(writer: SourceWriter, node: Node, op: AnyOperator, inputs: Sequence[str]) -> str:
    return f"{infix(inputs[0])}.transpose({op.dim1}, {op.dim2})"


@rule("Concat", "_rnn_param_concat")
def _concat(writer: SourceWriter, node: Node, op: AnyOperator, inputs: Sequence[str]) -> str:
    return f"torch.cat([{', '.join(inputs)}], {op.dim})"


@rule("stack")
def _stack(writer: SourceWriter, node: Node, op: AnyOperator, inputs: Sequence[str]) -> str:
    return f"torch.stack([{', '.join(inputs)}], {op.axis})"


@rule("SliceChannel")
def _split(writer: SourceWriter, node: Node, op: AnyOperator, inputs: Sequence[str]) -> str:
    count = node.op.signature.outputs
    if count == 1:
        return f"{infix(inputs[0])}.squeeze({op.axis})" if op.squeeze_axis else inputs[0]
    if op.squeeze_axis:
        return f"{infix(inputs[0])}.unbind({op.axis})"
    return f"{infix(inputs[0])}.chunk({count}, {op.axis})"


@rule("slice", "slice_axis")
def _slice(writer: SourceWriter, node: Node, op: AnyOperator, inputs: Sequence[str]) -> str:
    cut = op.cut(shape_of(node, 0))
    needs(all(part.step is None or part.step > 0 for part in cut), node, "a slice that runs backwards")
    shape = shape_of(node, 0)
    if node.op.name == "slice_axis":
        axis = op.axis % len(shape)
        cut = tuple(slice(None) if place != axis else slice(op.begin, op.end) for place in range(len(shape)))
    return f"{infix(inputs[0])}[{_index(cut, shape)}]"


def _index(cut: Sequence[slice], shape: Sequence[int]) -> str:
    texts = []
    for part, size in zip(cut, shape, strict=False):
        start = "" if part.start in (None, 0) else str(part.start)
        stop = "" if part.stop is None or part.stop == size else str(part.stop)
        step = "" if part.step in (None, 1) else f":{part.step}"
        texts.append(f"{start}:{stop}{step}")
    while len(texts) > 1 and texts[-1] == ":":
        texts.pop()
    return ", ".join(texts)


@rule("slice_like")
def _slice_like(writer: SourceWriter, node: Node, op: AnyOperator, inputs: Sequence[str]) -> str:
    rank = len(shape_of(node, 0))
    axes = {axis % rank for axis in op.axes} or set(range(rank))
    texts = [f":{infix(inputs[1])}.shape[{axis}]" if axis in axes else ":" for axis in range(max(axes) + 1)]
    return f"{infix(inputs[0])}[{', '.join(texts)}]"


@rule("Crop")
def _crop(writer: SourceWriter, node: Node, op: AnyOperator, inputs: Sequence[str]) -> str:
    shapes = [shape_of(node, place) for place in range(len(inputs))]
    cut = op.cut(shapes[0], shapes[1][2:] if len(shapes) == 2 else op.h_w)
    return f"{infix(inputs[0])}[{_index(cut, shapes[0])}]"


@rule("tile")
def _tile(writer: SourceWriter, node: Node, op: AnyOperator, inputs: Sequence[str]) -> str:
    return f"{infix(inputs[0])}.tile({tuple(op.reps)!r})"


@rule("repeat")
def _repeat(writer: SourceWriter, node: Node, op: AnyOperator, inputs: Sequence[str]) -> str:
    return f"{infix(inputs[0])}.repeat_interleave({op.repeats}{'' if op.axis is None else f', {op.axis}'})"


@rule("reverse")
def _reverse(writer: SourceWriter, node: Node, op: AnyOperator, inputs: Sequence[str]) -> str:
    return f"{infix(inputs[0])}.flip({op.axis!r})"


@rule("broadcast_to", "broadcast_axis")
def _broadcast(writer: SourceWriter, node: Node, op: AnyOperator, inputs: Sequence[str]) -> str:
    before, after = shape_of(node, 0), node.outputs[0].shape
    sizes = [-1 if old == new else new for old, new in zip(before, after, strict=True)]
    return f"{infix(inputs[0])}.expand({', '.join(map(str, sizes))})"


@rule("Pad")
def _pad(writer: SourceWriter, node: Node, op: AnyOperator, inputs: Sequence[str]) -> str:
    pairs = [op.pad_width[place : place + 2] for place in range(0, len(op.pad_width), 2)]
    while len(pairs) > 1 and not any(pairs[0]):
        pairs.pop(0)
    widths = [number for pair in reversed(pairs) for number in pair]
    if op.mode == "constant":
        return f"F.pad({inputs[0]}, {widths!r}, value={op.constant_value!r})"
    return f"F.pad({inputs[0]}, {widths!r}, mode={'replicate' if op.mode == 'edge' else 'reflect'!r})"


@rule("depth_to_space", "space_to_depth")
def _depth(writer: SourceWriter, node: Node, op: AnyOperator, inputs: Sequence[str]) -> str:
    return f"{writer.helper(node.op.name)}({inputs[0]}, {op.block_size})"


# -- reductions, softmax, products -----------------------------------------------------------------------------------

_REDUCED = {"sum": "sum", "mean": "mean", "max": "amax", "min": "amin"}


@rule(*_REDUCED)
def _reduced(writer: SourceWriter, node: Node, op: AnyOperator, inputs: Sequence[str]) -> str:
    rank = len(shape_of(node, 0))
    axes = op.axes(rank)
    needs(bool(axes), node, "a reduction over nothing")
    needs(node.op.name != "mean" or is_floating(node.outputs[0].dtype), node, "a mean of whole numbers")
    function = f"{infix(inputs[0])}.{_REDUCED[node.op.name]}"
    if len(axes) == rank and not op.keepdims:
        return f"{function}().reshape(1)"
    which = axes[0] if len(axes) == 1 else tuple(axes)
    return f"{function}({which!r}{', keepdim=True' if op.keepdims else ''})"


@rule("norm")
def _norm(writer: SourceWriter, node: Node, op: AnyOperator, inputs: Sequence[str]) -> str:
    axes = op.axes(len(shape_of(node, 0)))
    needs(op.out_dtype is None and bool(axes), node, "this norm")
    keep = ", keepdim=True" if op.keepdims else ""
    whole = len(axes) == len(shape_of(node, 0)) and not op.keepdims
    return f"torch.linalg.vector_norm({inputs[0]}, {op.ord}, {tuple(axes)}{keep}){'.reshape(1)' if whole else ''}"


@rule("argmax", "argmin")
def _place(writer: SourceWriter, node: Node, op: AnyOperator, inputs: Sequence[str]) -> str:
    needs(op.axis is not None, node, "axis=None")
    whole = ".reshape(1)" if len(shape_of(node, 0)) == 1 else ""
    return f"{infix(inputs[0])}.{node.op.name}({op.axis}{', keepdim=True' if op.keepdims else ''}).float(){whole}"


@rule("argsort")
def _argsort(writer: SourceWriter, node: Node, op: AnyOperator, inputs: Sequence[str]) -> str:
    needs(op.axis is not None, node, "axis=None")
    down = "" if op.is_ascend else ", descending=True"
    return f"{infix(inputs[0])}.argsort(dim={op.axis}{down}, stable=True).to(torch.{name_of(node.outputs[0].dtype)})"


@rule("sort")
def _sort(writer: SourceWriter, node: Node, op: AnyOperator, inputs: Sequence[str]) -> str:
    needs(op.axis is not None, node, "axis=None")
    return f"{infix(inputs[0])}.sort(dim={op.axis}{'' if op.is_ascend else ', descending=True'}).values"


@rule("topk")
def _topk(writer: SourceWriter, node: Node, op: AnyOperator, inputs: Sequence[str]) -> str | list[str]:
    needs(op.axis is not None and op.ret_typ != "mask" and op.k > 0, node, f"ret_typ={op.ret_typ!r}, k={op.k}")
    down = "" if op.is_ascend else ", descending=True"
    order = f"{infix(inputs[0])}.sort(dim={op.axis}{down}, stable=True)"
    places = f"{order}.indices.narrow({op.axis}, 0, {op.k}).to(torch.{name_of(node.outputs[-1].dtype)})"
    values = f"{order}.values.narrow({op.axis}, 0, {op.k})"
    return {"indices": [places], "value": [values], "both": [values, places]}[op.ret_typ]


@rule("cumsum")
def _cumsum(writer: SourceWriter, node: Node, op: AnyOperator, inputs: Sequence[str]) -> str:
    needs(op.dtype is None, node, f"dtype={op.dtype}")
    flat = ".flatten()" if op.axis is None else ""
    return f"{infix(inputs[0])}{flat}.cumsum({op.axis or 0})"


@rule("softmax", "log_softmax", "softmin")
def _softmax(writer: SourceWriter, node: Node, op: AnyOperator, inputs: Sequence[str]) -> str:
    needs(not getattr(op, "use_length", False), node, "use_length")
    data = f"-{infix(inputs[0])}" if node.op.name == "softmin" else inputs[0]
    if getattr(op, "temperature", None) not in (None, 1.0):
        data = f"{infix(data)} / {op.temperature!r}"
    function = "log_softmax" if node.op.name == "log_softmax" else "softmax"
    return f"F.{function}({data}, {op.axis})"


@rule("SoftmaxActivation")
def _softmax_activation(writer: SourceWriter, node: Node, op: AnyOperator, inputs: Sequence[str]) -> str:
    return f"F.softmax({inputs[0]}, {op.axis})"


@rule("dot")
def _dot(writer: SourceWriter, node: Node, op: AnyOperator, inputs: Sequence[str]) -> str:
    ranks = [len(shape_of(node, place)) for place in (0, 1)]
    if ranks == [2, 2]:
        a, b = (f"{infix(text)}.T" if turned else infix(text)
                for text, turned in zip(inputs, (op.transpose_a, op.transpose_b), strict=True))  # fmt: skip
        return f"{a} @ {b}"
    needs(not op.transpose_a and not op.transpose_b, node, "a transposed tensor of other than two axes")
    whole = ".reshape(1)" if ranks == [1, 1] else ""
    return f"torch.tensordot({inputs[0]}, {inputs[1]}, 1){whole}"


@rule("batch_dot", "_linalg_gemm2")
def _batch_dot(writer: SourceWriter, node: Node, op: AnyOperator, inputs: Sequence[str]) -> str:
    needs(getattr(op, "axis", -2) == -2, node, f"axis={getattr(op, 'axis', -2)}")
    a, b = (f"{infix(text)}.transpose(-2, -1)" if turned else infix(text)
            for text, turned in zip(inputs, (op.transpose_a, op.transpose_b), strict=True))  # fmt: skip
    alpha = getattr(op, "alpha", 1.0)
    return f"{a} @ {b}" if alpha == 1.0 else f"{alpha!r} * ({a} @ {b})"


def _heads(text: str, heads: int, parts: int, index: int) -> str:
    """One of the interleaved projections (steps, batch, heads * parts * d) as (batch * heads, steps, d)."""
    data = infix(text)
    split = f"{data}.unflatten(2, ({heads}, {parts}, -1))[:, :, :, {index}]"
    return f"{split}.permute(1, 2, 0, 3).flatten(0, 1)"


@rule("_contrib_interleaved_matmul_selfatt_qk", "_contrib_interleaved_matmul_encdec_qk")
def _attention_scores(writer: SourceWriter, node: Node, op: AnyOperator, inputs: Sequence[str]) -> str:
    own = len(inputs) == 1
    width = shape_of(node, 0)[2] // (op.heads * (3 if own else 1))
    queries = _heads(inputs[0], op.heads, 3 if own else 1, 0)
    keys = _heads(inputs[-1], op.heads, 3 if own else 2, 1 if own else 0)
    return f"{queries} / {width} ** 0.5 @ {keys}.transpose(1, 2)"


@rule("_contrib_interleaved_matmul_selfatt_valatt", "_contrib_interleaved_matmul_encdec_valatt")
def _attention_values(writer: SourceWriter, node: Node, op: AnyOperator, inputs: Sequence[str]) -> str:
    parts = 3 if op.name.endswith("selfatt_valatt") else 2
    values = _heads(inputs[0], op.heads, parts, parts - 1)
    joined = f"({infix(inputs[1])} @ {values}).unflatten(0, (-1, {op.heads}))"
    return f"{joined}.permute(2, 0, 1, 3).flatten(2)"


@rule("L2Normalization")
def _l2_normalization(writer: SourceWriter, node: Node, op: AnyOperator, inputs: Sequence[str]) -> str:
    rank = len(shape_of(node, 0))
    axes = {"instance": tuple(range(1, rank)), "channel": (1,), "spatial": tuple(range(2, rank))}[op.mode]
    data = infix(inputs[0])
    return f"{data} / ({data}.square().sum({axes}, keepdim=True) + {op.eps!r}).sqrt()"


@rule("LRN")
def _lrn(writer: SourceWriter, node: Node, op: AnyOperator, inputs: Sequence[str]) -> str:
    return f"F.local_response_norm({inputs[0]}, {op.nsize}, {op.alpha!r}, {op.beta!r}, {op.knorm!r})"


# -- images ----------------------------------------------------------------------------------------------------------


@rule("Pooling", "Pooling_v1")
def _pooling(writer: SourceWriter, node: Node, op: AnyOperator, inputs: Sequence[str]) -> str:
    needs(op.layout in (None, "NCW", "NCHW", "NCDHW"), node, f"layout={op.layout!r}")
    data, shape, out = inputs[0], shape_of(node, 0), node.outputs[0].shape
    rank = len(shape) - 2
    axes = tuple(range(2, 2 + rank))
    if op.global_pool and op.pool_type in ("max", "avg", "sum"):
        function = {"max": "amax", "avg": "mean", "sum": "sum"}[op.pool_type]
        return f"{infix(data)}.{function}({axes}, keepdim=True)"
    needs(not op.global_pool and op.pooling_convention != "same", node, "this pooling")
    kernel, stride, pad = op.kernel, op.stride or (1,) * rank, op.pad or (0,) * rank
    ceil = op.pooling_convention == "full"
    for place in range(rank):
        size, result = shape[2 + place], out[2 + place]
        needs((result - 1) * stride[place] < size + pad[place], node, "a window that begins in the padding")
    settings = [repr(each(kernel, rank, 1)), repr(each(stride, rank, 1)), repr(each(pad, rank, 0))]
    flags = ", ceil_mode=True" if ceil else ""
    if op.pool_type == "max":
        while settings[-1] == "0":
            settings.pop()
        return f"F.max_pool{rank}d({data}, {', '.join(settings)}{flags})"
    if op.pool_type == "lp":
        needs(not any(pad), node, "pad of an lp pooling")
        return f"F.lp_pool{rank}d({data}, {op.p_value}, {', '.join(settings[:2])}{flags})"
    padded = any(pad) and op.count_include_pad is False
    flags += ", count_include_pad=False" if padded else ""
    if op.pool_type == "sum" or node.op.name == "Pooling_v1":  # the first version divides by the whole window
        flags += f", divisor_override={1 if op.pool_type == 'sum' else prod(kernel)}"
        needs(rank > 1, node, "a sum over one axis")
    while settings[-1] == "0":
        settings.pop()
    return f"F.avg_pool{rank}d({data}, {', '.join(settings)}{flags})"


@rule("UpSampling")
def _up_sampling(writer: SourceWriter, node: Node, op: AnyOperator, inputs: Sequence[str]) -> str:
    if op.sample_type == "nearest":
        needs(len(inputs) == 1, node, "several inputs")
        return f"F.interpolate({inputs[0]}, scale_factor={op.scale}, mode='nearest')"
    out, before = node.outputs[0].shape, shape_of(node, 0)
    kernel, pad = 2 * op.scale - op.scale % 2, (op.scale + 1) // 2 - (0 if op.scale % 2 == 0 else 1)
    needs(out[2] == (before[2] - 1) * op.scale - 2 * pad + kernel, node, "bilinear upsampling")
    return f"F.conv_transpose2d({inputs[0]}, {inputs[1]}, stride={op.scale}, padding={pad}, groups={before[1]})"


@rule("_contrib_BilinearResize2D")
def _bilinear_resize(writer: SourceWriter, node: Node, op: AnyOperator, inputs: Sequence[str]) -> str:
    size = tuple(node.outputs[0].shape[2:])
    return f"F.interpolate({inputs[0]}, {size}, mode='bilinear', align_corners={bool(op.align_corners)})"


@rule("_contrib_AdaptiveAvgPooling2D")
def _adaptive_pooling(writer: SourceWriter, node: Node, op: AnyOperator, inputs: Sequence[str]) -> str:
    return f"F.adaptive_avg_pool2d({inputs[0]}, {tuple(node.outputs[0].shape[2:])})"


# -- indices and arrays ----------------------------------------------------------------------------------------------


@rule("take")
def _take(writer: SourceWriter, node: Node, op: AnyOperator, inputs: Sequence[str]) -> str:
    return f"{writer.helper('take')}({inputs[0]}, {inputs[1]}, {op.axis}{_wraps(op)})"


@rule("pick")
def _pick(writer: SourceWriter, node: Node, op: AnyOperator, inputs: Sequence[str]) -> str:
    needs(op.axis is not None, node, "axis=None")
    keep = ", keepdim=True" if op.keepdims else ""
    return f"{writer.helper('pick')}({inputs[0]}, {inputs[1]}, {op.axis}{_wraps(op)}{keep})"


def _wraps(op: AnyOperator) -> str:
    return ", wrap=True" if op.mode == "wrap" else ""


@rule("batch_take")
def _batch_take(writer: SourceWriter, node: Node, op: AnyOperator, inputs: Sequence[str]) -> str:
    return f"{writer.helper('pick')}({inputs[0]}, {inputs[1]}, 1)"


@rule("gather_nd")
def _gather_nd(writer: SourceWriter, node: Node, op: AnyOperator, inputs: Sequence[str]) -> str:
    return f"{infix(inputs[0])}[tuple({infix(inputs[1])}.long())]"


@rule("one_hot")
def _one_hot(writer: SourceWriter, node: Node, op: AnyOperator, inputs: Sequence[str]) -> str:
    settings = "" if (op.on_value, op.off_value) == (1.0, 0.0) else f", {op.on_value!r}, {op.off_value!r}"
    made = f"{writer.helper('one_hot')}({inputs[0]}, {op.depth}{settings})"
    return made if op.dtype == "float32" else f"{made}.to(torch.{name_of(node.outputs[0].dtype)})"


@rule("SequenceMask", "SequenceLast", "SequenceReverse")
def _sequence(writer: SourceWriter, node: Node, op: AnyOperator, inputs: Sequence[str]) -> str:
    if not op.use_sequence_length:
        data, axis = infix(inputs[0]), getattr(op, "axis", 0)
        return {
            "SequenceMask": data,
            "SequenceLast": f"{data}.select({axis}, -1)",
            "SequenceReverse": f"{data}.flip(0)",
        }[node.op.name]
    helper = {"SequenceMask": "sequence_mask", "SequenceLast": "sequence_last", "SequenceReverse": "sequence_reverse"}
    rest = f", {op.value!r}" if node.op.name == "SequenceMask" else ""
    axis = "" if node.op.name == "SequenceReverse" else f", {op.axis}"
    return f"{writer.helper(helper[node.op.name])}({inputs[0]}, {inputs[1]}{axis}{rest})"


@rule("_zeros", "_ones", "_full")
def _filled(writer: SourceWriter, node: Node, op: AnyOperator, inputs: Sequence[str]) -> str:
    shape, data = node.outputs[0].shape, writer.graph.inputs[0].shape if writer.data else ()
    sizes = [str(size) for size in shape]
    if node.name in writer.begun and shape and shape[0] in data:  # the batch of a first state
        sizes[0] = f"{writer.data[0]}.shape[{data.index(shape[0])}]"
    dtype = name_of(node.outputs[0].dtype)
    kind = "" if dtype == "float32" else f", dtype=torch.{dtype}"
    kind += f", device={writer.data[0]}.device" if writer.data else ""
    number = f", {op.value!r}" if node.op.name == "_full" else ""
    return f"torch.{node.op.name[1:]}([{', '.join(sizes)}]{number}{kind})"


@rule("full_like")
def _full_like(writer: SourceWriter, node: Node, op: AnyOperator, inputs: Sequence[str]) -> str:
    return f"torch.full_like({inputs[0]}, {op.fill_value!r})"


@rule(
    "_arange",
    "_contrib_arange_like",
    "_linspace",
    "_eye",
    "shape_array",
    "size_array",
    "_contrib_index_array",
    "_contrib_MultiBoxPrior",
)
def _known(writer: SourceWriter, node: Node, op: AnyOperator, inputs: Sequence[str]) -> str:
    """Numbers that follow from the shapes for which the source is written."""
    import numpy as np

    values = node.op.numpy(*(np.zeros(shape_of(node, place), np.float32) for place in range(len(inputs))))
    array = np.asarray(values, dtype=node.outputs[0].dtype).reshape(node.outputs[0].shape)
    return writer.buffer(node.name or node.op.name, array)
