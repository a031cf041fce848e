"""ATen's constants, ranges and random numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hybrid_lab.ops.framework.sizes import SymbolicSize
from hybrid_lab.torch.importers.functions import Functions, Operand, Size, Tensor, ints
from hybrid_lab.torch.importers.table import aten, onnx


@aten("full", "new_full")
def _full(F: Functions, *arguments: Tensor | Sequence[Size] | float, dtype: np.dtype | None = None) -> Tensor:
    shape, (fill_value, *_) = _shape_of(F, arguments)
    assert isinstance(fill_value, (Tensor, int, float))
    return F.expand_to(F.cast(F.operand(fill_value), F.dtype), shape)


def _shape_of(F: Functions, arguments: Sequence[object]) -> tuple[tuple[Size, ...], Sequence[object]]:
    """The shape, and the arguments behind it. new_full and its like have a tensor in front, of which only the dtype is
    read.
    """
    shape, *rest = arguments[1:] if isinstance(arguments[0], Tensor) else arguments
    assert isinstance(shape, Sequence)
    return ints(F, shape), rest


@aten("full_like")
def _full_like(F: Functions, x: Tensor, fill_value: Operand, *, dtype: np.dtype | None = None) -> Tensor:
    return F.expand_to(F.cast(F.operand(fill_value), F.dtype), x.shape)


@aten("zeros", "empty", "new_zeros", "new_empty", "empty_strided", "new_empty_strided")
def _zeros(F: Functions, *arguments: object, dtype: np.dtype | None = None) -> Tensor:
    return F.expand_to(F.constant(0, F.dtype), _shape_of(F, arguments)[0])


@aten("ones", "new_ones")
def _ones(F: Functions, *arguments: object, dtype: np.dtype | None = None) -> Tensor:
    return F.expand_to(F.constant(1, F.dtype), _shape_of(F, arguments)[0])


@aten("zeros_like", "empty_like")
def _zeros_like(F: Functions, x: Tensor, *, dtype: np.dtype | None = None) -> Tensor:
    return _full_like(F, x, 0)


@aten("ones_like")
def _ones_like(F: Functions, x: Tensor, *, dtype: np.dtype | None = None) -> Tensor:
    return _full_like(F, x, 1)


@aten("scalar_tensor")
def _scalar_tensor(F: Functions, s: Operand, *, dtype: np.dtype | None = None) -> Tensor:
    return F.cast(F.operand(s), F.dtype)


@aten("arange")
def _arange(
    F: Functions, start: Operand, end: Operand | None = None, step: Operand = 1, *, dtype: np.dtype | None = None
) -> Tensor:
    if end is None:
        start, end = 0, start
    if isinstance(start, int) and isinstance(step, int) and isinstance(end, SymbolicSize) and step > 0:
        size = (end - start) // step
        if isinstance(size, SymbolicSize) and _is_zero(size * step - end + start):
            made = F.numbered(size)
            made = made if step == 1 else made * step
            made = made if start == 0 else made + start
            made = F.cast(made, F.dtype)
            made.every = step if start == 0 else None
            return made
    made = onnx("Range")(F, *(_bound(F, item, F.dtype) for item in (start, end, step)))
    return F.cast(made, F.dtype)


def _is_zero(size: Size) -> bool:
    """Whether a difference of sizes is 0 at all sizes."""
    return not isinstance(size, SymbolicSize) and size == 0


def _bound(F: Functions, item: Operand, dtype: np.dtype) -> Tensor:
    known = isinstance(item, (int, float))
    return F.constant(item, dtype if known and dtype.kind in "fV" else None) if known else F.operand(item)


@aten("linspace")
def _linspace(F: Functions, start: float, end: float, steps: int, *, dtype: np.dtype | None = None) -> Tensor:
    return F.constant(np.linspace(start, end, steps), F.dtype)


@aten("eye")
def _eye(F: Functions, n: int, m: int | None = None, *, dtype: np.dtype | None = None) -> Tensor:
    return F.constant(np.eye(n, m), F.dtype)


# -- random numbers --------------------------------------------------------------------------------------------------


def _uniform(F: Functions, shape: Sequence[Size]) -> Tensor:
    made: Tensor = F._random_uniform_like(F.expand_to(F.constant(0, np.float32), ints(F, shape)), low=0.0, high=1.0)
    return made


def _normal(F: Functions, shape: Sequence[Size]) -> Tensor:
    made: Tensor = F._random_normal_like(F.expand_to(F.constant(0, np.float32), ints(F, shape)), loc=0.0, scale=1.0)
    return made


@aten("rand")
def _rand(F: Functions, size: Sequence[Size], *, dtype: np.dtype | None = None) -> Tensor:
    return F.cast(_uniform(F, size), F.dtype)


@aten("randn")
def _randn(F: Functions, size: Sequence[Size], *, dtype: np.dtype | None = None) -> Tensor:
    return F.cast(_normal(F, size), F.dtype)


@aten("rand_like")
def _rand_like(F: Functions, x: Tensor, *, dtype: np.dtype | None = None) -> Tensor:
    return F.cast(_uniform(F, x.shape), F.dtype)


@aten("randn_like")
def _randn_like(F: Functions, x: Tensor, *, dtype: np.dtype | None = None) -> Tensor:
    return F.cast(_normal(F, x.shape), F.dtype)


@aten("bernoulli")
def _bernoulli(F: Functions, x: Tensor, p: float | None = None, **_: object) -> Tensor:
    return F.cast(F.broadcast_lesser(_uniform(F, x.shape), x if p is None else p), x.dtype)


@aten("uniform")
def _uniform_between(F: Functions, x: Tensor, low: float = 0.0, high: float = 1.0, **_: object) -> Tensor:
    return F.cast(_uniform(F, x.shape) * (high - low) + low, x.dtype)


@aten("normal_functional")
def _normal_like(F: Functions, x: Tensor, mean: float = 0.0, std: float = 1.0, **_: object) -> Tensor:
    return F.cast(_normal(F, x.shape) * std + mean, x.dtype)
