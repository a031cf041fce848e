"""The table's entries of most operators: elementwise operators, shapes, reductions, products, indices."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from hybrid_lab.diagnostics.errors import Unmappable
from hybrid_lab.engines.torch_kernels.registry import Kernel, dtype_of, entry, needs, shape_of
from hybrid_lab.graph.node import Node, Value

if TYPE_CHECKING:
    from types import ModuleType

    from torch import Tensor

    from hybrid_lab.ops.arrays import slicing
    from hybrid_lab.ops.arrays.index import Pick, PickGrad, TakeGrad
    from hybrid_lab.ops.arrays.movement import Permutation, Roll
    from hybrid_lab.ops.arrays.reduce import Norm, Reduction, SumLike
    from hybrid_lab.ops.elementwise.activation import HardSigmoid, LeakyReLU
    from hybrid_lab.ops.elementwise.piecewise import Clip, ClipGrad
    from hybrid_lab.ops.framework.operator import Operator
    from hybrid_lab.ops.layers.softmax import LogSoftmax, Softmax
    from hybrid_lab.ops.linalg.linalg import BatchDot, Dot, DotLhsGrad, DotRhsGrad, FullyConnected
    from hybrid_lab.ops.random.random import MaskedScale

# -- pointwise -----------------------------------------------------------------------------------------------------

#: Functions of one tensor: operator -> name in torch.
_UNARY = {
    **{
        name: name
        for name in (
            "abs", "square", "sqrt", "rsqrt", "reciprocal", "exp", "expm1", "log", "log2", "log10", "log1p", "sin",
            "cos", "tan", "sinh", "cosh", "tanh", "ceil", "floor", "trunc", "erf", "sigmoid",
        )
    },
    "negative": "neg",
    "fix": "trunc",
    "arcsin": "asin",
    "arccos": "acos",
    "arctan": "atan",
    "arcsinh": "asinh",
    "arccosh": "acosh",
    "arctanh": "atanh",
}  # fmt: skip


@entry(*_UNARY, out=True)
def _unary(torch: ModuleType, node: Node, op: Operator) -> Kernel:
    return getattr(torch, _UNARY[op.name])


_BINARY = {
    "broadcast_add": "add",
    "broadcast_sub": "sub",
    "broadcast_mul": "mul",
    "broadcast_div": "div",
    "broadcast_power": "pow",
    "broadcast_maximum": "maximum",
    "broadcast_minimum": "minimum",
}


@entry(*_BINARY, out=True)
def _binary(torch: ModuleType, node: Node, op: Operator) -> Kernel:
    name = _BINARY[op.name]
    function = getattr(torch, name)
    if not isinstance(node.inputs[0], Value):
        first = torch.full((), float(node.inputs[0]), dtype=dtype_of(torch, node))
        return lambda a, b, out=None: function(first, b, out=out)
    if not isinstance(node.inputs[1], Value):
        second = float(node.inputs[1])
        if name in ("maximum", "minimum") and not math.isnan(second):  # torch 2.8 clamps with NaN as with nothing
            clamp, bound = torch.clamp, "min" if name == "maximum" else "max"
            return lambda a, b, out=None: clamp(a, out=out, **{bound: second})
        if name in ("maximum", "minimum") or (name == "pow" and second == -0.5):
            # To the power -0.5 as a number torch takes rsqrt, which gives -inf for -0.0 and NaN for -inf.
            last = torch.full((), second, dtype=dtype_of(torch, node))
            return lambda a, b, out=None: function(a, last, out=out)
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


@entry(*_COMPARISONS)
def _comparison(torch: ModuleType, node: Node, op: Operator) -> Kernel:
    needs(isinstance(node.inputs[0], Value), "a number compared with a tensor")
    function, dtype = getattr(torch, _COMPARISONS[op.name]), dtype_of(torch, node)
    if not isinstance(node.inputs[1], Value):
        second = float(node.inputs[1])  # torch takes no whole number above 2^63
        return lambda a, b: function(a, second).to(dtype)
    return lambda a, b: function(a, b).to(dtype)


@entry("relu", out=True)
def _relu(torch: ModuleType, node: Node, op: Operator) -> Kernel:
    clamp = torch.clamp_min
    return lambda x, out=None: clamp(x, 0, out=out)


@entry("_relu_grad", out=True)
def _relu_grad(torch: ModuleType, node: Node, op: Operator) -> Kernel:
    # threshold_backward would let dy through if y is NaN.
    fresh, into = torch.ops.aten.leaky_relu_backward.default, torch.ops.aten.leaky_relu_backward.grad_input
    return lambda dy, y, out=None: fresh(dy, y, 0.0, False) if out is None else into(dy, y, 0.0, False, grad_input=out)


@entry("_softrelu")
def _softrelu(torch: ModuleType, node: Node, op: Operator) -> Kernel:
    softplus = torch.nn.functional.softplus
    return lambda x: softplus(x, threshold=40.0)


@entry("hard_sigmoid")
def _hard_sigmoid(torch: ModuleType, node: Node, op: HardSigmoid) -> Kernel:
    alpha, beta = op.alpha, op.beta
    return lambda x: torch.mul(x, alpha).add_(beta).clamp_(0, 1)


@entry("LeakyReLU")
def _leaky(torch: ModuleType, node: Node, op: LeakyReLU) -> Kernel:
    functional = torch.nn.functional
    if op.act_type == "gelu":

        def gelu(x: Tensor) -> Tensor:
            """torch's gelu of infinity is NaN in float32; the sum tells cheaply whether that may be there."""
            y = functional.gelu(x)
            return y if math.isfinite(y.sum()) else torch.where(x == math.inf, x, y)

        return gelu
    if op.act_type == "elu":
        return lambda x: functional.elu(x, op.slope)
    if op.act_type == "selu":
        return torch.selu
    if op.act_type == "prelu":
        needs(shape_of(node, 1) == (1,) or len(shape_of(node, 0)) > 1, "prelu of vectors")
        needs(len(shape_of(node, 1)) == 1, "prelu with a slope for each sample or element")
        return torch.prelu
    return lambda x: functional.leaky_relu(x, op.slope)


@entry("clip")
def _clip(torch: ModuleType, node: Node, op: Clip) -> Kernel:
    low, high = op.limits(node.outputs[0].dtype)
    return lambda x: torch.clamp(x, low, high)


@entry("_clip_grad")
def _clip_grad(torch: ModuleType, node: Node, op: ClipGrad) -> Kernel:
    low, high = op.a_min, op.a_max
    zero = torch.zeros(())
    return lambda dy, x: torch.where((x >= low) & (x <= high), dy, zero.to(dy.dtype))


@entry("_masked_scale", whole=(1,))
def _masked_scale(torch: ModuleType, node: Node, op: MaskedScale) -> Kernel:
    scale = op.scale
    return lambda data, mask: torch.mul(data, mask).mul_(scale)


@entry("where", whole=(0,))
def _where(torch: ModuleType, node: Node, op: Operator) -> Kernel:
    shapes = [shape_of(node, index) for index in range(3)]
    needs(all(isinstance(item, Value) for item in node.inputs), "where with numbers")
    needs(shapes[0] == node.outputs[0].shape, "where with a condition per row")
    return lambda condition, x, y: torch.where(condition != 0, x, y)


@entry("Cast", "_cast_like", whole=(0, 1), shared=True)
def _cast(torch: ModuleType, node: Node, op: Operator) -> Kernel:
    dtype = dtype_of(torch, node)
    return lambda x, *like: x.to(dtype)


# -- shapes --------------------------------------------------------------------------------------------------------


@entry("identity", "BlockGrad", "make_loss", shared=True)
@entry("Reshape", "Flatten", "expand_dims", "squeeze", "reshape_like", "_channel_like", "_restore_axes", shared=True)
def _reshape(torch: ModuleType, node: Node, op: Operator) -> Kernel:
    shape = node.outputs[0].shape
    return lambda x, *like: x.reshape(shape)


@entry("transpose", "SwapAxis", shared=True)
def _transpose(torch: ModuleType, node: Node, op: Permutation) -> Kernel:
    order = tuple(op.order(len(shape_of(node, 0))))
    return lambda x: x.permute(order)


@entry("broadcast_to", "broadcast_axis", "broadcast_like", shared=True)
def _expand(torch: ModuleType, node: Node, op: Operator) -> Kernel:
    shape = node.outputs[0].shape
    return lambda x, *like: x.expand(shape)


def _forward_only(cut: tuple[slice, ...]) -> None:
    needs(all(part.step is None or part.step > 0 for part in cut), "a slice that runs backwards")


@entry("slice", "slice_axis", "slice_like", shared=True)
def _slice(torch: ModuleType, node: Node, op: slicing.Slice | slicing.SliceAxis | slicing.SliceLike) -> Kernel:
    cut = op.cut(*(shape_of(node, index) for index in range(len(node.inputs))))
    _forward_only(cut)
    return lambda x, *like: x[cut]


@entry("_concat_part", shared=True)
def _concat_part(torch: ModuleType, node: Node, op: slicing.ConcatPart) -> Kernel:
    cut = op.cut([shape_of(node, index) for index in range(1, len(node.inputs))])
    return lambda x, *like: x[cut]


@entry("_slice_grad", "_slice_axis_grad", "_pad_like")
def _slice_grad(
    torch: ModuleType, node: Node, op: slicing.SliceGrad | slicing.SliceAxisGrad | slicing.PadLike
) -> Kernel:
    shape = node.outputs[0].shape
    cut = op.cut(shape_of(node, 1), shape_of(node, 0))
    _forward_only(cut)

    def kernel(dy: Tensor, *like: Tensor) -> Tensor:
        made = dy.new_zeros(shape)
        made[cut] = dy
        return made

    return kernel


@entry("Concat", "_rnn_param_concat")
def _concat(torch: ModuleType, node: Node, op: slicing.Concat) -> Kernel:
    axis = op.dim
    return lambda *data: torch.cat(data, axis)


@entry("stack")
def _stack(torch: ModuleType, node: Node, op: slicing.Stack) -> Kernel:
    axis = op.axis
    return lambda *data: torch.stack(data, axis)


@entry("SliceChannel", shared=True)
def _split(torch: ModuleType, node: Node, op: slicing.SliceChannel) -> Kernel:
    axis, shape = op.axis, node.outputs[0].shape
    size = shape_of(node, 0)[axis] // op.signature.outputs
    if op.signature.outputs == 1:
        return lambda x: x.reshape(shape)
    if op.squeeze_axis:
        return lambda x: tuple(part.reshape(shape) for part in x.split(size, axis))
    return lambda x: x.split(size, axis)


@entry("zeros_like", "ones_like", shared=True)
def _filled(torch: ModuleType, node: Node, op: Operator) -> Kernel:
    number = torch.full((), float(op.name == "ones_like"), dtype=dtype_of(torch, node))
    made = number.expand(node.outputs[0].shape)
    return lambda *like: made


@entry("_size_ratio", shared=True)
def _size_ratio(torch: ModuleType, node: Node, op: Operator) -> Kernel:
    ratio = math.prod(shape_of(node, 0)) / max(math.prod(shape_of(node, 1)), 1)
    made = torch.full((1,), ratio, dtype=dtype_of(torch, node))
    return lambda *like: made


# -- reductions ----------------------------------------------------------------------------------------------------


@entry("sum", "mean", "max", "min")
def _reduce(torch: ModuleType, node: Node, op: Reduction) -> Kernel:
    function = getattr(torch, {"max": "amax", "min": "amin"}.get(op.name, op.name))
    axes, keep, shape = op.axes(len(shape_of(node, 0))), op.keepdims, node.outputs[0].shape
    needs(bool(axes), "a reduction over nothing")
    if len(axes) == len(shape_of(node, 0)):
        return lambda x: function(x, axes).reshape(shape)
    return lambda x: function(x, axes, keep)


@entry("norm")
def _norm(torch: ModuleType, node: Node, op: Norm) -> Kernel:
    axes, shape, order = op.axes(len(shape_of(node, 0))), node.outputs[0].shape, op.ord
    needs(bool(axes), "a reduction over nothing")
    needs(op.out_dtype is None, "a norm in another dtype")
    return lambda x: torch.linalg.vector_norm(x, order, axes).reshape(shape)


@entry("_sum_like", shared=True)
def _sum_like(torch: ModuleType, node: Node, op: SumLike) -> Kernel:
    shape = node.outputs[0].shape
    axes = op.axes(shape_of(node, 0), shape_of(node, 1))
    return (lambda x, like: torch.sum(x, axes).reshape(shape)) if axes else (lambda x, like: x.reshape(shape))


@entry("softmax", "softmin", "log_softmax")
def _softmax(torch: ModuleType, node: Node, op: Softmax | LogSoftmax) -> Kernel:
    axis = op.axis
    function = torch.log_softmax if op.name == "log_softmax" else torch.softmax
    factor = (-1.0 if op.name == "softmin" else 1.0) / (op.temperature or 1.0)
    if factor == 1.0:
        return lambda x: function(x, axis)
    return lambda x: function(x * factor, axis)


# -- products ------------------------------------------------------------------------------------------------------


def _matrix(shape: tuple[int, ...], first: bool) -> tuple[int, int]:
    """The shape as a matrix that keeps its first or its last axis."""
    return (shape[0], math.prod(shape[1:])) if first else (math.prod(shape[:-1]), shape[-1])


@entry("dot")
def _dot(torch: ModuleType, node: Node, op: Dot) -> Kernel:
    turn_a, turn_b, shape = op.transpose_a, op.transpose_b, node.outputs[0].shape
    left, right = _matrix(shape_of(node, 0), turn_a), _matrix(shape_of(node, 1), not turn_b)

    def kernel(a: Tensor, b: Tensor) -> Tensor:
        a, b = a.reshape(left), b.reshape(right)
        return torch.mm(a.t() if turn_a else a, b.t() if turn_b else b).reshape(shape)

    return kernel


@entry("_dot_lhs_grad")
def _dot_lhs_grad(torch: ModuleType, node: Node, op: DotLhsGrad) -> Kernel:
    turn_a, turn_b, shape = op.transpose_a, op.transpose_b, node.outputs[0].shape
    rows = _matrix(shape, turn_a)[1 if turn_a else 0]
    right = _matrix(shape_of(node, 2), not turn_b)

    def kernel(dy: Tensor, lhs: Tensor, rhs: Tensor) -> Tensor:
        dy, rhs = dy.reshape(rows, -1), rhs.reshape(right)
        factor = rhs if turn_b else rhs.t()
        return (torch.mm(factor.t(), dy.t()) if turn_a else torch.mm(dy, factor)).reshape(shape)

    return kernel


@entry("_dot_rhs_grad")
def _dot_rhs_grad(torch: ModuleType, node: Node, op: DotRhsGrad) -> Kernel:
    turn_a, turn_b, shape = op.transpose_a, op.transpose_b, node.outputs[0].shape
    left = _matrix(shape_of(node, 1), turn_a)
    rows = left[1 if turn_a else 0]

    def kernel(dy: Tensor, lhs: Tensor, rhs: Tensor) -> Tensor:
        dy, lhs = dy.reshape(rows, -1), lhs.reshape(left)
        factor = lhs.t() if turn_a else lhs
        return (torch.mm(dy.t(), factor) if turn_b else torch.mm(factor.t(), dy)).reshape(shape)

    return kernel


@entry("_np_roll")
def _roll(torch: ModuleType, node: Node, op: Roll) -> Kernel:
    moves = op.steps(len(shape_of(node, 0)))
    if op.axis is None:
        return lambda x: torch.roll(x, sum(op.shift))
    return lambda x: torch.roll(x, [shift for shift, _ in moves], [axis for _, axis in moves])


@entry("batch_dot", "_linalg_gemm2")
def _batch_dot(torch: ModuleType, node: Node, op: BatchDot) -> Kernel:
    turn_a, turn_b, scale = op.transpose_a, op.transpose_b, getattr(op, "alpha", 1.0)
    needs(getattr(op, "axis", -2) % len(shape_of(node, 0)) == len(shape_of(node, 0)) - 2, "rows at another axis")
    product = torch.bmm if len(node.outputs[0].shape) == 3 else torch.matmul

    def kernel(a: Tensor, b: Tensor) -> Tensor:
        made = product(a.transpose(-1, -2) if turn_a else a, b.transpose(-1, -2) if turn_b else b)
        return made if scale == 1.0 else made.mul_(scale)

    return kernel


@entry("FullyConnected")
def _fully_connected(torch: ModuleType, node: Node, op: FullyConnected) -> Kernel:
    rows, shape = _matrix(shape_of(node, 0), op.flatten), node.outputs[0].shape
    if op.no_bias:
        return lambda x, weight: torch.mm(x.reshape(rows), weight.t()).reshape(shape)
    return lambda x, weight, bias: torch.addmm(bias, x.reshape(rows), weight.t()).reshape(shape)


# -- indices -------------------------------------------------------------------------------------------------------


def _rows(indices: Tensor, size: int, mode: str) -> Tensor:
    if mode == "wrap":
        return indices.long().remainder(size)
    if indices.is_floating_point():
        indices = indices.clamp(max=size)  # infinity is the last place, not the first
    return indices.long().clamp(0, size - 1)


@entry("Embedding", whole=(0,))
def _embedding(torch: ModuleType, node: Node, op: Operator) -> Kernel:
    size = shape_of(node, 1)[0]
    return lambda data, weight: torch.embedding(weight, _rows(data, size, "clip"))


@entry("_take_grad", whole=(2,))
def _take_grad(torch: ModuleType, node: Node, op: TakeGrad) -> Kernel:
    shape, backward, mode = node.outputs[0].shape, torch.ops.aten.embedding_dense_backward, op.mode
    if len(shape) != 2 or op.axis % 2 or mode == "raise":
        raise Unmappable("the gradient of take except for rows of a matrix")
    return lambda dy, like, indices: backward(dy, _rows(indices, shape[0], mode), shape[0], -1, False)


def _picked(op: Pick | PickGrad, data: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
    """The axis that elements are picked along, and the data's shape with one element in that axis."""
    assert op.axis is not None  # the record refuses it
    axis = op.axis % len(data)
    return axis, (*data[:axis], 1, *data[axis + 1 :])


@entry("pick", whole=(1,))
def _pick(torch: ModuleType, node: Node, op: Pick) -> Kernel:
    data, shape, mode = shape_of(node, 0), node.outputs[0].shape, op.mode
    axis, places = _picked(op, data)
    return lambda x, index: x.gather(axis, _rows(index, data[axis], mode).reshape(places)).reshape(shape)


@entry("_pick_grad", whole=(2,))
def _pick_grad(torch: ModuleType, node: Node, op: PickGrad) -> Kernel:
    data, mode = node.outputs[0].shape, op.mode
    axis, places = _picked(op, data)
    return lambda dy, like, index: dy.new_zeros(data).scatter_(
        axis, _rows(index, data[axis], mode).reshape(places), dy.reshape(places)
    )
