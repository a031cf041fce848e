"""`mx.npx.random`: draws that NumPy has not, and the seed."""

from __future__ import annotations

from typing import Any

from hybrid_lab.diagnostics.unknown_names import suggest_names as _suggest_names
from hybrid_lab.ndarray.context import Context
from hybrid_lab.ndarray.random_state import state as _state
from hybrid_lab.numpy.operators import shape_of
from hybrid_lab.numpy.random import bernoulli, normal, uniform
from hybrid_lab.numpy.shaping import _sizes

__all__ = ["bernoulli", "normal_n", "seed", "uniform_n"]

seed = _state.seed


def _block(batch_shape: Any, *parameters: Any) -> tuple[int, ...]:
    from numpy import broadcast_shapes

    event = broadcast_shapes(*(shape_of("random", item) for item in parameters))
    return (*(() if batch_shape is None else _sizes(batch_shape)), *event)


def uniform_n(
    low: Any = 0.0, high: Any = 1.0, batch_shape: Any = None, dtype: Any = None, ctx: Context | None = None
) -> Any:
    """As `np.random.uniform`, a block of `batch_shape` for the shape of the parameters."""
    return uniform(low, high, _block(batch_shape, low, high), dtype, ctx)


def normal_n(
    loc: Any = 0.0, scale: Any = 1.0, batch_shape: Any = None, dtype: Any = None, ctx: Context | None = None
) -> Any:
    """As `np.random.normal`, a block of `batch_shape` for the shape of the parameters."""
    return normal(loc, scale, _block(batch_shape, loc, scale), dtype, ctx)


_suggest_names(__name__)
