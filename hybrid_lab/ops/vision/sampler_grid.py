"""The gradient of BilinearSampler's grid, and its derivatives.

Between four pixels p the output is the sum of weight * p, with weights (1 - |x - px|) (1 - |y - py|). Its slope along x
does not change with x, and it changes with y as its slope along y does with x: by p00 - p01 - p10 + p11.
"""

from __future__ import annotations

import numpy as np

from hybrid_lab.diagnostics.errors import ShapeError
from hybrid_lab.ops.framework import Operator, forward_shape, sample
from hybrid_lab.ops.framework.protocols import Functions, Gradients, Tensor
from hybrid_lab.ops.framework.types import Array, Shape
from hybrid_lab.ops.kernels.pixels import Terms, channels_first, channels_last, corner_terms, gather, scatter

#: The signs of the four pixels in p00 - p01 - p10 + p11.
_MIXED = (1.0, -1.0, -1.0, 1.0)


def places(grid: np.ndarray, spatial: tuple[int, int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """y and x in pixels, and the first row of each point's image, all (points,)."""
    height, width = spatial
    x = ((grid[:, 0] + 1) * ((width - 1) / 2)).reshape(-1)
    y = ((grid[:, 1] + 1) * ((height - 1) / 2)).reshape(-1)
    points = grid.shape[2] * grid.shape[3]
    return y, x, np.repeat(np.arange(len(grid), like=grid) * (height * width), points)


class _Slope(Operator):
    """Base: four pixels around every point of a grid, and how their weights change with the point."""

    dtype_kinds = "f"
    mxnet = None
    half_in_float32 = True

    def first_shape(self, dy: Shape, data: Shape, grid: Shape, direction: Shape | None = None) -> Shape:
        if direction is not None and direction != grid:
            raise ShapeError(f"{self.name}: direction has shape {direction}; it needs {grid}, the shape of grid")
        return forward_shape("BilinearSampler", data, grid)

    @staticmethod
    def corners(grid: np.ndarray, spatial: tuple[int, int]) -> tuple[np.ndarray, ...]:
        """Rows of the pixels, derivatives of their weights by the grid's x and y, and a mask of the pixels inside the
        image, all (points, 4).
        """
        height, width = spatial
        y, x, first = places(grid, spatial)
        low_y, low_x = np.floor(y), np.floor(x)
        share_y, share_x = y - low_y, x - low_x
        rows = [(low_y + step >= 0) & (low_y + step < height) for step in (0, 1)]
        columns = [(low_x + step >= 0) & (low_x + step < width) for step in (0, 1)]
        there = np.stack([row & column for row in rows for column in columns], axis=-1)
        slopes_x = np.stack([share_y - 1, 1 - share_y, -share_y, share_y], axis=-1) * there
        slopes_y = np.stack([share_x - 1, -share_x, 1 - share_x, share_x], axis=-1) * there
        number = grid.dtype.type
        terms = corner_terms(y, x, spatial, first)
        return terms.rows, slopes_x * number((width - 1) / 2), slopes_y * number((height - 1) / 2), there

    def along(self, grid: np.ndarray, direction: np.ndarray, spatial: tuple[int, int]) -> Terms:
        """The pixels, and the change of their weights as the grid moves along `direction`, which has the grid's
        shape.
        """
        rows, slopes_x, slopes_y, _ = self.corners(grid, spatial)
        moved_x, moved_y = (direction[:, axis].reshape(-1, 1) for axis in (0, 1))
        return Terms(rows, slopes_x * moved_x + slopes_y * moved_y)


class SamplerGridGrad(_Slope, name="_sampler_grid_grad"):
    """The gradient of BilinearSampler's grid: the slope of the image between its pixels, times dy.

    dy : the gradient of BilinearSampler's output; data, grid : its inputs; returns : as grid
    """

    shaped_like = 2
    samples = [sample((2, 3, 3, 4), (2, 3, 4, 5), (2, 2, 3, 4), low=-1.2, high=1.2)]

    def numpy(self, dy: Array, data: Array, grid: Array, out: Array | None = None) -> Array:
        rows, slopes_x, slopes_y, _ = self.corners(grid, data.shape[2:])
        pixels, heads = channels_last(data), channels_last(dy)
        total = np.zeros((len(rows), 2), dy.dtype, like=dy)
        for term in range(4):
            product = np.vecdot(pixels[rows[:, term]], heads)
            total[:, 0] += product * slopes_x[:, term]
            total[:, 1] += product * slopes_y[:, term]
        return channels_first(total, grid.shape, out)

    def grad(self, F: Functions, dy: Tensor, data: Tensor, grid: Tensor, y: Tensor, d: Tensor) -> Gradients:
        dgrid = F._sampler_twist(dy, data, grid) * F.reverse(d, axis=1)
        return F._sampler_slope(data, grid, d), F._sampler_slope_data_grad(dy, data, grid, d), dgrid


class SamplerSlope(_Slope, name="_sampler_slope"):
    """How BilinearSampler's output changes where its grid moves. data, grid : its inputs; direction : as grid."""

    refuses_gradient = True
    samples = [sample((2, 3, 4, 5), (2, 2, 3, 4), (2, 2, 3, 4), low=-1.2, high=1.2, gradient=False)]

    def infer_shape(self, data: Shape, grid: Shape, direction: Shape) -> Shape:
        return self.first_shape(data, data, grid, direction)

    def numpy(self, data: Array, grid: Array, direction: Array, out: Array | None = None) -> Array:
        made = gather(channels_last(data), self.along(grid, direction, data.shape[2:]))
        return channels_first(made, (*data.shape[:2], *grid.shape[2:]), out)


class SamplerSlopeDataGrad(_Slope, name="_sampler_slope_data_grad"):
    """The gradient of _sampler_slope's data.

    dy : the gradient of its output; data : read for its shape; grid, direction : its inputs; returns : as data
    """

    shaped_like = 1
    refuses_gradient = True
    shape_only = ("data",)
    samples = [sample((2, 3, 3, 4), (2, 3, 4, 5), (2, 2, 3, 4), (2, 2, 3, 4), low=-1.2, high=1.2, gradient=False)]

    def numpy(self, dy: Array, data: Array, grid: Array, direction: Array, out: Array | None = None) -> Array:
        n, _, height, width = data.shape
        made = scatter(channels_last(dy), self.along(grid, direction, (height, width)), n * height * width)
        return channels_first(made, data.shape, out)


class SamplerTwist(_Slope, name="_sampler_twist"):
    """How the gradient of BilinearSampler's grid along one axis changes with the other one, on both axes.

    dy : the gradient of BilinearSampler's output; data, grid : its inputs; returns : as grid
    """

    shaped_like = 2
    refuses_gradient = True
    samples = [sample((2, 3, 3, 4), (2, 3, 4, 5), (2, 2, 3, 4), low=-1.2, high=1.2, gradient=False)]

    def numpy(self, dy: Array, data: Array, grid: Array, out: Array | None = None) -> Array:
        height, width = data.shape[2:]
        rows, _, _, there = self.corners(grid, (height, width))
        pixels, heads = channels_last(data), channels_last(dy)
        total = np.zeros((len(rows), 1), dy.dtype, like=dy)
        for term, sign in enumerate(_MIXED):
            total[:, 0] += sign * np.vecdot(pixels[rows[:, term]], heads) * there[:, term]
        total *= dy.dtype.type((width - 1) * (height - 1) / 4)
        return channels_first(np.repeat(total, 2, axis=1), grid.shape, out)
