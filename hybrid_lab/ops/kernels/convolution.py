"""NumPy kernels of convolution: patches gathered with the batch as the last axis, then one matrix product per group.

With the batch last, every copied row has `width * batch` numbers, so that small images cost no more than large images;
and the product is one large matrix product. Work is cut into units - several small images, or some rows of a large one
- whose patches stay in the cache, and large work among the cores, which share nothing until the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import product
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from hybrid_lab.ops.framework.protocols import Scratch
from hybrid_lab.ops.kernels import blas

#: Patches gathered at a time, in numbers.
PIECE = 1 << 18

#: A part of a convolution's output: its images, its rows (the first spatial axis).
Unit = tuple[slice, slice]
#: Temporary memory by name.
Slots = dict[str, np.ndarray]


class Geometry(NamedTuple):
    """The numbers of one convolution, one entry per spatial axis."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilate: tuple[int, ...]
    pad: tuple[int, ...]
    groups: int

    def output(self, spatial: tuple[int, ...]) -> tuple[int, ...]:
        """Spatial size of the output; zero or negative if the kernel does not fit."""
        return tuple(
            (size + 2 * pad - dilate * (kernel - 1) - 1) // stride + 1
            for size, kernel, stride, dilate, pad in zip(
                spatial, self.kernel, self.stride, self.dilate, self.pad, strict=True
            )
        )

    @property
    def pointwise(self) -> bool:
        """A 1x1 convolution: nothing needs gathering."""
        return prod(self.kernel) == 1 and prod(self.stride) == 1 and not any(self.pad)

    def places(self, output: tuple[int, ...]) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...]]]:
        """Every kernel position with the part of the padded input that it meets."""
        for place in product(*map(range, self.kernel)):
            yield (
                place,
                tuple(
                    slice(at * dilate, at * dilate + (size - 1) * stride + 1, stride)
                    for at, dilate, size, stride in zip(place, self.dilate, output, self.stride, strict=True)
                ),
            )


def _units(batch: int, rows: int, per_row: int, parts: int) -> list[Unit]:
    """The output in units of at most PIECE numbers of patches, `per_row` for a row of one image; at least `parts` units
    if there are enough rows.
    """
    images = max(1, min(-(-batch // parts), PIECE // max(per_row * rows, 1)))
    if images > 1 or batch >= parts > 1:
        height = max(1, min(rows, PIECE // max(per_row, 1)))
    else:
        height = max(1, min(-(-rows // parts), PIECE // max(per_row, 1)))
    return [
        (slice(start, min(start + images, batch)), slice(first, min(first + height, rows)))
        for start in range(0, batch, images)
        for first in range(0, rows, height)
    ]


def _slots(scratch: Scratch, dtype: np.dtype, sizes: dict[str, int]) -> Slots:
    """Temporary memory for one thread, of the given numbers of elements; borrowed before the threads start."""
    return {name: scratch((count,), dtype) for name, count in sizes.items()}


def _shaped(memory: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The beginning of some memory as an array of this shape."""
    return memory[: prod(shape)].reshape(shape)


def _moved(x: np.ndarray) -> np.ndarray:
    """(n, c, *spatial) -> (c, *spatial, n), a view."""
    return np.moveaxis(x, 0, -1)


def _batch_last(x: np.ndarray, memory: np.ndarray) -> np.ndarray:
    """(n, c, *spatial) -> (c, *spatial, n), contiguous: a view, or a copy in `memory`."""
    turned = _moved(x)
    if turned.flags.c_contiguous:
        return turned
    copy = _shaped(memory, turned.shape)
    np.copyto(copy, turned)
    return copy


def _bordered(spatial: tuple[int, ...], pad: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(size + 2 * border for size, border in zip(spatial, pad, strict=True))


def _inside(spatial: tuple[int, ...], pad: tuple[int, ...]) -> tuple[slice, ...]:
    return (slice(None), *(slice(border, border + size) for size, border in zip(spatial, pad, strict=True)))


def _window(x: np.ndarray, geometry: Geometry, rows: slice, slots: Slots) -> np.ndarray:
    """The padded input that output rows `rows` of the images x need: (c, padded rows, *padded others, n)."""
    first = rows.start * geometry.stride[0]
    length = (rows.stop - rows.start - 1) * geometry.stride[0] + geometry.dilate[0] * (geometry.kernel[0] - 1) + 1
    turned = _moved(x)
    if not any(geometry.pad) and x.shape[0] == 1:
        return turned[:, first : first + length]
    start, size = first - geometry.pad[0], x.shape[2]
    low, high = max(start, 0), min(start + length, size)
    window = _shaped(slots["x"], (x.shape[1], length, *_bordered(x.shape[3:], geometry.pad[1:]), x.shape[0]))
    if any(geometry.pad):
        window.fill(0)
    inside = _inside(x.shape[3:], geometry.pad[1:])[1:]
    np.copyto(window[(slice(None), slice(low - start, high - start), *inside)], turned[:, low:high])
    return window


def _window_size(x: np.ndarray, geometry: Geometry, units: list[Unit]) -> int:
    """Numbers that the largest _window takes, 0 if views do."""
    images = max(map(_images, units), default=0)
    if not any(geometry.pad) and images == 1:
        return 0
    rows = max((rows.stop - rows.start for _, rows in units), default=0)
    length = (rows - 1) * geometry.stride[0] + geometry.dilate[0] * (geometry.kernel[0] - 1) + 1
    return images * x.shape[1] * length * prod(_bordered(x.shape[3:], geometry.pad[1:]))


def _gather(x: np.ndarray, geometry: Geometry, output: tuple[int, ...], slots: Slots) -> np.ndarray:
    """Patches of (c, *spatial, n) as a matrix per group: (groups, c/groups * kernel, output * n)."""
    rank = len(output)
    kernel_strides = tuple(
        stride * dilate for stride, dilate in zip(x.strides[1 : rank + 1], geometry.dilate, strict=True)
    )
    output_strides = tuple(stride * step for stride, step in zip(x.strides[1 : rank + 1], geometry.stride, strict=True))
    shape = (x.shape[0], *geometry.kernel, *output, x.shape[-1])
    strides = (x.strides[0], *kernel_strides, *output_strides, x.strides[-1])
    # The constructor takes a tenth of the time, but no memory with gaps.
    view = np.ndarray(shape, x.dtype, x, 0, strides) if x.flags.c_contiguous else as_strided(x, shape, strides)
    patches = _shaped(slots["patches"], shape)
    np.copyto(patches, view)
    groups = min(geometry.groups, x.shape[0])
    return patches.reshape(groups, x.shape[0] // groups * prod(geometry.kernel), prod(output) * x.shape[-1])


def _wide(array: np.ndarray) -> np.ndarray:
    """float16 is computed in float32."""
    return array.astype(np.float32) if array.dtype == np.float16 else array


def forward(
    x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None, geometry: Geometry, out: np.ndarray, scratch: Scratch
) -> np.ndarray:
    """out[n, o] = sum over c, k of x[n, c, at stride + k dilate - pad] weight[o, c, k] + bias[o].

    out : contiguous, filled.
    """
    if x.dtype == np.float16:
        wide = np.empty(out.shape, np.float32)
        forward(_wide(x), _wide(weight), None if bias is None else _wide(bias), geometry, wide, scratch)
        np.copyto(out, wide, casting="same_kind")
        return out
    output, filters, groups = out.shape[2:], weight.shape[0], geometry.groups
    matrix = weight.reshape(groups, filters // groups, -1)
    if geometry.pointwise:
        _pointwise(matrix, x, groups, out)
    else:
        per_row = x.shape[1] * prod(geometry.kernel) * prod(output[1:])
        # With few pixels the weight is the larger operand: then the weight's product is cut, not the pixels.
        few = x.shape[0] * prod(output) < filters // groups
        parts = 1 if few else blas.workers(out.size * matrix.shape[2])
        units = _units(x.shape[0], output[0], per_row, parts)
        largest = max((_count(unit) for unit in units), default=0)
        turned = filters * prod(output[1:]) * largest if any(_images(unit) > 1 for unit in units) else 0
        window, patches = _window_size(x, geometry, units), per_row * largest
        if units:
            sizes = {"x": window, "patches": patches, "y": turned}
            slots = [_slots(scratch, x.dtype, sizes) for _ in range(min(parts, len(units)))]
            blas.share(units, [partial(_forward_unit, x, matrix, geometry, out, own) for own in slots])
    if bias is not None:
        out += bias.reshape(-1, *(1,) * len(output))
    return out


def _images(unit: Unit) -> int:
    return unit[0].stop - unit[0].start


def _count(unit: Unit) -> int:
    """Rows of all images of the unit."""
    return _images(unit) * (unit[1].stop - unit[1].start)


def _forward_unit(
    x: np.ndarray, matrix: np.ndarray, geometry: Geometry, out: np.ndarray, slots: Slots, unit: Unit
) -> None:
    groups, filters, _ = matrix.shape
    images, rows = unit
    output, part = (rows.stop - rows.start, *out.shape[3:]), x[images]
    patches = _gather(_window(part, geometry, rows, slots), geometry, output, slots)
    if len(part) == 1:
        per_row = prod(output[1:])
        lines = out[images].reshape(groups, filters, -1)[..., rows.start * per_row : rows.stop * per_row]
        blas.matmul(matrix, patches, out=lines)
    else:
        product_ = blas.matmul(matrix, patches, out=_shaped(slots["y"], (groups, filters, patches.shape[-1])))
        np.copyto(out[images, :, rows], np.moveaxis(product_.reshape(groups * filters, *output, len(part)), -1, 0))


def _pointwise(matrix: np.ndarray, x: np.ndarray, groups: int, out: np.ndarray) -> None:
    """A matrix per group times every pixel.

    matrix : (groups, m, k); x : (n, groups k, ...); out : (n, groups m, ...), filled
    """
    source = x.reshape(x.shape[0], groups, matrix.shape[2], prod(x.shape[2:]))
    target = out.reshape(x.shape[0], groups, matrix.shape[1], prod(x.shape[2:]))
    parts = blas.workers(out.size * matrix.shape[2])
    if parts == 1:
        blas.matmul(matrix, source, out=target)
        return

    def multiply(cut: slice) -> None:
        np.matmul(matrix, source[..., cut], out=target[..., cut])

    blas.share(blas.cuts(source.shape[3], parts), [multiply] * parts)


def data_gradient(
    dy: np.ndarray, weight: np.ndarray, geometry: Geometry, out: np.ndarray, scratch: Scratch
) -> np.ndarray:
    """The gradient of forward's x. dy : (n, filters, *output); out : (n, c, *spatial), contiguous, filled."""
    if dy.dtype == np.float16:
        wide = np.empty(out.shape, np.float32)
        np.copyto(out, data_gradient(_wide(dy), _wide(weight), geometry, wide, scratch), casting="same_kind")
        return out
    output, filters, groups, channels = dy.shape[2:], weight.shape[0], geometry.groups, out.shape[1]
    if geometry.pointwise:
        _pointwise(weight.reshape(groups, filters // groups, -1).swapaxes(1, 2), dy, groups, out)
        return out
    if _turns_round(dy, weight, geometry, out.shape[2:]):
        return forward(dy, *_turned(weight, geometry, scratch), out, scratch)
    if filters == groups == channels:
        return _depthwise_data_gradient(dy, weight, geometry, out, scratch)
    # Patches as a product, added up where they lie. Adding takes many short steps, for which threads would wait on each
    # other, so that only the product is cut.
    matrix = weight.reshape(groups, filters // groups, -1).swapaxes(1, 2)
    patch, padded = prod(output) * channels * prod(geometry.kernel), _bordered(out.shape[2:], geometry.pad)
    images = max(1, min(dy.shape[0], PIECE // max(patch, 1)))
    sizes = {
        "dy": images * filters * prod(output) if images > 1 or not dy.flags.c_contiguous else 0,
        "patches": images * patch,
        "dx": images * channels * prod(padded),
    }
    slots = _slots(scratch, dy.dtype, sizes)
    for start in range(0, dy.shape[0], images):
        piece = dy[start : start + images]
        source = _batch_last(piece, slots["dy"]).reshape(groups, filters // groups, prod(output) * len(piece))
        product_shape = (groups, matrix.shape[1], source.shape[-1])
        patches = blas.matmul(matrix, source, out=_shaped(slots["patches"], product_shape))
        patches = patches.reshape(channels, *geometry.kernel, *output, len(piece))
        total = _shaped(slots["dx"], (channels, *padded, len(piece)))
        total.fill(0)
        for place, where in geometry.places(output):
            total[(slice(None), *where)] += patches[(slice(None), *place)]
        np.copyto(out[start : start + images], np.moveaxis(total[_inside(out.shape[2:], geometry.pad)], -1, 0))
    return out


def _turns_round(dy: np.ndarray, weight: np.ndarray, geometry: Geometry, spatial: tuple[int, ...]) -> bool:
    """Whether the data gradient is best a convolution of dy with the weight turned round.

    Gathering costs half of adding up. But the turned convolution must not gather and multiply more, which happens if
    the output is smaller than the input or has more channels. With few pixels, turning a large weight costs more than
    it saves.
    """
    numbers = zip(geometry.pad, geometry.kernel, geometry.dilate, strict=True)
    if prod(geometry.stride) != 1 or any(border > step * (size - 1) for border, size, step in numbers):
        return False
    filters, channels = weight.shape[0], weight.shape[1] * geometry.groups
    more = filters * prod(spatial) > 1.25 * channels * prod(dy.shape[2:])
    return not more and dy.shape[0] * prod(spatial) * geometry.groups >= 2 * filters


def _turned(weight: np.ndarray, geometry: Geometry, scratch: Scratch) -> tuple[np.ndarray, None, Geometry]:
    """The arguments of `forward` that give the data gradient of a convolution with stride 1."""
    groups, (filters, channels) = geometry.groups, weight.shape[:2]
    backwards = (slice(None, None, -1),) * len(geometry.kernel)
    mirrored = weight.reshape(groups, filters // groups, channels, *geometry.kernel).swapaxes(1, 2)
    mirrored = mirrored[(slice(None), slice(None), slice(None), *backwards)]
    turned = scratch(mirrored.shape, weight.dtype)
    np.copyto(turned, mirrored)
    pad = tuple(
        step * (size - 1) - border
        for border, size, step in zip(geometry.pad, geometry.kernel, geometry.dilate, strict=True)
    )
    return turned.reshape(groups * channels, filters // groups, *geometry.kernel), None, geometry._replace(pad=pad)


def _depthwise_data_gradient(
    dy: np.ndarray, weight: np.ndarray, geometry: Geometry, out: np.ndarray, scratch: Scratch
) -> np.ndarray:
    """One filter per channel: dy times each number of the kernel, added where it belongs."""
    spatial = out.shape[2:]
    total = scratch((*out.shape[:2], *_bordered(spatial, geometry.pad)), dy.dtype)
    total.fill(0)
    share = scratch(dy.shape, dy.dtype)
    for place, where in geometry.places(dy.shape[2:]):
        factor = weight[(slice(None), 0, *place)].reshape(-1, *(1,) * len(spatial))
        part = total[(slice(None), slice(None), *where)]
        part += np.multiply(dy, factor, out=share)
    np.copyto(out, total[(slice(None), *_inside(spatial, geometry.pad))])
    return out


def weight_gradient(dy: np.ndarray, x: np.ndarray, geometry: Geometry, out: np.ndarray, scratch: Scratch) -> np.ndarray:
    """The gradient of forward's weight.

    dy : (n, filters, *output); x : (n, c, *spatial); out : the weight's shape, contiguous, filled.
    """
    if dy.dtype == np.float16:
        wide = np.empty(out.shape, np.float32)
        np.copyto(out, weight_gradient(_wide(dy), _wide(x), geometry, wide, scratch), casting="same_kind")
        return out
    output, filters, groups, channels = dy.shape[2:], out.shape[0], geometry.groups, x.shape[1]
    target = out.reshape(groups, filters // groups, -1)
    if geometry.pointwise:
        left: Any = dy.reshape(dy.shape[0], groups, filters // groups, prod(dy.shape[2:]))
        right = x.reshape(x.shape[0], groups, channels // groups, prod(x.shape[2:])).swapaxes(-1, -2)
        products = blas.matmul(left, right, out=scratch((dy.shape[0], *target.shape), dy.dtype))
        np.add.reduce(products, axis=0, out=target)
        return out
    per_channel = prod(geometry.kernel) * prod(output)
    # With several groups there is one part, all channels.
    parts = blas.workers(dy.size * target.shape[2]) if groups == 1 else 1
    cuts = blas.cuts(channels, parts)
    width = max(cut.stop - cut.start for cut in cuts)
    images = max(1, min(dy.shape[0], PIECE // max(channels * per_channel, 1)))
    sizes = {
        "dy": images * filters * prod(output) if images > 1 or not dy.flags.c_contiguous else 0,
        "x": _window_size(x[:, :width], geometry, [(slice(0, images), slice(0, output[0]))]),
        "patches": images * width * per_channel,
        "dw": target.size // channels * width if dy.shape[0] > images else 0,
    }
    if dy.shape[0] == 0:
        out.fill(0)
        return out
    slots = [_slots(scratch, dy.dtype, sizes) for _ in range(min(parts, len(cuts)))]
    blas.share(cuts, [partial(_weigh_channels, dy, x, geometry, target, images, own) for own in slots])
    return out


def _weigh_channels(
    dy: np.ndarray, x: np.ndarray, geometry: Geometry, target: np.ndarray, images: int, slots: Slots, part: slice
) -> None:
    """target's columns of x's channels `part` (all channels with several groups)."""
    groups, output, places = geometry.groups, dy.shape[2:], prod(geometry.kernel)
    if groups == 1:
        target = target[..., part.start * places : part.stop * places]
    for start in range(0, dy.shape[0], images):
        piece, source = dy[start : start + images], x[start : start + images, part]
        window = _window(source, geometry, slice(0, output[0]), slots)
        patches = _gather(window, geometry, output, slots).swapaxes(1, 2)
        left = _batch_last(piece, slots["dy"]).reshape(groups, dy.shape[1] // groups, prod(output) * len(piece))
        if start == 0:
            blas.matmul(left, patches, out=target)
        else:
            target += blas.matmul(left, patches, out=_shaped(slots["dw"], target.shape))
