"""Other ways to the same result, for operators whose torch call is slow at some sizes; `tuning` picks by measurement.

A variant is a rule as in `table`: it gives a kernel for a node, or raises Unmappable where it does not apply.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hybrid_lab.engines.torch_kernels.rules import TABLE, Kernel, Rule, RuleNode, needs, shape_of
from hybrid_lab.ops.run import run_kernel

#: Operator name -> rules besides the one in the table.
VARIANTS: dict[str, list[Rule]] = {}


def variant(*names: str) -> Callable[[Rule], Rule]:
    """Enter a rule as one more way to run these operators."""

    def enter(function: Rule) -> Rule:
        for name in names:
            VARIANTS.setdefault(name, []).append(function)
        return function

    return enter


def _plain(node: RuleNode) -> Any:
    """The geometry of a convolution of images in one group, without dilation. Raises Unmappable for others."""
    shape = node.op.geometry
    needs(len(shape.kernel) == 2 and shape.groups == 1 and set(shape.dilate) == {1}, "groups, dilation or rank")
    return shape


def _pointwise(node: RuleNode) -> None:
    """Raises Unmappable where the convolution is more than a matrix product over channels."""
    shape = _plain(node)
    needs(set(shape.kernel) == {1} and set(shape.stride) == {1} and not any(shape.pad), "more than channels")


@variant("Convolution")
def _channels_forward(torch: Any, node: RuleNode) -> Kernel:
    _pointwise(node)
    batch, channels = shape_of(node, 0)[:2]
    shape = node.outputs[0].shape

    def kernel(x: Any, weight: Any, bias: Any = None) -> Any:
        made = torch.matmul(weight.reshape(-1, channels), x.reshape(batch, channels, -1)).reshape(shape)
        return made if bias is None else made.add_(bias.reshape(-1, 1, 1))

    return kernel


@variant("_conv_data_grad")
def _channels_data(torch: Any, node: RuleNode) -> Kernel:
    _pointwise(node)
    batch, filters = shape_of(node, 0)[:2]
    shape = node.outputs[0].shape
    return lambda dy, x, weight: torch.matmul(
        weight.reshape(filters, -1).t(), dy.reshape(batch, filters, -1)
    ).reshape(shape)


@variant("_conv_data_grad")
def _folded_data(torch: Any, node: RuleNode) -> Kernel:
    """One product, whose columns are added up where windows overlap."""
    shape = _plain(node)
    batch, filters = shape_of(node, 0)[:2]
    size = node.outputs[0].shape[2:]
    fold = torch.nn.functional.fold

    def kernel(dy: Any, x: Any, weight: Any) -> Any:
        columns = torch.matmul(weight.reshape(filters, -1).t(), dy.reshape(batch, filters, -1))
        return fold(columns, size, shape.kernel, 1, shape.pad, shape.stride)

    return kernel


@variant("_conv_weight_grad")
def _unfolded_weight(torch: Any, node: RuleNode) -> Kernel:
    """One product with the windows of all images as rows: good where there are few windows and many channels."""
    shape = _plain(node)
    batch, filters = shape_of(node, 0)[:2]
    channels, result = shape_of(node, 1)[1], node.outputs[0].shape
    columns, unfold = channels * shape.kernel[0] * shape.kernel[1], torch.nn.functional.unfold
    flat = set(shape.kernel) == {1} and set(shape.stride) == {1} and not any(shape.pad)

    def kernel(dy: Any, x: Any, weight: Any) -> Any:
        windows = x.reshape(batch, channels, -1) if flat else unfold(x, shape.kernel, 1, shape.pad, shape.stride)
        rows = windows.transpose(1, 2).reshape(-1, columns)
        left = dy.reshape(batch, filters, -1).transpose(0, 1).reshape(filters, -1)
        return torch.mm(left, rows).reshape(result)

    return kernel


@variant("Convolution", "_conv_data_grad", "_conv_weight_grad")
def _channels_last(torch: Any, node: RuleNode) -> Kernel:
    """The table's call on images with their channels innermost."""
    needs(len(node.op.kernel) == 2, "no images")
    plain, layout = TABLE[node.op.name](torch, node), torch.channels_last

    def kernel(a: Any, b: Any, c: Any = None) -> Any:
        images = [item.contiguous(memory_format=layout) for item in (a, b)]
        if c is not None:
            images.append(c.contiguous(memory_format=layout) if c.dim() == 4 else c)
        return plain(*images).contiguous()

    return kernel


@variant("Convolution", "_conv_data_grad", "_conv_weight_grad")
def _numpy(torch: Any, node: RuleNode) -> Kernel:
    """The record's own kernel, on the same memory."""
    op = node.op
    return lambda *inputs: torch.from_numpy(run_kernel(op, [item.numpy() for item in inputs])[0])


@variant("Pooling")
def _torch_pool(torch: Any, node: RuleNode) -> Kernel:
    """torch's own loop where the table works on whole slices."""
    op, windows = node.op, node.op.windows(shape_of(node, 0)[2:])
    needs(op.pool_type == "max" and not op.global_pool and not windows.padded, "no other way")
    return lambda x: torch.max_pool2d(x, windows.kernel, windows.stride)
