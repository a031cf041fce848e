"""Borders and blocks of images: Pad, Crop, depth_to_space, space_to_depth."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import prod
from typing import Literal

import numpy as np

from hybrid_lab.diagnostics.errors import AttributeSpecError, ShapeError, Unmappable
from hybrid_lab.ops.arrays.slicing import SliceAdjoint, emit_slice
from hybrid_lab.ops.framework import Adjoint, Element, Operator, contiguous, forward_shape, into, sample
from hybrid_lab.ops.framework.attributes import Shape
from hybrid_lab.ops.framework.protocols import Elements, Functions, Gradients, Index, OnnxGraph, Place, Scratch, Tensor
from hybrid_lab.ops.framework.types import Array
from hybrid_lab.ops.kernels import windows as in_kernels


class _Padding(Operator):
    """Base of Pad and its gradient: the attributes, and the borders they mean."""

    mode: Literal["constant", "edge", "reflect"]
    pad_width: Shape
    constant_value: float = 0.0

    def check(self) -> None:
        if len(self.pad_width) % 2 or any(number < 0 for number in self.pad_width):
            raise AttributeSpecError(
                f"Pad: pad_width={self.pad_width}; two numbers of at least 0 are needed per axis, before and after"
            )

    def borders(self, shape: tuple[int, ...]) -> list[tuple[int, int]]:
        """(before, after) per axis. Raises ShapeError."""
        if len(self.pad_width) != 2 * len(shape):
            raise ShapeError(f"Pad: pad_width={self.pad_width} needs {2 * len(shape)} numbers for data {shape}")
        pairs = list(zip(self.pad_width[::2], self.pad_width[1::2], strict=True))
        for axis, (pair, size) in enumerate(zip(pairs, shape, strict=True)):
            if max(pair) and ((self.mode == "reflect" and max(pair) >= size) or (self.mode == "edge" and not size)):
                raise ShapeError(
                    f"Pad: mode={self.mode!r} cannot make a border of {max(pair)} from the {size} along axis {axis} "
                    f"of {shape}"
                )
        return pairs

    @staticmethod
    def inside(pairs: list[tuple[int, int]], shape: tuple[int, ...]) -> tuple[slice, ...]:
        """The place of data in the padded array."""
        return tuple(slice(before, before + size) for (before, _), size in zip(pairs, shape, strict=True))


class Pad(_Padding, name="Pad", aliases=("pad",)):
    """data with borders: a constant, the nearest element (edge), or data mirrored without its outermost element
    (reflect).

    data : any shape; pad_width : before and after of the first axis, of the second axis ...; returns : the padded shape
    """

    samples = [
        sample((1, 2, 3, 4), mode="constant", pad_width=(0, 0, 0, 0, 1, 2, 0, 3), constant_value=1.5),
        sample((2, 1, 3, 4), mode="edge", pad_width=(0, 0, 0, 0, 2, 1, 3, 0)),
        sample((1, 2, 4, 3), mode="reflect", pad_width=(0, 0, 0, 0, 3, 1, 0, 2)),
        sample((1, 2, 2, 3, 4), mode="constant", pad_width=(0, 0, 0, 0, 1, 0, 0, 1, 2, 2)),
        sample((1, 2, 2, 3, 4), mode="edge", pad_width=(0, 0, 0, 0, 1, 0, 0, 1, 2, 2)),
        sample((1, 1, 2, 3, 4), mode="reflect", pad_width=(0, 0, 0, 0, 1, 0, 2, 1, 3, 2)),
    ]

    def infer_shape(self, data: Shape) -> Shape:
        return tuple(size + sum(pair) for size, pair in zip(data, self.borders(data), strict=True))

    def numpy(self, data: Array, out: Array | None = None) -> Array:
        pairs = self.borders(data.shape)
        if out is None:
            out = np.empty(self.infer_shape(data.shape), data.dtype)
        if self.mode == "constant":
            whole = out.dtype.kind in "iu"  # beyond its range a number wraps
            out.fill(np.asarray(int(self.constant_value) if whole else self.constant_value).astype(out.dtype))
        np.copyto(out[self.inside(pairs, data.shape)], data)
        if self.mode == "constant":
            return out
        # Axis by axis, each border made from the part completed along the axes before.
        for axis, ((before, after), size) in enumerate(zip(pairs, data.shape, strict=True)):
            rows, end = np.moveaxis(out, axis, 0), before + size
            if self.mode == "edge":
                rows[:before], rows[end:] = rows[before : before + 1], rows[end - 1 : end]
            else:
                rows[:before] = rows[before + 1 : 2 * before + 1][::-1]
                rows[end:] = rows[end - 1 - after : end - 1][::-1]
        return out

    @Element
    def triton(self, elements: Elements, place: Place) -> str:
        shape, inner, guards = elements.shape(0), [], []
        for index, (before, after), size in zip(place, self.borders(shape), shape, strict=True):
            at, last = index + -before, size - 1
            if self.mode == "constant":
                guards.append(elements.guard(at, size))
            elif self.mode == "edge" and before + after:
                at = elements.computed(f"tl.minimum(tl.maximum({at}, 0), {last})", size, at)
            elif before + after:
                # Mirrored at the first element, and what then lies behind the last one at that.
                mirrored = f"tl.maximum({at}, -({at}))"
                at = elements.computed(f"tl.minimum({mirrored}, {2 * last} - {mirrored})", size, at)
            inner.append(at)
        guard = " & ".join(filter(None, guards))
        return str(elements.where(guard, elements.read(0, inner, guard), elements.literal(self.constant_value)))

    def grad(self, F: Functions, data: Tensor, y: Tensor, dy: Tensor) -> Tensor:
        if self.mode == "constant":
            pairs = zip(self.pad_width[::2], self.pad_width[1::2], strict=True)
            begin, end = zip(*((before, -after or None) for before, after in pairs), strict=True)
            return F.slice(dy, begin=begin, end=end)
        return F._pad_grad(dy, data, mode=self.mode, pad_width=self.pad_width)

    def onnx(self, g: OnnxGraph, data: str) -> str:
        if g.dtype(data).kind == "b":
            raise Unmappable("Pad of bool")
        widths = [*self.pad_width[::2], *self.pad_width[1::2]]
        if self.mode != "constant":
            return g.Pad(data, widths, mode=self.mode)
        return g.Pad(data, widths, g.const(self.constant_value, g.dtype(data)), mode="constant")


class PadGrad(Adjoint, _Padding, name="_pad_grad"):
    """The gradient of Pad with mode edge or reflect: each border of dy added to the elements it was made from.

    dy : the padded shape; data : Pad's input, read for its shape; returns : that shape
    """

    adjoint_of = "Pad"
    dtype_kinds = "fiu"
    samples = [
        sample((2, 1, 6, 7), (2, 1, 3, 4), mode="edge", pad_width=(0, 0, 0, 0, 2, 1, 3, 0)),
        sample((1, 2, 8, 5), (1, 2, 4, 3), mode="reflect", pad_width=(0, 0, 0, 0, 3, 1, 0, 2)),
    ]

    def numpy(self, dy: Array, data: Array, out: Array | None = None, scratch: Scratch = np.empty) -> Array:
        pairs = self.borders(data.shape)
        total = scratch(dy.shape, dy.dtype)
        np.copyto(total, dy)
        for axis, ((before, after), size) in reversed(list(enumerate(zip(pairs, data.shape, strict=True)))):
            rows, end = np.moveaxis(total, axis, 0), before + size
            if self.mode == "edge":
                rows[before : before + 1] += rows[:before].sum(axis=0, keepdims=True)
                rows[end - 1 : end] += rows[end:].sum(axis=0, keepdims=True)
            else:
                rows[before + 1 : 2 * before + 1] += rows[:before][::-1]
                rows[end - 1 - after : end - 1] += rows[end:][::-1]
        if out is None:
            out = np.empty(data.shape, dy.dtype)
        return into(total[self.inside(pairs, data.shape)], out)

    @Element
    def triton(self, elements: Elements, place: Place) -> str:
        shape = elements.shape(1)
        axes = [
            list(self.copies(elements, index, pair, size))
            for index, pair, size in zip(place, self.borders(shape), shape, strict=True)
        ]
        in_kernels.few(prod(map(len, axes)))
        parts = []
        for copy in product(*axes):
            guard = " & ".join(filter(None, (guard for _, guard in copy)))
            parts.append(elements.where(guard, elements.read(0, [at for at, _ in copy], guard), elements.literal(0)))
        return in_kernels.added(elements, parts)

    def copies(self, elements: Elements, index: Index, pair: tuple[int, int], size: int) -> Iterator[tuple[Index, str]]:
        """In kernels: the place of an element of data along an axis of dy, and its condition."""
        (before, after), last = pair, size - 1
        yield index + before, ""
        if self.mode == "edge":
            in_kernels.few(before + after)
            for at in range(before):
                yield elements.zero + at, elements.guard(index, 1)
            for at in range(before + size, before + size + after):
                yield elements.zero + at, elements.guard(index + -last, 1)
            return
        if before:
            yield index * -1 + before, elements.guard(index + -1, before)
        if after:
            yield index * -1 + (2 * last + before), elements.guard(index + (after - last), after)


class _Cropping(Operator):
    """Base of Crop and its gradient: the place of the cut."""

    offset: Shape = (0, 0)
    h_w: Shape = (0, 0)
    center_crop: bool = False

    def check(self) -> None:
        if len(self.offset) != 2 or len(self.h_w) != 2 or min(*self.offset, *self.h_w) < 0:
            raise AttributeSpecError(
                f"Crop: offset={self.offset} and h_w={self.h_w} are two numbers of at least 0 each, height and width"
            )

    def cut(self, data: Shape, wanted: Shape) -> tuple[slice, ...]:
        """The part of data that is `wanted` (height, width) large. Raises ShapeError."""
        rest = [size - part for size, part in zip(data[2:], wanted, strict=True)]
        start = [number // 2 for number in rest] if self.center_crop else list(self.offset)
        if min(wanted) < 1 or any(not 0 <= first <= number for first, number in zip(start, rest, strict=True)):
            raise ShapeError(f"Crop: data {data} has no part of {tuple(wanted)} at {tuple(start)}")
        spatial = (slice(first, first + part) for first, part in zip(start, wanted, strict=True))
        return (slice(None), slice(None), *spatial)


class Crop(_Cropping, name="Crop"):
    """A rectangle of an image: of the size h_w, or of the height and width of a second input.

    data : (n, c, h, w), and perhaps crop_like : (n, c, height, width), of which only the shape is read
    offset : (y, x) of the upper left corner; center_crop takes the middle instead
    """

    typed_like = 0
    view = True
    samples = [
        sample((2, 3, 6, 7), h_w=(3, 4), offset=(2, 1)), sample((2, 3, 6, 7), h_w=(3, 4), center_crop=True),
        sample((1, 2, 6, 7), (1, 5, 4, 3), offset=(1, 0)), sample((1, 2, 6, 7), (1, 5, 4, 3), center_crop=True),
    ]  # fmt: skip

    def reads_values(self, index: int) -> bool:
        return index == 0

    def _parts(self, shapes: tuple[tuple[int, ...], ...]) -> tuple[slice, ...]:
        if not 1 <= len(shapes) <= 2:
            raise ShapeError(f"Crop: one or two inputs are needed, not {len(shapes)}")
        if any(len(shape) != 4 for shape in shapes):
            raise ShapeError(f"Crop: {' and '.join(map(str, shapes))}; four dimensions are needed (n, c, h, w)")
        return self.cut(shapes[0], shapes[1][2:] if len(shapes) == 2 else self.h_w)

    def infer_shape(self, *data: Shape) -> Shape:
        spatial = self._parts(data)[2:]
        return (*data[0][:2], *(part.stop - part.start for part in spatial))

    def numpy(self, *data: Array, out: Array | None = None) -> Array:
        return into(data[0][self._parts(tuple(item.shape for item in data))], out)

    def grad(self, F: Functions, *values: Tensor) -> Gradients:
        *data, _, dy = values
        attributes = {"offset": self.offset, "center_crop": self.center_crop}
        return (F._crop_grad(dy, data[0], **attributes), *(None for _ in data[1:]))

    def onnx(self, g: OnnxGraph, *data: str) -> str:
        shapes = tuple(map(g.shape, data))
        return emit_slice(g, data[0], self._parts(shapes), shapes[0])


class CropGrad(_Cropping, SliceAdjoint, name="_crop_grad"):
    """The gradient of Crop: dy among zeros. like : Crop's input, read for its shape; returns : that shape."""

    samples = [sample((2, 3, 3, 4), (2, 3, 6, 7), offset=(2, 1)), sample((1, 2, 3, 4), (1, 2, 6, 7), center_crop=True)]

    def first_shape(self, dy: Shape, like: Shape) -> Shape:
        return forward_shape("Crop", like, dy, offset=self.offset, center_crop=self.center_crop)

    def cut(self, shape: Shape, *others: Shape) -> tuple[slice, ...]:
        return super().cut(shape, others[0][2:])

    def grad(self, F: Functions, dy: Tensor, data: Tensor, y: Tensor, d: Tensor) -> Gradients:
        return F.Crop(d, dy, offset=self.offset, center_crop=self.center_crop), None


class _Blocks(Operator):
    """Base of depth_to_space and space_to_depth."""

    block_size: int

    def check(self) -> None:
        if self.block_size < 1:
            raise AttributeSpecError(f"{self.name}: block_size={self.block_size}; at least 1 is needed")

    def whole(self, data: tuple[int, ...], sizes: tuple[int, ...], unit: int, what: str) -> None:
        """Raise ShapeError unless data is an image whose `sizes` are multiples of `unit`."""
        if len(data) != 4:
            raise ShapeError(f"{self.name}: data has shape {data}; four dimensions are needed (n, c, h, w)")
        if any(size % unit for size in sizes):
            raise ShapeError(f"{self.name}: the {what} of {data} must be a multiple of {unit}")

    def gathered(self, turned: np.ndarray, shape: Shape, out: np.ndarray | None) -> Array:
        """The numbers of a transposed view in `shape`."""
        result = contiguous(out, shape, turned.dtype)
        np.copyto(result.reshape(turned.shape), turned)
        return into(result, out)


class DepthToSpace(_Blocks, name="depth_to_space"):
    """Blocks of channels laid out as blocks of pixels: (n, b b c, h, w) -> (n, c, b h, b w), b = block_size.

    Pixel (i, j) of a block comes from channel (i b + j) c + k of the input.
    """

    samples = [
        sample((2, 8, 2, 3), block_size=2), sample((1, 9, 1, 2), block_size=3), sample((1, 2, 2, 2), block_size=1),
    ]  # fmt: skip

    def infer_shape(self, data: Shape) -> Shape:
        b = self.block_size
        self.whole(data, data[1:2], b * b, "number of channels")
        return (data[0], data[1] // (b * b), data[2] * b, data[3] * b)

    def numpy(self, data: Array, out: Array | None = None) -> Array:
        b, (n, channels, h, w) = self.block_size, data.shape
        turned = data.reshape(n, b, b, channels // (b * b), h, w).transpose(0, 3, 4, 1, 5, 2)
        return self.gathered(turned, (n, channels // (b * b), h * b, w * b), out)

    def grad(self, F: Functions, data: Tensor, y: Tensor, dy: Tensor) -> Tensor:
        return F.space_to_depth(dy, block_size=self.block_size)

    def lower(self, F: Functions, data: Tensor) -> Tensor:
        b = self.block_size
        blocks = F.Reshape(F.Reshape(data, shape=(0, -4, b, -1, 0, 0)), shape=(0, 0, -4, b, -1, 0, 0))
        return F.Reshape(F.transpose(blocks, axes=(0, 3, 4, 1, 5, 2)), shape=(0, 0, -3, -3))

    def onnx(self, g: OnnxGraph, data: str) -> str:
        return g.DepthToSpace(data, blocksize=self.block_size, mode="DCR")


class SpaceToDepth(_Blocks, name="space_to_depth"):
    """Blocks of pixels laid out as blocks of channels: (n, c, b h, b w) -> (n, b b c, h, w), b = block_size.

    The inverse of depth_to_space.
    """

    samples = [
        sample((2, 2, 4, 6), block_size=2), sample((1, 1, 3, 6), block_size=3), sample((1, 2, 2, 2), block_size=1),
    ]  # fmt: skip

    def infer_shape(self, data: Shape) -> Shape:
        b = self.block_size
        self.whole(data, data[2:], b, "height and width")
        return (data[0], data[1] * b * b, data[2] // b, data[3] // b)

    def numpy(self, data: Array, out: Array | None = None) -> Array:
        b, (n, channels, h, w) = self.block_size, data.shape
        turned = data.reshape(n, channels, h // b, b, w // b, b).transpose(0, 3, 5, 1, 2, 4)
        return self.gathered(turned, (n, channels * b * b, h // b, w // b), out)

    def grad(self, F: Functions, data: Tensor, y: Tensor, dy: Tensor) -> Tensor:
        return F.depth_to_space(dy, block_size=self.block_size)

    def lower(self, F: Functions, data: Tensor) -> Tensor:
        b = self.block_size
        blocks = F.Reshape(F.Reshape(data, shape=(0, 0, -4, -1, b, 0)), shape=(0, 0, 0, 0, -4, -1, b))
        turned = F.transpose(blocks, axes=(0, 3, 5, 1, 2, 4))
        return F.Reshape(F.Reshape(turned, shape=(0, -3, 0, 0, 0)), shape=(0, -3, 0, 0))

    def onnx(self, g: OnnxGraph, data: str) -> str:
        return g.SpaceToDepth(data, blocksize=self.block_size)
