"""`mx.npx.random`: draws that NumPy has not, and the seed."""

from __future__ import annotations

from hybrid_lab.diagnostics.unknown_names import suggest_names as _suggest_names
from hybrid_lab.ndarray.context import Context
from hybrid_lab.ndarray.random_state import state as _state
from hybrid_lab.numpy.errors import named as _named
from hybrid_lab.numpy.operators import shape_of
from hybrid_lab.numpy.random import bernoulli, normal, uniform
from hybrid_lab.numpy.shaping import sizes_of
from hybrid_lab.numpy.types import ArrayLike, DType, ShapeLike, Tensor

__all__ = ["bernoulli", "normal_n", "seed", "uniform_n"]

seed = _state.seed


def _block(batch_shape: ShapeLike | None, *parameters: ArrayLike) -> tuple[int, ...]:
    from numpy import broadcast_shapes

    event = broadcast_shapes(*(shape_of(item) for item in parameters))
    return (*(() if batch_shape is None else sizes_of(batch_shape)), *event)


def uniform_n(
    low: ArrayLike = 0.0,
    high: ArrayLike = 1.0,
    batch_shape: ShapeLike | None = None,
    dtype: DType = None,
    ctx: Context | None = None,
) -> Tensor:
    """As `np.random.uniform`, a block of `batch_shape` for the shape of the parameters."""
    return uniform(low, high, _block(batch_shape, low, high), dtype, ctx)


def normal_n(
    loc: ArrayLike = 0.0,
    scale: ArrayLike = 1.0,
    batch_shape: ShapeLike | None = None,
    dtype: DType = None,
    ctx: Context | None = None,
) -> Tensor:
    """As `np.random.normal`, a block of `batch_shape` for the shape of the parameters."""
    return normal(loc, scale, _block(batch_shape, loc, scale), dtype, ctx)


globals().update({name: _named(f"npx.random.{name}", globals()[name]) for name in __all__})
_suggest_names(__name__)
