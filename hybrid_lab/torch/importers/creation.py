"""ATen's constants, ranges and random numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hybrid_lab.torch.importers.functions import Functions, Tensor, ints
from hybrid_lab.torch.importers.table import aten, onnx


@aten("full", "new_full")
def _full(F: Functions, size: Any, fill_value: Any, *rest: Any, dtype: Any = None) -> Any:
    if isinstance(size, Tensor):  # new_full has a tensor in front, of which only the dtype is read
        size, fill_value = fill_value, rest[0]
    return F.expand_to(F.cast(F.operand(fill_value), F.dtype), ints(F, size))


@aten("full_like")
def _full_like(F: Functions, x: Tensor, fill_value: Any, *, dtype: Any = None) -> Any:
    return F.expand_to(F.cast(F.operand(fill_value), F.dtype), x.shape)


@aten("zeros", "empty", "new_zeros", "new_empty", "empty_strided", "new_empty_strided")
def _zeros(F: Functions, size: Any, *rest: Any, dtype: Any = None) -> Any:
    shape = rest[0] if isinstance(size, Tensor) else size
    return F.expand_to(F.constant(0, F.dtype), ints(F, shape))


@aten("ones", "new_ones")
def _ones(F: Functions, size: Any, *rest: Any, dtype: Any = None) -> Any:
    shape = rest[0] if isinstance(size, Tensor) else size
    return F.expand_to(F.constant(1, F.dtype), ints(F, shape))


@aten("zeros_like", "empty_like")
def _zeros_like(F: Functions, x: Tensor, *, dtype: Any = None) -> Any:
    return _full_like(F, x, 0)


@aten("ones_like")
def _ones_like(F: Functions, x: Tensor, *, dtype: Any = None) -> Any:
    return _full_like(F, x, 1)


@aten("scalar_tensor", "_tensor_constant")
def _scalar_tensor(F: Functions, s: Any, *, dtype: Any = None) -> Any:
    return F.cast(F.operand(s), F.dtype)


@aten("arange")
def _arange(F: Functions, start: Any, end: Any = None, step: Any = 1, *, dtype: Any = None) -> Any:
    if end is None:
        start, end = 0, start
    made = onnx("Range")(F, *(_bound(F, item, F.dtype) for item in (start, end, step)))
    return F.cast(made, F.dtype)


def _bound(F: Functions, item: Any, dtype: np.dtype) -> Tensor:
    known = isinstance(item, (int, float))
    return F.constant(item, dtype if known and dtype.kind in "fV" else None) if known else F.operand(item)


@aten("linspace")
def _linspace(F: Functions, start: float, end: float, steps: int, *, dtype: Any = None) -> Any:
    return F.constant(np.linspace(start, end, steps), F.dtype)


@aten("eye")
def _eye(F: Functions, n: int, m: int | None = None, *, dtype: Any = None) -> Any:
    return F.constant(np.eye(n, m), F.dtype)


# -- random numbers --------------------------------------------------------------------------------------------------


def _uniform(F: Functions, shape: Sequence[Any]) -> Tensor:
    made: Tensor = F._random_uniform_like(F.expand_to(F.constant(0, np.float32), ints(F, shape)), low=0.0, high=1.0)
    return made


def _normal(F: Functions, shape: Sequence[Any]) -> Tensor:
    made: Tensor = F._random_normal_like(F.expand_to(F.constant(0, np.float32), ints(F, shape)), loc=0.0, scale=1.0)
    return made


@aten("rand")
def _rand(F: Functions, size: Any, *, dtype: Any = None) -> Any:
    return F.cast(_uniform(F, size), F.dtype)


@aten("randn")
def _randn(F: Functions, size: Any, *, dtype: Any = None) -> Any:
    return F.cast(_normal(F, size), F.dtype)


@aten("rand_like")
def _rand_like(F: Functions, x: Tensor, *, dtype: Any = None) -> Any:
    return F.cast(_uniform(F, x.shape), F.dtype)


@aten("randn_like")
def _randn_like(F: Functions, x: Tensor, *, dtype: Any = None) -> Any:
    return F.cast(_normal(F, x.shape), F.dtype)


@aten("bernoulli")
def _bernoulli(F: Functions, x: Tensor, p: float | None = None, **_: Any) -> Any:
    return F.cast(F.broadcast_lesser(_uniform(F, x.shape), x if p is None else p), x.dtype)


@aten("uniform")
def _uniform_between(F: Functions, x: Tensor, low: float = 0.0, high: float = 1.0, **_: Any) -> Any:
    return F.cast(_uniform(F, x.shape) * (high - low) + low, x.dtype)


@aten("normal_functional")
def _normal_like(F: Functions, x: Tensor, mean: float = 0.0, std: float = 1.0, **_: Any) -> Any:
    return F.cast(_normal(F, x.shape) * std + mean, x.dtype)
