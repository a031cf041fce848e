"""Images sampled on a grid of places: GridGenerator, BilinearSampler and both together, SpatialTransformer."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Literal

import numpy as np

from hybrid_lab.diagnostics.errors import AttributeSpecError, ShapeError
from hybrid_lab.ops.arrays.reduce import chosen
from hybrid_lab.ops.framework import Adjoint, Operator, forward_shape, gradient_samples, into, sample
from hybrid_lab.ops.framework.attributes import Shape
from hybrid_lab.ops.framework.lowering import differentiate_lowering, emit_lowering, run_lowering
from hybrid_lab.ops.framework.protocols import Functions, Gradients, OnnxGraph, Tensor, Wanted
from hybrid_lab.ops.framework.types import Array
from hybrid_lab.ops.kernels.pixels import Terms, channels_first, channels_last, corner_terms, gather, scatter
from hybrid_lab.ops.vision.sampler_grid import places


class GridGenerator(Operator, name="GridGenerator"):
    """Places for BilinearSampler, from -1 (first pixel) to 1 (last pixel).

    affine : data (n, 6), a 2 x 3 matrix per image, applied to (x, y, 1) of each of target_shape (height, width) places
    warp : data (n, 2, h, w), how far (x, y) every pixel is moved, in pixels
    returns : (n, 2, height, width), x and y
    """

    dtype_kinds = "f"
    transform_type: Literal["affine", "warp"]
    target_shape: Shape = (0, 0)
    samples = [
        sample((2, 6), transform_type="affine", target_shape=(3, 4)),
        sample((2, 2, 3, 4), transform_type="warp"),
    ]

    def check(self) -> None:
        if self.transform_type == "affine" and (len(self.target_shape) != 2 or min(self.target_shape) < 2):
            raise AttributeSpecError(
                f"GridGenerator: target_shape={self.target_shape}; affine needs a height and a width of at least 2"
            )

    @cached_property
    def base(self) -> np.ndarray:
        """x, y and 1 of every place: (3, height * width)."""
        height, width = self.target_shape
        y, x = np.meshgrid(np.linspace(-1, 1, height), np.linspace(-1, 1, width), indexing="ij")
        return np.stack([x.reshape(-1), y.reshape(-1), np.ones(height * width)])

    def infer_shape(self, data: Shape) -> Shape:
        if self.transform_type == "affine":
            if len(data) != 2 or data[1] != 6:
                raise ShapeError(f"GridGenerator: data has shape {data}; affine needs (n, 6)")
            return (data[0], 2, *self.target_shape)
        if len(data) != 4 or data[1] != 2 or min(data[2:]) < 2:
            raise ShapeError(f"GridGenerator: data has shape {data}; warp needs (n, 2, h, w), h and w at least 2")
        return data

    def numpy(self, data: Array, out: Array | None = None) -> Array:
        wide = np.float32 if data.dtype == np.float16 else data.dtype
        if self.transform_type == "affine":
            matrix = data.astype(wide, copy=False).reshape(-1, 3)
            made = (matrix @ self.base.astype(wide)).reshape(self.infer_shape(data.shape))
            return into(made.astype(data.dtype, copy=False), out)
        height, width = data.shape[2:]
        result = np.empty_like(data) if out is None else out
        np.add(data[:, 0], np.arange(width, dtype=data.dtype, like=data), out=result[:, 0])
        np.add(data[:, 1], np.arange(height, dtype=data.dtype, like=data)[:, None], out=result[:, 1])
        result /= np.array([(width - 1) / 2, (height - 1) / 2], data.dtype).reshape(2, 1, 1)
        result -= data.dtype.type(1)
        return result

    def grad(self, F: Functions, data: Tensor, y: Tensor, dy: Tensor) -> Tensor:
        return F._grid_generator_grad(dy, data, **self.attributes)

    def onnx(self, g: OnnxGraph, data: str) -> str:
        shape, dtype = self.infer_shape(g.shape(data)), g.dtype(data)
        if self.transform_type == "affine":
            grid = g.MatMul(g.Reshape(data, [-1, 2, 3]), g.const(self.base, dtype))
            return g.Reshape(grid, [-1, 2, *shape[2:]])
        start = self.numpy(np.zeros((1, *shape[1:]), np.float64))
        scale = _pixel_scale(shape[2:])
        return g.Add(g.Mul(data, g.const(scale, dtype)), g.const(start, dtype))


def _pixel_scale(spatial: tuple[int, ...]) -> np.ndarray:
    """How much of the range -1 ... 1 a pixel is, in x and y: (2, 1, 1)."""
    height, width = spatial
    return np.array([2 / (width - 1), 2 / (height - 1)]).reshape(2, 1, 1)


class GridGeneratorGrad(Adjoint, name="_grid_generator_grad"):
    """The gradient of GridGenerator. dy : the grid's shape; data : read for its shape; returns : that shape."""

    dtype_kinds = "f"
    transform_type: Literal["affine", "warp"]
    target_shape: Shape = (0, 0)
    samples = gradient_samples(GridGenerator, "dy", "data")

    def first_shape(self, dy: Shape, data: Shape) -> Shape:
        return forward_shape("GridGenerator", data, **self.attributes)

    @cached_property
    def base(self) -> np.ndarray:
        """As GridGenerator's."""
        op: Any = GridGenerator.bind(**self.attributes)
        return op.base

    def numpy(self, dy: Array, data: Array, out: Array | None = None) -> Array:
        wide = np.float32 if dy.dtype == np.float16 else dy.dtype
        if self.transform_type == "warp":
            return np.multiply(dy, _pixel_scale(data.shape[2:]).astype(dy.dtype), out=out)
        made = dy.astype(wide, copy=False).reshape(2 * len(dy), self.base.shape[1]) @ self.base.T.astype(wide)
        return into(made.reshape(data.shape).astype(dy.dtype, copy=False), out)

    def grad(self, F: Functions, dy: Tensor, data: Tensor, y: Tensor, d: Tensor) -> Gradients:
        # The grid is linear in data except for the warp's starting places, which a difference takes away.
        made = F.GridGenerator(d, **self.attributes)
        if self.transform_type == "warp":
            made = made - F.GridGenerator(F.zeros_like(d), **self.attributes)
        return made, None

    def onnx(self, g: OnnxGraph, dy: str, data: str) -> str:
        if self.transform_type == "warp":
            return g.Mul(dy, g.const(_pixel_scale(g.shape(data)[2:]), g.dtype(dy)))
        rows = g.Reshape(dy, [0, 2, -1])
        return g.Reshape(g.MatMul(rows, g.const(self.base.T, g.dtype(dy))), [-1, 6])


def _checked(name: str, data: tuple[int, ...], grid: tuple[int, ...]) -> None:
    if len(data) != 4 or len(grid) != 4 or grid[1] != 2 or grid[0] != data[0]:
        raise ShapeError(f"{name}: data {data} and grid {grid}; (n, c, h, w) and (n, 2, height, width) are needed")


def _terms(grid: np.ndarray, spatial: tuple[int, int], dtype: np.dtype) -> Terms:
    y, x, first = places(grid, spatial)
    rows, weights = corner_terms(y, x, spatial, first)
    return Terms(rows, weights.astype(dtype))


class BilinearSampler(Operator, name="BilinearSampler"):
    """An image at the places of a grid, interpolated between the four pixels around each; 0 outside.

    data : (n, c, h, w); grid : (n, 2, height, width), x and y from -1 (first pixel) to 1 (last pixel)
    returns : (n, c, height, width)
    """

    dtype_kinds = "f"
    half_in_float32 = True
    samples = [
        sample((2, 3, 4, 5), (2, 2, 3, 4)),
        sample((1, 2, 3, 3), (1, 2, 4, 2), low=-1.4, high=1.4),
    ]

    def infer_shape(self, data: Shape, grid: Shape) -> Shape:
        _checked("BilinearSampler", data, grid)
        return chosen(self, data, (*data[:2], *grid[2:]))

    def numpy(self, data: Array, grid: Array, out: Array | None = None) -> Array:
        made = gather(channels_last(data), _terms(grid, data.shape[2:], data.dtype))
        return channels_first(made, self.infer_shape(data.shape, grid.shape), out)

    def grad(self, F: Functions, data: Tensor, grid: Tensor, y: Tensor, dy: Tensor, wanted: Wanted = None) -> Gradients:
        wanted = (True, True) if wanted is None else wanted
        ddata = F._sampler_data_grad(dy, data, grid) if wanted[0] else None
        return ddata, F._sampler_grid_grad(dy, data, grid) if wanted[1] else None

    def onnx(self, g: OnnxGraph, data: str, grid: str) -> str:
        places = g.Transpose(grid, perm=[0, 2, 3, 1])
        return g.GridSample(data, places, mode="bilinear", padding_mode="zeros", align_corners=1)


class SamplerDataGrad(Adjoint, name="_sampler_data_grad"):
    """The gradient of BilinearSampler's data. dy : its output; data : read for its shape; grid."""

    dtype_kinds = "f"
    half_in_float32 = True
    samples = [sample((2, 3, 3, 4), (2, 3, 4, 5), (2, 2, 3, 4), low=-1.2, high=1.2)]

    def first_shape(self, dy: Shape, data: Shape, grid: Shape) -> Shape:
        return forward_shape("BilinearSampler", data, grid)

    def numpy(self, dy: Array, data: Array, grid: Array, out: Array | None = None) -> Array:
        n, _, height, width = data.shape
        made = scatter(channels_last(dy), _terms(grid, (height, width), dy.dtype), n * height * width)
        return channels_first(made, data.shape, out)

    def grad(self, F: Functions, dy: Tensor, data: Tensor, grid: Tensor, y: Tensor, d: Tensor) -> Gradients:
        return F.BilinearSampler(d, grid), None, F._sampler_grid_grad(dy, d, grid)


class SpatialTransformer(Operator, name="SpatialTransformer"):
    """An image transformed by a predicted affine matrix: BilinearSampler on GridGenerator's places (arXiv 1506.02025).

    data : (n, c, h, w); loc : (n, 6); returns : (n, c, *target_shape)
    """

    dtype_kinds = "f"
    target_shape: Shape = (0, 0)
    transform_type: Literal["affine"]
    sampler_type: Literal["bilinear"]
    numpy = run_lowering
    grad = differentiate_lowering
    onnx = emit_lowering
    samples = [
        sample((2, 3, 4, 5), (2, 6), target_shape=(3, 4), transform_type="affine", sampler_type="bilinear"),
        sample((1, 1, 3, 3), (1, 6), target_shape=(4, 2), transform_type="affine", sampler_type="bilinear", high=0.8),
    ]

    @property
    def _grid(self) -> dict[str, Any]:
        return {"transform_type": "affine", "target_shape": self.target_shape}

    def check(self) -> None:
        GridGenerator.bind(**self._grid)

    def infer_shape(self, data: Shape, loc: Shape) -> Shape:
        grid: tuple[int, ...] = GridGenerator.bind(**self._grid).infer_shape(loc)
        _checked("SpatialTransformer", data, grid)
        return chosen(self, data, (*data[:2], *grid[2:]))

    def lower(self, F: Functions, data: Tensor, loc: Tensor) -> Tensor:
        return F.BilinearSampler(data, F.GridGenerator(loc, **self._grid))
