"""Images at another size: BilinearResize2D, AdaptiveAvgPooling2D, UpSampling.

Bilinear resizing and adaptive pooling are linear along each axis: one small matrix for the rows, one for the columns.
"""

from __future__ import annotations

from functools import cached_property
from itertools import accumulate
from math import prod
from typing import Any, Literal

import numpy as np

from hybrid_lab.diagnostics.errors import AttributeSpecError, ShapeError, Unmappable
from hybrid_lab.ops.arrays.reduce import chosen
from hybrid_lab.ops.framework import Element, Operator, Signature, forward_shape, get, gradient_samples, into, sample
from hybrid_lab.ops.framework.attributes import Shape
from hybrid_lab.ops.framework.elements import joined
from hybrid_lab.ops.framework.protocols import (
    Elements,
    Functions,
    Gradient,
    Gradients,
    Index,
    OnnxGraph,
    Place,
    Scratch,
    Tensor,
    Wanted,
)
from hybrid_lab.ops.framework.types import Array, PartialShape, PartialShapes
from hybrid_lab.ops.kernels.separable import Separable, SeparableGrad, image_shape


class _Resizing(Separable):
    """Base of BilinearResize2D and its gradient: the attributes and the sizes they mean."""

    height: int = 1
    width: int = 1
    scale_height: float | None = None
    scale_width: float | None = None
    mode: Literal["size", "odd_scale", "like", "to_even_down", "to_even_up", "to_odd_down", "to_odd_up"] = "size"
    align_corners: bool = True

    def check(self) -> None:
        scales = (self.scale_height, self.scale_width)
        if (scales[0] is None) != (scales[1] is None):
            raise AttributeSpecError("BilinearResize2D: scale_height and scale_width must be given together")
        if self.mode == "odd_scale" and scales[0] is None:
            raise AttributeSpecError("BilinearResize2D: mode='odd_scale' needs scale_height and scale_width")
        if min(self.height, self.width) < 1 or any(scale is not None and scale <= 0 for scale in scales):
            raise AttributeSpecError("BilinearResize2D: height, width and their scales must be positive")

    def target(self, *shapes: tuple[int, ...]) -> tuple[int, int]:
        spatial, scales = image_shape("BilinearResize2D", shapes[0])[2:], (self.scale_height, self.scale_width)
        if self.mode == "like":
            spatial = image_shape("BilinearResize2D", shapes[1])[2:]
        wanted = tuple(map(self._resized, spatial, scales, (self.height, self.width)))
        if min(wanted) < 1 or 0 in spatial:
            raise ShapeError(f"BilinearResize2D: nothing is left of {shapes[0]} with {self!r}")
        return wanted[0], wanted[1]

    def _resized(self, size: int, scale: float | None, fixed: int) -> int:
        odd = size % 2
        if self.mode == "size":
            return fixed if scale is None else int(np.float32(scale) * np.float32(size))
        if self.mode == "odd_scale":
            return int(np.float32(scale) * np.float32(size - odd)) + odd
        # like takes the size unchanged; the other modes move to the next number of the wanted kind.
        return size + {"to_even_down": -odd, "to_even_up": odd, "to_odd_down": odd - 1, "to_odd_up": 1 - odd}.get(
            self.mode, 0
        )

    def matrix(self, size: int, wanted: int) -> np.ndarray:
        if self.align_corners:
            place = np.arange(wanted) * ((size - 1) / (wanted - 1) if wanted > 1 else 0.0)
        else:
            place = np.maximum((np.arange(wanted) + 0.5) * (size / wanted) - 0.5, 0.0)
        first = np.minimum(place.astype(np.int64), size - 1)
        share, line = place - first, np.arange(wanted)
        result = np.zeros((wanted, size))
        np.add.at(result, (line, first), 1 - share)
        np.add.at(result, (line, np.minimum(first + 1, size - 1)), share)
        return result


class BilinearResize2D(_Resizing, name="_contrib_BilinearResize2D"):
    """An image at another size, each pixel interpolated between the four around its place.

    data : (n, c, h, w), floating; with mode='like' also like : (n, c, height, width), of which only the shape is read
    mode : size (height and width, or the scales times the input's), odd_scale (scales (size - 1) of odd sizes, plus 1),
    like, to_even_down, to_even_up, to_odd_down, to_odd_up
    align_corners : corner pixels stay in the corners; else pixels are areas, as in most other libraries
    """

    shape_only = ("like",)
    samples = [
        sample((2, 3, 4, 5), height=7, width=3), sample((1, 2, 3, 3), height=1, width=4),
        sample((1, 2, 4, 5), scale_height=1.5, scale_width=2.0),
        sample((1, 2, 5, 6), scale_height=2.0, scale_width=0.5, mode="odd_scale"),
        sample((1, 2, 4, 5), (1, 2, 6, 3), mode="like"), sample((1, 1, 5, 4), mode="to_even_down"),
        sample((1, 1, 5, 4), mode="to_even_up"), sample((1, 1, 5, 4), mode="to_odd_down"),
        sample((1, 1, 5, 4), mode="to_odd_up"), sample((1, 2, 4, 5), height=7, width=3, align_corners=False),
        sample((2, 1, 3, 4), height=3, width=4),
    ]  # fmt: skip

    @cached_property
    def signature(self) -> Signature:
        return Signature(("data", "like") if self.mode == "like" else ("data",))

    def infer_shape(self, data: Shape, like: tuple[int, ...] | None = None) -> Shape:
        target = self.target(data, *([like] if like is not None else []))
        return chosen(self, data, (*image_shape("BilinearResize2D", data)[:2], *target))

    def numpy(self, data: Array, like: Array | None = None, out: Array | None = None) -> Array:
        return self.forward(data, self.target(data.shape, *([like.shape] if like is not None else [])), out)

    @Element
    def triton(self, elements: Elements, place: Place) -> str:
        like = [elements.shape(1)] if self.mode == "like" else []
        wanted, spatial = self.target(elements.shape(0), *like), elements.shape(0)[2:]
        sides = [self._taps(elements, *each) for each in zip(place[2:], spatial, wanted, strict=True)]
        parts = []
        for row, row_share in sides[0]:
            for column, share in sides[1]:
                factors = [item for item in (row_share, share) if item != "1.0"]
                parts.append(" * ".join([elements.read(0, (*place[:2], row, column)), *factors]))
        return " + ".join(parts)

    def _taps(self, elements: Elements, index: Index, size: int, wanted: int) -> list[tuple[Index, str]]:
        """The two pixels along an axis that a new one lies between, and their shares."""
        if size == 1 or wanted == 1 and self.align_corners:
            return [(elements.zero, "1.0")]
        factor = (size - 1) / (wanted - 1) if self.align_corners else size / wanted
        start = 0.0 if self.align_corners else factor / 2 - 0.5
        if not index.variables:  # one pixel of the new image, as a reader with windows asks for
            place = max(index.constant * factor + start, 0.0)
            one = min(int(place), size - 1)
            parts = (one, 1.0 - (place - one)), (min(one + 1, size - 1), place - one)
            return [(elements.zero + pixel, repr(share)) for pixel, share in parts]
        at = elements.named(f"tl.maximum(({index}).to(tl.float32) * {factor!r} + {start!r}, 0.0)", "at")
        first = elements.computed(f"tl.minimum({at}.to(tl.int32), {size - 1})", size, index)
        second = elements.computed(f"tl.minimum({first} + 1, {size - 1})", size, index, first)
        share = elements.named(f"{at} - {first}", "share")
        return [(first, f"(1.0 - {share})"), (second, share)]

    def grad(self, F: Functions, data: Tensor, *rest: Tensor) -> Gradient | Gradients:
        ddata = F._bilinear_resize_grad(rest[-1], data, align_corners=self.align_corners)
        return ddata if self.mode != "like" else (ddata, None)

    def onnx(self, g: OnnxGraph, data: str, like: str | None = None) -> str:
        wanted = self.infer_shape(g.shape(data), g.shape(like) if like else None)[2:]
        sizes = g.Concat(g.Slice(g.Shape(data), [0], [2]), wanted, axis=0)
        corners = "align_corners" if self.align_corners else "half_pixel"
        return g.Resize(data, None, None, sizes, mode="linear", coordinate_transformation_mode=corners)


class BilinearResizeGrad(SeparableGrad, _Resizing, name="_bilinear_resize_grad"):
    """The gradient of BilinearResize2D: dy spread over the pixels it was made from.

    dy : the resized image; data : read for its shape; returns : that shape
    """

    samples = [sample((2, 3, 7, 3), (2, 3, 4, 5)), sample((1, 2, 7, 3), (1, 2, 4, 5), align_corners=False)]

    def first_shape(self, dy: Shape, data: Shape) -> Shape:
        return forward_shape("_contrib_BilinearResize2D", data, dy, mode="like")

    def grad(self, F: Functions, dy: Tensor, data: Tensor, y: Tensor, d: Tensor) -> Gradients:
        return F._contrib_BilinearResize2D(d, dy, mode="like", align_corners=self.align_corners), None


class _Adaptive(Separable):
    """Base of AdaptiveAvgPooling2D and its gradient."""

    output_size: Shape = ()

    def check(self) -> None:
        if len(self.output_size) > 2 or any(size < 1 for size in self.output_size):
            raise AttributeSpecError(
                f"AdaptiveAvgPooling2D: output_size={self.output_size}; one or two positive numbers are needed"
            )

    def target(self, *shapes: tuple[int, ...]) -> tuple[int, int]:
        if 0 in image_shape("AdaptiveAvgPooling2D", shapes[0])[2:]:
            raise ShapeError(f"AdaptiveAvgPooling2D: data {shapes[0]} has no pixels to average")
        sizes = self.output_size or (1,)
        return sizes[0], sizes[-1]

    def matrix(self, size: int, wanted: int) -> np.ndarray:
        line = np.arange(wanted)
        first, last = line * size // wanted, -(-(line + 1) * size // wanted)
        place = np.arange(size)
        inside = (place >= first[:, None]) & (place < last[:, None])
        return inside / (last - first)[:, None]

    def pooling(self, data: tuple[int, ...]) -> dict[str, Any]:
        """The attributes of the Pooling that does the same. Raises Unmappable if windows differ in size."""
        wanted, spatial = self.target(data), data[2:]
        if any(size % parts for size, parts in zip(spatial, wanted, strict=True)):
            raise Unmappable("windows of several sizes")
        window = tuple(size // parts for size, parts in zip(spatial, wanted, strict=True))
        return {"kernel": window, "stride": window, "pool_type": "avg", "global_pool": wanted == (1, 1)}


class AdaptiveAvgPooling2D(_Adaptive, name="_contrib_AdaptiveAvgPooling2D"):
    """The mean over windows that cut an image into output_size parts, whatever its size; windows may overlap.

    data : (n, c, h, w), floating; output_size : (height, width), one number for both, nothing for 1
    returns : (n, c, height, width)
    """

    samples = [
        sample((2, 3, 5, 6)), sample((2, 3, 5, 7), output_size=3), sample((1, 2, 6, 4), output_size=(3, 2)),
        sample((1, 2, 3, 2), output_size=(4, 5)),
    ]  # fmt: skip

    def infer_shape(self, data: Shape) -> Shape:
        return (*image_shape("AdaptiveAvgPooling2D", data)[:2], *self.target(data))

    def numpy(self, data: Array, out: Array | None = None) -> Array:
        (n, channels, h, w), (high, wide) = data.shape, self.target(data.shape)
        if high == wide == 1:
            out = np.empty((n, channels, 1, 1), data.dtype) if out is None else out
            np.add.reduce(data.reshape(n, channels, h * w), axis=2, out=out.reshape(n, channels))
            out /= data.dtype.type(h * w)
            return out
        return self.forward(data, (high, wide), out)

    def lower(self, F: Functions, data: Tensor) -> Tensor:
        try:
            return F.Pooling(data, **self.pooling(data.shape))
        except Unmappable:
            return self.lower_forward(F, data)

    def grad(self, F: Functions, data: Tensor, y: Tensor, dy: Tensor) -> Tensor:
        return F._adaptive_avg_pool_grad(dy, data, output_size=self.output_size)

    def onnx(self, g: OnnxGraph, data: str) -> str:
        spatial, wanted = g.shape(data)[2:], self.target(g.shape(data))
        if wanted == (1, 1):
            return g.GlobalAveragePool(data)
        if not any(size % part for size, part in zip(spatial, wanted, strict=True)):
            window = [size // part for size, part in zip(spatial, wanted, strict=True)]
            return g.AveragePool(data, kernel_shape=window, strides=window)
        rows, columns = self.matrices(spatial, wanted, "float64")
        return g.MatMul(g.MatMul(g.const(rows, g.dtype(data)), data), g.const(columns.T, g.dtype(data)))


class AdaptiveAvgPoolGrad(SeparableGrad, _Adaptive, name="_adaptive_avg_pool_grad"):
    """The gradient of AdaptiveAvgPooling2D: dy spread evenly over each window.

    dy : the pooled image; data : read for its shape; returns : that shape
    """

    adjoint_of = "_contrib_AdaptiveAvgPooling2D"
    samples = gradient_samples(AdaptiveAvgPooling2D, "dy", "data")

    def numpy(self, dy: Array, data: Array, out: Array | None = None) -> Array:
        if dy.shape[2:] == (1, 1):
            out = np.empty(data.shape, dy.dtype) if out is None else out
            return np.divide(dy, dy.dtype.type(prod(data.shape[2:])), out=out)
        return super().numpy(dy, data, out)

    def lower(self, F: Functions, dy: Tensor, data: Tensor) -> Tensor:
        try:
            return F._spread_pool_grad(dy, data, **self.pooling(data.shape))
        except Unmappable:
            return super().lower(F, dy, data)


class _Repeating(Operator):
    """Base of UpSampling and its gradient: the factors of the inputs."""

    scale: int
    num_filter: int = 0
    sample_type: Literal["nearest", "bilinear"]
    multi_input_mode: Literal["concat", "sum"] = "concat"

    def check(self) -> None:
        if self.scale < 1:
            raise AttributeSpecError(f"UpSampling: scale={self.scale}; a number of at least 1 is needed")

    def target(self, data: tuple[tuple[int, ...], ...]) -> tuple[int, int]:
        """Height and width of the result, which are multiples of every input's. Raises ShapeError."""
        wanted = tuple(size * self.scale for size in data[0][2:])
        for shape in data[1:]:
            factor = wanted[0] // max(shape[2], 1)
            if wanted != (shape[2] * factor, shape[3] * factor):
                raise ShapeError(
                    f"UpSampling: the sizes {wanted} must be one multiple of the sizes of the input {shape}"
                )
        return wanted[0], wanted[1]


class UpSampling(_Repeating, name="UpSampling"):
    """Larger images: pixels repeated (nearest), or a transposed convolution with the input `weight` (bilinear).

    nearest : one or more images (n, c, h, w); the first grows by `scale`, the other images to the same size, and they
    are joined along the channels (concat) or added up (sum)
    bilinear : data (n, num_filter, h, w) and weight (num_filter, 1, k, k), k = 2 scale - scale % 2
    """

    dtype_kinds = "fiu"
    samples = [
        sample((2, 3, 2, 3), scale=2, sample_type="nearest"),
        sample((1, 2, 2, 3), (1, 3, 4, 6), scale=4, sample_type="nearest"),
        sample((1, 2, 4, 2), (1, 2, 2, 1), scale=2, sample_type="nearest", multi_input_mode="sum"),
        sample((1, 2, 1, 3), scale=3, sample_type="nearest"),
        sample((2, 3, 3, 4), (3, 1, 4, 4), scale=2, sample_type="bilinear", num_filter=3),
        sample((1, 2, 2, 3), (2, 1, 5, 5), scale=3, sample_type="bilinear", num_filter=2),
    ]

    def check(self) -> None:
        super().check()
        if self.sample_type == "bilinear" and self.num_filter < 1:
            raise AttributeSpecError("UpSampling: sample_type='bilinear' needs num_filter, the number of channels")

    @property
    def transposed(self) -> Operator:
        """The Deconvolution that bilinear means."""
        kernel, pad = 2 * self.scale - self.scale % 2, self.scale // 2
        return get("Deconvolution").bind(
            kernel=(kernel, kernel), stride=(self.scale, self.scale), pad=(pad, pad), num_filter=self.num_filter,
            num_group=self.num_filter, no_bias=True,
        )  # fmt: skip

    def complete(self, *data: PartialShape) -> PartialShapes:
        if self.sample_type == "nearest" or len(data) != 2:
            return data
        return self.transposed.complete(*data)

    def infer_shape(self, *data: Shape) -> Shape:
        for shape in data:
            image_shape("UpSampling", shape)
        if self.sample_type == "bilinear":
            if len(data) != 2:
                raise ShapeError(f"UpSampling: bilinear takes data and weight, not {len(data)} inputs")
            return self.transposed.infer_shape(*data)
        channels = [shape[1] for shape in data]
        if any(shape[0] != data[0][0] for shape in data) or (
            self.multi_input_mode == "sum" and any(each != channels[0] for each in channels)
        ):
            raise ShapeError(f"UpSampling: {' and '.join(map(str, data))} do not fit together")
        depth = channels[0] if self.multi_input_mode == "sum" else sum(channels)
        return (data[0][0], depth, *self.target(data))

    def numpy(self, *data: Array, out: Array | None = None, scratch: Scratch = np.empty) -> Array:
        if self.sample_type == "bilinear":
            op: Any = self.transposed
            return op.numpy(*data, out=out, scratch=scratch)
        shape = self.infer_shape(*(item.shape for item in data))
        if out is None or not out.flags.c_contiguous:
            return into(self.numpy(*data, out=np.empty(shape, data[0].dtype), scratch=scratch), out)
        start = 0
        for index, item in enumerate(data):
            added = self.multi_input_mode == "sum"
            channels = slice(None) if added else slice(start, start + item.shape[1])
            start += item.shape[1]
            n, depth, h, w = item.shape
            target = out[:, channels].reshape(n, depth, h, shape[2] // max(h, 1), w, shape[3] // max(w, 1), copy=False)
            repeated = item[:, :, :, None, :, None]
            if added and index:
                target += repeated
            else:
                np.copyto(target, repeated)
        return out

    @Element
    def triton(self, elements: Elements, place: Place) -> str:
        if self.sample_type == "bilinear":
            raise Unmappable("UpSampling: sample_type='bilinear'")
        shapes = [elements.shape(number) for number in range(elements.count)]
        height, width = self.target(tuple(shapes))

        def read(number: int, start: int, guard: str) -> str:
            (h, w), (y, x) = shapes[number][2:], place[2:]
            pixel = (elements.quotient(y, height // h), elements.quotient(x, width // w))
            return str(elements.read(number, (place[0], place[1] + -start, *pixel), guard))

        if self.multi_input_mode == "sum":
            return " + ".join(read(number, 0, "") for number in range(elements.count))
        return joined(elements, place[1], list(accumulate(shape[1] for shape in shapes)), read)

    def lower(self, F: Functions, *data: Tensor) -> Tensor:
        if self.sample_type == "nearest":
            raise Unmappable("UpSampling: sample_type='nearest'")
        return F.Deconvolution(*data, **self.transposed.written)

    def grad(self, F: Functions, *values: Tensor, wanted: Wanted = None) -> Gradients:
        *data, y, dy = values
        if self.sample_type == "bilinear":
            return self.transposed.grad(F, *data, y, dy)
        return tuple(
            F._up_sampling_grad(dy, *data, index=index, scale=self.scale, multi_input_mode=self.multi_input_mode)
            if wanted is None or wanted[index]
            else None
            for index in range(len(data))
        )

    def onnx(self, g: OnnxGraph, *data: str) -> str:
        shapes = tuple(map(g.shape, data))
        if self.sample_type == "bilinear":
            return self.transposed.onnx(g, *data)
        wanted = self.target(shapes)
        parts = []
        for item, shape in zip(data, shapes, strict=True):
            scales = [1.0, 1.0, *(target / size for size, target in zip(shape[2:], wanted, strict=True))]
            attributes = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor", "mode": "nearest"}
            parts.append(g.Resize(item, None, g.const(scales, "float32"), **attributes))
        if len(parts) == 1:
            return parts[0]
        return g.Sum(*parts) if self.multi_input_mode == "sum" else g.Concat(*parts, axis=1)


class UpSamplingGrad(_Repeating, name="_up_sampling_grad"):
    """The gradient of input number `index` of nearest UpSampling: dy added up over each repeated pixel.

    dy : UpSampling's output; data : its inputs, read for their shapes; returns : the shape of that input
    """

    index: int
    sample_type: Literal["nearest", "bilinear"] = "nearest"
    typed_like = 0
    mxnet = None
    dtype_kinds = "fiu"
    shape_only = ("args",)
    samples = [
        sample((2, 3, 4, 6), (2, 3, 2, 3), scale=2, index=0),
        sample((1, 5, 8, 12), (1, 2, 2, 3), (1, 3, 4, 6), scale=4, index=1),
        sample((1, 2, 8, 4), (1, 2, 4, 2), (1, 2, 2, 1), scale=2, multi_input_mode="sum", index=1),
    ]

    def reads_values(self, index: int) -> bool:
        return index == 0

    def infer_shape(self, dy: Shape, *data: Shape) -> Shape:
        shared = {"scale": self.scale, "multi_input_mode": self.multi_input_mode}
        wanted = forward_shape("UpSampling", *data, sample_type="nearest", **shared)
        if dy != wanted or not 0 <= self.index < len(data):
            raise ShapeError(f"{self.name}: dy {dy} and index={self.index} with data {data}; it needs {wanted}")
        return data[self.index]

    def _channels(self, depths: list[int]) -> slice:
        if self.multi_input_mode == "sum":
            return slice(0, depths[0])
        start = sum(depths[: self.index])
        return slice(start, start + depths[self.index])

    def numpy(self, dy: Array, *data: Array, out: Array | None = None) -> Array:
        shape = data[self.index].shape
        if out is None:
            out = np.empty(shape, dy.dtype)
        part = dy[:, self._channels([item.shape[1] for item in data])]
        down, across = (max(size // max(target, 1), 1) for size, target in zip(part.shape[2:], shape[2:], strict=True))
        # Rows first, which are contiguous, then the columns of the much smaller sum.
        rows = part[:, :, ::down].copy() if down > 1 else part
        for step in range(1, down):
            rows += part[:, :, step::down]
        np.copyto(out, rows[..., ::across])
        for step in range(1, across):
            out += rows[..., step::across]
        return out

    def lower(self, F: Functions, dy: Tensor, *data: Tensor) -> Tensor:
        channels = self._channels([item.shape[1] for item in data])
        part = F.slice_axis(dy, axis=1, begin=channels.start, end=channels.stop)
        n, depth, h, w = data[self.index].shape
        blocks = F.Reshape(part, shape=(n, depth, h, part.shape[2] // h, w, part.shape[3] // w))
        return F.sum(blocks, axis=(3, 5))

    def grad(self, F: Functions, dy: Tensor, *rest: Tensor) -> Gradients:
        *data, _, d = rest
        zeros = [F._cast_like(F.zeros_like(item), d) for item in data]  # mixed precision converts dy alone
        parts = [d if index == self.index else zeros[index] for index in range(len(data))]
        attributes = {"scale": self.scale, "sample_type": "nearest", "multi_input_mode": self.multi_input_mode}
        return (F.UpSampling(*parts, **attributes), *(None for _ in data))

    def onnx(self, g: OnnxGraph, dy: str, *data: str) -> str:
        shape, channels = g.shape(data[self.index]), self._channels([g.shape(item)[1] for item in data])
        window = [size // target for size, target in zip(g.shape(dy)[2:], shape[2:], strict=True)]
        own = g.Slice(dy, [channels.start], [channels.stop], [1])
        mean = g.AveragePool(own, kernel_shape=window, strides=window)
        return g.Mul(mean, g.const(prod(window), g.dtype(dy)))
