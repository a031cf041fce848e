"""Products as torch calls them: the call, its operands, and whether it writes into given memory.

A call reads and writes tensors through `StridedView`s of the memory of Values, which are known when a program is
written. What torch would have to copy first has no call. Entries are functions of (torch, node, tf32) that
return a VendorCall, or raise Unmappable with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from hybrid_lab.diagnostics.errors import Unmappable
from hybrid_lab.engines.memory import torch_dtype
from hybrid_lab.engines.triton.plan.attention import VendorAttention
from hybrid_lab.engines.triton.plan.layout import ChannelsLast
from hybrid_lab.engines.triton.plan.recurrent import layers_of
from hybrid_lab.engines.triton.run import attention, recurrent
from hybrid_lab.engines.triton.run.availability import has_cudnn
from hybrid_lab.graph.node import Node, Value
from hybrid_lab.ops.framework.run import run_kernel
from hybrid_lab.ops.kernels.convolution import Geometry
from hybrid_lab.ops.layers.conv import left_over

if TYPE_CHECKING:
    from types import ModuleType

    import torch
    from torch import Tensor
    from torch import device as Device

_COPIED = "what it reads would have to be copied"
#: A tensor of no memory, as a call reads or writes it, made of one as the Value lies.
Form: TypeAlias = "Callable[[Tensor], Tensor]"


@dataclass(frozen=True)
class VendorCall:
    """One call of torch.

    reads : (number of the input, its form) of each tensor that `run` takes
    run : takes these tensors and, if `result` is a form, the tensor to write to; else it returns a tensor of its own,
        or of an operator with several outputs a tuple of them
    result : the form of the tensor that is written; None if torch makes memory for the result
    reads_flag : how factors are rounded is a flag of torch, and not an argument
    """

    reads: tuple[tuple[int, Form], ...]
    run: Callable[..., Any]
    result: Form | None = None
    reads_flag: bool = True


@dataclass(frozen=True)
class StridedView:
    """A view of a Value's memory, which lies in C order: called with the tensor it gives the view."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    start: int

    def __call__(self, tensor: Tensor) -> Tensor:
        return tensor.as_strided(self.shape, self.strides, tensor.storage_offset() + self.start)


class CachedView:
    """A view of a parameter, which is the same tensor from call to call: the last view is cached.

    The view holds the tensor's memory, so that no other tensor can have the tensor's id meanwhile.
    """

    def __init__(self, view: StridedView):
        self._view = view
        self._last: tuple[Tensor | None, Tensor | None] = None, None

    def __call__(self, tensor: Tensor) -> Tensor | None:
        last, view = self._last
        if last is not tensor:
            view = self._view(tensor)
            self._last = tensor, view
        return view


def view_of(value: Value, views: Sequence[Node], form: Form) -> StridedView | None:
    """Where a call finds the memory of `value` that these views of it, in order, show; None for the whole memory in its
    own order.

    Raises Unmappable if torch would have to copy.
    """
    import torch

    array = whole = np.empty(value.shape, np.uint8)  # never read or written: strides are in elements
    for node in views:
        array = run_kernel(node.op, [array, *node.inputs[1:]])[0]
        if not np.may_share_memory(array, whole) or min(array.strides, default=0) < 0:
            raise Unmappable(_COPIED)
    start = array.__array_interface__["data"][0] - whole.__array_interface__["data"][0]
    memory = torch.empty(start + whole.size, dtype=torch_dtype(value.dtype), device="meta")
    try:
        tensor = form(memory.as_strided(array.shape, array.strides, start))
    except RuntimeError:
        raise Unmappable(_COPIED) from None
    view = StridedView(tuple(tensor.shape), tuple(tensor.stride()), int(tensor.storage_offset()))
    return None if view == StridedView(whole.shape, whole.strides, 0) else view


def call_of(node: Node, tf32: bool = False) -> VendorCall:
    """The call that computes a product or a recurrent layer. tf32 : float32 factors may be rounded to 10 bits

    Raises Unmappable if torch has none.
    """
    import torch

    if layers_of(node) is not None or isinstance(node.op, VendorAttention):
        kernel = (attention if isinstance(node.op, VendorAttention) else recurrent).kernel_of(node)
        return VendorCall(tuple([(index, _as_it_lies) for index in range(len(node.inputs))]), kernel)
    if isinstance(node.op, ChannelsLast):
        return _of_channels_last(torch, node, node.op, tf32)
    make = CALLS.get(node.op.name)
    if make is None:
        raise Unmappable(f"torch has no one call for {node.op.name}")
    return make(torch, node, tf32)


def _shape(node: Node, index: int) -> tuple[int, ...]:
    item = node.inputs[index]
    if not isinstance(item, Value):
        raise Unmappable("a factor that is a number")
    return item.shape


# -- matrix products ---------------------------------------------------------------------------------------------------


def _matrix(shape: Sequence[int], first: bool) -> tuple[int, int]:
    """The shape as a matrix that keeps its first or its last axis."""
    return (shape[0], prod(shape[1:])) if first else (prod(shape[:-1]), shape[-1])


def _factor(shape: tuple[int, ...], turned: bool) -> Form:
    """A matrix, or a batch of them, that BLAS reads as it lies."""

    def form(tensor: Tensor) -> Tensor:
        matrix = tensor.view(shape)
        matrix = matrix.transpose(-1, -2) if turned else matrix
        sizes, strides = matrix.shape[-2:], matrix.stride()[-2:]
        if not any(strides[at] == 1 and strides[1 - at] >= sizes[at] for at in (0, 1)):
            raise Unmappable("a factor that BLAS does not read as it lies")
        return matrix

    return form


def _product(
    torch: ModuleType, node: Node, left: tuple[int, tuple[int, ...], bool], right: tuple[int, tuple[int, ...], bool],
    bias: int | None = None,
) -> VendorCall:  # fmt: skip
    """mm, or addmm. left, right : (number of the input, its shape as a matrix, whether the matrix is transposed)"""
    reads = [(index, _factor(shape, turned)) for index, shape, turned in (left, right)]
    rows, columns = left[1][left[2]], right[1][not right[2]]

    def result(tensor: Tensor) -> Tensor:
        return tensor.view(rows, columns)

    if bias is None:
        mm = torch.mm
        return VendorCall(tuple(reads), lambda a, b, out: mm(a, b, out=out), result)
    addmm = torch.addmm
    return VendorCall(((bias, _as_it_lies), *reads), lambda bias, a, b, out: addmm(bias, a, b, out=out), result)


def _as_it_lies(tensor: Tensor) -> Tensor:
    if not tensor.is_contiguous():
        raise Unmappable(_COPIED)
    return tensor


def _dot(torch: ModuleType, node: Node, tf32: bool) -> VendorCall:
    op: Any = node.op
    left, right = _matrix(_shape(node, 0), op.transpose_a), _matrix(_shape(node, 1), not op.transpose_b)
    return _product(torch, node, (0, left, op.transpose_a), (1, right, op.transpose_b))


def _dot_lhs_grad(torch: ModuleType, node: Node, tf32: bool) -> VendorCall:
    op: Any = node.op
    rows = _matrix(node.outputs[0].shape, op.transpose_a)[1 if op.transpose_a else 0]
    dy, rhs = (rows, prod(_shape(node, 0)) // rows), _matrix(_shape(node, 2), not op.transpose_b)
    if op.transpose_a:
        return _product(torch, node, (2, rhs, op.transpose_b), (0, dy, True))
    return _product(torch, node, (0, dy, False), (2, rhs, not op.transpose_b))


def _dot_rhs_grad(torch: ModuleType, node: Node, tf32: bool) -> VendorCall:
    op: Any = node.op
    lhs = _matrix(_shape(node, 1), op.transpose_a)
    rows = lhs[1 if op.transpose_a else 0]
    dy = (rows, prod(_shape(node, 0)) // rows)
    if op.transpose_b:
        return _product(torch, node, (0, dy, True), (1, lhs, op.transpose_a))
    return _product(torch, node, (1, lhs, not op.transpose_a), (0, dy, False))


def _fully_connected(torch: ModuleType, node: Node, tf32: bool) -> VendorCall:
    op: Any = node.op
    rows, weight = _matrix(_shape(node, 0), op.flatten), _shape(node, 1)
    return _product(torch, node, (0, rows, False), (1, weight, True), None if op.no_bias else 2)


def _batch_dot(torch: ModuleType, node: Node, tf32: bool) -> VendorCall:
    op: Any = node.op
    scale, shape = getattr(op, "alpha", 1.0), node.outputs[0].shape
    if getattr(op, "axis", -2) % len(shape) != len(shape) - 2:
        raise Unmappable("rows at another axis")
    reads = []
    for index, turned in ((0, op.transpose_a), (1, op.transpose_b)):
        given = _shape(node, index)
        if given[:-2] != shape[:-2]:
            raise Unmappable("batches that are broadcast")
        reads.append((index, _factor((prod(given[:-2]), *given[-2:]), turned)))

    def result(tensor: Tensor) -> Tensor:
        return tensor.view(prod(shape[:-2]), *shape[-2:])

    if scale == 1.0:
        bmm = torch.bmm
        return VendorCall(tuple(reads), lambda a, b, out: bmm(a, b, out=out), result)
    scaled = torch.baddbmm
    return VendorCall(tuple(reads), lambda a, b, out: scaled(out, a, b, beta=0, alpha=scale, out=out), result)


# -- convolutions ------------------------------------------------------------------------------------------------------


def _convolution(torch: ModuleType, node: Node, tf32: bool) -> VendorCall:
    op: Any = node.op
    return _forward(torch, op.geometry, (0, 1) if op.no_bias else (0, 1, 2), tf32)


def _conv_data_grad(torch: ModuleType, node: Node, tf32: bool) -> VendorCall:
    op: Any = node.op
    return _backward(torch, node, op.geometry, 0, node.outputs[0].shape, weight=2, tf32=tf32)


def _conv_weight_grad(torch: ModuleType, node: Node, tf32: bool) -> VendorCall:
    op: Any = node.op
    return _backward(torch, node, op.geometry, 0, node.outputs[0].shape, data=1)


def _deconvolution(torch: ModuleType, node: Node, tf32: bool) -> VendorCall:
    op: Any = node.op
    if not op.no_bias:
        raise Unmappable("a transposed convolution with a bias")
    geometry = op.sizes(_shape(node, 0)[2:]).geometry
    return _backward(torch, node, geometry, 0, node.outputs[0].shape, weight=1, tf32=tf32)


def _deconv_data_grad(torch: ModuleType, node: Node, tf32: bool) -> VendorCall:
    op: Any = node.op
    return _forward(torch, op.sizes(_shape(node, 1)[2:]).geometry, (0, 2), tf32)


def _deconv_weight_grad(torch: ModuleType, node: Node, tf32: bool) -> VendorCall:
    op: Any = node.op
    geometry = op.sizes(_shape(node, 1)[2:]).geometry
    return _backward(torch, node, geometry, 1, node.outputs[0].shape, data=0)


def _of_channels_last(torch: ModuleType, node: Node, op: ChannelsLast, tf32: bool) -> VendorCall:
    """The call of a convolution, or of a gradient of one, on images with channels last."""
    shape = op.record.geometry
    result = node.outputs[0].shape
    if op.record.name == "Convolution":
        return _forward(torch, shape, (0, 1), tf32, last=True)
    if op.record.name == "_conv_data_grad":
        result = (result[0], result[3], result[1], result[2])
        return _backward(torch, node, shape, 0, result, weight=2, tf32=tf32, last=True)
    return _backward(torch, node, shape, 0, result, data=1, last=True)


def _as_image(tensor: Tensor) -> Tensor:
    """An image with channels last, as torch has it: with channels first, in another order in memory."""
    return _as_it_lies(tensor).permute(0, 3, 1, 2)


def _as_filters(tensor: Tensor) -> Tensor:
    """A weight for images with channels last, in either order."""
    import torch

    return tensor if tensor.is_contiguous(memory_format=torch.channels_last) else _as_it_lies(tensor)


def _of_image(tensor: Tensor) -> Tensor:
    """The reverse, in C order."""
    return tensor.permute(0, 2, 3, 1).contiguous()


def _settings(torch: ModuleType) -> Callable[[], tuple[bool, bool]]:
    """The user's settings for cuDNN: whether it measures its algorithms, and takes deterministic ones only."""
    core, flags = torch._C, ("cudnn_benchmark", "cudnn_deterministic", "deterministic_algorithms")  # noqa: SLF001
    benchmark, always, deterministic = (getattr(core, f"_get_{name}") for name in flags)
    return lambda: (benchmark(), always() or deterministic())


def _forward(torch: ModuleType, shape: Geometry, inputs: tuple[int, ...], tf32: bool, last: bool = False) -> VendorCall:
    """A convolution. inputs : numbers of data, weight and, if there is one, bias; last : channels come last

    cuDNN writes into given memory; elsewhere torch makes its own.
    """
    image, filters = (_as_image, _as_filters) if last else (_as_it_lies, _as_it_lies)
    reads = tuple([(index, image if number == 0 else filters) for number, index in enumerate(inputs)])
    if len(inputs) == 2 and has_cudnn():
        return _by_cudnn(torch, shape, reads, tf32, image)
    rest: tuple[Any, ...] = (shape.stride, shape.pad, shape.dilate, False, (0,) * len(shape.kernel), shape.groups)
    convolution = torch.convolution
    if last:
        return VendorCall(reads, lambda x, weight: _of_image(convolution(x, weight, None, *rest)))
    return VendorCall(reads, lambda x, weight, bias=None: convolution(x, weight, bias, *rest).contiguous())


def _lines(shape: Geometry) -> tuple[bool, tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Whether the images are lines, which cuDNN takes as images of one row; padding, stride and dilation for it."""
    line = len(shape.kernel) == 1
    pairs = ((0, shape.pad), (1, shape.stride), (1, shape.dilate))
    pad, stride, dilate = ((first, *each) if line else each for first, each in pairs)
    return line, pad, stride, dilate


def _by_cudnn(
    torch: ModuleType, shape: Geometry, reads: tuple[tuple[int, Form], ...], tf32: bool, image: Form
) -> VendorCall:
    """A convolution that cuDNN writes into given memory, as torch.convolution calls it, which only makes the memory."""
    line, *numbers = _lines(shape)
    rest, settings, convolution = (*numbers, shape.groups), _settings(torch), torch.cudnn_convolution

    def run(x: Tensor, weight: Tensor, out: Tensor) -> None:
        convolution(x, weight, *rest, *settings(), tf32, out=out)

    if line:
        reads = tuple([(index, _as_row) for index, _ in reads])
    return VendorCall(reads, run, _as_row if line else image, reads_flag=False)


def _as_row(tensor: Tensor) -> Tensor:
    return _as_it_lies(tensor).unsqueeze(2)


def _backward(
    torch: ModuleType, node: Node, shape: Geometry, dy: int, result: tuple[int, ...], data: int | None = None,
    weight: int | None = None, tf32: bool = False, last: bool = False,
) -> VendorCall:  # fmt: skip
    """A gradient of a convolution: of its data, if `weight` is the number of an input, or of its weight.

    dy, data, weight : indices of the node's inputs; result : the shape, with channels first, of the gradient and of the
        array it belongs to, which is not read; last : channels of images come last
    """
    image = _as_image if last else _as_it_lies
    if weight is not None and has_cudnn():
        return _data_gradient(torch, shape, (dy, weight), result, tuple(_shape(node, dy)), tf32, last)
    wanted = 1 if weight is None else 0
    mask = [index == wanted for index in range(3)]
    rest: tuple[Any, ...] = (None, shape.stride, shape.pad, shape.dilate, False, (0,) * len(shape.kernel))
    rest = (*rest, shape.groups, mask)
    backward, dtype = torch.ops.aten.convolution_backward.default, torch_dtype(node.outputs[0].dtype)
    known: dict[Device, Tensor] = {}

    def unread(device: Device) -> Tensor:
        """One number in the place of the array whose gradient it is: torch asks for its shape."""
        if device not in known:
            known[device] = torch.zeros((), dtype=dtype, device=device).expand(result)
        return known[device]

    if data is not None:
        return VendorCall(
            ((dy, image), (data, image)), lambda dy, x: backward(dy, x, unread(dy.device), *rest)[1].contiguous()
        )
    assert weight is not None
    done: Form = _of_image if last else lambda tensor: tensor.contiguous()
    return VendorCall(
        ((dy, image), (weight, _as_filters if last else _as_it_lies)),
        lambda dy, weight: done(backward(dy, unread(dy.device), weight, *rest)[0]),
    )


def _data_gradient(
    torch: ModuleType, shape: Geometry, inputs: tuple[int, int], result: tuple[int, ...], output: tuple[int, ...],
    tf32: bool, last: bool,
) -> VendorCall:  # fmt: skip
    """The gradient of a convolution's data by cuDNN, as a transposed convolution: it takes no array for its shape.

    inputs : indices of the output's gradient and of the weight; result, output : shapes of the data's gradient, with
        channels first, and of the output's gradient
    """
    line, pad, stride, dilate = _lines(shape)
    sizes = output[1:3] if last else output[2:]
    over = left_over(shape, result[2:], sizes)
    rest, settings = (pad, [0, *over] if line else over, stride, dilate, shape.groups), _settings(torch)
    transposed = torch.cudnn_convolution_transpose
    done: Form = _of_image if last else lambda tensor: (tensor.squeeze(2) if line else tensor).contiguous()
    first: Form = _as_row if line else _as_image if last else _as_it_lies
    return VendorCall(
        ((inputs[0], first), (inputs[1], _as_row if line else _as_filters if last else _as_it_lies)),
        lambda dy, weight: done(transposed(dy, weight, *rest, *settings(), tf32)),
        reads_flag=False,
    )


# -- sums of rows by number --------------------------------------------------------------------------------------------


def _whole(torch: ModuleType, numbers: Tensor) -> Tensor:
    """Numbers as int64; what int64 does not hold becomes the least of its numbers, as on the host."""
    if not numbers.is_floating_point():
        return numbers.long()
    wide = numbers.double()
    return torch.where(wide.abs() < 2.0**63, wide, -(2.0**63)).long()


def _summed(torch: ModuleType, dy: Tensor, rows: Tensor, count: int, dtype: torch.dtype) -> Tensor:
    """(count, width): each row of dy (entries, width) added to the row that it names. torch sorts the names and adds up
    segments, in the same order in every run; float16 and bfloat16 are added up in float32.
    """
    values = dy.float() if dtype.itemsize == 2 else dy
    return torch.ops.aten.embedding_dense_backward.default(values, rows, count, -1, False).to(dtype)


def _take_grad(torch: ModuleType, node: Node, tf32: bool) -> VendorCall:
    op: Any = node.op
    if op.mode == "raise":
        raise Unmappable("take with mode='raise'")
    shape, entries = node.outputs[0].shape, prod(_shape(node, 2))
    axis, dtype = op.axis % len(shape), torch_dtype(node.outputs[0].dtype)
    count, lead, rest = shape[axis], prod(shape[:axis]), prod(shape[axis + 1 :])

    def run(dy: Tensor, indices: Tensor) -> Tensor:
        if op.mode == "clip" and indices.is_floating_point():
            indices = torch.nan_to_num(indices.double(), nan=0.0)
            indices = indices.clamp(0, count)
        rows = _whole(torch, indices.reshape(-1))
        rows = rows % count if op.mode == "wrap" else rows.clamp(0, count - 1)
        values = dy.reshape(lead, entries, rest).movedim(1, 0).reshape(entries, lead * rest)
        made = _summed(torch, values, rows, count, dtype)
        return made.reshape(count, lead, rest).movedim(0, 1).contiguous().view(shape)

    return VendorCall(((0, _as_it_lies), (2, _as_it_lies)), run, reads_flag=False)


def _gather_nd_grad(torch: ModuleType, node: Node, tf32: bool) -> VendorCall:
    shape, (named, *entries) = node.outputs[0].shape, _shape(node, 1)
    if not named:
        raise Unmappable("no coordinates")
    dtype, count, width = torch_dtype(node.outputs[0].dtype), prod(shape[:named]), prod(shape[named:])

    def run(dy: Tensor, indices: Tensor) -> Tensor:
        places = _whole(torch, indices.reshape(named, -1))
        rows = torch.zeros_like(places[0])
        for place, size in zip(places, shape, strict=False):
            rows = rows * size + torch.where(place < 0, place + size, place).clamp(0, size - 1)
        return _summed(torch, dy.reshape(prod(entries), width), rows, count, dtype).reshape(shape)

    return VendorCall(((0, _as_it_lies), (1, _as_it_lies)), run, reads_flag=False)


#: Gradients that add up rows by number -> the index of the input that has the numbers.
SUMS_OF_ROWS = {"_take_grad": 2, "_gather_nd_grad": 1}

CALLS: dict[str, Callable[[ModuleType, Node, bool], VendorCall]] = {
    "dot": _dot,
    "_dot_lhs_grad": _dot_lhs_grad,
    "_dot_rhs_grad": _dot_rhs_grad,
    "FullyConnected": _fully_connected,
    "batch_dot": _batch_dot,
    "_linalg_gemm2": _batch_dot,
    "Convolution": _convolution,
    "_conv_data_grad": _conv_data_grad,
    "_conv_weight_grad": _conv_weight_grad,
    "Deconvolution": _deconvolution,
    "_deconv_data_grad": _deconv_data_grad,
    "_deconv_weight_grad": _deconv_weight_grad,
    "_take_grad": _take_grad,
    "_gather_nd_grad": _gather_nd_grad,
}


def is_convolution(node: Node) -> bool:
    """Whether cuDNN, not cuBLAS, computes it."""
    return "onv" in node.op.name


def rounded(dtype: np.dtype[Any], tf32: bool) -> str:
    """The type of the factors during multiplication, in words: "float16", "float32", "tf32"."""
    return "tf32" if tf32 and dtype == np.float32 else dtype.name
