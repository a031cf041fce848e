"""ONNX's convolutions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hybrid_lab.onnx.reading.importers.arrays import padded
from hybrid_lab.onnx.reading.importers.functions import Functions, Size, Tensor
from hybrid_lab.onnx.reading.importers.table import operator
from hybrid_lab.ops.framework.sizes import SymbolicSize


def borders(
    F: Functions, spatial: Sequence[Size], kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int],
    pads: Sequence[int] | None, auto_pad: str,
) -> list[tuple[int, int]]:  # fmt: skip
    """Padding before and after every spatial axis."""
    rank = len(kernel)
    if auto_pad in ("NOTSET", "") or auto_pad == "VALID":
        given = pads if pads is not None and auto_pad != "VALID" else (0,) * (2 * rank)
        if len(given) != 2 * rank:
            raise F.unsupported(f"{len(given)} pads for {rank} axes")
        return [(given[axis], given[rank + axis]) for axis in range(rank)]
    found = []
    for size, window, step, spread in zip(spatial, kernel, strides, dilations, strict=True):
        if isinstance(size, SymbolicSize):
            if step != 1:
                raise F.unsupported(f"auto_pad={auto_pad} along an open axis; {F.close_sizes}")
            size = 0
            total = (window - 1) * spread
        else:
            total = max((-(-size // step) - 1) * step + (window - 1) * spread + 1 - size, 0)
        small = total // 2
        found.append((small, total - small) if auto_pad == "SAME_UPPER" else (total - small, small))
    return found


def _checked(F: Functions, x: Tensor, weight: Tensor, group: int) -> int:
    rank = x.rank - 2
    if rank < 1 or weight.rank != x.rank:
        raise F.unsupported(f"data of shape {x.shape} and a weight of shape {weight.shape} do not fit")
    if group < 1:
        raise F.unsupported(f"group={group}")
    return rank


@operator("Conv", 1)
def _conv(
    F: Functions, x: Tensor, weight: Tensor, bias: Tensor | None = None, *, auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None, group: int = 1, kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None, strides: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    rank = _checked(F, x, weight, group)
    kernel = F.numbers(F.constant(np.array(weight.shape[2:], object)), "the kernel")
    strides, dilations = strides or (1,) * rank, dilations or (1,) * rank
    edges = borders(F, x.shape[2:], kernel, strides, dilations, pads, auto_pad)
    pad = tuple(before for before, _ in edges)
    if any(before != after or before < 0 for before, after in edges):
        x = padded(F, x, (0, 0, *(edge[0] for edge in edges), 0, 0, *(edge[1] for edge in edges)))
        pad = (0,) * rank
    operands = (x, weight) if bias is None else (x, weight, bias)
    return F.Convolution(
        *operands, kernel=kernel, stride=tuple(strides), dilate=tuple(dilations), pad=pad, num_filter=weight.shape[0],
        num_group=group, no_bias=bias is None,
    )  # fmt: skip


@operator("ConvInteger", 10)
def _conv_integer(
    F: Functions, x: Tensor, weight: Tensor, zx: Tensor | None = None, zw: Tensor | None = None, *,
    auto_pad: str = "NOTSET", dilations: Sequence[int] | None = None, group: int = 1,
    kernel_shape: Sequence[int] | None = None, pads: Sequence[int] | None = None, strides: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    one, two = F.cast(x, "float32"), F.cast(weight, "float32")
    one = one if zx is None else one - F.cast(zx, "float32")
    if zw is not None:
        zero = F.cast(zw, "float32")
        two = two - (F.reshape_to(zero, (*zero.shape, *(1,) * (two.rank - 1))) if zero.rank == 1 else zero)
    made = _conv(
        F, one, two, auto_pad=auto_pad, dilations=dilations, group=group, kernel_shape=kernel_shape, pads=pads,
        strides=strides,
    )  # fmt: skip
    return F.cast(F.to_even(made), "int32")


@operator("ConvTranspose", 1)
def _conv_transpose(
    F: Functions, x: Tensor, weight: Tensor, bias: Tensor | None = None, *, auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None, group: int = 1, kernel_shape: Sequence[int] | None = None,
    output_padding: Sequence[int] | None = None, output_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None, strides: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    rank = _checked(F, x, weight, group)
    kernel = F.numbers(F.constant(np.array(weight.shape[2:], object)), "the kernel")
    strides, dilations = tuple(strides or (1,) * rank), tuple(dilations or (1,) * rank)
    more = tuple(output_padding or (0,) * rank)
    full = [
        (size - 1) * step + (window - 1) * spread + 1
        for size, step, spread, window in zip(x.shape[2:], strides, dilations, kernel, strict=True)
    ]
    if output_shape is not None or auto_pad.startswith("SAME"):
        wanted = output_shape or [size * step for size, step in zip(x.shape[2:], strides, strict=True)]
        wanted = wanted[-rank:]
        totals = [size + extra - target for size, extra, target in zip(full, more, wanted, strict=True)]
        edges = [
            (total // 2, total - total // 2) if auto_pad == "SAME_UPPER" else (total - total // 2, total // 2)
            for total in totals
        ]
    else:
        edges = borders(F, x.shape[2:], kernel, strides, dilations, pads, auto_pad)
    filters = weight.shape[1] * group
    plain = all(before == after >= 0 for before, after in edges) and all(
        e < s for e, s in zip(more, strides, strict=True)
    )
    operands = (x, weight) if bias is None else (x, weight, bias)
    attributes = {
        "kernel": kernel, "stride": strides, "dilate": dilations, "num_filter": filters, "num_group": group,
        "no_bias": bias is None,
    }  # fmt: skip
    if plain:
        return F.Deconvolution(*operands, pad=tuple(before for before, _ in edges), adj=more, **attributes)
    attributes["no_bias"] = True
    made = F.Deconvolution(x, weight, **attributes)
    made = padded(
        F,
        made,
        (
            0,
            0,
            *(-before for before, _ in edges),
            0,
            0,
            *(extra - after for (_, after), extra in zip(edges, more, strict=True)),
        ),
    )
    return made if bias is None else made + F.reshape_to(bias, (filters, *(1,) * rank))


@operator("Col2Im", 18)
def _col2im(
    F: Functions, x: Tensor, image: Tensor, block: Tensor, *, dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None, strides: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    size, kernel = F.numbers(image, "the image's shape"), F.numbers(block, "the block's shape")
    rank = len(kernel)
    edges = tuple(pads or (0,) * (2 * rank))
    whole = tuple(size[k] + edges[k] + edges[rank + k] for k in range(rank))
    if edges[:rank] == edges[rank:]:
        whole, pad = size, edges[:rank]
    else:
        pad = (0,) * rank
    made = F.col2im(
        x, output_size=whole, kernel=kernel, stride=tuple(strides or (1,) * rank),
        dilate=tuple(dilations or (1,) * rank), pad=pad,
    )  # fmt: skip
    if whole == size:
        return made
    return padded(F, made, (0, 0, *(-n for n in edges[:rank]), 0, 0, *(-n for n in edges[rank:])))
