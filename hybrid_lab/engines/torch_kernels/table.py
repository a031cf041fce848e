"""The table: operator -> torch call. Every operator that the torch engine can run has one entry here.

A rule is called once per node, when a region is compiled, and gives the kernel: a function of the node's inputs
(tensors, or numbers where the graph has immediates) that returns a tensor, or a tuple with one per output. A rule that
cannot serve its node raises Unmappable with the reason.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from hybrid_lab.diagnostics.errors import Unmappable
from hybrid_lab.graph.node import Node, Value

Kernel = Callable[..., Any]
Rule = Callable[[Any, Node], Kernel]

#: Operator name -> rule.
TABLE: dict[str, Rule] = {}
#: Operators whose kernel takes `out=`, which may be an input of the same shape and dtype.
OUT: set[str] = set()
#: Operators whose result may be a view of an input, or the same tensor in every call.
SHARED: set[str] = set()
#: Operator -> positions of inputs that need not be floating.
WHOLE: dict[str, tuple[int, ...]] = {}


def rule(*names: str, out: bool = False, shared: bool = False, whole: tuple[int, ...] = ()) -> Callable[[Rule], Rule]:
    """Enter a rule under these names."""

    def enter(function: Rule) -> Rule:
        for name in names:
            TABLE[name] = function
            WHOLE[name] = whole
            if out:
                OUT.add(name)
            if shared:
                SHARED.add(name)
        return function

    return enter


def shape_of(node: Node, index: int) -> tuple[int, ...]:
    """The shape of an input, () for a number."""
    item = node.inputs[index]
    return item.shape if isinstance(item, Value) else ()


def _needs(condition: bool, reason: str) -> None:
    if not condition:
        raise Unmappable(reason)


# -- pointwise -----------------------------------------------------------------------------------------------------

#: Functions of one tensor that torch has under a name of its own, with `out=`.
_UNARY = {
    "abs": "abs",
    "negative": "neg",
    "square": "square",
    "sqrt": "sqrt",
    "rsqrt": "rsqrt",
    "reciprocal": "reciprocal",
    "exp": "exp",
    "expm1": "expm1",
    "log": "log",
    "log2": "log2",
    "log10": "log10",
    "log1p": "log1p",
    "sin": "sin",
    "cos": "cos",
    "tan": "tan",
    "arcsin": "asin",
    "arccos": "acos",
    "arctan": "atan",
    "sinh": "sinh",
    "cosh": "cosh",
    "tanh": "tanh",
    "arcsinh": "asinh",
    "arccosh": "acosh",
    "arctanh": "atanh",
    "ceil": "ceil",
    "floor": "floor",
    "trunc": "trunc",
    "fix": "trunc",
    "erf": "erf",
    "sigmoid": "sigmoid",
}


@rule(*_UNARY, out=True)
def _unary(torch: Any, node: Node) -> Kernel:
    return getattr(torch, _UNARY[node.op.name])


_BINARY = {
    "broadcast_add": "add",
    "broadcast_sub": "sub",
    "broadcast_mul": "mul",
    "broadcast_div": "div",
    "broadcast_power": "pow",
    "broadcast_maximum": "maximum",
    "broadcast_minimum": "minimum",
}


@rule(*_BINARY, out=True)
def _binary(torch: Any, node: Node) -> Kernel:
    name = _BINARY[node.op.name]
    function = getattr(torch, name)
    if not isinstance(node.inputs[0], Value):
        number, dtype = float(node.inputs[0]), node.outputs[0].dtype
        first = torch.full((), number, dtype=getattr(torch, dtype.name))
        return lambda a, b, out=None: function(first, b, out=out)
    if not isinstance(node.inputs[1], Value):
        second = float(node.inputs[1])
        if name in ("maximum", "minimum"):
            clamp, bound = torch.clamp, "min" if name == "maximum" else "max"
            return lambda a, b, out=None: clamp(a, out=out, **{bound: second})
        return lambda a, b, out=None: function(a, second, out=out)
    return function


_COMPARISONS = {
    "broadcast_equal": "eq",
    "broadcast_not_equal": "ne",
    "broadcast_greater": "gt",
    "broadcast_greater_equal": "ge",
    "broadcast_lesser": "lt",
    "broadcast_lesser_equal": "le",
}


@rule(*_COMPARISONS)
def _comparison(torch: Any, node: Node) -> Kernel:
    _needs(isinstance(node.inputs[0], Value), "a number compared with a tensor")
    function, dtype = getattr(torch, _COMPARISONS[node.op.name]), getattr(torch, node.outputs[0].dtype.name)
    return lambda a, b: function(a, b).to(dtype)


@rule("identity", "BlockGrad", "make_loss", shared=True)
def _identity(torch: Any, node: Node) -> Kernel:
    return lambda x: x


@rule("relu", out=True)
def _relu(torch: Any, node: Node) -> Kernel:
    clamp = torch.clamp_min
    return lambda x, out=None: clamp(x, 0, out=out)


@rule("_relu_grad", out=True)
def _relu_grad(torch: Any, node: Node) -> Kernel:
    fresh, into = torch.ops.aten.threshold_backward.default, torch.ops.aten.threshold_backward.grad_input
    return lambda dy, y, out=None: fresh(dy, y, 0) if out is None else into(dy, y, 0, grad_input=out)


@rule("_softrelu")
def _softrelu(torch: Any, node: Node) -> Kernel:
    softplus = torch.nn.functional.softplus
    return lambda x: softplus(x, threshold=40.0)


@rule("hard_sigmoid")
def _hard_sigmoid(torch: Any, node: Node) -> Kernel:
    alpha, beta = node.op.alpha, node.op.beta
    return lambda x: torch.mul(x, alpha).add_(beta).clamp_(0, 1)


@rule("Activation")
def _activation(torch: Any, node: Node) -> Kernel:
    plain = node.op.plain.name
    _needs(plain in TABLE, f"{plain} has no torch call")
    return TABLE[plain](torch, node.replace(op=node.op.plain))


@rule("LeakyReLU")
def _leaky(torch: Any, node: Node) -> Kernel:
    op, functional = node.op, torch.nn.functional
    if op.act_type == "gelu":
        return functional.gelu
    if op.act_type == "elu":
        return lambda x: functional.elu(x, op.slope)
    if op.act_type == "selu":
        return torch.selu
    if op.act_type == "prelu":
        _needs(shape_of(node, 1) == (1,) or len(shape_of(node, 0)) > 1, "prelu of vectors")
        return torch.prelu
    return lambda x: functional.leaky_relu(x, op.slope)


@rule("clip")
def _clip(torch: Any, node: Node) -> Kernel:
    low, high = node.op.a_min, node.op.a_max
    return lambda x: torch.clamp(x, low, high)


@rule("_clip_grad")
def _clip_grad(torch: Any, node: Node) -> Kernel:
    low, high = node.op.a_min, node.op.a_max
    return lambda dy, x: dy * ((x >= low) & (x <= high))


@rule("_masked_scale", whole=(1,))
def _masked_scale(torch: Any, node: Node) -> Kernel:
    scale = node.op.scale
    return lambda data, mask: torch.mul(data, mask).mul_(scale)


@rule("where", whole=(0,))
def _where(torch: Any, node: Node) -> Kernel:
    shapes = [shape_of(node, index) for index in range(3)]
    _needs(all(isinstance(item, Value) for item in node.inputs), "where with numbers")
    _needs(shapes[0] == node.outputs[0].shape, "where with a condition per row")
    return lambda condition, x, y: torch.where(condition != 0, x, y)


@rule("Cast", "_cast_like", whole=(0, 1), shared=True)
def _cast(torch: Any, node: Node) -> Kernel:
    dtype = getattr(torch, node.outputs[0].dtype.name)
    return lambda x, *like: x.to(dtype)


# -- shapes --------------------------------------------------------------------------------------------------------


@rule("Reshape", "Flatten", "expand_dims", "squeeze", "reshape_like", "_channel_like", "_restore_axes", shared=True)
def _reshape(torch: Any, node: Node) -> Kernel:
    shape = node.outputs[0].shape
    return lambda x, *like: x.reshape(shape)


@rule("transpose", "SwapAxis", shared=True)
def _transpose(torch: Any, node: Node) -> Kernel:
    order = tuple(node.op.order(len(shape_of(node, 0))))
    return lambda x: x.permute(order)


@rule("broadcast_to", "broadcast_axis", "broadcast_like", shared=True)
def _expand(torch: Any, node: Node) -> Kernel:
    shape = node.outputs[0].shape
    return lambda x, *like: x.expand(shape)


def _forward_only(cut: tuple[slice, ...]) -> None:
    _needs(all(part.step is None or part.step > 0 for part in cut), "a slice that runs backwards")


@rule("slice", "slice_axis", "slice_like", shared=True)
def _slice(torch: Any, node: Node) -> Kernel:
    cut = node.op.cut(*(shape_of(node, index) for index in range(len(node.inputs))))
    _forward_only(cut)
    return lambda x, *like: x[cut]


@rule("_concat_part", shared=True)
def _concat_part(torch: Any, node: Node) -> Kernel:
    cut = node.op.cut([shape_of(node, index) for index in range(1, len(node.inputs))])
    return lambda x, *like: x[cut]


@rule("_slice_grad", "_slice_axis_grad", "_pad_like")
def _slice_grad(torch: Any, node: Node) -> Kernel:
    shape = node.outputs[0].shape
    cut = node.op.cut(shape_of(node, 1), shape_of(node, 0))
    _forward_only(cut)

    def kernel(dy: Any, *like: Any) -> Any:
        made = dy.new_zeros(shape)
        made[cut] = dy
        return made

    return kernel


@rule("Concat")
def _concat(torch: Any, node: Node) -> Kernel:
    axis = node.op.dim
    return lambda *data: torch.cat(data, axis)


@rule("stack")
def _stack(torch: Any, node: Node) -> Kernel:
    axis = node.op.axis
    return lambda *data: torch.stack(data, axis)


@rule("SliceChannel", shared=True)
def _split(torch: Any, node: Node) -> Kernel:
    axis, shape = node.op.axis, node.outputs[0].shape
    size = shape_of(node, 0)[axis] // node.op.num_outputs
    if node.op.num_outputs == 1:
        return lambda x: x.reshape(shape)
    if node.op.squeeze_axis:
        return lambda x: tuple(part.reshape(shape) for part in x.split(size, axis))
    return lambda x: x.split(size, axis)


@rule("zeros_like", "ones_like", shared=True)
def _filled(torch: Any, node: Node) -> Kernel:
    number = torch.full((), float(node.op.name == "ones_like"), dtype=getattr(torch, node.outputs[0].dtype.name))
    made = number.expand(node.outputs[0].shape)
    return lambda *like: made


@rule("_size_ratio", shared=True)
def _size_ratio(torch: Any, node: Node) -> Kernel:
    ratio = math.prod(shape_of(node, 0)) / max(math.prod(shape_of(node, 1)), 1)
    made = torch.full((1,), ratio, dtype=getattr(torch, node.outputs[0].dtype.name))
    return lambda *like: made


# -- reductions ----------------------------------------------------------------------------------------------------


@rule("sum", "mean", "max", "min")
def _reduce(torch: Any, node: Node) -> Kernel:
    function = getattr(torch, {"max": "amax", "min": "amin"}.get(node.op.name, node.op.name))
    axes, keep, shape = node.op.axes(len(shape_of(node, 0))), node.op.keepdims, node.outputs[0].shape
    _needs(bool(axes), "a reduction over nothing")
    if len(axes) == len(shape_of(node, 0)):
        return lambda x: function(x, axes).reshape(shape)
    return lambda x: function(x, axes, keep)


@rule("norm")
def _norm(torch: Any, node: Node) -> Kernel:
    axes, shape, order = node.op.axes(len(shape_of(node, 0))), node.outputs[0].shape, node.op.ord
    _needs(bool(axes), "a reduction over nothing")
    return lambda x: torch.linalg.vector_norm(x, order, axes).reshape(shape)


@rule("_sum_like", shared=True)
def _sum_like(torch: Any, node: Node) -> Kernel:
    shape = node.outputs[0].shape
    axes = node.op.axes(shape_of(node, 0), shape_of(node, 1))
    return (lambda x, like: torch.sum(x, axes).reshape(shape)) if axes else (lambda x, like: x.reshape(shape))


@rule("softmax", "softmin", "log_softmax")
def _softmax(torch: Any, node: Node) -> Kernel:
    axis, op = node.op.axis, node.op
    function = torch.log_softmax if op.name == "log_softmax" else torch.softmax
    factor = (-1.0 if op.name == "softmin" else 1.0) / (op.temperature or 1.0)
    if factor == 1.0:
        return lambda x: function(x, axis)
    return lambda x: function(x * factor, axis)


# -- products ------------------------------------------------------------------------------------------------------


def _matrix(shape: tuple[int, ...], first: bool) -> tuple[int, int]:
    """The shape as a matrix that keeps its first or its last axis."""
    return (shape[0], math.prod(shape[1:])) if first else (math.prod(shape[:-1]), shape[-1])


@rule("dot")
def _dot(torch: Any, node: Node) -> Kernel:
    turn_a, turn_b, shape = node.op.transpose_a, node.op.transpose_b, node.outputs[0].shape
    left, right = _matrix(shape_of(node, 0), turn_a), _matrix(shape_of(node, 1), not turn_b)

    def kernel(a: Any, b: Any) -> Any:
        a, b = a.reshape(left), b.reshape(right)
        return torch.mm(a.t() if turn_a else a, b.t() if turn_b else b).reshape(shape)

    return kernel


@rule("_dot_lhs_grad")
def _dot_lhs_grad(torch: Any, node: Node) -> Kernel:
    turn_a, turn_b, shape = node.op.transpose_a, node.op.transpose_b, node.outputs[0].shape
    rows = _matrix(shape, turn_a)[1 if turn_a else 0]
    right = _matrix(shape_of(node, 2), not turn_b)

    def kernel(dy: Any, lhs: Any, rhs: Any) -> Any:
        dy, rhs = dy.reshape(rows, -1), rhs.reshape(right)
        factor = rhs if turn_b else rhs.t()
        return (torch.mm(factor.t(), dy.t()) if turn_a else torch.mm(dy, factor)).reshape(shape)

    return kernel


@rule("_dot_rhs_grad")
def _dot_rhs_grad(torch: Any, node: Node) -> Kernel:
    turn_a, turn_b, shape = node.op.transpose_a, node.op.transpose_b, node.outputs[0].shape
    left = _matrix(shape_of(node, 1), turn_a)
    rows = left[1 if turn_a else 0]

    def kernel(dy: Any, lhs: Any, rhs: Any) -> Any:
        dy, lhs = dy.reshape(rows, -1), lhs.reshape(left)
        factor = lhs.t() if turn_a else lhs
        return (torch.mm(dy.t(), factor) if turn_b else torch.mm(factor.t(), dy)).reshape(shape)

    return kernel


@rule("batch_dot", "_linalg_gemm2")
def _batch_dot(torch: Any, node: Node) -> Kernel:
    turn_a, turn_b, scale = node.op.transpose_a, node.op.transpose_b, getattr(node.op, "alpha", 1.0)
    product = torch.bmm if len(node.outputs[0].shape) == 3 else torch.matmul

    def kernel(a: Any, b: Any) -> Any:
        made = product(a.transpose(-1, -2) if turn_a else a, b.transpose(-1, -2) if turn_b else b)
        return made if scale == 1.0 else made.mul_(scale)

    return kernel


@rule("FullyConnected")
def _fully_connected(torch: Any, node: Node) -> Kernel:
    rows, shape = _matrix(shape_of(node, 0), node.op.flatten), node.outputs[0].shape
    if node.op.no_bias:
        return lambda x, weight: torch.mm(x.reshape(rows), weight.t()).reshape(shape)
    return lambda x, weight, bias: torch.addmm(bias, x.reshape(rows), weight.t()).reshape(shape)


# -- convolution and pooling ---------------------------------------------------------------------------------------


@rule("Convolution")
def _convolution(torch: Any, node: Node) -> Kernel:
    shape = node.op.geometry
    rest = (shape.stride, shape.pad, shape.dilate, False, (0,) * len(shape.kernel), node.op.num_group)
    convolution = torch.convolution
    return lambda x, weight, bias=None: convolution(x, weight, bias, *rest)


def _convolution_backward(torch: Any, node: Node, wanted: int) -> Kernel:
    shape = node.op.geometry
    rest = (None, shape.stride, shape.pad, shape.dilate, False, (0,) * len(shape.kernel), node.op.num_group)
    mask = [index == wanted for index in range(3)]
    backward = torch.ops.aten.convolution_backward
    return lambda dy, x, weight: backward(dy, x, weight, *rest, mask)[wanted]


@rule("_conv_data_grad")
def _conv_data_grad(torch: Any, node: Node) -> Kernel:
    return _convolution_backward(torch, node, 0)


@rule("_conv_weight_grad")
def _conv_weight_grad(torch: Any, node: Node) -> Kernel:
    return _convolution_backward(torch, node, 1)


def _window(node: Node, data: tuple[int, ...]) -> tuple[Any, ...]:
    """kernel, stride, pad and whether sizes round up, as torch counts. Raises Unmappable where it counts otherwise."""
    _needs(len(data) == 4, "pooling over one or three axes")
    windows = node.op.windows(data[2:])
    for ceil in (False, True):
        sizes = []
        for size, kernel, stride, pad in zip(data[2:], windows.kernel, windows.stride, windows.pad, strict=True):
            steps = (size + 2 * pad - kernel) / stride
            count = (math.ceil(steps) if ceil else math.floor(steps)) + 1
            sizes.append(count - (ceil and (count - 1) * stride >= size + pad))
        if tuple(sizes) == tuple(windows.output):
            _needs(all(2 * pad <= kernel for pad, kernel in zip(windows.pad, windows.kernel, strict=True)), "wide pad")
            return tuple(windows.kernel), tuple(windows.stride), tuple(windows.pad), ceil
    raise Unmappable("windows that reach beyond the padding")


@rule("Pooling")
def _pooling(torch: Any, node: Node) -> Kernel:
    op = node.op
    kernel, stride, pad, ceil = _window(node, shape_of(node, 0))
    if op.pool_type == "max" and op.global_pool:
        return lambda x: torch.amax(x, (2, 3), True)
    if op.pool_type == "max" and not any(pad) and not ceil:
        return _sweep(torch, node)
    if op.pool_type == "max":
        return lambda x: torch.max_pool2d(x, kernel, stride, pad, 1, ceil)
    _needs(op.pool_type != "lp", "pool_type='lp'")
    if op.global_pool:
        reduce = torch.mean if op.pool_type == "avg" else torch.sum
        return lambda x: reduce(x, (2, 3), True)
    divisor = None if op.pool_type == "avg" else 1
    counted = op.count_include_pad is not False
    average = torch.nn.functional.avg_pool2d
    return lambda x: average(x, kernel, stride, pad, ceil, counted, divisor)


def _sweep(torch: Any, node: Node) -> Kernel:
    """The maximum over windows, one axis after the other: on whole slices, which torch's own loop is slower than."""
    windows = node.op.windows(shape_of(node, 0)[2:])
    cuts = []
    for axis in (0, 1):
        size, step, count = windows.kernel[axis], windows.stride[axis], windows.output[axis]
        parts = [slice(at, at + (count - 1) * step + 1, step) for at in range(size)]
        cuts.append([(..., part, slice(None)) if axis == 0 else (..., part) for part in parts])

    def pool(x: Any) -> Any:
        for places in cuts:
            made = torch.maximum(x[places[0]], x[places[1]]) if len(places) > 1 else x[places[0]].clone()
            for place in places[2:]:
                torch.maximum(made, x[place], out=made)
            x = made
        return x

    return pool


@rule("_max_pool_grad")
def _max_pool_grad(torch: Any, node: Node) -> Kernel:
    kernel, stride, pad, ceil = _window(node, shape_of(node, 1))
    windows = node.op.windows(shape_of(node, 1)[2:])
    if not any(pad) and not ceil and windows.disjoint and math.prod(kernel) <= 9:
        return _disjoint_max_pool_grad(windows)
    forward = torch.ops.aten.max_pool2d_with_indices
    backward = torch.ops.aten.max_pool2d_with_indices_backward

    def gradient(dy: Any, x: Any, y: Any) -> Any:
        _, places = forward(x, kernel, stride, pad, (1, 1), ceil)
        return backward(dy, x, kernel, stride, pad, (1, 1), ceil, places)

    return gradient


def _disjoint_max_pool_grad(windows: Any) -> Kernel:
    """Where windows do not overlap: each place of a window takes what is left of dy where it holds the maximum."""
    places = [(..., *where) for where in windows.places()]

    def gradient(dy: Any, x: Any, y: Any) -> Any:
        made, rest = x.new_zeros(x.shape), dy.clone()
        for place in places:
            share = rest * (x[place] == y)
            rest.sub_(share)
            made[place] = share
        return made

    return gradient


@rule("_spread_pool_grad", shared=True)
def _spread_pool_grad(torch: Any, node: Node) -> Kernel:
    op, shape = node.op, node.outputs[0].shape
    kernel, stride, pad, ceil = _window(node, shape_of(node, 1))
    if op.global_pool:
        factor = 1.0 / math.prod(shape[2:]) if op.pool_type == "avg" else 1.0
        return lambda dy, x: (dy * factor).expand(shape)
    backward = torch.ops.aten.avg_pool2d_backward
    divisor = None if op.pool_type == "avg" else 1
    counted = op.count_include_pad is not False
    return lambda dy, x: backward(dy, x, kernel, stride, pad, ceil, counted, divisor)


# -- normalization -------------------------------------------------------------------------------------------------


@rule("BatchNorm")
def _batch_norm(torch: Any, node: Node) -> Kernel:
    op, eps = node.op, node.op.eps
    _needs(op.axis % len(shape_of(node, 0)) == 1, "channels that are not axis 1")
    normalize, fixed = torch.native_batch_norm, op.fix_gamma
    if op.from_batch:
        return lambda x, gamma, beta, mean, variance: normalize(
            x, None if fixed else gamma, beta, None, None, True, 0.0, eps
        )

    def predict(x: Any, gamma: Any, beta: Any, mean: Any, variance: Any) -> Any:
        y = normalize(x, None if fixed else gamma, beta, mean, variance, False, 0.0, eps)[0]
        return y, mean.clone(), (variance + eps).rsqrt_()

    return predict


@rule("LayerNorm")
def _layer_norm(torch: Any, node: Node) -> Kernel:
    shape, eps = shape_of(node, 0), node.op.eps
    _needs(node.op.axis % len(shape) == len(shape) - 1, "an axis that is not the last")

    def normalize(x: Any, gamma: Any, beta: Any) -> Any:
        y, mean, inverse = torch.native_layer_norm(x, shape[-1:], gamma, beta, eps)
        return y, mean, inverse.reciprocal_()

    return normalize


@rule("_batch_norm_grad")
def _batch_norm_grad(torch: Any, node: Node) -> Kernel:
    fixed = node.op.fix_gamma
    _needs(node.op.axis % len(shape_of(node, 0)) == 1, "channels that are not axis 1")
    backward, all_three = torch.ops.aten.native_batch_norm_backward, [True] * 3
    return lambda dy, x, gamma, mean, inverse: backward(
        dy, x, None if fixed else gamma, None, None, mean, inverse, True, 0.0, all_three
    )


@rule("_layer_norm_grad")
def _layer_norm_grad(torch: Any, node: Node) -> Kernel:
    shape = shape_of(node, 0)
    _needs(node.op.axis % len(shape) == len(shape) - 1, "an axis that is not the last")
    backward, all_three = torch.ops.aten.native_layer_norm_backward, [True] * 3
    return lambda dy, x, gamma, mean, deviation: backward(
        dy, x, shape[-1:], mean, deviation.reciprocal(), gamma, gamma, all_three
    )


@rule("_softmax_grad", "_log_softmax_grad")
def _softmax_grad(torch: Any, node: Node) -> Kernel:
    aten, axis, dtype = torch.ops.aten, node.op.axis, getattr(torch, node.outputs[0].dtype.name)
    backward = aten._softmax_backward_data if node.op.name == "_softmax_grad" else aten._log_softmax_backward_data
    return lambda dy, y: backward(dy, y, axis, dtype)


@rule("_gelu_grad")
def _gelu_grad(torch: Any, node: Node) -> Kernel:
    return torch.ops.aten.gelu_backward


# -- indices -------------------------------------------------------------------------------------------------------


def _rows(indices: Any, size: int, mode: str) -> Any:
    numbers = indices.long()
    return numbers.remainder(size) if mode == "wrap" else numbers.clamp(0, size - 1)


@rule("Embedding", whole=(0,))
def _embedding(torch: Any, node: Node) -> Kernel:
    size = shape_of(node, 1)[0]
    return lambda data, weight: torch.embedding(weight, _rows(data, size, "clip"))


@rule("_embedding_grad", whole=(1,))
def _embedding_grad(torch: Any, node: Node) -> Kernel:
    size = node.outputs[0].shape[0]
    backward = torch.ops.aten.embedding_dense_backward
    return lambda dy, data, weight: backward(dy, _rows(data, size, "clip"), size, -1, False)


@rule("pick", whole=(1,))
def _pick(torch: Any, node: Node) -> Kernel:
    data, shape = shape_of(node, 0), node.outputs[0].shape
    axis = node.op.axis % len(data)
    places = (*data[:axis], 1, *data[axis + 1 :])
    size, mode = data[axis], node.op.mode
    return lambda x, index: x.gather(axis, _rows(index, size, mode).reshape(places)).reshape(shape)


@rule("_pick_grad", whole=(2,))
def _pick_grad(torch: Any, node: Node) -> Kernel:
    data = node.outputs[0].shape
    axis = node.op.axis % len(data)
    places = (*data[:axis], 1, *data[axis + 1 :])
    size, mode = data[axis], node.op.mode
    return lambda dy, like, index: dy.new_zeros(data).scatter_(
        axis, _rows(index, size, mode).reshape(places), dy.reshape(places)
    )


# -- what has an entry ---------------------------------------------------------------------------------------------

#: dtypes of inputs that need not be floating.
_WHOLE_TYPES = frozenset({"uint8", "int8", "int32", "int64", "bool", "float32", "float64"})


class _Anything:
    """Stands for torch where a rule is only asked whether it would serve a node."""

    def __getattr__(self, name: str) -> _Anything:
        return self

    def __call__(self, *inputs: Any, **keywords: Any) -> _Anything:
        return self


def refusal(node: Node) -> str | None:
    """Why torch cannot run the node, or None. torch itself is not asked, so that nobody waits for its import."""
    op = node.op
    if op.random:
        return "random numbers come from the counter-based generator that all engines share"
    if op.name not in TABLE:
        return "the table of torch calls has no entry"
    floating = {value.dtype.name for value in node.outputs}
    for index, item in enumerate(node.inputs):
        if not isinstance(item, Value):
            continue
        if 0 in item.shape:
            return "arrays without elements"
        if index not in WHOLE[op.name]:
            floating.add(item.dtype.name)
        elif item.dtype.name not in _WHOLE_TYPES:
            return f"a torch call with {item.dtype.name}"
    if floating not in ({"float32"}, {"float64"}) and op.name not in ("Cast", "_cast_like"):
        return f"a torch call with {', '.join(sorted(floating))}"
    if not floating <= {"float32", "float64"}:
        return f"a torch call that gives {', '.join(sorted(floating))}"
    try:
        TABLE[op.name](_Anything(), node)
    except Unmappable as error:
        return str(error)
    return None
